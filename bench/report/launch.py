"""`gbpf bench latency`: the same launch through the real library and through the shim, and the difference."""
from command import Command, choice, find_policy, lib, number, text


def prepare(options, machine):
	own = options.policy not in ('none', 'off')
	return ['--shim', lib('shim', 'libcuda.so.1'), *(['--policy', find_policy(options.policy)] if own else []),
		'--policy-name', options.policy]


COMMAND = Command('bench-launch', 'cost of the shim at a kernel launch', [
	number('n', 64, 10000000, 'launches of each kind (default 60000)', 'n'),
	text('policy', 'NAME|FILE', 'policy during the measurement; none (default): no policy; off: no gbpfd', 'p', 'none'),
	choice('class', ('latency', 'normal', 'batch'), 'class of the launches (default normal)', 'c')],
	client=None, prepare=prepare)

BATCH = 64


def report(records, out):
	document = {'schema': 'gbpf.bench.launch/1'}
	rounds = []
	for name, body in records:
		if name == 'set_up':
			document.update(body)
		else:
			rounds.append({**body, 'added_ns': {k: body['shim_ns'][k] - v for k, v in body['real_ns'].items()}})
	out.line("ns a launch; policy %s%s; MEAN is that of a batch of %u, with the clock's own cost" % (document['policy'],
		'' if document['session'] else ', no session', BATCH))
	out.line('%-6s %10s %10s %10s %10s' % ('', 'P10', 'P50', 'P90', 'MEAN'))
	for r in rounds:
		for name in ('real', 'shim'):
			out.line('%-6s %10.0f %10.0f %10.0f %10.1f' % (name, *r[name + '_ns'].values()))
		out.line('%-6s %+10.0f %+10.0f %+10.0f %+10.1f' % ('added', *r['added_ns'].values()))
	out.document({**document, 'rounds': rounds})
