"""`gbpf bench dev disb`: latency of each real-time task of a workload against the real-time tasks together without batch in the same lane,
and requests of all tasks against unrestricted sharing in the same lane. Rounds are resampled in pairs, since both conditions have a
turn in every round."""
import functools

import stats
from command import Command, Refused, choice, flag, lib, number, text, words
from text import plural

NETWORKS, PROGRAMS = ('A', 'B', 'C', 'D', 'E', 'REAL', 'micro'), ('Y', 'Z')  # workloads


def prepare(options, machine):
	if not options.torch and (options.graphs or options.python):
		raise Refused(f"--{'graphs' if options.graphs else 'python'} is for networks in PyTorch", 'Give --torch as well')
	bad = [w for w in (options.workloads or '').split(',') if w in PROGRAMS]
	if options.torch and bad:
		raise Refused(f"--workloads: '{bad[0]}' is not one of {', '.join(NETWORKS)}, which --torch has")
	torch, options.torch = options.torch, False
	return ['--script', lib('bench', 'disb_torch.py')] if torch else []


COMMAND = Command('bench-disb', 'the workloads of DISB, under each sharing mode', [
	words('workloads', (*NETWORKS, *PROGRAMS), 'of A,B,C,D,E,REAL,Y,Z (default all)', 'w'),
	number('seconds', 1, 3600, 'of each measurement (default 10)', 't', 'S'),
	number('repeats', 1, 16, 'rounds (default 1)', 'r'),
	choice('be', ('closed', 'periodic'), 'how batch requests come (default closed)'),
	words('conditions', ('rt', 'rt-again', 'default', 'rt-mps', 'rt-mps-again', 'mps', 'gbpf', 'gbpf-shared'), 'which (default all)', 'c'),
	flag('torch', 'networks in PyTorch instead of kernels of their lengths'),
	flag('graphs', 'with --torch: each network as a CUDA graph'),
	text('python', 'PROGRAM', 'that has PyTorch (default python3)')], policy=Command.CHOSEN, prepare=prepare)

DRAWS = 1000
FRONT = 8  # kernels after the first that are a part of their own
MET = {'met_nobody': 'that met no other', 'met_others': 'that met others'}
COUNTERS = ('launches', 'block_launches', 'interruptions', 'holds', 'held_ns', 'limit_hits', 'forced', 'requests')


class Parts:
	"""Sums of the parts of requests' time, us. All but late add up to the duration of the requests with stamps."""
	def __init__(self):
		self.n = self.stamped = 0
		self.took = self.late = self.first = self.front = self.rest = 0.0

	def add(self, late, first, front, took):
		self.n += 1
		self.took += took
		self.late += late
		if front >= 0:  # else not measured
			first = max(first, 0)
			front = max(front, first)
			self.stamped += 1
			self.first += first
			self.front += front - first
			self.rest += took - front

	def document(self):
		d = {'requests': self.n, 'mean_us': self.took / max(self.n, 1), 'late_us': self.late / max(self.n, 1)}
		if self.stamped:
			d.update({f'{k}_us': getattr(self, k) / self.stamped for k in ('first', 'front', 'rest')})
		return d


class Row:
	"""A task in a condition, over all rounds."""
	def __init__(self):
		self.rounds, self.rates = [], []  # by round: sorted times in us; requests a second
		self.dropped = self.seconds = self.steps = 0
		self.parts = {met: Parts() for met in MET}
		self.step_us, self.tenants = [], []

	def add_round(self, us, seconds):
		self.rounds.append(sorted(us))
		self.rates.append(len(us) / seconds)
		self.seconds += seconds

	def all(self):
		return [x for us in self.rounds for x in us]

	def rate(self):
		return len(self.all()) / self.seconds if self.seconds else 0.0


class Condition:
	"""A condition in a workload; state: of its record."""
	def __init__(self, state, rows):
		self.state, self.rows = state, rows
		self.name, self.rounds, self.batch = state['condition'], state['rounds'], state['batch']


def plain(conditions, c, batch):
	"""Returns the condition without gBPF, in the lane of c or else in the other: the real-time tasks alone, or all. None: not
	measured."""
	found = [p for p in conditions if p.rounds and p.batch == batch and not p.state['again'] and not p.state['gbpf']]
	same = [p for p in found if p.state['shared'] == c.state['shared']]
	return same[0] if same else found[-1] if found else None


# ---- parts of requests ----

def begin_of(request):
	return request[0] + int(max(request[1], 0) * 1e3)


def open_then(requests, begins):
	"""Returns for each of some ascending times whether a request was open then. Requests are in order, and end in order."""
	at, answers = 0, []
	for when in begins:
		while at < len(requests) and begin_of(requests[at]) + int(requests[at][4] * 1e3) <= when:
			at += 1
		answers.append(at < len(requests) and begin_of(requests[at]) <= when)
	return answers


def note_parts(tasks, rows, turn):
	"""Adds the parts of a turn's requests, separately for those that overlapped no other real-time task, since only these can find
	batch on the device."""
	real_time = {t['task']: t for t in turn if tasks[t['task']]['real_time']}
	for i, t in real_time.items():
		begins = [begin_of(r) for r in t['requests']]
		others = [open_then(o['requests'], begins) for k, o in real_time.items() if k != i]
		for k, r in enumerate(t['requests']):
			rows[i].parts['met_others' if any(o[k] for o in others) else 'met_nobody'].add(*r[1:])
		longer = max(len(rows[i].step_us), len(t['step_us']))
		old, new = (v + [0.0] * (longer - len(v)) for v in (rows[i].step_us, t['step_us']))
		rows[i].step_us = [a + b for a, b in zip(old, new)]
		rows[i].steps += t['steps']


def tenant_document(tenants):
	"""Returns gbpfd's counters of a task, the mean of the rounds; tenants: its entry after each."""
	n = len(tenants)
	d = {k: sum(float(t['stats'].get(k, 0)) for t in tenants) / n for k in COUNTERS}
	d = {'held_ms' if k == 'held_ns' else k: v * 1e-6 if k == 'held_ns' else v for k, v in d.items()}
	return {**d, 'kernels': tenants[-1]['kernels']} if 'kernels' in tenants[-1] else d


def parts_document(row):
	d = {met: p.document() for met, p in row.parts.items()} if any(p.n for p in row.parts.values()) else {}
	if row.steps:
		d['steps_us'] = [us / row.steps for us in row.step_us]
	if row.tenants:
		d['gbpf'] = tenant_document(row.tenants)
	return d


# ---- figures ----

def mean_and_p99(row, rounds):
	us = [x for r in rounds for x in row.rounds[r]]
	return stats.mean(us), stats.quantile(sorted(us), 0.99)


def figures(c, base, i):
	"""Returns the figures of a task, and its ratios to base; base: plain() or None."""
	row = c.rows[i]
	us = row.all()
	f = {'mean_us': stats.mean(us), 'mean_ratio': 0.0, 'p99_ratio': 0.0}
	us.sort()
	f.update({'p50_us': stats.quantile(us, 0.5), 'p99_us': stats.quantile(us, 0.99), 'p99.9_us': stats.quantile(us, 0.999)})
	if base and base.rows[i].rounds:
		mean, p99 = mean_and_p99(base.rows[i], range(base.rounds))
		f['mean_ratio'], f['p99_ratio'] = stats.ratio(f['mean_us'], mean), stats.ratio(f['p99_us'], p99)
	return f


def ratios(tasks, c, base):
	"""Returns a function that computes the means of the real-time tasks' ratios over a tuple of rounds."""
	@functools.lru_cache(maxsize=None)
	def of(rounds):
		pairs = [(mean_and_p99(c.rows[i], rounds), mean_and_p99(base.rows[i], rounds)) for i, t in enumerate(tasks) if t['real_time']]
		pairs = [(mine, its) for mine, its in pairs if its[0] > 0 and its[1] > 0]
		return tuple(sum(mine[k] / its[k] for mine, its in pairs) / max(len(pairs), 1) for k in (0, 1))
	return of


def summary(tasks, conditions, c):
	"""Over the real-time tasks: means of the ratios, with intervals from a bootstrap over rounds, and requests a second."""
	base, everything = plain(conditions, c, False), plain(conditions, c, True) if c.batch else None
	s = {'rt_mean_ratio': 0.0, 'rt_p99_ratio': 0.0, 'total_per_s': 0.0, 'total_share': 0.0, 'rt_dropped': 0,
		'rt_mean_ratio_interval': (0.0, 0.0), 'rt_p99_ratio_interval': (0.0, 0.0), 'total_share_interval': (0.0, 0.0),
		'round_mean_ratios': [], 'round_p99_ratios': []}
	s['rt_dropped'] = sum(r.dropped for r, t in zip(c.rows, tasks) if t['real_time'])
	s['total_per_s'] = sum(rates_of(tasks, c))
	rounds = min(base.rounds, c.rounds) if base else 0
	if rounds:
		of = ratios(tasks, c, base)
		s['rt_mean_ratio'], s['rt_p99_ratio'] = of(tuple(range(rounds)))
		s['round_mean_ratios'], s['round_p99_ratios'] = map(list, zip(*(of((r,)) for r in range(rounds))))
		mean, p99 = zip(*(of(tuple(at)) for at in stats.draws(rounds, DRAWS)))
		s['rt_mean_ratio_interval'], s['rt_p99_ratio_interval'] = stats.percentiles(mean, 0.95), stats.percentiles(p99, 0.95)
	n = min(everything.rounds, c.rounds) if everything else 0
	if n:
		mine, its = ([sum(row.rates[r] for row in x.rows if row.rates) for r in range(n)] for x in (c, everything))
		s['total_share'] = stats.mean(mine) / max(stats.mean(its), 1e-9)
		s['total_share_interval'] = stats.bootstrap_ratio(mine, its, 0.95)
	return s


def rates_of(tasks, c):
	"""Returns the requests a second of the real-time tasks and of batch."""
	return [sum(row.rate() for row, t in zip(c.rows, tasks) if t['real_time'] == real_time) for real_time in (True, False)]


# ---- the document ----

def task_document(task, c, base, i):
	f, row = figures(c, base, i), c.rows[i]
	d = {**task, 'requests': len(row.all()), 'dropped': row.dropped, 'per_s': row.rate(),
		**{k: f[k] for k in ('mean_us', 'p50_us', 'p99_us', 'p99.9_us')},
		'mean_interval_us': stats.bootstrap_mean([stats.mean(us) for us in row.rounds], 0.95)}
	if task['real_time'] and f['mean_ratio'] > 0:
		d['mean_ratio'], d['p99_ratio'] = f['mean_ratio'], f['p99_ratio']
	return {**d, **parts_document(row)}


def condition_document(tasks, c, base, s):
	run = c.rounds and not c.state['broken']
	ran = [i for i, t in enumerate(tasks) if c.rounds and (t['real_time'] or c.batch)]
	return {'condition': c.name, 'is': c.state['is'], 'state': 'failed' if c.state['broken'] else 'run' if run else 'not available',
		'rounds': c.rounds, 'tasks': [task_document(tasks[i], c, base, i) for i in ran], **s,
		**({'why': c.state['why']} if c.state['why'] and not run else {})}


# ---- the table ----

def more_us(tasks, c, base, met, part):
	"""Returns the mean over the real-time tasks of a part's increase over the real-time tasks alone."""
	def mean(p):
		return getattr(p, part) / p.n
	pairs = [(a.parts[met], b.parts[met]) for a, b, t in zip(c.rows, base.rows, tasks) if t['real_time']]
	pairs = [(p, q) for p, q in pairs if p.n and q.n]
	return sum(mean(p) - mean(q) for p, q in pairs) / max(len(pairs), 1)


def print_parts(out, label, tasks, c, base):
	stamped = any(p.stamped for row in c.rows for p in row.parts.values())
	for met, words in MET.items():
		n = sum(row.parts[met].n for row in c.rows)
		more = {k: more_us(tasks, c, base, met, k) for k in ('took', 'first', 'front', 'rest', 'late')}
		stamps = ' = first kernel %+.1f, the next %u %+.1f, rest %+.1f' % (more['first'], FRONT, more['front'], more['rest'])
		if n:
			out.line('%s us more, %u %s: %+.1f%s; begun %+.1f later' % (label, n, words, more['took'], stamps if stamped else '',
				more['late']))


def ratio_text(what, value, interval, rounds):
	return '%s %.3f' % (what, value) + (' (%.3f-%.3f)' % tuple(interval) if rounds > 1 else '')


def print_condition(out, workload, tasks, conditions, c, s):
	base, label = plain(conditions, c, False), '%-5s %-12s' % (workload, c.name)
	for i, t in enumerate(tasks):
		if t['real_time']:
			f = figures(c, base, i)
			ms = [f[k] / 1000 for k in ('mean_us', 'p50_us', 'p99_us', 'p99.9_us')]
			out.line('%s %-8s %7u %6u %8.2f %8.2f %8.2f %8.2f %7.3f %7.3f' % (label, t['model'], len(c.rows[i].all()), c.rows[i].dropped,
				*ms, f['mean_ratio'], f['p99_ratio']))
	line, rounds = label + ' all: ', len(s['round_mean_ratios'])
	if base and base is not c:
		line += ratio_text('mean', s['rt_mean_ratio'], s['rt_mean_ratio_interval'], rounds)
		line += ratio_text(', P99', s['rt_p99_ratio'], s['rt_p99_ratio_interval'], rounds) + ' of RT alone; '
	line += '%.1f RT/s, %.1f BE/s' % tuple(rates_of(tasks, c))
	if s['total_share'] > 0 and c is not plain(conditions, c, True):
		line += ratio_text(', total', s['total_share'], s['total_share_interval'], rounds) + ' of unrestricted'
	out.line(line)
	if base and base is not c:
		print_parts(out, label, tasks, c, base)


def report_workload(out, workload, conditions):
	"""Prints a workload's table and returns its document."""
	name, tasks = workload['workload'], workload['tasks']
	out.line('%-5s %-12s %-8s %7s %6s %8s %8s %8s %8s %7s %7s' % ('WL', 'CONDITION', 'RT TASK', 'N', 'DROPS', 'MEAN ms', 'P50', 'P99',
		'P99.9', 'MEAN/rt', 'P99/rt'))
	documents = []
	for c in conditions:
		s = summary(tasks, conditions, c)
		if c.rounds and not c.state['broken']:
			print_condition(out, name, tasks, conditions, c, s)
		else:
			out.line('%-5s %-12s %s: %s' % (name, c.name, 'FAILED' if c.state['broken'] else 'not available', c.state['why']))
		documents.append(condition_document(tasks, c, plain(conditions, c, False), s))
	return {'workload': name, 'conditions': documents}


def note_turn(set_up, tasks, rows, turn):
	for t in turn['tasks']:
		row = rows[t['task']]
		row.add_round([r[4] for r in t['requests']], set_up['seconds'])
		row.dropped += t['dropped']
		row.tenants += [x for x in turn.get('tenants', ()) if x.get('pid') == t['pid']]
	note_parts(tasks, rows, turn['tasks'])


def report(records, out):
	set_up, models, workload, rows, workloads = {}, {}, {}, {}, []
	for name, body in records:
		if name == 'set_up':
			set_up = body
		elif name == 'workload':
			workload, rows = body, {}
		elif name == 'turn':
			note_turn(set_up, workload['tasks'], rows.setdefault(body['condition'], [Row() for _ in workload['tasks']]), body)
		elif name == 'conditions':
			none = [Row() for _ in workload['tasks']]
			conditions = [Condition(c, rows.get(c['condition'], none)) for c in body]
			workloads.append(report_workload(out, workload, conditions))
		else:
			models = body
	alone = ''.join(' %s %.2f ms' % (m['model'], m['alone_ms']) for m in models['models'])
	networks = {'PyTorch': "PyTorch's networks", 'PyTorch, CUDA graphs': "PyTorch's networks as CUDA graphs", 'synthetic': 'Models'}
	out.line('%s, policy %s, %g s a measurement, %u round%s, batch %s. %s alone:%s' % (models['device'], set_up['policy'],
		set_up['seconds'], set_up['rounds'], plural(set_up['rounds']), 'periodic' if set_up['periodic_batch'] else 'in closed loops',
		networks[models['networks']], alone))
	out.document({'schema': 'gbpf.bench.disb/1', **set_up, 'workloads': workloads, **models})
