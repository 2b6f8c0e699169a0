"""`gbpf bench copy`: bandwidth of pageable copies by number of threads, and what copies of every size cost next to the driver's."""
import stats
from text import plural

DEFAULT = 0  # threads: gBPF's choice
SLOWER_MAX = 1.03
# way, smallest and largest number of threads, GB/s that one of them must reach
GOALS = [('up', 6, 8, 48.0), ('up', 4, 4, 34.0), ('down', 4, 4, 50.0), ('both', 6, 8, 47.0)]


def size_text(n):
	for unit, name in ((1 << 30, 'GiB'), (1 << 20, 'MiB'), (1 << 10, 'KiB')):
		if n >= unit and n % unit == 0:
			return f'{n // unit} {name}'
	return f'{n} B'


def rate(bytes_, way, ns):
	"""GB/s; both ways at once: the sum."""
	return stats.ratio(bytes_ * (2 if way == 'both' else 1), ns)


def rows_of(records):
	"""Returns a list with the figures of each size, way, kind of destination and number of threads."""
	found = {}
	for r in records:
		both = found.setdefault((r['bytes'], r['way'], r['fresh'], r['threads']), ([], []))
		both[0].extend(r['driver'])
		both[1].extend(r['gbpf'])
	rows = []
	for (bytes_, way, fresh, threads), (driver, gbpf) in sorted(found.items()):
		d, g = (stats.quantile(sorted(v), 0.5) for v in (driver, gbpf))
		rows.append({'bytes': bytes_, 'way': way, 'fresh': fresh, 'threads': threads, 'copies': len(gbpf), 'driver_ns': d, 'gbpf_ns': g,
			'driver_gb_s': rate(bytes_, way, d), 'gbpf_gb_s': rate(bytes_, way, g), 'ratio': stats.ratio(g, d)})
	return rows


def missed(d):
	"""Yields the goals that were missed. Bandwidths are those of a GPU behind its link, for the largest size of 1 GiB and more."""
	for r in d['rows']:
		if not d['soft'] and r['threads'] == DEFAULT and r['way'] != 'both' and not r['fresh'] and r['ratio'] > SLOWER_MAX:
			yield '%s %s: %.3f times as long as the driver, not %g' % (size_text(r['bytes']), r['way'], r['ratio'], SLOWER_MAX)
	if d['soft'] or d['max'] < 1 << 30:
		return
	for way, low, high, goal in GOALS:
		best = max((r['gbpf_gb_s'] for r in d['rows'] if r['way'] == way and not r['fresh'] and r['bytes'] == 1 << 30 and
			low <= r['threads'] <= high), default=None)
		if best is not None and best < goal:
			yield '1 GiB %s, %d to %d threads: %.1f GB/s, not %g' % (way, low, high, best, goal)


# ---- --shares ----

SHARE_GOAL = 2.0  # points, mean over windows and clients


def parts(values):
	return [100 * stats.ratio(v, sum(values)) for v in values]


def share_rows(windows):
	"""Returns a list with the figures of each policy, way and kind of memory. The first client also copied alone."""
	alone, found = {}, {}
	for w in windows:
		key = w['policy'], w['way'], w['kind']
		if len(w['shares']) == 1:
			alone.setdefault(key, []).append(w['bytes'][0] / w['elapsed_ns'])
		else:
			found.setdefault(key, []).append(w)
	rows = []
	for (policy, way, kind), of in found.items():
		shares = of[0]['shares']
		want = [100 * s / sum(shares) for s in shares]
		got = [parts(w['bytes']) for w in of]
		error = [abs(g - s) for one in got for g, s in zip(one, want)]
		rows.append({'policy': policy, 'way': way, 'kind': kind, 'shares': shares, 'windows': len(of),
			'got_percent': [stats.mean(column) for column in zip(*got)], 'error_mean_points': stats.mean(error), 'error_max_points': max(error),
			'gb_s': stats.mean([sum(w['bytes']) / w['elapsed_ns'] for w in of]), 'alone_gb_s': stats.mean(alone[policy, way, kind])})
	return rows


def latency_rows(records, rows):
	"""Returns P50 and P99 of short copies alone and next to long ones, and the time of one piece at the link's measured bandwidth."""
	best = max((r['alone_gb_s'] for r in rows if r['way'] == 'up'), default=0)
	found = {}
	for r in records:
		found.setdefault(r['policy'], {})[bool(r['next_to_copies'])] = r
	result = []
	for policy, r in found.items():
		alone, busy = (sorted(r[k]['ns']) for k in (False, True))
		piece = r[True]['piece_bytes'] / best if best else None
		p99, limit = stats.quantile(busy, 0.99), stats.quantile(alone, 0.99) + piece if piece else None
		result.append({'policy': policy, 'bytes': r[True]['bytes'], 'calls': len(busy), 'alone_p50_ns': stats.quantile(alone, 0.5),
			'alone_p99_ns': stats.quantile(alone, 0.99), 'p50_ns': stats.quantile(busy, 0.5), 'p99_ns': p99, 'piece_ns': piece, 'limit_ns': limit})
	return result


def missed_shares(d):
	for r in d['rows']:
		if not d['soft'] and r['policy'] != 'none' and r['error_mean_points'] > SHARE_GOAL:
			yield '%s, %s, %s: error of %.2f points, not %g' % (r['policy'], r['way'], r['kind'], r['error_mean_points'], SHARE_GOAL)
	for r in d['latency']:
		if not d['soft'] and r['policy'] != 'none' and r['limit_ns'] and r['p99_ns'] > r['limit_ns']:
			yield '%s: P99 of %.1f us next to copies, not %.1f' % (r['policy'], r['p99_ns'] / 1000, r['limit_ns'] / 1000)


def report_shares(d, windows, latency, out):
	d['schema'] = 'gbpf.bench.copy_shares/1'
	d['rows'] = share_rows(windows)
	d['latency'] = latency_rows(latency, d['rows'])
	d['missed'] = list(missed_shares(d))
	out.line('%s, %d core%s; copies of %s without a pause, windows of a second' % (d['device'], d['cores'], plural(d['cores']), size_text(d['max'])))
	out.line('%-10s %-5s %-9s %-12s %8s %6s %8s %8s  %s' % ('POLICY', 'WAY', 'MEMORY', 'SHARES', 'ERROR', 'MAX', 'GB/s', 'ALONE', 'GOT %'))
	for r in d['rows']:
		out.line('%-10s %-5s %-9s %-12s %8.2f %6.2f %8.2f %8.2f  %s' % (r['policy'], r['way'], r['kind'], ','.join(map(str, r['shares'])),
			r['error_mean_points'], r['error_max_points'], r['gb_s'], r['alone_gb_s'], ' '.join('%.1f' % g for g in r['got_percent'])))
	out.line('%-10s %8s %12s %12s %12s %12s %12s' % ('POLICY', 'UPLOAD', 'ALONE P50', 'ALONE P99', 'P50 us', 'P99 us', 'LIMIT us'))
	for r in d['latency']:
		out.line('%-10s %8s %12.1f %12.1f %12.1f %12.1f %12s' % (r['policy'], size_text(r['bytes']), r['alone_p50_ns'] / 1000,
			r['alone_p99_ns'] / 1000, r['p50_ns'] / 1000, r['p99_ns'] / 1000, '%.1f' % (r['limit_ns'] / 1000) if r['limit_ns'] else '-'))
	finish(d, out)


def finish(d, out):
	for text in d['missed']:
		out.line('MISSED: ' + text)
	out.failed = bool(d['missed'])
	out.document(d)


def report(records, out):
	shares, latency = [], []
	d, copies = {'schema': 'gbpf.bench.copy/1'}, []
	for name, body in records:
		if name == 'copy':
			copies.append(body)
		elif name == 'share':
			shares.append(body)
		elif name == 'latency':
			latency.append(body)
		else:
			d.update(body)
	if shares:
		return report_shares(d, shares, latency, out)
	d['rows'] = rows_of(copies)
	d['missed'] = list(missed(d))
	out.line('%s, %d core%s; up to %s, %d round%s; medians, alternately by gBPF and by the driver; threads -: the default' % (d['device'],
		d['cores'], plural(d['cores']), size_text(d['max']), d['repeats'], plural(d['repeats'])))
	out.line('%10s %5s %10s %8s %12s %12s %12s %12s %7s' % ('SIZE', 'WAY', 'MEMORY', 'THREADS', 'DRIVER us', 'GBPF us', 'DRIVER GB/s',
		'GBPF GB/s', 'TIME'))
	for r in d['rows']:
		out.line('%10s %5s %10s %8s %12.2f %12.2f %12.2f %12.2f %7.3f' % (size_text(r['bytes']), r['way'],
			'untouched' if r['fresh'] else 'touched', r['threads'] or '-', r['driver_ns'] / 1000, r['gbpf_ns'] / 1000, r['driver_gb_s'],
			r['gbpf_gb_s'], r['ratio']))
	return finish(d, out)
