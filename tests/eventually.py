#!/usr/bin/env python3
"""Waits for a state that another thread or process reaches: for tests in Python, and for those in bats, where tests/wait.bash runs it.

usage: eventually.py shows EXPRESSION COMMAND...	until the Python expression is true over d, the document that COMMAND --json prints
       eventually.py gets EXPRESSION COMMAND...		likewise, and prints the value, the elements of a list separated by blanks
       eventually.py prints PATTERN COMMAND...		until the regular expression is found in what COMMAND prints, where ^ and $ match at lines

COMMAND must succeed, and `prints` reads its standard error too. An expression that raises an exception, over a record that is not there
yet for example, is not true. After the limit the exit status is 1, and standard error has the last output.

The limit is 6 s times GBPF_PATIENCE, which counts as 20 where it is less or not set, since a test of a timeout of the product sets 1."""
import json
import os
import re
import subprocess
import sys
import time

PATIENCE_MIN = 20
SECONDS = 6 * max(PATIENCE_MIN, int(os.environ.get('GBPF_PATIENCE') or PATIENCE_MIN))
POLL_SECONDS = 0.02


def eventually(function, what=None, poll_seconds=POLL_SECONDS):
	"""Calls the function until its result is true and returns that result. After the limit raises TimeoutError with the last one.
	what: names the state in the error (default: the function)."""
	end = time.monotonic() + SECONDS
	while not (value := function()):
		if time.monotonic() > end:
			raise TimeoutError(f'timed out after {SECONDS} s waiting for {what or function.__qualname__}; the last value: {value!r}')
		time.sleep(poll_seconds) # polls the state
	return value


class Reading:
	"""Repeats a command and looks at its output; last describes the last attempt."""

	def __init__(self, kind, wanted, command):
		self.kind, self.wanted = kind, wanted
		self.command = command if kind == 'prints' else [*command, '--json']
		self.last = ''

	def attempt(self):
		"""Returns a tuple of the value, or an empty one if the output does not show the state."""
		r = subprocess.run(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=SECONDS)
		self.last = f'exit status {r.returncode}\n{r.stdout}{r.stderr}'
		if r.returncode:
			return ()
		if self.kind == 'prints':
			found = re.search(self.wanted, r.stdout + r.stderr, re.MULTILINE)
			return (found,) if found else ()
		try:
			value = eval(self.wanted, {'d': json.loads(r.stdout), 're': re})
		except Exception as e: # the record is not there yet; a wrong expression shows in the last error
			self.last += f'{type(e).__name__}: {e}\n'
			return ()
		return (value,) if value else ()


def main():
	if len(sys.argv) < 4 or sys.argv[1] not in ('shows', 'gets', 'prints'):
		sys.exit(__doc__)
	reading = Reading(sys.argv[1], sys.argv[2], sys.argv[3:])
	try:
		value, = eventually(reading.attempt)
	except TimeoutError:
		sys.exit(f'timed out after {SECONDS} s waiting for: {reading.wanted}; the last output of {" ".join(reading.command)}: {reading.last}')
	if reading.kind == 'gets':
		print(*value) if isinstance(value, (list, tuple)) else print(value)


if __name__ == '__main__':
	main()
