"""`gbpf bench dev tenants`: launch and completion latency of each class, compared with those under the device's own time slices."""
import stats
from command import Command, number, words
from text import plural

COMMAND = Command('bench-tenants', 'two latency and four batch processes at once', [
	number('repeats', 1, 32, 'rounds (default 5)', 'r'),
	number('latency-clients', 1, 16, 'processes (default 2)'),
	number('batch-clients', 1, 16, 'processes (default 4)'),
	number('streams', 1, 16, 'of each process (default 4)', 's'),
	number('kernels', 1, 4096, 'of each stream (default 50)'),
	number('kernel-us', 1, 10000000, 'length of a kernel (default 2000)', metavar='US'),
	number('gap-us', 0, 10000000, "between a latency stream's kernels (default 2000)", metavar='US'),
	words('conditions', ('default', 'slices', 'gbpf', 'shared', 'alone', 'alone-mps'), 'which (default all)', 'c')], policy=Command.CHOSEN)

LATENCIES = ('call', 'start', 'completion')
NOTE = '''call: of the launch; start: from before it until the kernel runs; completion: until its end is known;
%: change against default, x: factor'''


def figures_of(records, latency, rounds):
	"""Returns the figures of a class in a condition; records: of its processes, all rounds."""
	us = sorted(x for r in records for x in r[latency])
	by_round = [[r for r in records if r['round'] == k] for k in range(rounds)]
	p99 = [stats.quantile(sorted(x for r in rs for x in r[latency]), 0.99) for rs in by_round]
	return {'kernels': len(us), 'mean_us': stats.mean(us), 'p50_us': stats.quantile(us, 0.5), 'p99_us': stats.quantile(us, 0.99),
		'variance_us2': stats.variance(us), 'p99_rounds_us': stats.extremes(p99), 'p99_interval_us': stats.bootstrap_mean(p99, 0.95),
		'kernels_per_s': stats.mean([sum(len(r[latency]) / r['seconds'] for r in rs) for rs in by_round])}


def change(value, of):
	"""Returns the change against the first condition in per cent; 0 if that was not run."""
	return 100 * (value / of - 1) if of > 0 else 0.0


def change_text(percent):
	"""Returns the change in per cent, or as a factor if that is clearer."""
	return ' %8s' % ('%+.1f' % percent if percent < 1000 else 'x%.3g' % (percent / 100 + 1))


def print_row(out, condition, f):
	changes = [f[k + '_change_percent'] for k in ('p99', 'variance', 'rate') if k + '_change_percent' in f]
	out.line('%-9s %-8s %-10s %6u %11.1f %11.1f %11.1f %13.4g%s' % (condition, f['class'], f['latency'], f['kernels'], f['mean_us'],
		f['p50_us'], f['p99_us'], f['variance_us2'], ''.join(map(change_text, changes))))


def figures(records, c, first):
	"""Yields the figures of a condition; first: those of the first condition by class and latency, empty if it was not run."""
	for name in ('latency', 'batch'):
		mine = [r for r in records if r['condition'] == c['condition'] and r['class'] == name]
		for latency in LATENCIES if any(r['call'] for r in mine) else ():
			f = {'class': name, 'latency': latency, **figures_of(mine, latency, c['rounds'])}
			of = first.get((name, latency))
			if of:
				f['p99_change_percent'] = change(f['p99_us'], of['p99_us'])
				f['variance_change_percent'] = change(f['variance_us2'], of['variance_us2'])
				f['rate_change_percent'] = change(f['kernels_per_s'], of['kernels_per_s'])
			yield f


def report(records, out):
	set_up, processes, conditions, first = {}, [], [], {}
	for name, body in records:
		if name == 'set_up':
			set_up = body
		elif name == 'process':
			processes.append(body)
		else:
			conditions.append(body)
	document = {'schema': 'gbpf.bench.tenants/1', **set_up, 'conditions': []}
	out.line('%s; %u latency and %u batch processes, %u streams x %u kernels of %g ms, %u round%s, policy %s' % (set_up['device'],
		set_up['latency_processes'], set_up['batch_processes'], set_up['streams'], set_up['kernels'], set_up['kernel_ms'],
		set_up['rounds'], plural(set_up['rounds']), set_up['policy']))
	out.line('%-9s %-8s %-10s %6s %11s %11s %11s %13s %8s %8s %8s' % ('', 'CLASS', 'LATENCY', 'N', 'MEAN us', 'P50', 'P99',
		'VARIANCE us2', 'P99 %', 'VAR %', 'RATE %'))
	for c in filter(lambda c: c['chosen'], conditions):
		state = 'failed' if c['broken'] else 'run' if c['rounds'] else 'not available'
		of = list(figures(processes, c, first)) if c['rounds'] else []
		if c is conditions[0]:
			first = {(f['class'], f['latency']): f for f in of}
		for f in of:
			print_row(out, c['condition'], f)
		if state != 'run':
			out.line('%-9s %s: %s' % (c['condition'], 'FAILED' if c['broken'] else state, c['why']))
		document['conditions'].append({'condition': c['condition'], 'is': c['is'], 'state': state, 'rounds': c['rounds'],
			'figures': of, **({'why': c['why']} if c['why'] else {})})
	out.line(NOTE)
	out.document(document)
