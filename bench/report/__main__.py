"""The front of `gbpf bench`, which gives it --gbpf and what else it has found: report [OPTION]... latency|preempt|memory|probe|dev
[WORD]... parses the words, runs the measuring program, and prints its table, or its document with --json, while the records come.
Without --gbpf the records are read on standard input: report BENCHMARK [OPTION]..., whose exit status is 2 if they end with an
interruption and the document was printed. A record is a line with a JSON object of one member.
The last is "end", or "error" with a message. An interrupted run shows what was measured, and ends by the signal."""
import signal
if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
	signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a measuring program runs, ^C ends this one at once

import argparse
import importlib
import json
import os
import subprocess
import sys

from command import Machine, Refused, check_file, lib

VERBS = {'latency': 'launch', 'preempt': 'lcbe', 'memory': 'quota', 'probe': 'probe'}  # their report modules
DEVELOPMENT = ('copy', 'disb', 'hook', 'pace', 'policy', 'reach', 'soft', 'swap', 'tenants', 'vgpu')


class Failed(Exception):
	"""The run has failed, with a message unless the measuring program explains it."""


class Interrupted(Failed):
	"""The user has ended the run."""


class Output:
	"""Where a report prints: lines of its table, unless a document is asked for, and the user's files."""
	def __init__(self, options):
		self.json, self.save, self.svg = options.json, getattr(options, 'save', None), getattr(options, 'svg', None)
		self.failed = False
		self.failure = None
		self.printed = False

	def until_failure(self, records):
		"""Yields the records up to a failure, which is reported after what the report prints of the records before it. The document
		then has "complete": false."""
		try:
			yield from records
		except Failed as e:
			self.failure = e

	def line(self, text):
		if not self.json:
			print(text, flush=True)

	def document(self, document):
		text = json.dumps(document, indent=2, ensure_ascii=False) + '\n'
		if self.json and (not self.failure or isinstance(self.failure, Interrupted)):
			print(text, end='', flush=True)
			self.printed = True
		if self.save:
			self.file(self.save, text, f'cannot write {self.save}')

	def file(self, path, text, complaint=None):
		try:
			with open(path, 'w') as f:
				f.write(text)
		except OSError as e:
			raise Failed(complaint or f'{path}: {e.strerror}') from None


def records(lines):
	for line in filter(str.strip, lines):
		try:
			(name, body), = json.loads(line).items()
		except ValueError:
			break  # the program was killed within a line
		if name == 'error':
			raise Interrupted if body == 'interrupted' else Failed(body)
		if name == 'end':
			return
		yield name, body
	raise Failed


def read(module, lines, out):
	"""Prints the report of the records. Returns None, or the failure of the run."""
	try:
		module.report(records(lines), out)
	except Failed as e:
		return e
	return out.failure


def complain(title, message, as_json, hint='See: gbpf doctor', status=1, code='bench'):
	"""Prints an error as gbpf does. Returns the exit status."""
	text = f'{title}: {message}'
	if as_json:
		error = {'code': code, 'exit': status, 'message': text, **({'hint': hint} if hint else {})}
		print(json.dumps({'schema': 'gbpf.error/1', 'error': error}, indent=2, ensure_ascii=False))
	else:
		print(f'gbpf: {text}' + (f'. {hint}' if hint else ''), file=sys.stderr)
	return status


class Program:
	"""A measuring program. Signals that end this process are passed on, so that it can end what it has started."""
	def __init__(self, name, argv):
		self.stopped, self.process = 0, None
		for s in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
			if signal.getsignal(s) != signal.SIG_IGN:
				signal.signal(s, self.stop)
		try:
			self.process = subprocess.Popen([name, *argv], executable=lib('bench', name), stdout=subprocess.PIPE, close_fds=False,
				encoding='utf-8', errors='replace')
		except OSError as e:
			raise Refused(f'{name}: {e.strerror}', None, 1, 'failed') from None
		if self.stopped:
			self.process.send_signal(self.stopped)

	def stop(self, number, _):
		self.stopped = self.stopped or number
		if self.process:
			self.process.send_signal(number)

	def finish(self, failed):
		"""Waits for its end; failed: its records are not wanted any more. Returns its exit status, negative: it was killed."""
		self.process.stdout.close()
		if failed:
			self.process.terminate()
		return self.process.wait()


def run(module, title, options, machine, out):
	"""Measures and reports. Returns the exit status, negative: the signal that has interrupted the run."""
	for name in ('save', 'svg'):
		check_file(name, getattr(options, name, None))
	name = module.COMMAND.program
	program, unread = Program(name, module.COMMAND.argv(options, machine)), True
	try:
		failure = read(module, program.process.stdout, out)
		unread = isinstance(failure, Failed) and bool(failure.args)
	finally:
		status = program.finish(unread)
	if program.stopped or isinstance(failure, Interrupted):
		if not out.printed:
			complain(title, 'interrupted', out.json, None, 128 + program.stopped if program.stopped else 1, 'interrupted')
		return -program.stopped or 1
	if failure and failure.args:
		return complain(title, failure, out.json)
	if status < 0:
		return complain(title, f'{name}: {signal.strsignal(-status)}', out.json, None, code='failed')
	return status or (1 if failure or out.failed else 0)


def parse_front(argv):
	parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
	for name in ('gbpf', 'libcuda'):
		parser.add_argument(f'--{name}')
	parser.add_argument('--no-gpu', nargs=3)
	for name in ('soft', 'json'):
		parser.add_argument(f'--{name}', action='store_true')
	parser.add_argument('bench')
	parser.add_argument('words', nargs=argparse.REMAINDER)
	return parser.parse_args(argv)


def list_development(words, as_json):
	"""Prints the benchmarks of `gbpf bench dev`, or refuses an unknown one."""
	if words and words[0] not in ('-h', '--help', '--json'):
		raise Refused(f"no benchmark '{words[0]}'", f"There are {', '.join(DEVELOPMENT)}")
	docs = {name: importlib.import_module(name).COMMAND.doc for name in DEVELOPMENT}
	if as_json:
		print(json.dumps({'schema': 'gbpf.bench.dev/1', 'benchmarks': [{'name': n, 'doc': d} for n, d in docs.items()]}, indent=2))
		return 0
	print('Usage: gbpf bench dev BENCHMARK [OPTION]...\n')
	for name, doc in docs.items():
		print(f'  {name:<10}{doc}')
	print('\nSee: gbpf bench dev BENCHMARK --help')
	return 0


def bench(given, name, words, title):
	if name == 'dev':
		return list_development(words, given.json or '--json' in words)
	module = importlib.import_module(name)
	options = module.COMMAND.parse(title, words, given.json)
	out = Output(options)
	if given.gbpf:
		return run(module, title, options, Machine(given), out)
	failure = read(module, sys.stdin, out)
	if failure and failure.args:
		return complain(title, failure, options.json)
	return 2 if failure and out.printed else 1 if failure or out.failed else 0


def main():
	given = parse_front(sys.argv[1:])
	name, words, title = VERBS.get(given.bench, given.bench), given.words, f'bench {given.bench}'
	if name == 'dev' and words and words[0] in DEVELOPMENT:
		name, *words = words
		title += f' {name}'
	try:
		return bench(given, name, words, title)
	except Refused as e:
		return complain(title, e, given.json or '--json' in given.words, e.hint, e.status, e.code)


def print_all():
	"""Runs main(). Returns its exit status, or that of output that cannot be written."""
	try:
		try:
			status = main()
		except SystemExit as e:  # of --help
			status = e.code
		if sys.stdout:
			sys.stdout.flush()
		return status
	except BrokenPipeError:
		return 128 + signal.SIGPIPE
	except OSError as e:
		print(f'gbpf: standard output: {e.strerror}', file=sys.stderr)
		return 1


status = print_all()
if status is not None and status < 0:
	signal.signal(-status, signal.SIG_DFL)
	os.kill(os.getpid(), -status)
os._exit(status or 0)  # what could not be written is not tried again
