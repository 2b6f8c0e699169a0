"""`gbpf bench preempt`: the figures of each condition and kind of requests, as a table, a document and curves."""
import sys

import chart
import stats
from command import Command, Refused, flag, number, size, text, words
from text import plural


def prepare(options, machine):
	if bool(options.lc_cmd) != bool(options.be_cmd):
		raise Refused('--lc-cmd and --be-cmd go together', 'Give the other, too')
	if options.lc_cmd and (options.machine_code or options.probe or options.swap):
		raise Refused(f"{'--probe' if options.probe else '--swap' if options.swap else '--machine-code'} is for the benchmark's own kernels, not for --lc-cmd",
			'Omit one of them')
	return []


COMMAND = Command('bench-lcbe', 'requests next to batch work, under each sharing mode', [
	number('requests', 1, 1000000, 'of each kind (default 1000; soft 100)', 'n'),
	number('repeats', 1, 64, 'rounds (default 5)', 'r'),
	words('kinds', ('one', 'queued', 'synced', 'hostbound'), 'of one,queued,synced,hostbound (default: the first three)', 'k'),
	number('block-us', 1, 1000000, "length of batch's blocks (default 30; soft 300)", 'b', 'US'),
	number('grid', 1, 1 << 24, 'of a batch kernel (default: 3 ms of them)', 'g', 'BLOCKS'),
	number('threads', 1, 1024, 'of a block (default 256; soft 64)'),
	number('batch-clients', 1, 16, 'processes (default 1)'),
	number('streams', 1, 64, 'of a batch client (default 1)', 's'),
	number('depth', 1, 64, 'kernels queued on a stream (default 2)'),
	number('kernels', 1, 1000, 'of a request of many (default 40; soft 8)'),
	flag('default-stream', 'no streams, no stream priorities'),
	number('hint-us', 1, 1000000, 'how long ahead gbpf-hint announces (default 500)', metavar='US'),
	number('think-us', 0, 1000000, "host's work after a kernel of hostbound (default 60)", metavar='US'),
	words('conditions', ('alone', 'default', 'short', 'alone-mps', 'mps', 'mps-priority', 'gbpf', 'gbpf-hint', 'gbpf-shared', 'gbpf-auto'),
		'which (default all)', 'c'),
	text('lc-cmd', 'COMMAND', 'prints a latency in us a line'),
	text('be-cmd', 'COMMAND', 'prints a number of units done a line'),
	flag('restart', 'new processes in each round'),
	flag('machine-code', 'each condition also with kernels without PTX'),
	text('probe', 'OBJECT', "gBPF's conditions also with this tool in batch's kernels"),
	size('swap', 64 << 20, 1 << 62, "gBPF's conditions also with memory of batch that moves, within this size, and that fits"),
	number('seconds', 1, 100000, 'limit, about (default 300; soft 60)', 't', 'S'),
	text('svg', 'FILE', 'draw the distributions')], policy=Command.CHOSEN, prepare=prepare)

CONFIDENCE = 0.95
KINDS = ('one', 'queued', 'synced', 'hostbound', 'command')
QUANTILES = {'p50': 0.5, 'p99': 0.99, 'p99.9': 0.999}
TREATMENT = {'launches': 'launches', 'block_launches': 'at block level', 'interruptions': 'interruptions', 'forced': 'forced',
	'holds': 'holds', 'limit_hits': 'over the limit'}
NOTE = '''BATCH%%: of its plain rate alone in the lane times %s; 95 %%: order statistics
of the requests, bootstrap over rounds for BATCH%%; al: alone in the lane'''
LEFT = 'the time that requests leave (hostbound: their kernels)'
LEFT_COMMAND = "(1 - busy), busy: the latency command's GPU time by gbpfd, 0 if unknown"


FIRST = '-first'  # is in the names of conditions that are the first round of another one
CODE = '-code'  # ends the names of conditions whose programs load machine code
FITS, SWAPS = '-fits', '-swaps'  # end the names of conditions whose batch has memory that fits, and that moves
GOAL_SWAPS = 1.1
PROBE = '-probe'  # behind it, of those whose batch runs a probe


def find(conditions, shared, batch, machine_code=False):
	return next((c for c in conditions if c['rounds'] and c['batch'] == batch and c['plain'] and c['shared'] == shared
		and c['machine_code'] == machine_code), None)


def plain_of(conditions, c):
	"""Returns the condition without gBPF whose batch runs alone as that of c does: with the same image, or else with PTX; or c."""
	return find(conditions, c['shared'], True, c['machine_code']) or find(conditions, c['shared'], True) or c


def ptx_of(conditions, c):
	"""Returns the condition that differs from c in the image alone, if it was run."""
	return c['machine_code'] and next((p for p in conditions if p['rounds'] and p['probe'] == c['probe']
		and p['condition'] == c['condition'].replace(CODE, '')), None)


def unprobed_of(conditions, c):
	"""Returns the condition that differs from c in the probe alone, if it was run."""
	return c['probe'] and next((p for p in conditions if p['rounds'] and p['condition'] + PROBE == c['condition']), None)


def fitting_of(conditions, c):
	"""Returns the condition that differs from c in the limit alone, which has room for all memory of its batch, if it was run."""
	return c['swaps'] and next((p for p in conditions if p['rounds'] and p['condition'] == c['condition'].replace(SWAPS, FITS)), None)


def alone_of(conditions, c):
	"""Returns the reference of c: alone in the same lane, or, if that was not run, in the process lane; None: neither was run."""
	return find(conditions, c['shared'], False) or find(conditions, False, False)


def round_figures(w):
	us = sorted(w['us'])
	return {'requests': len(us), 'seconds': w['seconds'], 'batch_kernels': w['batch_kernels'], 'p50_us': stats.quantile(us, 0.5),
		'p99_us': stats.quantile(us, 0.99)}


def batch_figures(plain, windows, busy_us):
	"""Computes the share of batch in each round: its work divided by its work alone in the time that requests leave. plain: the condition
	without gBPF in the same lane, or that of the windows if it was not run. busy_us: the time that a request takes from batch; None: it
	is unknown, and batch could have had all of the time."""
	windows = [w for w in windows if w['round'] in plain['alone']]
	seconds = sum(w['seconds'] for w in windows)
	did = [w['batch_kernels'] for w in windows]
	busy = [len(w['us']) * (busy_us or 0) * 1e-6 for w in windows]
	could = [plain['alone'][w['round']] * w['seconds'] * max(1 - b / w['seconds'], 0.01) for w, b in zip(windows, busy)]
	if not sum(did) or not sum(could):
		return None
	return {'kernels_per_s': sum(did) / seconds, 'open': sum(sum(w['us']) for w in windows) * 1e-6 / seconds,
		'busy': sum(busy) / seconds if busy_us is not None else None, 'share': sum(did) / sum(could),
		'interval': stats.bootstrap_ratio(did, could, CONFIDENCE), 'rounds': stats.extremes(list(map(stats.ratio, did, could)))}


def kind_figures(kind, windows):
	"""Returns the figures of a kind's requests; windows: one of each round."""
	us = sorted(x for w in windows for x in w['us'])
	f = {'kind': kind, 'requests': len(us)}
	for name, q in QUANTILES.items():
		interval, sure = stats.quantile_interval(us, q, CONFIDENCE)
		f[name] = {'us': stats.quantile(us, q), 'interval': interval, 'both_ends': sure,
			'rounds': stats.extremes([stats.quantile(sorted(w['us']), q) for w in windows])}
	f['rounds'] = [round_figures(w) for w in windows]
	return f, us


def command_us(c):
	"""Returns the GPU time of a request of the user's command in c, by gbpfd's statistics; None: they are unknown there."""
	windows = [w for w in c['windows'].get('command', ()) if w.get('lc_busy_ns')]
	requests = sum(len(w['us']) for w in windows)
	return sum(w['lc_busy_ns'] for w in windows) * 1e-3 / requests if requests else None


def busy_us(set_up, conditions, c, kind, alone_us):
	"""Returns the time in which a request uses the GPU, None if it is unknown, and the name of the condition in which gbpfd counted it,
	None if it did not. Of a host-bound request it is the time of its kernels' blocks; of the user's command gbpfd's statistics in c, or
	else in the first condition that has them; of others, all of the time that they take alone."""
	if kind == 'command':
		counted = next((x for x in (c, *conditions) if command_us(x) is not None), None)
		return (command_us(counted), counted['condition']) if counted else (None, None)
	return (set_up['kernels'] * set_up['lc_block_us'] if kind == 'hostbound' else alone_us), None


def compare(set_up, conditions, c, of):
	"""Adds to the figures of c those that need other conditions'."""
	for kind, (f, _) in c['figures'].items():
		base = of['figures'][kind][0] if of and kind in of['figures'] else None
		for name in QUANTILES if base else ():
			if f[name]['us'] > 0 and base[name]['us'] > 0:
				f[name]['ratio'] = f[name]['us'] / base[name]['us']
		if not c['batch'] or not (base or kind == 'command'):
			continue
		us, counted_in = busy_us(set_up, conditions, c, kind, base and base['p50']['us'])
		batch = batch_figures(plain_of(conditions, c), c['windows'][kind], us)
		if batch:
			f['batch'] = {**batch, 'busy_counted_in': counted_in}


def compare_to(c, other, member):
	"""Adds to the figures of c, as `member`, their ratios to those of the other condition."""
	for kind, (f, _) in c['figures'].items():
		if other and kind in other['figures']:
			of = other['figures'][kind][0]
			f[member] = {name: f[name]['us'] / of[name]['us'] for name in QUANTILES if of[name]['us'] > 0}
			if 'batch' in f and 'batch' in of:
				f[member]['batch'] = f['batch']['share'] / of['batch']['share']


def split_starts(conditions):
	"""Yields the conditions, the first round apart where each round starts new programs and the policy chooses their lanes: it
	learns from one run for the next, so the first round is about other lanes than later ones."""
	for c in conditions:
		if not c['policy_lanes'] or c['rounds'] < 2:
			yield c
			continue
		variant = (CODE if c['machine_code'] else '') + (PROBE if c['probe'] else '') + (SWAPS if c['swaps'] else FITS if c['moving'] else '')
		name = c['condition'].removesuffix(variant)
		first = {r: x for r, x in c['alone'].items() if r == 0}
		apart = {**c, 'cpu_seconds': 0}  # counters were read after the last round
		apart.pop('tenants', None)
		yield part_of(apart, name + FIRST + variant, first, lambda w: w['round'] == 0)
		yield part_of(c, c['condition'], {r: x for r, x in c['alone'].items() if r > 0}, lambda w: w['round'] > 0)


def part_of(c, name, alone, chosen):
	windows = {k: [w for w in ws if chosen(w)] for k, ws in c['windows'].items()}
	some = next(iter(windows.values()))
	return {**c, 'condition': name, 'rounds': len(alone), 'alone': alone, 'windows': windows, 'shared': some[-1]['shared']}


def condition_document(c, of):
	d = {k: c[k] for k in ('condition', 'is', 'machine_code', 'probe', 'moving', 'swaps', 'state', 'rounds', 'checked', 'wrong')}
	d['kinds'] = [f for f, _ in c['figures'].values()]
	if c['why']:
		d['why'] = c['why']
	if of and c['rounds']:
		d['alone'] = of['condition']
	if c['policy_lanes'] and c['rounds']:
		d['lane'] = 'shared' if c['shared'] else 'process'
	if c['cpu_seconds'] > 0:
		d['cores_of_other_threads'] = {k: c[k + '_cpu_ns'] * 1e-9 / c['cpu_seconds'] for k in ('latency', 'batch')}
	if 'tenants' in c:
		d['tenants'] = c['tenants']
	if c['batch'] and c['rounds']:
		d['batch_alone_per_s'] = stats.mean(list(c['alone'].values()))
	return d


# ---- the table ----

def print_row(out, c, f):
	ranges = ['%.1f-%.1f%s' % (*f[p]['interval'], '' if f[p]['both_ends'] else '+') for p in ('p50', 'p99')]
	ratios = tuple('%.2f' % f[p]['ratio'] if 'ratio' in f[p] else '-' for p in ('p50', 'p99'))
	line = '%-20s %-9s %6u' % (c['condition'], f['kind'], f['requests'])
	line += ' %9.1f %9.1f %9.1f' % tuple(f[p]['us'] for p in QUANTILES)
	line += ' %17s %17s %6s %6s' % (*ranges, *ratios)
	if 'batch' in f:
		line += ' %6.1f %5.1f-%.1f' % tuple(100 * x for x in (f['batch']['share'], *f['batch']['interval']))
	out.line(line)


def print_pairs(out, conditions, member, title, other, this):
	"""Prints what machine code or a probe changes, side by side, if the run has both."""
	pairs = [(c, kind, f) for c in conditions for kind, (f, _) in c['figures'].items() if member in f]
	if not pairs:
		return
	out.line('%-20s %-9s %12s %12s %6s %12s %12s %6s %6s' % (title, 'KIND', 'P50 us ' + other, this, 'RATIO', 'P99 us ' + other,
		this, 'RATIO', 'BATCH'))
	for c, kind, f in pairs:
		line = '%-20s %-9s' % (c['condition'], kind)
		for p in ('p50', 'p99'):
			ratio = f[member].get(p)
			line += ' %12s %12.1f %6s' % (('%.1f' % (f[p]['us'] / ratio), f[p]['us'], '%.2f' % ratio) if ratio
				else ('-', f[p]['us'], '-'))
		out.line(line + (' %6.2f' % f[member]['batch'] if 'batch' in f[member] else ''))


def print_treatment(out, c):
	"""Prints gbpfd's counters of batch since its clients began, and the lane that the policy chose."""
	if c['policy_lanes'] and c['rounds']:
		out.line('%-20s lane of the last round: %s' % (c['condition'], 'shared' if c['shared'] else 'process'))
	for t in c.get('tenants', ()):
		if t.get('class') == 'batch':
			counters = ', '.join(f"{t['stats'].get(name, 0)} {words}" for name, words in TREATMENT.items())
			out.line('%-20s batch: %s' % (c['condition'], counters))
			if c['moving']:
				out.line('%-20s batch: %.0f MiB left the device, %.0f MiB came back' % (c['condition'],
					*(t['stats'].get(name, 0) / (1 << 20) for name in ('mem_out_bytes', 'mem_back_bytes'))))
	if 'tenants' in c and c['cpu_seconds'] > 0:
		out.line('%-20s threads of gBPF and CUDA: %.1f %% of a core in the latency client, %.1f %% in batch' % (c['condition'],
			c['latency_cpu_ns'] * 1e-7 / c['cpu_seconds'], c['batch_cpu_ns'] * 1e-7 / c['cpu_seconds']))


def print_use(out, c):
	"""Prints the parts of the time in which requests of the user's command were open and had the GPU."""
	batch = c['figures'].get('command', ({},))[0].get('batch')
	if batch:
		busy = 'unknown' if batch['busy'] is None else '%.1f %% by gbpfd in %s' % (100 * batch['busy'], batch['busy_counted_in'])
		out.line('%-20s requests: open %.1f %% of the time, busy %s' % (c['condition'], 100 * batch['open'], busy))


def print_table(out, s, conditions):
	rounds = '%s; %u round%s; ' % (s['device'], s['rounds'], plural(s['rounds']))
	if not s['multiprocessors']:  # the user's commands
		out.line(f"{rounds}policy {s['policy']}")
	else:
		out.line(rounds + 'requests: %u blocks of %.1f us; batch: %u x %u stream%s, %u blocks of %.1f us, policy %s' % (
			s['multiprocessors'], s['lc_block_us'], s['batch_clients'], s['streams'], plural(s['streams']), s['grid'], s['block_us'],
			s['policy']))
	out.line('%-20s %-9s %6s %9s %9s %9s %17s %17s %6s %6s %6s %s' % ('CONDITION', 'KIND', 'N', 'P50 us', 'P99', 'P99.9', 'P50 95 %',
		'P99 95 %', 'P50/al', 'P99/al', 'BATCH%', '95 %'))
	for c in conditions:
		for f, _ in c['figures'].values():
			print_row(out, c, f)
		print_use(out, c)
		print_treatment(out, c)
		if c['state'] in ('not available', 'failed'):
			out.line('%-20s %s: %s' % (c['condition'], 'FAILED' if c['state'] == 'failed' else c['state'], c['why']))
	out.line(NOTE % (LEFT if s['multiprocessors'] else LEFT_COMMAND))
	print_pairs(out, conditions, 'to_ptx', 'MACHINE CODE', 'PTX', 'CODE')
	print_pairs(out, conditions, 'to_unprobed', 'PROBE IN BATCH', '-', 'PROBE')
	print_pairs(out, conditions, 'to_fits', f'SWAP (goal {GOAL_SWAPS:.2f})', 'FITS', 'SWAPS')


def report(records, out):
	set_up, windows, alone, conditions = {}, [], [], []
	for name, body in records:
		if name == 'set_up':
			set_up = body
		else:
			{'window': windows, 'alone': alone, 'condition': conditions}[name].append(body)
	for c in conditions:
		def mine(of):
			return [x for x in of if x['condition'] == c['condition'] and x['round'] < c['rounds']]
		c['alone'] = {x['round']: x['per_s'] for x in mine(alone)}
		kinds = {k: [w for w in mine(windows) if w['kind'] == k] for k in KINDS}
		c['windows'] = {k: w for k, w in kinds.items() if w}
	conditions = list(split_starts(conditions))
	for c in conditions:
		c['figures'] = {k: kind_figures(k, w) for k, w in c['windows'].items()}
	document = {'schema': 'gbpf.bench.lcbe/1', **set_up, 'confidence': CONFIDENCE,
		'intervals': 'quantiles: order statistics of all requests; share: bootstrap over rounds', 'conditions': []}
	for c in conditions:
		of = alone_of(conditions, c)
		compare(set_up, conditions, c, of)
		compare_to(c, ptx_of(conditions, c), 'to_ptx')
		compare_to(c, unprobed_of(conditions, c), 'to_unprobed')
		compare_to(c, fitting_of(conditions, c), 'to_fits')
		if c['state'] != 'out':
			document['conditions'].append(condition_document(c, of))
	print_table(out, set_up, conditions)
	panels = [(f"{set_up['device']}, requests of kind {k}: latency in us",
		[(c['condition'], c['figures'][k][1]) for c in conditions if k in c['figures']]) for k in KINDS]
	panels = [p for p in panels if p[1]]
	if not out.json and sys.stdout.isatty():
		for title, curves in panels:
			for line in chart.text(title, curves, True):
				out.line(line)
	out.document(document)
	if out.svg:
		out.file(out.svg, chart.svg(panels))
