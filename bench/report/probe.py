"""`gbpf bench probe`: launches with a program inside the kernel against launches without, in pairs of one run; time of an attachment
to a running program, and delay of other launches meanwhile; resources that many attachments take."""
import math

import stats
from command import Command, lib, number, words

ROWS = ('warp', 'block', 'sampled', 'lane', 'empty', 'timer', 'memtrace', 'retsnoop', 'elsewhere', 'detached')
SAMPLES = ('vecadd', 'saxpy', 'transpose', 'reduction', 'scan', 'histogram', 'bfs', 'spmv', 'matmul', 'hotspot', 'nbody', 'softmax',
	'gemm-1024', 'softmax-8192')
COMMAND = Command('bench-probe', 'cost of programs inside kernels, and of attaching them', [
	words('parts', ('cost', 'samples', 'budget', 'attach', 'cycles'), 'cost, samples, budget, attach, cycles (default all)'),
	words('rows', ROWS, f"of {', '.join(ROWS)}; the last two only of cost (default all)"),
	words('samples', SAMPLES, 'kernels of samples: their names, gemm-1024, softmax-8192 (default all)'),
	number('rounds', 1, 1000, 'of cost, a fifth of samples and budget (default 25, soft 2)', 'r'),
	number('attaches', 1, 1000, 'of attach (default 20, soft 4)', 'a'),
	number('cycles', 1, 100000, 'of attach, swap, detach (default 1000, soft 5)', 'n')],
	prepare=lambda options, machine: ['--shim', lib('shim', 'libcuda.so.1'), '--objects', lib('bench', 'probe'), '--tracers', lib('tracers')])

CONFIDENCE = 0.95
# Times unprobed, at most: the workloads "chained" and "large".
GOALS = {'warp': 1.07, 'block': 1.03, 'sampled': 1.01, 'lane': 1.05, 'empty': 1.01, 'timer': 1.07, 'elsewhere': 1.005,
	'detached': 1.005}
GOAL_WORKLOADS = 'chained', 'large'
GOAL_FIRST_MS, GOAL_DELAY_MS, GOAL_FLIP_US = 250, 8, 1
GOAL_MEMTRACE = 1.5  # geometric mean of the twelve samples
# Most that half of the cycles may take: a unit in which the driver allocates, descriptors that are open for a moment.
GROWTH = {'device_bytes': 2 << 20, 'descriptors': 2, 'daemon_descriptors': 2}
NAMES = {'warp': 'counter per warp', 'block': 'counter per block', 'sampled': 'counter, 1 block in 8', 'lane': 'counter per lane',
	'empty': 'empty program', 'timer': 'time of each warp', 'elsewhere': 'another kernel has one', 'before': 'before the first',
	'detached': 'after detach', 'memtrace': 'memtrace', 'retsnoop': 'kernelretsnoop'}
WORKLOADS = {'chained': '%s threads, chained', 'single': '%s threads, single', 'large': '%s threads, chained', 'block': 'one block'}


def size(n):
	for unit, name in ((1 << 20, 'M'), (1 << 10, 'K')):
		if n >= unit:
			return '%g %s' % (n / unit, name)
	return '%u' % n


def median(v):
	return stats.quantile(sorted(v), 0.5)


def figures_of(row, workload, of):
	"""Returns the medians of a row's pairs and their ratio; of "detached" the ratio divided by the one before the first attachment,
	both of them to launches by the driver's library."""
	ratios = sorted(stats.ratio(m['with_us'], m['without_us']) for m in of)
	(low, high), _ = stats.quantile_interval(ratios, 0.5, CONFIDENCE)
	f = {'row': row, 'workload': workload, 'pairs': len(of), 'ratio': median(ratios), 'ratio_low': low, 'ratio_high': high}
	for k in ('without_us', 'with_us', 'without_call_us', 'with_call_us'):
		f[k] = median(m[k] for m in of)
	return f


def cost_rows(pairs):
	rows = []
	for row, workload in dict.fromkeys((m['row'], m['workload']) for m in pairs):
		of = [m for m in pairs if (m['row'], m['workload']) == (row, workload)]
		rows.append(figures_of(row, workload, of))
	before = {f['workload']: f['ratio'] for f in rows if f['row'] == 'before'}
	for f in rows:
		if f['row'] == 'detached':
			for k in ('ratio', 'ratio_low', 'ratio_high'):
				f[k] = stats.ratio(f[k], before[f['workload']])
	order = list(NAMES)
	for f in rows:
		f['goal'] = GOALS.get(f['row']) if f['workload'] in GOAL_WORKLOADS else None
	return sorted(rows, key=lambda f: (list(WORKLOADS).index(f['workload']), order.index(f['row'])))


def sample_rows(pairs):
	"""Returns the medians of each sample's pairs, by row and size."""
	rows = []
	for row, workload, size_name in dict.fromkeys((m['row'], m['workload'], m['size']) for m in pairs):
		of = [m for m in pairs if (m['row'], m['workload'], m['size']) == (row, workload, size_name)]
		rows.append({**figures_of(row, workload, of), 'size': size_name})
	return rows


def sample_means(rows, samples):
	"""Returns the geometric mean of each row's ratios over the twelve samples that were measured."""
	names = {s['name'] for s in samples if s['sample']}
	means = {}
	for row in dict.fromkeys(f['row'] for f in rows):
		ratios = [f['ratio'] for f in rows if f['row'] == row and f['size'] == 'full' and f['workload'] in names]
		if ratios:
			means[row] = {'ratio': math.exp(sum(map(math.log, ratios)) / len(ratios)), 'samples': len(ratios),
				'goal': GOAL_MEMTRACE if row == 'memtrace' and len(ratios) == 12 else None}
	return means


def print_samples(out, d):
	rows = {(f['workload'], f['size'], f['row']): f for f in d['samples']}
	programs = [r for r in NAMES if any(f['row'] == r for f in d['samples'])]
	if not rows:
		return
	for size_name, title in ('full', 'samples: us, x with'), ('block', 'of one block: us, more with'):
		out.line('%-28s %10s' % (title, '') + ''.join(' %9s' % p for p in programs))
		for name in dict.fromkeys(f['workload'] for f in d['samples']):
			of = [rows.get((name, size_name, p)) for p in programs]
			first = next(f for f in of if f)
			cells = ((('%9.3f' % f['ratio'] if size_name == 'full' else '%+9.3f' % (f['with_us'] - f['without_us'])) if f else '%9s' % '')
				for f in of)
			out.line('  %-26s %10.3f' % (name, first['without_us']) + ''.join(' ' + c for c in cells))
		if size_name == 'full':
			out.line('  %-26s %10s' % ('geometric mean, samples', '') + ''.join(
				' %9s' % ('%.3f' % d['means'][p]['ratio'] if p in d['means'] else '') for p in programs))
	for f in d['sample_counts']:
		out.line('  %-22s counted %u of %u, %u of %u comparisons differ' % (NAMES[f['row']], f['counted'], f['expected'], f['wrong'],
			f['comparisons']))


def budget_rows(mixes):
	"""Returns the medians of launches without a tool and with one that has a budget, the share that ran it, and the counts."""
	rows = []
	for row, workload in dict.fromkeys((m['row'], m['workload']) for m in mixes):
		of = [m for m in mixes if (m['row'], m['workload']) == (row, workload)]
		ratios = sorted(stats.ratio(m['with_us'], m['without_us']) for m in of)
		(low, high), _ = stats.quantile_interval(ratios, 0.5, CONFIDENCE)
		f = {'row': row, 'workload': workload, 'count': len(of), 'ratio': median(ratios), 'ratio_low': low, 'ratio_high': high,
			'goal': 1 + of[0]['budget_ppm'] / 1e6, 'cost_ppm': median(m['cost_ppm'] for m in of),
			**{k: median(m[k] for m in of) for k in ('without_us', 'with_us')},
			**{k: sum(m[k] for m in of) for k in ('launches', 'probed', 'expected', 'counted')}}
		f['wrong'] = sum(m['expected'] != m['counted'] for m in of)
		rows.append(f)
	return rows


def print_budgets(out, rows):
	if rows:
		out.line('%-36s %10s %10s %7s %15s %6s %9s %9s' % ('with a budget', 'us', 'us with', 'x', '95 %', 'goal', 'share', 'costs'))
	for f in rows:
		out.line('  %-34s %10.3f %10.3f %7.3f %7.3f-%-7.3f %6g %8.1f%% %8.1f%%' % (f'{NAMES[f["row"]]}, {f["workload"]}', f['without_us'],
			f['with_us'], f['ratio'], f['ratio_low'], f['ratio_high'], f['goal'], 100 * stats.ratio(f['probed'], f['launches']),
			f['cost_ppm'] / 1e4))
	for f in rows:
		out.line('  %-34s counted %u of %u in %u of %u launches' % (f'{NAMES[f["row"]]}, {f["workload"]}', f['counted'], f['expected'],
			f['probed'], f['launches']))


def count_rows(counts):
	"""Returns the sums of what was counted and launched, by row."""
	rows = {}
	for c in counts:
		f = rows.setdefault(c['row'], {'row': c['row'], 'comparisons': 0, 'expected': 0, 'counted': 0, 'wrong': 0})
		f['comparisons'] += 1
		f['expected'] += c['expected']
		f['counted'] += c['counted']
		f['wrong'] += c['expected'] != c['counted']
	return list(rows.values())


def print_cost(out, d):
	last = None
	for f in d['cost']:
		if f['workload'] != last:
			last = f['workload']
			w = d['workloads'][last]
			title = WORKLOADS[last] % size(w['threads']) if '%' in WORKLOADS[last] else WORKLOADS[last]
			out.line('%-24s %10s %10s %10s %7s %15s %6s %9s' % (title, 'us', 'us with', 'more', 'x', '95 %', 'goal', 'call us'))
		out.line('  %-22s %10.3f %10.3f %+10.3f %7.3f %7.3f-%-7.3f %6s %+9.3f' % (NAMES[f['row']], f['without_us'], f['with_us'],
			f['with_us'] - f['without_us'], f['ratio'], f['ratio_low'], f['ratio_high'],
			'%g' % f['goal'] if f['goal'] else '', f['with_call_us'] - f['without_call_us']))
	for f in d['counts']:
		out.line('  %-22s counted %u of %u, %u of %u comparisons differ' % (NAMES[f['row']], f['counted'], f['expected'], f['wrong'],
			f['comparisons']))


def spread(values):
	v = sorted(values)
	return {'median': stats.quantile(v, 0.5), 'max': v[-1]}


def attachment_rows(attachments):
	"""Returns for each kind of attachment the times in ms: from the call to the first probed launch, of the detachment, and of the
	longest launch meanwhile, beyond the longest one of the window without an attachment."""
	rows = []
	for kind in dict.fromkeys(a['kind'] for a in attachments):
		of = [a for a in attachments if a['kind'] == kind]
		f = {'kind': kind, 'count': len(of), 'late_detaches': sum(a['late'] for a in of),
			**{k: spread(a[k] for a in of) for k in ('call_ms', 'running_ms', 'first_ms', 'detach_ms')}}
		for window in 'attach', 'detach', 'control':
			f[window] = {'longest_ms': spread(a[window]['longest_ms'] for a in of), 'late': max(a[window]['late'] for a in of),
				'launches': sum(a[window]['launches'] for a in of)}
		f['delay_ms'] = {w: max(a[w]['longest_ms'] - a['control']['longest_ms'] for a in of) for w in ('attach', 'detach')}
		rows.append(f)
	return rows


def print_attachments(out, rows):
	if not rows:
		return
	out.line('%-22s %17s %17s %17s %26s' % ('attach, ms', 'first launch', 'kernel has it', 'detach', 'longest launch: attach'))
	for f in rows:
		out.line('  %-20s %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f %8.2f, detach %.2f, without %.2f; late %u, %u, %u' % (
			f['kind'], *(f[k][q] for k in ('first_ms', 'running_ms', 'detach_ms') for q in ('median', 'max')),
			*(f[w]['longest_ms']['max'] for w in ('attach', 'detach', 'control')), *(f[w]['late'] for w in ('attach', 'detach', 'control'))))
	out.line('  median and greatest; late: most launches of over 1 ms in one of %u attachments; gbpfd did not see %u detachments end' % (
		sum(f['count'] for f in rows), sum(f['late_detaches'] for f in rows)))


def flip_rows(flips):
	"""Returns the medians of the first launches with a tool and without it again, and how much longer they take than the first one
	after an equal pause in which nothing changed: the call, and call and kernel. The first call with the tool also takes what the
	driver's first launch of any kernel takes, which is no part of the flip."""
	rows = []
	for kind in dict.fromkeys(f['kind'] for f in flips):
		of = [f for f in flips if f['kind'] == kind]
		row = {'kind': kind, 'count': len(of), **{k: median(f[k] for f in of) for k in of[0] if k != 'kind'}}
		for way in 'with', 'without':
			row[f'{way}_more_call_us'] = row[f'{way}_call_us'] - row['control_call_us']
			row[f'{way}_more_us'] = row[f'{way}_us'] - row['control_us']
		row['driver_call_us'] = row['new_call_us'] - row['known_call_us']
		row['with_more_call_us'] -= row['driver_call_us']
		rows.append(row)
	return rows


def print_flips(out, rows):
	for f in rows:
		out.line('  flip, %s: the call of the first launch with a tool takes %.2f us instead of %.2f, of the first without it again %.2f;'
			% (f['kind'], f['with_call_us'], f['control_call_us'], f['without_call_us']))
		out.line("    of that, %.2f us is the driver's first launch of a kernel: %.2f us, past gBPF, of a new copy, %.2f of a known one" % (
			f['driver_call_us'], f['new_call_us'], f['known_call_us']))
		out.line('    call and kernel %.2f instead of %.2f, %.2f; medians of %u' % (f['with_us'], f['control_us'], f['without_us'], f['count']))


def growth(c):
	"""Returns what the second half of the cycles has taken."""
	middle, end = c['use'][1:]
	return {'device_bytes': middle['free_bytes'] - end['free_bytes'], 'descriptors': end['descriptors'] - middle['descriptors'],
		'daemon_descriptors': end['daemon_descriptors'] - middle['daemon_descriptors']}


def print_cycles(out, c):
	out.line('%u cycles of attach, swap, detach in %.1f s beside %u launches: none lost, results equal; longest launch %.2f ms' % (
		c['cycles'], c['seconds'], c['launches'], c['longest_ms']))
	out.line('  %8s %18s %12s %12s %12s %12s' % ('cycle', 'free device bytes', 'descriptors', 'of gbpfd', 'KiB', 'of gbpfd'))
	for u in c['use']:
		out.line('  %8u %18u %12u %12u %12u %12u' % tuple(u[k] for k in ('cycle', 'free_bytes', 'descriptors', 'daemon_descriptors',
			'resident_kb', 'daemon_resident_kb')))


def missed_others(d):
	for f in d['attachments']:
		if f['kind'] != 'cached' and f['first_ms']['max'] > GOAL_FIRST_MS:
			yield '%s: first probed launch after %.1f ms, not %g' % (f['kind'], f['first_ms']['max'], GOAL_FIRST_MS)
		for window, ms in f['delay_ms'].items():
			if ms > GOAL_DELAY_MS:
				yield '%s, %s: a launch delayed by %.1f ms, not %g' % (f['kind'], window, ms, GOAL_DELAY_MS)
			if f[window]['late'] > f['control']['late'] + 1:
				yield '%s, %s: %u launches delayed, not 1' % (f['kind'], window, f[window]['late'])
	for f in d['flips']:
		for way in 'with', 'without':
			if f[f'{way}_more_call_us'] > GOAL_FLIP_US:
				yield 'flip, %s, %s: %.2f us, not %g' % (f['kind'], way, f[f'{way}_more_call_us'], GOAL_FLIP_US)
	late = sum(f['late_detaches'] for f in (*d['attachments'], *filter(None, [d['cycling']])))
	if late:
		yield '%u detachments had not ended when gbpfd stopped waiting' % late
	if d['cycling']:
		for k, v in d['cycling']['growth'].items():
			if v > GROWTH[k]:
				yield 'cycles: %s grew by %d in the second half' % (k, v)


def missed_samples(d):
	for row, f in d['means'].items():
		if f['goal'] and f['ratio'] > f['goal']:
			yield '%s, samples: %.3f times, not %g' % (NAMES[row], f['ratio'], f['goal'])


def missed_budgets(d):
	for f in d['budgets']:
		if f['ratio'] > f['goal']:
			yield '%s, %s, with a budget: %.3f times, not %g' % (NAMES[f['row']], f['workload'], f['ratio'], f['goal'])


def missed_cost(d):
	for f in d['cost']:
		if f['goal'] and f['ratio'] > f['goal']:
			yield '%s, %s: %.3f times, not %g' % (NAMES[f['row']], f['workload'], f['ratio'], f['goal'])


def report(records, out):
	d = {'schema': 'gbpf.bench.probe/1'}
	pairs, counts, attachments, cycles = [], [], [], None
	samples, sample_pairs, sample_counts, flips, mixes = [], [], [], [], []
	for name, body in out.until_failure(records):
		if name == 'set_up':
			d.update(body)
		elif name == 'pair':
			pairs.append(body)
		elif name == 'count':
			counts.append(body)
		elif name == 'samples':
			samples = body['samples']
		elif name == 'sample':
			sample_pairs.append(body)
		elif name == 'sample_count':
			sample_counts.append(body)
		elif name == 'attachment':
			attachments.append(body)
		elif name == 'budget':
			mixes.append(body)
		elif name == 'flip':
			flips.append(body)
		elif name == 'code':
			d['code_bytes'] = body['bytes']
		elif name == 'cycles':
			cycles = {**body, 'growth': growth(body)}
	if 'device' not in d:
		return
	d['complete'] = out.failure is None
	d['cost'], d['counts'] = cost_rows(pairs), count_rows(counts)
	d['sample_sizes'], d['samples'] = samples, sample_rows(sample_pairs)
	d['means'], d['sample_counts'] = sample_means(d['samples'], samples), count_rows(sample_counts)
	d['budgets'], d['flips'] = budget_rows(mixes), flip_rows(flips)
	d['attachments'], d['cycling'] = attachment_rows(attachments), cycles
	out.line('%s, %u rounds; medians, results checked' % (d['device'], d['rounds']))
	print_cost(out, d)
	print_samples(out, d)
	print_budgets(out, d['budgets'])
	print_attachments(out, d['attachments'])
	if 'code_bytes' in d:
		out.line('  code: an image of %.1f MB of machine code' % (d['code_bytes'] / 1e6))
	print_flips(out, d['flips'])
	if cycles:
		print_cycles(out, cycles)
	d['missed'] = [] if d['soft'] else [*missed_cost(d), *missed_samples(d), *missed_budgets(d), *missed_others(d)]
	d['wrong'] = ['%s: counted %u, launched %u' % (NAMES[f['row']], f['counted'], f['expected']) for f in
		(*d['counts'], *d['sample_counts'], *d['budgets']) if f['wrong']]
	for text in d['missed']:
		out.line('MISSED: ' + text)
	for text in d['wrong']:
		out.line('WRONG: ' + text)
	out.failed = bool(d['wrong'] or d['missed'])
	out.document(d)
