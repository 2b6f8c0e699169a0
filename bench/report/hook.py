"""`gbpf bench dev hook`: nanoseconds of one call of a policy's program above the empty loop, compiled and interpreted."""
import sys

import stats
from command import Command, lib, number

COMMAND = Command('bench-hook', 'cost of policy programs, compiled and interpreted', [
	number('repeat', 1, 10000, 'measurements of each program (default 25)', 'r', default='25'),
	number('calls', 1000, 100000000, 'calls in one measurement (default 200000)', 'n', default='200000')], gpu=False,
	prepare=lambda options, machine: ['--policies', lib('policies')],
	arguments={'metavar': 'NAME|FILE', 'help': 'policies (default: an empty program and the installed ones)'})


def quantiles(v):
	v = sorted(v)
	return {'min': v[0], 'median': stats.quantile(v, 0.5), 'max': v[-1]}


def report(records, out):
	document = {'schema': 'gbpf.bench.hook/1'}
	programs, errors = [], []
	out.line('ns a call, above the empty loop\n%-12s %-13s %6s %8s %8s %8s %12s %8s' % ('POLICY', 'HOOK', 'INSNS', 'MIN', 'MEDIAN', 'MAX',
		'INTERPRETED', 'LOOP'))
	for name, body in records:
		if name == 'set_up':
			document.update(body)
		elif name == 'program':
			p = {k: quantiles(v) if k.endswith('_ns') else v for k, v in body.items()}
			programs.append(p)
			out.line('%-12s %-13s %6u %8.1f %8.1f %8.1f %12.1f %8.2f%s' % (p['policy'], p['hook'], p['insns'], *p['compiled_ns'].values(),
				p['interpreted_ns']['median'], p['loop_ns']['median'],
				'' if p['machine_code'] else ' (interpreted: no machine code here)'))
		else:
			errors.append(body)
			if not out.json:
				place = body['place'] + ': ' if body['place'] else ''
				print(f"gbpf: bench dev hook: {place}{body['message']}", file=sys.stderr)
	out.document({**document, 'programs': programs, 'errors': errors})
