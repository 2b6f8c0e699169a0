"""`gbpf bench dev pace`: the rate of one process's kernels with gBPF at work against off, and the processor time of its threads."""
import stats
from command import Command, Refused, choice, find_policy, flag, lib, number, text


def prepare(options, machine):
	if options.policy and options.gate:
		raise Refused("--gate is for the benchmark's own policy", 'Omit --policy')
	policy = options.policy
	return ['--policy', find_policy(policy) if policy else lib('bench', 'pace.bpf.o'), '--policy-name', policy or 'pace']


COMMAND = Command('bench-pace', 'cost of the block level without interruptions', [
	text('shape', 'BLOCK:KERNEL,...', 'microseconds of a block and of a kernel (default a table of them)'),
	number('repeats', 1, 64, 'windows of each kind (default 6)', 'r'),
	number('ms', 1, 100000, 'length of a window (default 300)', 'm'),
	number('depth', 1, 64, 'kernels queued (default 16)'),
	flag('burst', 'no events: one synchronization for all queued'),
	choice('lane', ('process', 'shared'), "gBPF's lane (default process)"),
	flag('machine-code', 'kernels without PTX'),
	choice('gate', ('default', 'off', 'together', 'flag_first'), "mode of machine code's gates"),
	text('policy', 'NAME|FILE', 'of gBPF (default: block level always)', 'p')], prepare=prepare)

NOTE = '''%s, policy %s, %s lane%s, %u windows of %g ms each. COST: of gBPF at work against off, in the same process; 95 %%: bootstrap over windows.
AGENT: of a core, threads of gBPF; APP: more of a core in the application's thread; BLOCK LV: launches at block level'''


def shape_document(s):
	on, off = ({k: stats.mean(v) for k, v in s[side].items()} for side in ('on', 'off'))
	low, high = stats.bootstrap_ratio(s['on']['per_s'], s['off']['per_s'], 0.95)
	return {**{k: s[k] for k in ('block_us', 'calibrated_block_us', 'kernel_us', 'grid')}, 'plain_per_s': off['per_s'],
		'gbpf_per_s': on['per_s'], 'cost_percent': 100 * (1 - on['per_s'] / off['per_s']) if off['per_s'] > 0 else 0.0,
		'cost_interval': (100 * (1 - high), 100 * (1 - low)), 'cpu_others': on['cpu_others'], 'cpu_others_off': off['cpu_others'],
		'cpu_application': on['cpu_application'], 'cpu_application_off': off['cpu_application'],
		**{k: s[k] for k in ('block_launches', 'launches', 'checked')}}


def report(records, out):
	set_up, shapes = {}, []
	for name, body in records:
		if name == 'set_up':
			set_up = body
			continue
		if not shapes:
			out.line('%8s %9s %8s %10s %10s %7s %14s %8s %8s %9s' % ('BLOCK us', 'KERNEL us', 'GRID', 'OFF /s', 'GBPF /s', 'COST %',
				'95 %', 'AGENT %', 'APP %', 'BLOCK LV'))
		s = shape_document(body)
		shapes.append(s)
		out.line('%8.0f %9.0f %8u %10.1f %10.1f %7.2f %6.2f - %5.2f %8.1f %+8.1f %9u' % (s['block_us'], s['kernel_us'], s['grid'],
			s['plain_per_s'], s['gbpf_per_s'], s['cost_percent'], *s['cost_interval'], 100 * (s['cpu_others'] - s['cpu_others_off']),
			100 * (s['cpu_application'] - s['cpu_application_off']), s['block_launches']))
	code = f", machine code, gate mode {set_up['gate']}" if set_up['machine_code'] else ''
	out.line(NOTE % (set_up['device'], set_up['policy'], set_up['lane'], code, set_up['rounds'], set_up['window_ms']))
	out.document({'schema': 'gbpf.bench.pace/1', **set_up, 'shapes': shapes})
