"""`gbpf bench dev copy`: bandwidth of pageable copies by number of threads, and what copies of every size cost next to the driver's; shares of
copies; copies that overlap with kernels. Rows are printed as soon as they are measured."""
import stats
from command import Command, Refused, flag, lib, number, shares, size, words
from text import plural


def prepare(options, machine):
	"""--overlap and --shares are measurements of their own; --policies and --link-bandwidth belong to one."""
	if options.overlap and options.shares:
		raise Refused('--overlap cannot be combined with --shares')
	if options.policies and not options.shares:
		raise Refused('--policies needs --shares')
	if options.link_bandwidth and not (options.overlap and machine.soft):
		raise Refused(f"--link-bandwidth needs {'--device soft' if options.overlap else '--overlap'}")
	if options.overlap and options.max and int(options.max) < 1 << 16:
		raise Refused('--max: --overlap needs at least 64K')
	return ['--policy-dir', lib('policies')]


COMMAND = Command('bench-copy', 'copies: bandwidth, small sizes, shares, overlap with kernels', [
	size('max', 1, 1 << 32, 'largest copy (default 1G; --shares 256M, soft 64M; --overlap 64M, soft 4M)'),
	words('threads', ('1', '2', '3', '4', '5', '6', '7', '8', '16'), 'numbers of threads (default 1,2,4,6,8)', default='1,2,4,6,8'),
	words('ways', ('up', 'down', 'both'), 'of up, down, both (default all)'),
	number('repeats', 1, 1000, 'rounds (default 5)', 'r'),
	shares('shares', 'measure copy shares in percent instead, as 30,70'),
	words('policies', ('copy_fair', 'vgpu_auto', 'none'), '--shares: of copy_fair, vgpu_auto, none (default all)'),
	flag('overlap', 'measure how far copies and kernels overlap instead'),
	size('link-bandwidth', 1 << 20, 1 << 40, '--overlap: of the soft GPU (default 256M)'),
	number('seconds', 1, 3600, '--shares, --overlap: windows of a second (default 5)', 't', 'S')], policy=Command.CHOSEN,
	client='bench-copy-client', prepare=prepare)

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


def row_of(key, driver, gbpf):
	"""Returns the figures of one size, way, kind of destination and number of threads."""
	bytes_, way, fresh, threads = key
	d, g = (stats.quantile(sorted(v), 0.5) for v in (driver, gbpf))
	return {'bytes': bytes_, 'way': way, 'fresh': fresh, 'threads': threads, 'copies': len(gbpf), 'driver_ns': d, 'gbpf_ns': g,
		'driver_gb_s': rate(bytes_, way, d), 'gbpf_gb_s': rate(bytes_, way, g), 'ratio': stats.ratio(g, d)}


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


def share_row(of, alone):
	"""Returns the figures of the windows of a policy, way and kind of memory. In alone the first client had no neighbours."""
	shares = of[0]['shares']
	want = [100 * s / sum(shares) for s in shares]
	got = [parts(w['bytes']) for w in of]
	error = [abs(g - s) for one in got for g, s in zip(one, want)]
	return {'policy': of[0]['policy'], 'way': of[0]['way'], 'kind': of[0]['kind'], 'shares': shares, 'windows': len(of),
		'got_percent': [stats.mean(column) for column in zip(*got)], 'error_mean_points': stats.mean(error), 'error_max_points': max(error),
		'gb_s': stats.mean([sum(w['bytes']) / w['elapsed_ns'] for w in of]),
		'alone_gb_s': stats.mean([w['bytes'][0] / w['elapsed_ns'] for w in alone])}


def latency_row(alone, busy, rows):
	"""Returns P50 and P99 of short copies alone and next to long ones, and the time of one piece at the link's measured bandwidth."""
	best = max((r['alone_gb_s'] for r in rows if r['way'] == 'up'), default=0)
	quiet, next_to = sorted(alone['ns']), sorted(busy['ns'])
	piece = busy['piece_bytes'] / best if best else None
	return {'policy': busy['policy'], 'bytes': busy['bytes'], 'calls': len(next_to), 'alone_p50_ns': stats.quantile(quiet, 0.5),
		'alone_p99_ns': stats.quantile(quiet, 0.99), 'p50_ns': stats.quantile(next_to, 0.5), 'p99_ns': stats.quantile(next_to, 0.99),
		'piece_ns': piece, 'limit_ns': stats.quantile(quiet, 0.99) + piece if piece else None}


def missed_shares(d):
	for r in d['rows']:
		if not d['soft'] and r['policy'] != 'none' and r['error_mean_points'] > SHARE_GOAL:
			yield '%s, %s, %s: error of %.2f points, not %g' % (r['policy'], r['way'], r['kind'], r['error_mean_points'], SHARE_GOAL)
	for r in d['latency']:
		if not d['soft'] and r['policy'] != 'none' and r['limit_ns'] and r['p99_ns'] > r['limit_ns']:
			yield '%s: P99 of %.1f us next to copies, not %.1f' % (r['policy'], r['p99_ns'] / 1000, r['limit_ns'] / 1000)


SHARE_LINE = '%-10s %-5s %-9s %-12s %8s %6s %8s %8s  %s'


def print_share(out, r):
	out.line(SHARE_LINE % (r['policy'], r['way'], r['kind'], ','.join(map(str, r['shares'])), '%.2f' % r['error_mean_points'],
		'%.2f' % r['error_max_points'], '%.2f' % r['gb_s'], '%.2f' % r['alone_gb_s'], ' '.join('%.1f' % g for g in r['got_percent'])))


def print_latency(out, r):
	out.line('%-10s upload of %s: alone P50 %.1f, P99 %.1f us; next to copies P50 %.1f, P99 %.1f us; limit %s' % (r['policy'],
		size_text(r['bytes']), r['alone_p50_ns'] / 1000, r['alone_p99_ns'] / 1000, r['p50_ns'] / 1000, r['p99_ns'] / 1000,
		'%.1f us' % (r['limit_ns'] / 1000) if r['limit_ns'] else '-'))


def report_shares(d, records, out):
	d['schema'] = 'gbpf.bench.copy_shares/1'
	d['rows'], d['latency'] = [], []
	windows, latency = {}, {}
	out.line('%s, %d core%s; copies of %s without a pause, windows of a second' % (d['device'], d['cores'], plural(d['cores']), size_text(d['max'])))
	out.line(SHARE_LINE % ('POLICY', 'WAY', 'MEMORY', 'SHARES', 'ERROR', 'MAX', 'GB/s', 'ALONE', 'GOT %'))

	def add(key):
		d['rows'].append(share_row(windows.pop(key), windows[key[:3] + (1,)]))
		print_share(out, d['rows'][-1])

	for name, body in records:
		if name == 'share':
			key = body['policy'], body['way'], body['kind'], len(body['shares'])
			of = windows.setdefault(key, [])
			of.append(body)
			if len(body['shares']) > 1 and len(of) == body['windows']:
				add(key)
		elif name == 'latency':
			latency[body['policy'], bool(body['next_to_copies'])] = body
			if body['next_to_copies']:
				own = [r for r in d['rows'] if r['policy'] == body['policy']]
				d['latency'].append(latency_row(latency[body['policy'], False], body, own))
				print_latency(out, d['latency'][-1])
	for key in [k for k in windows if k[3] > 1]:
		add(key)  # interrupted among its windows
	d['missed'] = list(missed_shares(d))
	finish(d, out)


# ---- --overlap ----

OVERLAP_GOAL = 130.0  # percent, compute and copies
OVERLAP_LINE = '%-9s %-12s %7s %9s %8s %8s %8s %8s %8s  %s'
OVERLAP_NOTE = '''COPY, COMPUTE: time when a copy, or a kernel, of at least one tenant was in flight; COMPUTE at most the images times the kernel's time
alone. DEVICE: device time that gbpfd counts. OF ALONE: images per second against one tenant of the same place alone'''


def overlap_row(of, image, alone):
	"""Returns the figures of the windows of a kind of memory, place and number of tenants; means over windows."""
	seconds = sum(w['elapsed_ns'] for w in of) / 1e9
	images = sum(sum(w['images']) for w in of)
	compute, copy = ([100 * stats.ratio(part(w), w['elapsed_ns']) for w in of] for part in (
		lambda w: min(w['compute_ns'], sum(w['images']) * image['kernel_ns']), lambda w: w['copy_ns']))
	device = [100 * sum(w['busy_ns']) / w['elapsed_ns'] for w in of if w['busy_ns']]
	row = {'kind': of[0]['kind'], 'place': of[0]['place'], 'tenants': of[0]['tenants'], 'windows': len(of), 'images_per_s': images / seconds,
		'compute_percent': stats.mean(compute), 'copy_percent': stats.mean(copy), 'device_percent': stats.mean(device) if device else None,
		'sum_percent': stats.mean(compute) + stats.mean(copy), 'windows_sum_percent': [a + b for a, b in zip(compute, copy)]}
	row['of_alone'] = stats.ratio(row['images_per_s'], alone['images_per_s']) if alone else None
	row['met'] = row['sum_percent'] > OVERLAP_GOAL if row['tenants'] > 1 and row['place'] != 'native' else None
	return row


def print_overlap(out, r):
	out.line(OVERLAP_LINE % (r['kind'], r['place'], r['tenants'], '%.1f' % r['images_per_s'], '%.2f' % r['of_alone'] if r['of_alone'] else '-',
		'%.1f' % r['compute_percent'], '%.1f' % r['device_percent'] if r['device_percent'] is not None else '-', '%.1f' % r['copy_percent'],
		'%.1f' % r['sum_percent'], '' if r['met'] is None else 'met' if r['met'] else 'missed'))


def missed_overlap(d):
	for r in d['rows']:
		if r['met'] is False and not d['soft']:
			yield '%s, %s: compute and copies %.1f %% busy, not above %g %%' % (r['kind'], r['place'], r['sum_percent'], OVERLAP_GOAL)


def report_overlap(d, records, out):
	d['schema'] = 'gbpf.bench.copy_overlap/1'
	d['rows'], d['images'] = [], {}
	windows = []

	def add():
		w = windows[0]
		alone = next((r for r in d['rows'] if (r['kind'], r['place'].split('-')[0], r['tenants']) == (w['kind'], w['place'].split('-')[0], 1)), None)
		d['rows'].append(overlap_row(windows, d['images'][w['kind']], alone))
		print_overlap(out, d['rows'][-1])
		windows.clear()

	for name, body in records:
		if name == 'image':
			if not d['images']:
				d['device'], d['cores'] = body['device'], body['cores']
				out.line('%s, %d core%s; images of %s: upload, kernel, download; policy %s, %d %% of each: %s%s' % (d['device'], d['cores'],
					plural(d['cores']), size_text(d['max']), d['policy'], d['share'], d['policy_shares'],
					'; link of %s/s' % size_text(d['link_bytes_s']) if d['link_bytes_s'] else ''))
				out.line(OVERLAP_LINE % ('MEMORY', 'PLACE', 'TENANTS', 'IMAGES/s', 'OF ALONE', 'COMPUTE%', 'DEVICE%', 'COPY%', 'SUM%', 'GOAL %g' % OVERLAP_GOAL))
			d['images'][body['kind']] = body
			out.line('%-9s alone by gBPF: copies %.2f ms, kernel %.2f ms' % (body['kind'], body['copies_ns'] / 1e6, body['kernel_ns'] / 1e6))
		elif name == 'overlap':
			windows.append(body)
			if len(windows) == body['windows']:
				add()
	if windows:
		add()  # interrupted among its windows
	d['missed'] = list(missed_overlap(d))
	out.line(OVERLAP_NOTE)
	finish(d, out)


def finish(d, out):
	d['complete'] = out.failure is None
	for text in d['missed']:
		out.line('MISSED: ' + text)
	out.failed = bool(d['missed'])
	out.document(d)


# ---- all sizes ----

SIZE_LINE = '%10s %5s %10s %8s %12s %12s %12s %12s %7s'


def print_size(out, r):
	out.line(SIZE_LINE % (size_text(r['bytes']), r['way'], 'untouched' if r['fresh'] else 'touched', r['threads'] or '-',
		'%.2f' % (r['driver_ns'] / 1000), '%.2f' % (r['gbpf_ns'] / 1000), '%.2f' % r['driver_gb_s'], '%.2f' % r['gbpf_gb_s'],
		'%.3f' % r['ratio']))


def report_sizes(d, records, out):
	d['schema'] = 'gbpf.bench.copy/1'
	found, rounds = {}, {}
	out.line('%s, %d core%s; up to %s, %d round%s; medians, alternately by gBPF and by the driver; threads -: the default' % (d['device'],
		d['cores'], plural(d['cores']), size_text(d['max']), d['repeats'], plural(d['repeats'])))
	out.line(SIZE_LINE % ('SIZE', 'WAY', 'MEMORY', 'THREADS', 'DRIVER us', 'GBPF us', 'DRIVER GB/s', 'GBPF GB/s', 'TIME'))
	for name, body in records:
		if name != 'copy':
			continue
		key = body['bytes'], body['way'], body['fresh'], body['threads']
		driver, gbpf = found.setdefault(key, ([], []))
		driver.extend(body['driver'])
		gbpf.extend(body['gbpf'])
		rounds[key] = rounds.get(key, 0) + 1
		if rounds[key] == d['repeats']:
			print_size(out, row_of(key, driver, gbpf))
	for key in found:
		if rounds[key] < d['repeats']:
			print_size(out, row_of(key, *found[key]))  # interrupted before its last round
	d['rows'] = [row_of(key, *found[key]) for key in sorted(found)]
	d['missed'] = list(missed(d))
	finish(d, out)


def report(records, out):
	records = out.until_failure(records)
	name, d = next(records, ('', {}))
	if name != 'set_up':
		return  # nothing was measured
	(report_overlap if d.get('overlap') else report_shares if 'seconds' in d else report_sizes)(d, records, out)
