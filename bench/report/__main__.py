"""report BENCH [--json] [--save FILE] [--svg FILE]: reads the records of a measuring program of `gbpf bench` on standard input and
prints its table, or its document with --json, while they come. A record is a line with a JSON object of one member. The last is
"end", or "error" with a message. Exit status 1: the run has failed or the records end early, which `gbpf bench` explains. Exit status
2: the run was interrupted, and the document of what was measured is printed."""
import argparse
import importlib
import json
import sys

HINT = 'See: gbpf doctor'


class Failed(Exception):
	"""The run has failed, with a message unless the measuring program or gbpf explains it."""


class Interrupted(Failed):
	"""The user has ended the run."""


class Output:
	"""Where a report prints: lines of its table, unless a document is asked for, and the user's files."""
	def __init__(self, options):
		self.json, self.save, self.svg = options.json, options.save, options.svg
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
	for line in lines:
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


def complain(bench, message, as_json):
	text = f'bench {bench}: {message}'
	if as_json:
		error = {'code': 'bench', 'exit': 1, 'message': text, 'hint': HINT}
		print(json.dumps({'schema': 'gbpf.error/1', 'error': error}, indent=2, ensure_ascii=False))
	else:
		print(f'gbpf: {text}. {HINT}', file=sys.stderr)


def main():
	parser = argparse.ArgumentParser()
	parser.add_argument('bench')
	parser.add_argument('--json', action='store_true')
	parser.add_argument('--save')
	parser.add_argument('--svg')
	options = parser.parse_args()
	out = Output(options)
	try:
		importlib.import_module(options.bench).report(records(sys.stdin), out)
		if out.failure:
			raise out.failure
	except Interrupted:
		return 2 if out.printed else 1
	except Failed as e:
		if e.args:
			complain(options.bench, e, options.json)
		return 1
	except BrokenPipeError:
		return 1
	return 1 if out.failed else 0


sys.exit(main())
