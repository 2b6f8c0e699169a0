"""Figures of `gbpf bench preempt`: what batch keeps of the time that requests leave."""
import unittest

import lcbe

SECONDS = 10
NAMES = ('alone', 'default', 'gbpf', 'gbpf-shared')


class Output:
	json, svg = True, None

	def __init__(self):
		self.lines = []

	def line(self, text):
		self.lines.append(text)

	def document(self, d):
		self.conditions = {c['condition']: c for c in d['conditions']}


def condition(name):
	return 'condition', {'condition': name, 'is': '', 'machine_code': False, 'probe': False, 'moving': False, 'swaps': False, 'state': 'run', 'rounds': 1, 'checked': 0,
		'wrong': 0, 'why': '', 'shared': name == 'gbpf-shared', 'policy_lanes': False, 'plain': not name.startswith('gbpf'),
		'batch': name != 'alone', 'cpu_seconds': 0, 'latency_cpu_ns': 0, 'batch_cpu_ns': 0}


def report(kind, windows, multiprocessors=0):
	"""Reports one round, in which batch alone does 100 units a second. windows: of each condition the number of requests of 50 ms, the
	units of batch and, if it is known, the GPU time of the requests in seconds."""
	out = Output()
	records = [('set_up', {'device': 'GPU', 'policy': 'auto', 'rounds': 1, 'multiprocessors': multiprocessors, 'kernels': 40,
		'lc_block_us': 5.0, 'batch_clients': 1, 'streams': 1, 'grid': 1, 'block_us': 30.0})]
	for name, (requests, units, *busy) in windows.items():
		window = {'condition': name, 'kind': kind, 'round': 0, 'shared': name == 'gbpf-shared', 'seconds': SECONDS,
			'batch_kernels': units, 'us': [50000.0] * requests}
		if busy:
			window['lc_busy_ns'] = int(busy[0] * 1e9)
		records.append(('window', window))
		if name != 'alone':
			records.append(('alone', {'condition': name, 'round': 0, 'per_s': 100.0}))
	lcbe.report(records + [condition(n) for n in NAMES if n in windows], out)
	out.batch = {n: c['kinds'][0]['batch'] for n, c in out.conditions.items() if c['kinds'] and 'batch' in c['kinds'][0]}
	return out


class Lcbe(unittest.TestCase):
	def test_commands_leave_the_time_in_which_gbpfd_counts_no_work_of_theirs(self):
		"""Requests are open half of the time and use the GPU for a fifth of it: batch can have four fifths."""
		out = report('command', {'default': (100, 500), 'gbpf': (100, 800, 2)})
		self.assertAlmostEqual(out.batch['gbpf']['busy'], 0.2)
		self.assertAlmostEqual(out.batch['gbpf']['open'], 0.5)
		self.assertAlmostEqual(out.batch['gbpf']['share'], 1)
		self.assertAlmostEqual(out.batch['default']['share'], 500 / 800)
		self.assertEqual([b['busy_counted_in'] for b in out.batch.values()], ['gbpf', 'gbpf'])
		self.assertTrue(any('open 50.0 % of the time, busy 20.0 % by gbpfd in gbpf' in x for x in out.lines))
		self.assertIn('(1 - busy)', out.lines[-1])

	def test_each_condition_has_its_own_statistics_or_the_first(self):
		"""Without gBPF a request takes the GPU time that one takes in the first condition with statistics."""
		out = report('command', {'alone': (100, 0), 'default': (50, 500), 'gbpf': (100, 700, 2), 'gbpf-shared': (100, 700, 3)})
		for name, busy, counted_in in (('default', 0.1, 'gbpf'), ('gbpf', 0.2, 'gbpf'), ('gbpf-shared', 0.3, 'gbpf-shared')):
			self.assertAlmostEqual(out.batch[name]['busy'], busy)
			self.assertEqual(out.batch[name]['busy_counted_in'], counted_in)

	def test_unknown_gpu_time_of_commands_leaves_the_plain_share(self):
		out = report('command', {'default': (100, 500), 'gbpf': (100, 800)})
		for name, share in (('default', 0.5), ('gbpf', 0.8)):
			self.assertAlmostEqual(out.batch[name]['share'], share)
			self.assertEqual((out.batch[name]['busy'], out.batch[name]['busy_counted_in']), (None, None))
		self.assertEqual(sum('busy unknown' in x for x in out.lines), 2)

	def test_requests_of_the_bench_leave_what_they_take_alone(self):
		for kind, busy in (('one', 0.5), ('queued', 0.5), ('hostbound', 100 * 40 * 5e-6 / SECONDS)):
			out = report(kind, {'alone': (100, 0), 'default': (100, 500)}, multiprocessors=132)
			self.assertAlmostEqual(out.batch['default']['busy'], busy)
			self.assertAlmostEqual(out.batch['default']['share'], 0.5 / (1 - busy))
			self.assertIsNone(out.batch['default']['busy_counted_in'])
			self.assertFalse(any('by gbpfd' in x for x in out.lines))


if __name__ == '__main__':
	unittest.main()
