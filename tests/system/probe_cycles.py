#!/usr/bin/env python3
"""Attaches, swaps and detaches tools, and prints what that has left in gbpfd and in the program.

usage: probe_cycles.py N FOLDER PROGRAM GBPFD: N cycles with the objects of FOLDER, then descriptors of PROGRAM and
GBPFD, which are process numbers, and KiB that GBPFD has written to. Its event logs do not count, each of which is a
table of fixed size that fills up."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from eventually import eventually

TABLE_KB = 1024  # greatest mapping that counts


def verb(*words):
	r = subprocess.run(['gbpf', '--json', 'probe', *words], stdout=subprocess.PIPE, check=True, timeout=120)
	return json.loads(r.stdout)


def descriptors(pid):
	return len(os.listdir(f'/proc/{pid}/fd'))


def written_kb(pid):
	total = size = 0
	with open(f'/proc/{pid}/smaps', encoding='ascii') as f:
		for line in f:
			m = re.match(r'(Size|Anonymous): +([0-9]+) kB', line)
			if m and m.group(1) == 'Size':
				size = int(m.group(2))
			elif m and size <= TABLE_KB:
				total += int(m.group(2))
	return total


def await_kernel(tool):
	"""Waits until a kernel runs the tool."""
	eventually(lambda: next(p['kernels'] for p in verb('ls')['probes'] if p['id'] == tool), f'a kernel that runs tool {tool}')


def main():
	n, folder, program, gbpfd = sys.argv[1:]
	for _ in range(int(n)):
		tool = verb('attach', f'{folder}/count_blocks.bpf.o', '--budget', 'none')['id']
		await_kernel(tool)
		tool = verb('swap', str(tool), f'{folder}/count_warps.bpf.o')['id']
		await_kernel(tool)
		verb('detach', str(tool))
	least = [descriptors(program), descriptors(gbpfd)]
	for _ in range(20):  # some are open for a moment, as that of the last command
		time.sleep(0.01)  # samples both counts
		least = [min(least[0], descriptors(program)), min(least[1], descriptors(gbpfd))]
	print(*least, written_kb(gbpfd))


main()
