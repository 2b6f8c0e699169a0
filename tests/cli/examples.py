#!/usr/bin/env python3
"""examples.py PAGE.scd: runs every example of a manual page in the current folder, in the order of the page.

A literal block with lines that begin with "$ " is run: each such line must exit with 0, and the lines below it, if there are
any, must be its output (numbers may differ, "..." stands for anything). A comment right before a block says what else it is:
	; example: file NAME	it is the file NAME
	; example: build NAME	the same, and `gbpf policy build NAME` accepts it
	; example: refused NAME	the same, and it is refused
	; example: exit N	its lines exit with N
	; example: json		it is a JSON document
	; example: in order	it is run (as without a comment)
A block that is none of these is an error, so that no example goes untested."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
from eventually import eventually

page = sys.argv[1]
gbpf = os.path.join(os.environ['GBPF_PREFIX'], 'bin', 'gbpf')
environment = dict(os.environ, PREFIX=os.environ['GBPF_PREFIX'],
	PATH=os.path.join(os.environ['GBPF_PREFIX'], 'bin') + ':' + os.environ['PATH'])
READS = re.compile(r'gbpf (map (dump|get)|((mem|probe|policy|vgpu) )?(ls|show|ps))\b') # of what programs change when they come to it
LONGER_TIMES = 3 # on a busy machine the time of an example may end before a kernel has its tool, or before a launch ends
failed = 0
ran = 0


def fail(line, text):
	global failed
	failed += 1
	print(f'{os.path.basename(page)}:{line}: {text}')


def blocks():
	"""(line, marker, [lines]) of each literal block."""
	marker, inside, body, begin = None, False, [], 0
	for number, line in enumerate(open(page, encoding='utf-8').read().split('\n'), 1):
		if line == '```':
			if inside:
				yield begin, marker, body
				marker, body = None, []
			inside, begin = not inside, number
		elif inside:
			body.append(line)
		elif line.startswith('; example: '):
			marker = line[len('; example: '):].split(' ', 1)
		elif line:
			marker = None


def matches(wanted, got):
	"""Words as they are written, numbers and blanks as they come."""
	parts = []
	for word in wanted.split():
		p = re.escape(word).replace(r'\.\.\.', '.*')
		parts.append(re.sub(r'\d+(\\\.\d+)?', r'[0-9.]+', p))
	return re.fullmatch(r'\s*' + r'\s+'.join(parts) + r'\s*', got) is not None


def missing(wanted, output):
	"""Returns the first of the wanted lines that did not come in this order, or None."""
	got = iter(output.split('\n'))
	return next((w for w in wanted if w.strip() and not any(matches(w, g) for g in got)), None)


def execute(command):
	return subprocess.run(['bash', '-c', command], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
		stderr=subprocess.STDOUT, text=True, timeout=120)


def run(line, command, wanted, code):
	global ran
	ran += 1
	if command.startswith('cd '):
		os.chdir(command[3:])
		return
	results = []

	def is_complete():
		results.append(execute(command))
		return not READS.match(command) or results[-1].returncode != code or missing(wanted, results[-1].stdout) is None

	try:
		eventually(is_complete)
	except TimeoutError:
		pass # what is missing is reported below
	r = results[-1]
	tries = LONGER_TIMES if '--time ' in command else 0
	while tries and (r.returncode != code or missing(wanted, r.stdout) is not None):
		r = execute(re.sub(r'--time \d+ms', '--time 10s', command))
		tries -= 1
	print(f'$ {command}: {r.returncode}')
	if r.returncode != code:
		fail(line, f'`{command}` ended with {r.returncode}, not {code}:\n{r.stdout}')
	elif (w := missing(wanted, r.stdout)) is not None:
		fail(line, f'no line like this came, or not in this order:\n\t{w}\nbut:\n{r.stdout}')


def run_block(line, body, code):
	command, wanted, at = None, [], line
	for number, text in enumerate(body + ['$ '], line + 1):
		if text.startswith('$ '):
			if command:
				run(at, command, wanted, code)
			command, wanted, at = text[2:], [], number
		elif command is None:
			fail(number, 'output before the first command')
		else:
			wanted.append(text)


def write(name, body):
	with open(name, 'w', encoding='utf-8') as f:
		f.write('\n'.join(body) + '\n')


def build(line, name, code):
	run(line, f'gbpf policy build {name}', [], code)


for line, marker, body in blocks():
	kind, rest = (marker + [''])[:2] if marker else ('in', 'order')
	if kind in ('file', 'build', 'refused'):
		write(rest, body)
		ran += 1
		if kind != 'file':
			build(line, rest, 0 if kind == 'build' else 4)
	elif kind == 'json':
		json.loads('\n'.join(body))
		ran += 1
	elif not any(text.startswith('$ ') for text in body):
		fail(line, 'this example is not tested: it has no "$ " line and no "; example:" before it')
	else:
		run_block(line, body, int(rest) if kind == 'exit' else 0)
if not ran:
	fail(0, 'no examples')
sys.exit(1 if failed else 0)
