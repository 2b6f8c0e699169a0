"""`gbpf bench dev policy`: the cost of policies, each figure with its quartiles, and the limits that gBPF promises."""
import math

import stats
from command import Command, lib, number

COMMAND = Command('bench-policy', 'cost of policies: compiled code against clang, lookups, loading', [
	number('repeat', 1, 1000, 'measurements of each figure (default 25)', 'r', default='25'),
	number('ms', 1, 1000, 'length of one measurement in milliseconds (default 1)', 'm', default='1')], gpu=False,
	prepare=lambda options, machine: ['--policies', lib('policies'), '--set', lib('bench', 'policy')])

MEAN_RATIO, MAX_RATIO, INTERPRETED_NS, VISIT_NS = 1.5, 2.5, 5.0, 500.0
MANY_VISITS = 1000  # below this the constant cost of verification dominates


def figure(values):
	v = sorted(values)
	return {'p25': stats.quantile(v, 0.25), 'median': stats.quantile(v, 0.5), 'p75': stats.quantile(v, 0.75)}


class Report:
	def __init__(self, out):
		self.out, self.goals, self.programs, self.worst_visit, self.in_goals = out, [], [], 0.0, False
		out.line('ns a call, above the loop alone\n%-18s %7s %9s %9s %9s %7s %11s %9s' % ('PROGRAM', 'INSNS', 'EMPTY', 'CLANG', 'GBPF',
			'RATIO', '', 'INTERP'))

	def goal(self, what, values, unit, limit):
		f = figure(values)
		kept = f['median'] <= limit
		self.goals.append({'what': what, 'unit': unit, 'value': f, 'limit': limit, 'kept': kept})
		self.out.line('%-44s %9.2f %9.2f %9.2f  %-8s at most %g%s' % (what, *f.values(), unit, limit, '' if kept else '  EXCEEDED'))

	def program(self, p):
		ratio = figure(a / b for a, b in zip(p['compiled_ns'], p['native_ns']))
		p = {**{k: figure(v) if k.endswith('_ns') else v for k, v in p.items()}, 'ratio': ratio}
		self.programs.append(p)
		self.out.line('%-18s %7.0f %9.2f %9.2f %9.2f %7.2f (%4.2f-%4.2f) %9.1f' % (p['name'], p['insns'], p['empty_call_ns']['median'],
			p['native_ns']['median'], p['compiled_ns']['median'], ratio['median'], ratio['p25'], ratio['p75'],
			p['interpreted_ns']['median']))

	def end_programs(self):
		"""Reports the goals of all programs, before the first other figure."""
		if self.in_goals:
			return
		self.in_goals = True
		ratios = [p['ratio']['median'] for p in self.programs]
		if ratios:
			self.goal('compiled / clang -O2, geometric mean', [math.exp(sum(map(math.log, ratios)) / len(ratios))], '', MEAN_RATIO)
			self.goal('compiled / clang -O2, worst program', [max(ratios)], '', MAX_RATIO)
			slowest = max(p['interpreted_ns']['median'] / p['insns'] for p in self.programs)
			self.goal('interpreted instruction, worst program', [slowest], 'ns', INTERPRETED_NS)
		self.out.line('\n%-44s %9s %9s %9s' % ('FIGURE', 'P25', 'MEDIAN', 'P75'))


def report(records, out):
	r, document = Report(out), {'schema': 'gbpf.bench.policy/1'}
	for name, body in records:
		if name == 'set_up':
			document.update(body)
		elif name == 'program':
			r.program(body)
		else:
			r.end_programs()
			if name == 'goal':
				r.goal(**body)
			elif body['visited'] >= MANY_VISITS:
				r.worst_visit = max(r.worst_visit, figure(body['ns'])['median'])
	r.end_programs()
	r.goal('verify, per visited instruction (of >= 1000)', [r.worst_visit], 'ns', VISIT_NS)
	out.document({**document, 'goals': r.goals, 'programs': r.programs})
