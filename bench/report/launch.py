"""`gbpf bench latency`: the same launch through the real library and through the shim, and the difference."""
import stats
from command import Command, Refused, choice, find_policy, lib, number, size, text


def prepare(options, machine):
	own = options.policy not in ('none', 'off')
	if options.swap and options.policy == 'off':
		raise Refused('--swap needs gbpfd: a virtual GPU has an account there', 'Omit --policy off')
	return ['--shim', lib('shim', 'libcuda.so.1'), *(['--policy', find_policy(options.policy)] if own else []),
		'--policy-name', options.policy]


COMMAND = Command('bench-launch', 'cost of the shim at a kernel launch', [
	number('n', 64, 10000000, 'launches of each kind (default 60000)', 'n'),
	text('policy', 'NAME|FILE', 'policy during the measurement; none (default): no policy; off: no gbpfd', 'p', 'none'),
	size('swap', 32 << 20, 1 << 62, 'of two virtual GPUs with this limit, without and with as much swap, in turn'),
	number('pairs', 1, 1000, 'turns of --swap (default 9)'),
	choice('class', ('latency', 'normal', 'batch'), 'class of the launches (default normal)', 'c')],
	client=None, prepare=prepare)

BATCH = 64


GOAL_SWAP_NS = 20


def of_swap(records):
	"""Returns what swap adds to a launch where all memory fits: the differences of pairs of processes, and their quartiles."""
	added = {c: {r['pair']: {k: r['shim_ns'][k] - v for k, v in r['real_ns'].items()} for r in records if r['condition'] == c} for c in ('plain', 'swap')}
	pairs = sorted(added['plain'].keys() & added['swap'].keys())
	found = {'pairs': len(pairs), 'goal_ns': GOAL_SWAP_NS}
	for name in ('p50', 'batch_mean'):
		more = sorted(added['swap'][i][name] - added['plain'][i][name] for i in pairs)
		found[name] = {'more_ns': [stats.quantile(more, q) for q in (0.25, 0.5, 0.75)],
			**{c + '_ns': stats.quantile(sorted(added[c][i][name] for i in pairs), 0.5) for c in added}}
	return found


def print_swap(out, d):
	out.line('what the shim adds to a launch that names 3 buffers, ns, medians of %u pairs of processes; everything fits on the device' % d['pairs'])
	out.line('%-6s %14s %10s %10s %18s' % ('', 'WITHOUT SWAP', 'WITH', 'MORE', 'QUARTILES'))
	for name, title in (('p50', 'P50'), ('batch_mean', 'MEAN')):
		low, middle, high = d[name]['more_ns']
		out.line('%-6s %+14.1f %+10.1f %+10.1f %18s' % (title, d[name]['plain_ns'], d[name]['swap_ns'], middle, '%+.1f to %+.1f' % (low, high)))
	out.line('goal: MEAN at most %u ns more with swap: %s' % (GOAL_SWAP_NS, 'met' if d['batch_mean']['more_ns'][1] <= GOAL_SWAP_NS else 'MISSED'))


def report(records, out):
	document = {'schema': 'gbpf.bench.launch/1'}
	rounds, swaps = [], []
	for name, body in records:
		if name == 'set_up':
			document.update(body)
		elif name == 'swap':
			swaps.append(body)
		else:
			rounds.append({**body, 'added_ns': {k: body['shim_ns'][k] - v for k, v in body['real_ns'].items()}})
	if swaps:
		document['swap'] = {**of_swap(swaps), 'records': swaps}
		print_swap(out, document['swap'])
		out.document(document)
		return
	out.line("ns a launch; policy %s%s; MEAN is that of a batch of %u, with the clock's own cost" % (document['policy'],
		'' if document['session'] else ', no session', BATCH))
	out.line('%-6s %10s %10s %10s %10s' % ('', 'P10', 'P50', 'P90', 'MEAN'))
	for r in rounds:
		for name in ('real', 'shim'):
			out.line('%-6s %10.0f %10.0f %10.0f %10.1f' % (name, *r[name + '_ns'].values()))
		out.line('%-6s %+10.0f %+10.0f %+10.0f %+10.1f' % ('added', *r['added_ns'].values()))
	out.document({**document, 'rounds': rounds})
