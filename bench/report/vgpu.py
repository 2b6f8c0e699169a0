"""`gbpf bench dev vgpu`: error of the shares of device time in windows of a second, and utilization against tenants alone."""
import stats
from command import Command, flag, lib, number, shares, words
from text import plural

POLICIES = ('band2', 'vgpu_auto', 'band', 'credit', 'fifo_share', 'none')
COMMAND = Command('bench-vgpu', 'shares of virtual GPUs: error and utilization', [
	shares('shares', 'percents of the vGPUs (default 50,50|30,70|10,20,30,40)', sets=True),
	words('policies', POLICIES, f"of {','.join(POLICIES)} (default all)"),
	words('lanes', ('process', 'shared'), 'process, shared (default both; soft: process)'),
	number('seconds', 1, 3600, 'windows of a second for each (default 10)', 't', 'S'),
	number('settle', 0, 3600, 'seconds of work before these (default 2)', metavar='S'),
	number('short-us', 10, 1000000, 'length of the short kernels (default 100)', metavar='US'),
	number('long-us', 10, 1000000, 'of the long ones (default 10000)', metavar='US'),
	number('queue-ms', 1, 1000, 'work that a tenant queues (default 30)', metavar='MS'),
	flag('burst', 'vGPUs may use what others leave over')],
	prepare=lambda options, machine: ['--policy-dir', lib('policies')])

GOAL_MEAN, GOAL_MAX, GOAL_UTILIZATION = 1.0, 3.0, 98.5
LENGTH_FACTOR = 1.5 # by which kernels may be longer or shorter than stated
NOTE = '''ERROR: difference of a tenant's part of the device time from its share, in points, mean and greatest over windows and tenants;
PROGRESS: the same for the tenants' own count of kernels; USED: progress of all tenants against a tenant alone'''


def parts(values):
	total = sum(values)
	return [100 * stats.ratio(v, total) for v in values]


def errors(got, want):
	return [abs(g - w) for g, w in zip(got, want)]


def alone_rates(windows):
	"""Returns kernels per second of a tenant alone, by lane and kind; the first window of each may be incomplete."""
	rates = {}
	for w in windows:
		if not w['shares']:
			key = w['lane'], w['kinds'][0]
			rates.setdefault(key, []).append(1e9 * w['finished'][0] / w['elapsed_ns'])
	return {key: stats.mean(of) for key, of in rates.items()}


def progress_of(w, rates):
	"""Returns for each tenant the fraction of the time that its kernels would have taken alone."""
	return [stats.ratio(1e9 * n / w['elapsed_ns'], rates[w['lane'], kind]) for n, kind in zip(w['finished'], w['kinds'])]


def figures_of(lane, policy, shares, windows, rates):
	want = [100 * s / sum(shares) for s in shares]
	busy = [parts(w['busy_ns']) for w in windows]
	progress = [progress_of(w, rates) for w in windows]
	error = [e for got in busy for e in errors(got, want)]
	own = [e for p in progress for e in errors(parts(p), want)]
	return {'lane': lane, 'policy': policy, 'shares': shares, 'kinds': windows[0]['kinds'], 'windows': len(windows),
		'got_percent': [stats.mean(column) for column in zip(*busy)],
		'error_mean_points': stats.mean(error), 'error_max_points': max(error),
		'progress_percent': [stats.mean(column) for column in zip(*map(parts, progress))],
		'progress_error_mean_points': stats.mean(own), 'progress_error_max_points': max(own),
		'busy_percent': stats.mean([100 * sum(w['busy_ns']) / w['elapsed_ns'] for w in windows]),
		'windows_got_percent': busy, 'windows_progress_percent': [[100 * x for x in p] for p in progress],
		'utilization_percent': stats.mean([100 * sum(p) for p in progress])}


def print_row(out, f):
	out.line('%-8s %-11s %-12s %8.2f %6.2f %8.2f %6.2f %8.1f  %s' % (f['lane'], f['policy'], ','.join(map(str, f['shares'])),
		f['error_mean_points'], f['error_max_points'], f['progress_error_mean_points'], f['progress_error_max_points'],
		f['utilization_percent'], ' '.join('%.1f' % g for g in f['got_percent'])))


def wrong_lengths(rates, stated_us):
	"""Kernels are charged when they end: longer ones than stated make windows of a second look worse."""
	for (lane, kind), rate in rates.items():
		us = stats.ratio(1e6, rate)
		if not stated_us[kind] / LENGTH_FACTOR <= us <= stated_us[kind] * LENGTH_FACTOR:
			yield '%s lane: %s kernels take %.0f us alone, not %g' % (lane, kind, us, stated_us[kind])


def missed(rows):
	for f in rows:
		if f['policy'] != 'band2':
			continue
		where = f"{f['lane']} lane, {','.join(map(str, f['shares']))}"
		if f['error_mean_points'] > GOAL_MEAN or f['error_max_points'] > GOAL_MAX:
			yield '%s: error %.2f mean, %.2f max, not %g and %g points' % (where, f['error_mean_points'], f['error_max_points'],
				GOAL_MEAN, GOAL_MAX)
		if f['utilization_percent'] < GOAL_UTILIZATION:
			yield '%s: %.1f %% used, not %g %%' % (where, f['utilization_percent'], GOAL_UTILIZATION)


def report(records, out):
	d, windows, rows = {'schema': 'gbpf.bench.vgpu/1'}, [], []
	for name, body in records:
		if name == 'set_up':
			d.update(body)
		elif name == 'window':
			windows.append(body)
	rates = alone_rates(windows)
	out.line('%s; %g window%s of %g s, kernels of %g and %g us in turn, vGPUs %s burst' % (d['device'], d['seconds'] / d['window_s'],
		plural(d['seconds'] / d['window_s']), d['window_s'], d['short_us'], d['long_us'], 'with' if d['burst'] else 'without'))
	for (lane, kind), rate in rates.items():
		out.line('alone, %s lane, %s: %.1f kernels/s of %.0f us' % (lane, kind, rate, stats.ratio(1e6, rate)))
	out.line('%-8s %-11s %-12s %8s %6s %8s %6s %8s  %s' % ('LANE', 'POLICY', 'SHARES', 'ERROR', 'MAX', 'PROGRESS', 'MAX', 'USED %', 'GOT %'))
	for key in dict.fromkeys((w['lane'], w['policy'], tuple(w['shares'])) for w in windows if w['shares']):
		of = [w for w in windows if (w['lane'], w['policy'], tuple(w['shares'])) == key]
		rows.append(figures_of(key[0], key[1], list(key[2]), of, rates))
		print_row(out, rows[-1])
	d['alone'] = [{'lane': lane, 'kind': kind, 'kernels_per_s': rate} for (lane, kind), rate in rates.items()]
	d['conditions'] = rows
	d['missed'] = [*wrong_lengths(rates, {'short': d['short_us'], 'long': d['long_us']}), *missed(rows)]
	for text in d['missed']:
		out.line('MISSED: ' + text)
	out.line(NOTE)
	out.failed = bool(d['missed']) and not d['soft']
	out.document(d)
