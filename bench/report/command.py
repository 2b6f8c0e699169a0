"""Command lines of the benchmarks. A report module states the options of its benchmark as COMMAND; here they are parsed, and become
the arguments of the measuring program. An option of that program has the same name."""
import argparse
import difflib
import os
import re
from pathlib import Path

LIB = Path(__file__).parents[2]  # the installed libraries of gBPF
UNITS = 'KMGTP'


class Refused(Exception):
	"""The benchmark is not run. status: exit status, code: of the error document."""
	def __init__(self, message, hint=None, status=2, code='usage'):
		super().__init__(message)
		self.hint, self.status, self.code = hint, status, code


def option(name, doc, metavar=None, letter=None, **how):
	flags = [f'-{letter}'] if letter else []
	return [*flags, f'--{name}'], {'help': doc.replace('%', '%%'), **({'metavar': metavar} if metavar else {}), **how}


def checked(valid, explain):
	"""Returns the type of an option: a function of its text, which it returns if it is valid."""
	def check(text):
		if not valid(text):
			raise argparse.ArgumentTypeError(explain(text))
		return text
	return check


def flag(name, doc):
	return option(name, doc, action='store_true')


def text(name, metavar, doc, letter=None, default=None):
	return option(name, doc, metavar, letter, default=default)


def choice(name, values, doc, letter=None):
	return option(name, doc, letter=letter, choices=values)


def number(name, low, high, doc, letter=None, metavar='N', default=None):
	return option(name, doc, metavar, letter, default=default, type=checked(
		lambda t: re.fullmatch('[0-9]{1,18}', t) and low <= int(t) <= high, lambda t: f"'{t}' is not a number from {low} to {high}"))


def words(name, values, doc, letter=None, default=None):
	"""A list with commas."""
	def bad(text):
		return [w for w in text.split(',') if w not in values]
	return option(name, doc, 'LIST', letter, default=default, type=checked(
		lambda t: not bad(t), lambda t: f"'{bad(t)[0]}' is not one of {', '.join(values)}; several go with commas between them"))


def size_of(text):
	"""Returns the bytes of a size, or None if it is malformed."""
	m = re.fullmatch(rf'([0-9]{{1,18}}(?:\.[0-9]*)?)(?:([{UNITS}])(?:iB|B)?|B)?', text, re.I)
	return m and int(float(m[1]) * (1 << 10 * (UNITS.index(m[2].upper()) + 1) if m[2] else 1))


def size_text(n):
	k = max((k for k in range(6) if n % (1 << 10 * k) == 0 and n >> 10 * k), default=0)
	return f'{n >> 10 * k}{" KMGTP"[k].strip()}'


def size(name, low, high, doc, letter=None):
	def check(text):
		n = size_of(text)
		if n is None or not low <= n <= high:
			raise argparse.ArgumentTypeError(f"invalid size '{text}': give a number with K, M or G, from {size_text(low)} to {size_text(high)}")
		return str(n)
	return option(name, doc, 'SIZE', letter, type=check)


def shares(name, doc, sets=False):
	"""Percents with commas; with sets, several such lists, separated by '|'."""
	def valid(text):
		lists = [t.split(',') for t in text.split('|')]
		return (sets or len(lists) == 1) and all(2 <= len(l) <= 16 and all(re.fullmatch('[1-9][0-9]?', w) for w in l)
			and sum(map(int, l)) <= 100 for l in lists)
	form = "'50,50|30,70'" if sets else '30,70'
	return option(name, doc, 'LISTS' if sets else 'LIST', type=checked(valid,
		lambda t: f"invalid list '{t}': give 2 to 16 percents with a sum of at most 100, as in {form}"))


class Machine:
	"""What `gbpf bench` has found: path of gbpf, and of the driver's library, or code, message and hint why there is none."""
	def __init__(self, given):
		self.gbpf, self.libcuda, self.soft, self.no_gpu = Path(given.gbpf), given.libcuda, given.soft, given.no_gpu

	def program(self, name):
		return self.gbpf.parent / name


def lib(*names):
	path = LIB.joinpath(*names)
	if not os.path.exists(path):
		raise Refused(f'{path} is missing', 'Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are', 1, 'install')
	return path


def find_policy(name):
	"""Returns the path of an installed policy or of a file."""
	installed = LIB / 'policies' / f'{name}.bpf.o'
	if re.fullmatch('(examples/)?[^/.][^/]*', name) and installed.is_file():
		return installed
	if '/' in name or name.endswith('.o'):
		if not os.access(name, os.R_OK):
			raise Refused(f'{name}: no such file, or it cannot be read', None, 5, 'not-found')
		return Path(name)
	names = [str(p.relative_to(LIB / 'policies'))[:-len('.bpf.o')] for p in sorted((LIB / 'policies').rglob('*.bpf.o'))]
	near = [n for n in names if n == f'examples/{name}'] or difflib.get_close_matches(name, names, 1)
	raise Refused(f"no policy '{name}' is installed", f"Did you mean '{near[0]}'?" if near else 'Give the path of a .bpf.o file', 5,
		'not-found')


class Help(argparse.HelpFormatter):
	def add_usage(self, usage, actions, groups, prefix=None):
		super().add_usage(usage, actions, groups, 'Usage: ')


class Parser(argparse.ArgumentParser):
	def error(self, message):
		raise Refused(message.removeprefix('argument '), f'See: {self.prog} --help')


class Command:
	"""program: the measuring program. options: of the user. gpu: it runs programs on a GPU, so it has --device, --save and --progress.
	policy: the policy of gBPF that it is given, CHOSEN: that of --policy. client: the program that it starts. prepare(options, machine):
	checks combinations, and returns further arguments of the program. arguments: how argparse takes words that are no options."""
	CHOSEN = 'auto'

	def __init__(self, program, doc, options, gpu=True, policy=None, client='bench-client', prepare=None, arguments=None):
		self.program, self.doc, self.gpu, self.policy, self.client = program, doc, gpu, policy, client
		self.prepare, self.arguments = prepare, arguments
		self.options = list(options)
		if policy == self.CHOSEN:
			self.options.append(text('policy', 'NAME|FILE', 'of gBPF (default auto)', 'p'))
		if gpu:
			self.options += [text('save', 'FILE', 'write the JSON document there', 'o'),
				flag('progress', 'say what is being done, also without a terminal'),
				choice('device', ('soft', 'nvidia', 'auto'), 'which GPU (default auto)', 'd')]

	def parse(self, title, given, as_json):
		parser = Parser(prog=f'gbpf {title}', description=self.doc, allow_abbrev=False, formatter_class=Help)
		for flags, how in self.options:
			parser.add_argument(*flags, **how)
		if self.arguments:
			parser.add_argument('arguments', nargs='*', **self.arguments)
		parser.add_argument('--json', action='store_true', default=as_json, help='one JSON document on standard output')
		if any(w.startswith('-d=') for w in given):
			parser.error("invalid device: give --device=NAME or -d NAME")
		return parser.parse_intermixed_args(given)

	def own(self, machine, options):
		"""Returns the arguments that the user does not give."""
		if not self.gpu:
			return []
		if machine.no_gpu:
			code, message, hint = machine.no_gpu
			raise Refused(message, hint, 5, code)
		policy = getattr(options, 'policy', None) if self.policy == self.CHOSEN else None
		policy = self.policy if policy is None else policy
		return [*(['--soft'] if machine.soft else []), '--libcuda', machine.libcuda, '--gbpf', machine.gbpf,
			'--gbpfd', machine.program('gbpfd'), '--server', machine.program('gbpf-softgpu'),
			*(['--client', lib('bench', self.client)] if self.client else []),
			*(['--policy', find_policy(policy), '--policy-name', policy] if policy else [])]

	def argv(self, options, machine):
		"""Returns the arguments of the measuring program."""
		more = self.prepare(options, machine) if self.prepare else []
		argv = [*self.own(machine, options), *more]
		for flags, _ in self.options:
			name = flags[-1][2:]
			value = getattr(options, name.replace('-', '_'))
			if name not in ('policy', 'device', 'save', 'svg') and value not in (None, False):
				argv += [flags[-1]] if value is True else [flags[-1], value]
		return [str(a) for a in [*argv, *getattr(options, 'arguments', [])]]


def check_file(name, path):
	"""Refuses a file that cannot be written after the measurement."""
	if path and not (os.access(path, os.W_OK) if os.path.exists(path) else os.access(os.path.dirname(path) or '.', os.W_OK | os.X_OK)):
		raise Refused(f'--{name}: {path} cannot be written', 'Give a file in a folder that exists and that you may write to')
