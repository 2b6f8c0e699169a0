"""Figures of `gbpf bench probe`: ratios, goals, counts, and what cycles leave behind."""
import unittest

import probe

SET_UP = {'device': 'GPU', 'soft': False, 'rounds': 3, 'attaches': 2, 'cycles': 10,
	'workloads': {w: {'threads': 1 << 20, 'launches': 10} for w in probe.WORKLOADS}}


class Output:
	def __init__(self):
		self.lines, self.failed, self.failure, self.d = [], False, None, None

	def until_failure(self, records):
		return records

	def line(self, text):
		self.lines.append(text)

	def document(self, d):
		self.d = d


def pair(row, without_us, with_us, workload='chained'):
	return 'pair', {'row': row, 'workload': workload, 'round': 0, 'without_us': without_us, 'with_us': with_us, 'without_call_us': 2.0,
		'with_call_us': 3.0}


def count(row, expected, counted):
	return 'count', {'row': row, 'expected': expected, 'counted': counted}


def window(longest_ms, late=0):
	return {'longest_ms': longest_ms, 'launches': 10, 'late': late}


def attachment(kind, first_ms, attach_ms, control_ms, late=0, late_detach=0):
	return 'attachment', {'kind': kind, 'call_ms': 1.0, 'running_ms': first_ms, 'first_ms': first_ms, 'detach_ms': 1.0, 'late': late_detach,
		'attach': window(attach_ms, late), 'detach': window(control_ms), 'control': window(control_ms)}


def cycles(free, descriptors):
	return 'cycles', {'cycles': 10, 'seconds': 1.0, 'launches': 100, 'longest_ms': 1.0, 'late': 0, 'late_detaches': 0, 'use': [
		{'cycle': i, 'free_bytes': f, 'descriptors': n, 'daemon_descriptors': 9, 'resident_kb': 1, 'daemon_resident_kb': 1}
		for i, f, n in zip((1, 5, 10), free, descriptors)]}


class Probe(unittest.TestCase):
	def report(self, *records, **set_up):
		out = Output()
		probe.report([('set_up', {**SET_UP, **set_up}), *records], out)
		return out

	def row(self, out, name):
		(f,) = [f for f in out.d['cost'] if f['row'] == name]
		return f

	def test_the_ratio_is_the_median_of_pairs(self):
		"""Of the second round both times are twice as long: its ratio is as good as the others'."""
		out = self.report(pair('warp', 10, 10.4), pair('warp', 20, 20.8), pair('warp', 10, 10.6))
		f = self.row(out, 'warp')
		self.assertAlmostEqual(f['ratio'], 1.04)
		self.assertEqual((f['pairs'], f['without_us'], f['with_us']), (3, 10, 10.6))
		self.assertEqual((out.d['missed'], out.failed), ([], False))

	def test_a_missed_goal_fails_the_run_except_on_the_soft_gpu(self):
		records = pair('block', 10, 10.4), pair('block', 10, 12, 'single')
		out = self.report(*records)
		self.assertEqual(out.d['missed'], ['counter per block, chained: 1.040 times, not 1.03'])
		self.assertTrue(out.failed)
		out = self.report(*records, soft=True)
		self.assertEqual((out.d['missed'], out.failed), ([], False))

	def test_samples_have_a_geometric_mean(self):
		"""Of the twelve; those that are larger, and the single blocks, have no part in it."""
		names = [f'sample{i}' for i in range(12)] + ['large']
		samples = 'samples', {'samples': [{'name': n, 'sample': n != 'large', 'n': 1, 'threads': 1} for n in names]}
		for factor, missed in (2, []), (4, ['memtrace, samples: 2.000 times, not 1.5']):
			pairs = [('sample', {**pair('memtrace', 10, 10 * (9 if n == 'large' else factor if i % 2 else 1), n)[1], 'size': size})
				for i, n in enumerate(names) for size in ('full', 'block')]
			out = self.report(samples, *pairs)
			self.assertAlmostEqual(out.d['means']['memtrace']['ratio'], factor ** 0.5)
			self.assertEqual((out.d['missed'], out.failed), (missed, bool(missed)))
		self.assertIsNone(self.report(samples, *pairs[:4]).d['means']['memtrace']['goal'])

	def test_a_budget_is_a_goal_and_its_counts_must_be_right(self):
		mix = {'row': 'memtrace', 'workload': 'large', 'budget_ppm': 30000, 'without_us': 100, 'with_us': 102, 'cost_ppm': 500000, 'launches': 100,
			'probed': 6, 'expected': 60, 'counted': 60}
		out = self.report(('budget', mix))
		self.assertEqual((out.d['budgets'][0]['goal'], out.d['missed'], out.failed), (1.03, [], False))
		self.assertEqual(self.report(('budget', {**mix, 'with_us': 105})).d['missed'], ['memtrace, large, with a budget: 1.050 times, not 1.03'])
		self.assertEqual(self.report(('budget', {**mix, 'counted': 61}), soft=True).d['wrong'], ['memtrace: counted 61, launched 60'])

	def test_wrong_counts_of_samples_fail_the_run(self):
		self.assertTrue(self.report(('sample_count', {'row': 'warp', 'expected': 10, 'counted': 9})).failed)

	def test_after_detach_is_compared_with_before_the_first_attachment(self):
		"""Both are compared with the driver's library, which is 2 % faster in each."""
		out = self.report(pair('before', 10, 10.2), pair('detached', 20, 20.4))
		self.assertAlmostEqual(self.row(out, 'detached')['ratio'], 1)
		out = self.report(pair('before', 10, 10.2), pair('detached', 10, 10.3))
		self.assertTrue(out.failed)

	def test_a_wrong_count_fails_the_run_also_on_the_soft_gpu(self):
		for soft in False, True:
			out = self.report(count('warp', 100, 100), count('warp', 100, 99), soft=soft)
			self.assertEqual(out.d['wrong'], ['counter per warp: counted 199, launched 200'])
			self.assertTrue(out.failed)
		self.assertFalse(self.report(count('warp', 100, 100)).failed)

	def test_counts_that_are_wrong_in_both_directions_are_not_lost_in_the_sum(self):
		self.assertTrue(self.report(count('warp', 100, 101), count('warp', 100, 99)).failed)

	def test_attachments_of_one_kind_are_summed_up(self):
		out = self.report(attachment('compiled', 90, 5, 1), attachment('cached', 9, 2, 1), attachment('compiled', 100, 8, 2))
		compiled = out.d['attachments'][0]
		self.assertEqual((compiled['count'], compiled['first_ms']['max'], compiled['delay_ms']['attach']), (2, 100, 6))
		self.assertEqual((out.d['missed'], out.failed), ([], False))

	def test_late_first_launches_and_delays_are_missed_goals(self):
		self.assertEqual(self.report(attachment('compiled', 251, 9.5, 1)).d['missed'],
			['compiled: first probed launch after 251.0 ms, not 250', 'compiled, attach: a launch delayed by 8.5 ms, not 8'])
		self.assertEqual(self.report(attachment('code', 260, 1, 1)).d['missed'], ['code: first probed launch after 260.0 ms, not 250'])
		self.assertEqual(self.report(attachment('cached', 260, 1, 1)).d['missed'], [])
		self.assertEqual(self.report(attachment('cached', 10, 3, 1, late=2)).d['missed'], ['cached, attach: 2 launches delayed, not 1'])

	def test_a_flip_is_compared_with_a_launch_after_a_pause(self):
		"""Medians: one launch that took long does not count; nor does the driver's first launch of a kernel."""
		def flips(call_us):
			return [('flip', {'kind': 'ptx', 'with_call_us': us, 'without_call_us': 4.5, 'control_call_us': 4, 'new_call_us': 11, 'known_call_us': 3,
				'with_us': 20, 'without_us': 18, 'control_us': 18}) for us in (call_us, call_us, 300)]
		out = self.report(*flips(12.9))
		self.assertAlmostEqual(out.d['flips'][0]['with_more_call_us'], 0.9)
		self.assertEqual((out.d['flips'][0]['count'], out.d['missed']), (3, []))
		self.assertEqual(self.report(*flips(13.5)).d['missed'], ['flip, ptx, with: 1.50 us, not 1'])

	def test_a_late_detachment_is_a_missed_goal(self):
		self.assertEqual(self.report(attachment('cached', 10, 3, 1, late_detach=1)).d['missed'],
			['1 detachments had not ended when gbpfd stopped waiting'])

	def test_growth_of_the_second_half_is_a_missed_goal(self):
		first = 1 << 30
		self.assertFalse(self.report(cycles((first, first - (9 << 20), first - (9 << 20)), (20, 30, 30))).failed)
		out = self.report(cycles((first, first, first - (3 << 20)), (20, 30, 33)))
		self.assertEqual(out.d['missed'], ['cycles: device_bytes grew by 3145728 in the second half',
			'cycles: descriptors grew by 3 in the second half'])


if __name__ == '__main__':
	unittest.main()
