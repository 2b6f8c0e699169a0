#!/usr/bin/env python3
"""ranges.py GBPF FOLDER CLANG=CPU...

Range checks as authors write them (FOLDER/NN_name.bpf.c), built by every compiler and instruction set given: each program is
accepted, and each of its twins (-DTWIN=1 and up), which differs by one mistake, is refused."""
import pathlib
import re
import subprocess
import sys
import tempfile

LEAST = 13


def verdict(gbpf, clang, cpu, source, twin, tmp):
	"""Returns the exit status of gbpf policy check and its output."""
	out = tmp / 'p.o'
	subprocess.run([clang, '-target', 'bpf', f'-mcpu={cpu}', '-O2', '-g', '-w', f'-DTWIN={twin}', f'-I{INCLUDE}', '-c', str(source), '-o', str(out)],
		check=True)
	r = subprocess.run([gbpf, 'policy', 'check', str(out)], capture_output=True, text=True, env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'})
	return r.returncode, r.stdout + r.stderr


def main():
	global INCLUDE
	gbpf, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
	INCLUDE = folder.parents[3] / 'include'
	builds = [a.rsplit('=', 1) for a in sys.argv[3:]]
	sources, wrong, right = sorted(folder.glob('*.bpf.c')), 0, 0
	if len(sources) < LEAST or not builds:
		print(f'{len(sources)} sources, {len(builds)} builds')
		return 1
	with tempfile.TemporaryDirectory() as tmp:
		for source in sources:
			twins = int(re.search(r'twins: (\d+)', source.read_text()).group(1))
			for clang, cpu in builds:
				for twin in range(twins + 1):
					rc, text = verdict(gbpf, clang, cpu, source, twin, pathlib.Path(tmp))
					if rc == (4 if twin else 0):
						right += 1
						continue
					wrong += 1
					print(f'{source.name}: {pathlib.Path(clang).name} -mcpu={cpu}, twin {twin}: exit {rc}\n{text}')
	print(f'{right} as expected, {wrong} not')
	return 1 if wrong or not right else 0


sys.exit(main())
