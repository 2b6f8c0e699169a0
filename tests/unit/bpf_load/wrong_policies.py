#!/usr/bin/env python3
"""wrong_policies.py GBPF CLANG FOLDER [--update]

Common mistakes in policies: the output of `gbpf policy check` on each NN_name.bpf.c equals NN_name.expected. --update rewrites
the expected files; review every change from the view of a new user."""
import pathlib
import subprocess
import sys
import tempfile

LEAST = 40


def message(gbpf, clang, source, tmp):
	"""Compiles and checks in the source's folder, so that no path of this machine appears in the text."""
	made = subprocess.run([clang, '-target', 'bpf', '-mcpu=v3', '-O2', '-g', '-w', f'-I{INCLUDE}', f'-ffile-prefix-map={source.parent}/=',
		'-c', source.name, '-o', str(tmp / source.with_suffix('.o').name)], cwd=source.parent, capture_output=True, text=True)
	if made.returncode:
		return f'{source.name} does not compile:\n{made.stderr}'
	r = subprocess.run([gbpf, 'policy', 'check', source.with_suffix('.o').name], cwd=tmp, capture_output=True, text=True,
		env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8', 'NO_COLOR': '1', 'ASAN_OPTIONS': 'detect_leaks=1'})
	return (r.stdout + r.stderr).replace(f'{source.parent}/', '') + f'exit {r.returncode}\n'


def main():
	global INCLUDE
	gbpf, clang, folder = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
	INCLUDE = folder.parents[3] / 'include'
	sources, wrong = sorted(folder.glob('*.bpf.c')), 0
	if len(sources) < LEAST:
		print(f'{len(sources)} wrong policies, not {LEAST}')
		wrong += 1
	version = subprocess.run([clang, '--version'], capture_output=True, text=True).stdout.splitlines()[0]
	if ' 14.' not in version:
		print(f'the texts are those of clang 14, this is {version}')
		return 77
	with tempfile.TemporaryDirectory() as tmp:
		for source in sources:
			expected = source.with_name(source.name.replace('.bpf.c', '.expected'))
			got = message(gbpf, clang, source, pathlib.Path(tmp))
			if '--update' in sys.argv:
				expected.write_text(got)
			elif not expected.exists() or expected.read_text() != got:
				wrong += 1
				print(f'{source.name}: expected\n{expected.read_text() if expected.exists() else "nothing"}\nbut got\n{got}')
			if not got.endswith(('exit 4\n', 'exit 1\n')):
				wrong += 1
				print(f'{source.name}: not refused:\n{got}')
	print(f'{len(sources) - wrong} of {len(sources)} as expected')
	return 1 if wrong else 0


sys.exit(main())
