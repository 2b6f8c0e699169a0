#!/usr/bin/env python3
"""policy_effort.py GBPF CLANG

The programs of a policy share the verifier's effort. Programs that take about half of it each are accepted alone and in pairs; a
third one is walked briefly, and refused for that reason. Uses the programs of tools/verifier-worst."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile

HOOKS = 'tick', 'init', 'exit'
ROUNDS = 850
SHARED = 60_000_000 # EBPF_VERIFY_POLICY_EFFORT


def load_tool():
	path = str(pathlib.Path(__file__).resolve().parents[3] / 'tools/verifier-worst')
	loader = importlib.machinery.SourceFileLoader('verifier_worst', path)
	spec = importlib.util.spec_from_loader('verifier_worst', loader)
	module = importlib.util.module_from_spec(spec)
	sys.dont_write_bytecode = True
	loader.exec_module(module)
	return module


def check(gbpf, clang, n, tmp):
	"""Returns the exit status for a policy of n such programs, and the JSON of gbpf policy check."""
	worst = load_tool()
	lines = worst.start(64, True) + worst.nested(worst.narrowing(24), depth=1, rounds=ROUNDS) + worst.END
	# labels of one program must not be those of another
	texts = [worst.function(f'p{i}', [x.replace('X', f'X{i}_').replace('L0', f'L{i}_') for x in lines], f'SEC("gbpf/{HOOKS[i]}") ') for i in range(n)]
	source, out = tmp / 'p.bpf.c', tmp / 'p.bpf.o'
	source.write_text(worst.policy(*texts))
	subprocess.run([clang, '-target', 'bpf', '-mcpu=v3', '-O2', '-g', '-w', f'-I{worst.ROOT}/include', '-c', str(source), '-o', str(out)], check=True)
	r = subprocess.run([gbpf, 'policy', 'check', '--json', str(out)], capture_output=True, text=True)
	return r.returncode, json.loads(r.stdout)['files'][0]


def main():
	wrong = 0
	with tempfile.TemporaryDirectory() as tmp:
		for n, expected in (1, 0), (2, 0), (3, 4):
			rc, result = check(sys.argv[1], sys.argv[2], n, pathlib.Path(tmp))
			effort = sum(p['effort'] for p in result.get('programs', []))
			good = rc == expected
			if n == 2:
				good &= SHARED < effort < 2 * SHARED
			if rc:
				good &= 'because the policy\'s other programs took most of the effort' in result['error']['message']
			wrong += not good
			print(f'{n} programs: exit {rc}, effort {effort}{"" if good else f": not as expected: {result}"}')
	return 1 if wrong else 0


sys.exit(main())
