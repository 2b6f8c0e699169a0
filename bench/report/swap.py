"""`gbpf bench dev swap`: calls in windows with a swap against calls in control windows of the same length without one."""
import collections
import os

import stats
from command import Command, lib, number


def prepare(options, machine):
	cpus = os.cpu_count()
	options.processes = options.processes or str(8 if cpus >= 10 else cpus - 2 if cpus > 3 else 1)
	return ['--object', lib('bench', 'swap.bpf.o'), '--gbpfd', machine.program('gbpfd')]


COMMAND = Command('bench-swap', 'effect of a swap on concurrent hook calls', [
	number('processes', 1, 64, 'processes that call hooks (default 8, or 2 fewer than CPUs)', 'p'),
	number('swaps', 1, 20000, 'how many (default 1000)', 'n', default='1000')], gpu=False, prepare=prepare)

QUANTILES = {'p50': 0.5, 'p99': 0.99, 'p99.9': 0.999}
CALL_QUANTILES = {**QUANTILES, 'p99.99': 0.9999}
RUN = 16  # calls in a row that take about as long as the first call on a new version
GOAL_NS = 1000


def of_calls(callers, kind):
	"""Returns the quantiles of all calls, from their histograms."""
	calls = collections.Counter()
	for c in callers:
		calls.update(dict(c[kind]['histogram']))
	total, seen = sum(calls.values()), 0
	f = dict.fromkeys((*CALL_QUANTILES, 'max'), 0.0)
	for ns in sorted(calls):
		f.update({name: float(ns) for name, q in CALL_QUANTILES.items() if seen <= q * total < seen + calls[ns]})
		seen += calls[ns]
		f['max'] = float(ns)
	return f


def of_values(values):
	v = sorted(map(float, values))
	return {**{name: stats.quantile(v, q) for name, q in QUANTILES.items()}, 'max': v[-1] if v else 0.0}


def print_rows(out, control, swap):
	for name, ns in control.items():
		out.line('  %-8s %12.0f %12.0f %12.0f' % (name.replace('p', 'P'), ns, swap[name], swap[name] - ns))


def print_table(out, d):
	out.line('%u processes, %u swaps, %u CPUs%s' % (d['processes'], d['swaps'], d['cpus'], ', one for each caller' if d['pinned'] else
		': too few for a caller each, so callers wait for CPUs'))
	out.line('ns              %12s %12s %12s\none call of %.1f M, and %.1f M' % ('control', 'with swaps', 'difference',
		d['control_calls'] / 1e6, d['swap_calls'] / 1e6))
	print_rows(out, d['control_call_ns'], d['swap_call_ns'])
	out.line('longest call of a process in the window of a swap')
	print_rows(out, d['control_longest_ns'], d['swap_longest_ns'])
	out.line('first call of a process on a new version; control: %u calls in a row' % RUN)
	print_rows(out, d['control_run_ns'], d['first_call_ns'])
	out.line('swap: %.2f ms from load to answer, ready after %.2f ms, flip %.0f ns (medians); %u late' % (d['swap_p50_ns'] / 1e6,
		d['ready_p50_ns'] / 1e6, d['flip_p50_ns'], d['late']))
	out.line('stall P99.9 %.0f ns over the control (goal %.0f), %u changes, %u lost, %u mixed' % (d['stall_p999_ns'], GOAL_NS,
		d['changes'], d['lost'], d['mixed']))


def report(records, out):
	set_up, callers, swaps = {}, [], {}
	for name, body in records:
		if name == 'set_up':
			set_up = body
		elif name == 'caller':
			callers.append(body)
		else:
			swaps = {k: sorted(v) if k.endswith('_ns') else v for k, v in body.items()}

	def every(*path):
		values = callers
		for k in path:
			values = [v[k] for v in values]
		return values

	def one_a_window(name):
		return of_values(ns for v in every(name) for ns in v if ns)
	control, swap = of_calls(callers, 'control'), of_calls(callers, 'swap')
	first, run = one_a_window('first'), one_a_window('run')
	d = {'schema': 'gbpf.bench.swap/1', **set_up, 'control_calls': sum(every('control', 'calls')), 'swap_calls': sum(every('swap', 'calls')),
		'control_call_ns': control, 'swap_call_ns': swap, 'control_longest_ns': of_values(ns for v in every('control', 'longest') for ns in v),
		'swap_longest_ns': of_values(ns for v in every('swap', 'longest') for ns in v), 'first_call_ns': first, 'control_run_ns': run,
		'stall_p999_ns': first['p99.9'] - run['p99.9'], 'call_p999_difference_ns': swap['p99.9'] - control['p99.9'],
		**{k: sum(every(k)) for k in ('changes', 'lost', 'mixed')}, 'late': swaps['late'],
		'swap_p50_ns': stats.quantile(swaps['latency_ns'], 0.5), 'swap_p99_ns': stats.quantile(swaps['latency_ns'], 0.99),
		'flip_p50_ns': stats.quantile(swaps['flip_ns'], 0.5), 'ready_p50_ns': stats.quantile(swaps['ready_ns'], 0.5)}
	out.failed = d['lost'] > 0 or d['mixed'] > 0
	print_table(out, d)
	out.document(d)
