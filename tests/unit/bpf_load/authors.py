#!/usr/bin/env python3
"""authors.py GBPF FOLDER CLANG=CPU...

Policies as other authors write them (FOLDER/NN_name.bpf.c), built unchanged by every compiler and instruction set given. All but
those of REFUSED are accepted, and those with the fault that is named there. The effort of each is bounded, in the verifier's
units (src/bpf/load/verify/verify.h)."""
import json
import pathlib
import subprocess
import sys
import tempfile

LEAST_ACCEPTED = 20
MOST_EFFORT = 12_000_000 # of one program
# Each has a fault that the refusal names.
REFUSED = {
	'08_gang': 'pointer: r2: a number 0 to 17179869180 is added to a stack pointer', # *g may change after it was checked
	'10_moving_average': 'init: stack byte fp-12 is read but was never written', # padding of a map's value
}


def check(gbpf, clang, cpu, source, include, out):
	"""Returns the exit status of gbpf policy check and what it printed as JSON."""
	subprocess.run([clang, '-target', 'bpf', f'-mcpu={cpu}', '-O2', '-g', '-w', f'-I{include}', '-c', str(source), '-o', str(out)], check=True)
	r = subprocess.run([gbpf, 'policy', 'check', '--json', str(out)], capture_output=True, text=True, env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C.UTF-8'})
	return r.returncode, r.stdout


def fault_of(name, rc, text):
	"""Returns what is not as expected, or None."""
	if name in REFUSED:
		return None if rc == 4 and REFUSED[name] in text else 'not refused as expected'
	if rc:
		return 'refused'
	most = max(p['effort'] for p in json.loads(text)['files'][0]['programs'])
	return f'effort {most}' if most > MOST_EFFORT else None


def main():
	gbpf, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
	include = folder.parents[2] / 'include'
	sources, wrong = sorted(folder.glob('*.bpf.c')), 0
	for clang, cpu in (a.rsplit('=', 1) for a in sys.argv[3:]):
		accepted = 0
		with tempfile.TemporaryDirectory() as tmp:
			for source in sources:
				name = source.name.removesuffix('.bpf.c')
				rc, text = check(gbpf, clang, cpu, source, include, pathlib.Path(tmp) / 'p.o')
				fault = fault_of(name, rc, text)
				accepted += rc == 0
				if fault:
					wrong += 1
					print(f'{name}: {pathlib.Path(clang).name} -mcpu={cpu}: {fault}: exit {rc}\n{text}')
		print(f'{pathlib.Path(clang).name} -mcpu={cpu}: {accepted} of {len(sources)} accepted')
		wrong += accepted < LEAST_ACCEPTED
	return 1 if wrong or not sources or len(sys.argv) < 4 else 0


sys.exit(main())
