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


def report(records, out):
	d, copies = {'schema': 'gbpf.bench.copy/1'}, []
	for name, body in records:
		if name == 'copy':
			copies.append(body)
		else:
			d.update(body)
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
	for text in d['missed']:
		out.line('MISSED: ' + text)
	out.failed = bool(d['missed'])
	out.document(d)
