"""Common part of the programs heavy_*.py: groups of operations that keep the GPU full for milliseconds, each from the same inputs in
every round. [--seconds S] [--rounds N] [--group NAME]...: rounds of all groups until S seconds have passed, at least N. Prints one
JSON line: for each group the hashes of its results, one per different result, and as `rounds` their number."""
import argparse
import collections
import json
import time

GROUPS = {}


def group(f):
	GROUPS[f.__name__] = f
	return f


def main(digest, errors=(RuntimeError, TypeError, ValueError)):
	p = argparse.ArgumentParser()
	p.add_argument('--seconds', type=float, default=0)
	p.add_argument('--rounds', type=int, default=1)
	p.add_argument('--group', action='append')
	a = p.parse_args()
	out, end, rounds = collections.defaultdict(list), time.monotonic() + a.seconds, 0
	while rounds < a.rounds or time.monotonic() < end:
		for name in a.group or GROUPS:
			try:
				h = digest(GROUPS[name]())
			except errors as e:
				h = f'error: {e}'.splitlines()[0][:150]
			if h not in out[name]:
				out[name].append(h)
		rounds += 1
	print(json.dumps({**out, 'rounds': rounds}), flush=True)
