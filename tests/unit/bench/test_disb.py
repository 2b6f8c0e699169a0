"""Figures of `gbpf bench dev disb`: ratios and their intervals, and what requests met."""
import unittest

import disb

REQUESTS = 200
NAMES = ('rt', 'rt-again', 'default', 'rt-mps', 'rt-mps-again', 'mps', 'gbpf', 'gbpf-shared')
ONE = [{'real_time': True}]
MS = 1000000


def make_conditions(tasks=1):
	"""Returns the conditions by name, without a round."""
	return {n: disb.Condition({'condition': n, 'rounds': 0, 'batch': not n.startswith('rt'), 'again': n.endswith('again'),
		'shared': 'mps' in n or 'shared' in n, 'gbpf': 'gbpf' in n}, [disb.Row() for _ in range(tasks)]) for n in NAMES}


def add_round(c, us, task=0):
	"""Adds a round: requests of 1 to 2 times that long."""
	c.rows[task].add_round([us * (1 + i / REQUESTS) for i in range(REQUESTS)], 1)
	c.rounds = len(c.rows[task].rounds)


class Disb(unittest.TestCase):
	def near(self, values, expected):
		for v in values:
			self.assertAlmostEqual(v, expected, delta=1e-9)

	def test_rounds_are_drawn_in_pairs(self):
		"""Rounds differ by three times, the ratio does not: its interval is a point."""
		c = make_conditions()
		for r in range(3):
			add_round(c['rt'], 1000 * (r + 1))
			add_round(c['gbpf'], 1100 * (r + 1))
		s = disb.summary(ONE, c.values(), c['gbpf'])
		self.assertEqual(len(s['round_mean_ratios']), 3)
		self.near((s['rt_mean_ratio'], s['rt_p99_ratio'], *s['rt_mean_ratio_interval'], *s['rt_p99_ratio_interval']), 1.1)

	def test_a_round_that_differs_widens_the_interval(self):
		c = make_conditions()
		for r in range(3):
			add_round(c['rt'], 1000)
			add_round(c['gbpf'], 1300 if r == 1 else 1000)
		s = disb.summary(ONE, c.values(), c['gbpf'])
		self.near([s['round_mean_ratios'][1]], 1.3)
		self.near([s['rt_mean_ratio']], 1.1)
		low, high = s['rt_mean_ratio_interval']
		self.near([low], 1)
		self.assertGreater(high, 1.19)

	def test_compared_with_the_same_lane(self):
		c = make_conditions()
		for x in c.values():
			x.rounds = 1
		for name, batch, expected in (('gbpf', False, 'rt'), ('gbpf', True, 'default'), ('gbpf-shared', False, 'rt-mps'),
				('gbpf-shared', True, 'mps'), ('rt-mps-again', False, 'rt-mps')):
			self.assertIs(disb.plain(c.values(), c[name], batch), c[expected])
		c['rt-mps'].rounds = 0  # then the other lane's, but never a repetition
		self.assertIs(disb.plain(c.values(), c['gbpf-shared'], False), c['rt'])
		c['rt'].rounds = 0
		self.assertIsNone(disb.plain(c.values(), c['gbpf-shared'], False))

	def test_total_share(self):
		tasks, c = [{'real_time': True}, {'real_time': False}], make_conditions(2)
		for name, batch in ('mps', 300), ('gbpf-shared', 100):
			add_round(c[name], 1000)
			add_round(c[name], 1000, 1)
			c[name].rows[1].rates = [batch]
		s = disb.summary(tasks, c.values(), c['gbpf-shared'])
		self.near([s['total_share'], *s['total_share_interval']], 300 / 500)

	def test_what_requests_met(self):
		"""Task 0 has requests at 10-14 and 30-34 ms. Of task 1 the first and the last meet no other, the second meets the first of
		task 0; the third was due before one of task 0 and began during it. Batch does not count."""
		def requests(*of):
			return [[due * MS, late, 100.0, 400.0, took] for due, late, took in of]
		tasks, rows = [{'real_time': True}, {'real_time': True}, {'real_time': False}], [disb.Row() for _ in range(3)]
		of = (requests((10, 0.0, 4000.0), (30, 0.0, 4000.0)), requests((5, 0.0, 1000.0), (12, 0.0, 1000.0), (29, 2000.0, 1000.0),
			(40, 0.0, 2000.0)), requests((0, 0.0, 60000.0)))
		disb.note_parts(tasks, rows, [{'task': i, 'requests': r, 'step_us': [2.0, 4.0][:i + 1], 'steps': 2} for i, r in enumerate(of)])
		alone, met = rows[1].parts['met_nobody'], rows[1].parts['met_others']
		self.assertEqual((alone.n, met.n), (2, 2))
		self.assertEqual((alone.took, met.late, alone.first, alone.front, alone.rest), (3000, 2000, 200, 600, 2200))
		self.assertEqual(rows[0].parts['met_nobody'].n, 2)
		self.assertEqual(rows[2].parts['met_nobody'].n + rows[2].parts['met_others'].n, 0)
		self.assertEqual(disb.parts_document(rows[1])['steps_us'], [1, 2])


unittest.main()
