"""`gbpf bench dev soft`: figures of the soft GPU with those of the machine without it, and the limits that gBPF promises. The fastest of
several rounds counts, since other programs can only slow them down."""
import sys

import stats
from command import Command, checked, lib, number, flag

SECTIONS = ('fma', 'samples', 'empty', 'copy', 'slices', 'many', 'kills')
COMMAND = Command('bench-soft', 'speed and fairness of the soft GPU', [
	number('rounds', 1, 1000, 'of which the fastest counts (default 7)', 'r', default='7'),
	number('ms', 1, 100000, 'length of a measurement, about (default 1000)', 'm', default='1000'),
	number('kills', 0, 1000000, 'clients killed at random (default 100)', 'k', default='100'),
	flag('running', 'measure the server that runs, not one of its own')], gpu=False,
	prepare=lambda options, machine: ['--libcuda', lib('soft', 'libcuda.so.1'), '--server', machine.program('gbpf-softgpu'),
		'--samples', lib('samples', 'kernels')],
	arguments={'metavar': 'SECTION', 'type': checked(SECTIONS.__contains__, "unknown section '{}'".format), 'help': f"of {', '.join(SECTIONS)} (default all)"})

FMA, SAMPLES, EMPTY_US, COPY, RESIDENT_MIB = 1.0, 0.3, 30.0, 0.7, 8
LARGE = 8 << 20  # bytes of copies with a target
KILLS = {'descriptors': ('descriptors of the server, change', '', 1, 0), 'objects': ('objects (contexts to allocations), change', '', 1, 0),
	'memory': ('device and pinned memory, change', 'bytes', 1, 0),
	'resident': ('resident memory of the server, change', 'MiB', 1 << 20, RESIDENT_MIB)}


class Report:
	def __init__(self, out):
		self.out, self.figures, self.missed, self.failed = out, [], 0, 0
		self.best_samples = []

	def figure(self, section, what, unit, value, control=None, goal=None, of_ratio=False, tolerance=0):
		"""Reports a figure. control: name and value of a measurement without the soft GPU; goal: "at_least", "at_most" or "within",
		and the limit, of the value or of its ratio to the control."""
		f = {'section': section, 'what': what, 'unit': unit, 'value': float(value)}
		text, ratio = '%-8s %-38s %10.3f %-6s' % (section, what, value, unit), 0.0
		if control:
			ratio = stats.ratio(value, control[1])
			f['control'] = {'what': control[0], 'value': float(control[1]), 'ratio': ratio}
			text += ' %s %.3f, ratio %.2f' % (*control, ratio)
		if goal:
			kind, limit = goal
			met = {'at_least': lambda v: v >= limit, 'at_most': lambda v: v <= limit,
				'within': lambda v: abs(v - limit) <= tolerance}[kind](ratio if of_ratio else value)
			f['target'] = {'of': 'ratio' if of_ratio else 'value', 'kind': kind, 'limit': float(limit), 'tolerance': float(tolerance),
				'met': met}
			text += '  %s %.4g' % (kind.replace('_', ' '), limit - tolerance) + (' to %.4g' % (limit + tolerance) if tolerance else '')
			text += '%s: %s' % (' of control' if of_ratio else '', 'met' if met else 'MISSED')
			self.missed += not met
		self.figures.append(f)
		self.out.line(text)

	def fma(self, r):
		best = max(lanes / ns for lanes, ns in r['rounds'])
		self.figure('fma', 'lane instructions a core', 'G/s', best, ('plain C loop', r['plain']), ('at_least', FMA))

	def sample(self, r):
		lanes, ns = min(r['rounds'], key=lambda round: round[1])
		self.best_samples.append((lanes, ns))
		self.figure('samples', '%s, %.1f M lane instructions' % (r['name'], lanes * 1e-6), 'G/s', lanes / ns)

	def samples(self, _):
		lanes, ns = map(sum, zip(*self.best_samples))
		self.figure('samples', 'all twelve, lane instructions a core', 'G/s', lanes / ns, goal=('at_least', SAMPLES))

	def empty(self, r):
		us, control = sorted(r['us']), stats.quantile(sorted(r['round_trip_us']), 0.5)
		self.figure('empty', f"launch to completion P50, {r['when']}", 'us', stats.quantile(us, 0.5), ('futex round trip', control),
			('at_most', EMPTY_US))
		self.figure('empty', f"launch to completion P99, {r['when']}", 'us', stats.quantile(us, 0.99))

	def copy(self, r):
		host = '' if r['kind'] == 'DtoD' else ' pinned' if r['pinned'] else ' pageable'
		gb = r['bytes'] * 1e-3
		self.figure('copy', f"{r['kind']}{host} {r['bytes'] >> 10} KiB", 'GB/s', gb / r['us'], ('memcpy', gb / r['plain_us']),
			('at_least', COPY) if r['bytes'] >= LARGE else None, True)

	def slices(self, r):
		first, second = r['slices_us']
		want, name = 100 * second / (first + second), f'{first // 1000}/{second // 1000} ms'
		self.figure('slices', f'{name}: share of the second', '%', 100 * stats.ratio(r['run_ms'][1], sum(r['run_ms'])),
			goal=('within', want), tolerance=want / 10)
		self.figure('slices', f'{name}: both, of one alone', '%', 100 * stats.ratio(sum(r['blocks_per_s']), r['alone']))

	def many(self, r):
		self.figure('many', f"processes of {r['processes']} with right results", '', r['right'], goal=('at_least', r['processes']))
		self.figure('many', 'time for all of them', 'ms', r['ms'])

	def kills(self, r):
		self.figure('kills', 'clients killed at random', '', r['kills'])
		for name, (what, unit, per, limit) in KILLS.items():
			before, after = r['before'][name] / per, r['after'][name] / per
			self.figure('kills', what, unit, after - before, ('before:', before), ('at_most', limit))

	def broken(self, r):
		self.failed += 1
		print(f"gbpf: bench dev soft: {r['section']}: {r['why']}", file=sys.stderr)


def report(records, out):
	r, document = Report(out), {'schema': 'gbpf.bench.soft/1'}
	for name, body in records:
		if name == 'set_up':
			document.update(body)
			out.line('%-8s %-38s %10s %-6s %s' % ('SECTION', 'WHAT', 'VALUE', 'UNIT', 'CONTROL, TARGET'))
		else:
			getattr(r, name)(body)
	out.document({**document, 'figures': r.figures, 'missed': r.missed, 'failed': r.failed})
