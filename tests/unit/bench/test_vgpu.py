"""Figures of `gbpf bench dev vgpu`: shares, and kernels that are not as long as stated."""
import unittest

import vgpu

SET_UP = {'device': 'GPU', 'soft': False, 'seconds': 1, 'window_s': 1, 'settle_s': 0, 'short_us': 100, 'long_us': 10000,
	'burst': False, 'shares': [[50, 50]]}
SECOND = 1000000000


class Output:
	def __init__(self):
		self.lines, self.failed = [], False

	def line(self, text):
		self.lines.append(text)

	def document(self, d):
		self.d = d


def window(shares, kinds, busy_ns, finished):
	return 'window', {'lane': 'shared', 'policy': 'band2' if shares else 'none', 'shares': shares, 'kinds': kinds,
		'elapsed_ns': SECOND, 'busy_ns': busy_ns, 'finished': finished}


def report(short_rate, long_rate):
	"""Reports tenants that each got half of the device."""
	out = Output()
	vgpu.report([('set_up', dict(SET_UP)), window([], ['short'], [SECOND], [short_rate]), window([], ['long'], [SECOND], [long_rate]),
		window([50, 50], ['short', 'long'], [SECOND // 2] * 2, [short_rate // 2, long_rate // 2])], out)
	return out


class Vgpu(unittest.TestCase):
	def test_equal_shares_have_no_error(self):
		out = report(10000, 100)
		row, = out.d['conditions']
		self.assertEqual((row['error_mean_points'], row['error_max_points'], row['got_percent']), (0, 0, [50, 50]))
		self.assertAlmostEqual(row['utilization_percent'], 100)
		self.assertEqual((out.d['missed'], out.failed), ([], False))

	def test_kernels_much_longer_than_stated_fail(self):
		out = report(1594, 16) # 0.63 and 62.5 ms
		self.assertEqual(out.d['missed'], ['shared lane: short kernels take 627 us alone, not 100',
			'shared lane: long kernels take 62500 us alone, not 10000'])
		self.assertTrue(out.failed)
		self.assertIn('alone, shared lane, short: 1594.0 kernels/s of 627 us', out.lines)

	def test_kernels_may_differ_from_the_stated_length_by_half(self):
		for short, long, n in ((6700, 67, 0), (14900, 149, 0), (6600, 66, 2), (15100, 151, 2)):
			self.assertEqual(len([m for m in report(short, long).d['missed'] if 'alone' in m]), n)


if __name__ == '__main__':
	unittest.main()
