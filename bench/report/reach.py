"""`gbpf bench dev reach`: the share of launches and of their GPU time that gBPF can stop between blocks, by gbpfd's statistics."""
import stats
from command import Command, flag, lib, number, text, words

PARTS = ('ptx', 'code', 'torch', 'triton-own', 'triton', 'compile-own', 'compile', 'cupy', 'cupy-ptx', 'jax', 'jax-ptxas', 'numba')
COMMAND = Command('bench-reach', "share of frameworks' launches that gBPF can stop", [
	words('parts', PARTS, f"of {','.join(PARTS)} (default all)"),
	flag('probes', 'also the share that can be probed, by form'),
	text('python', 'PROGRAM', 'that has the frameworks (default python3)'),
	number('seconds', 1, 3600, 'limit of each part (default 180)', 't', 'S')], policy=Command.CHOSEN,
	prepare=lambda options, machine: ['--script', lib('bench', 'reach.py')])

NOTE = '''STOP: launches that could be stopped between blocks, in % of all launches of kernels and graphs, and of their GPU time
(number times learned duration); PERSIST: of these, in % of all, those whose blocks start together, so that they do
not stop inside and the next launch waits for one kernel; PASS: one pass of the workload, by its own clock'''
KERNELS = 16  # of each part in the table
REFUSALS = ('machine-code', 'refused')  # kinds of events that the table shows
TOTALS = ('launches', 'stoppable', 'persistent', 'launches_ns', 'stoppable_ns', 'persistent_ns')


def how(k):
	"""Returns how launches of a kernel are stopped, or why not."""
	if not k.get('stoppable'):
		return 'no: ' + (k.get('block_why') or 'not launched so that it could be')
	return k.get('stop', '') + (', persistent' if 2 * k['persistent'] > k['stoppable'] else '')


def shares(tenants):
	"""Sums up the processes of a part: all kernels in the totals, the most frequent ones by name."""
	kernels = [k for t in tenants for k in t.get('kernels', ())]
	total = {name: sum(float(t['stats']['reach'][name]) for t in tenants) for name in TOTALS}
	ways = {}
	for k in kernels:
		w = ways.setdefault(how(k), {'launches': 0.0, 'gpu_ms': 0.0})
		w['launches'] += k['count']
		w['gpu_ms'] += k['count'] * k.get('est_ns', 0) * 1e-6
	return {'launches': sum(float(t['stats']['launches']) for t in tenants), 'kernel_launches': total['launches'],
		'stoppable_launches': total['stoppable'], 'persistent_launches': total['persistent'],
		'block_launches': sum(float(t['stats']['block_launches']) for t in tenants), 'gpu_ms': total['launches_ns'] * 1e-6,
		'stoppable_gpu_ms': total['stoppable_ns'] * 1e-6, 'persistent_gpu_ms': total['persistent_ns'] * 1e-6, 'ways_of_shown': ways,
		'kernels': [{'name': k['name'], 'count': float(k['count']), 'est_us': k.get('est_ns', 0) * 1e-3, 'how': how(k)} for k in kernels]}


FORMS = ('ptx', 'stub', 'brackets', 'none', 'unknown')


def coverage(tenants):
	"""Sums up launches and GPU time by the form in which kernels can be probed, and what is in the way of better forms."""
	forms, whys = {}, {}
	for t in tenants:
		for name in FORMS:
			f = forms.setdefault(name, {'launches': 0.0, 'gpu_ms': 0.0})
			f['launches'] += t['forms'][name]['launches']
			f['gpu_ms'] += t['forms'][name]['launches_ns'] * 1e-6
		for k in t['kernels']:
			if k['why']:
				w = whys.setdefault((k['form'], k['why']), {'form': k['form'], 'why': k['why'], 'launches': 0.0, 'gpu_ms': 0.0})
				w['launches'] += k['launches']
				w['gpu_ms'] += k['launches_ns'] * 1e-6
	for key in ('launches', 'gpu_ms'):
		whole = sum(f[key] for f in forms.values())
		for f in forms.values():
			f[key + '_percent'] = percent(f[key], whole)
	return {'answered': all(t['answered'] for t in tenants), 'forms': forms, 'whys_of_shown': list(whys.values())}


def part_document(p):
	d = {k: p[k] for k in ('part', 'is', 'state')}
	if p['text']:
		d['settings' if 'tenants' in p else 'why'] = p['text']
	if 'tenants' in p:
		d.update(shares(p['tenants']))
	if 'coverage' in p:
		d['probes'] = coverage(p['coverage'])
	if p['pass_ms'] > 0:
		d['pass_ms'] = p['pass_ms']
	d['events'] = [{k: e[k] for k in ('kind', 'text')} for e in p.get('events', ())]
	return d


def percent(part, whole):
	return 100 * stats.ratio(part, whole)


def print_reasons(out, d):
	"""Prints launches and GPU time by the way in which they stop, or the reason why not, and why images were not patched."""
	for name, w in sorted(d.get('ways_of_shown', {}).items(), key=lambda x: -x[1]['launches']):
		out.line('    %8.0f launches %9.2f ms  %s' % (w['launches'], w['gpu_ms'], name))
	for kind, text in dict.fromkeys((e['kind'], e['text']) for e in d['events'] if e['kind'] in REFUSALS):
		out.line(f'    event {kind}: {text}')


def print_probes(out, d):
	if not d['answered']:
		out.line('    probes: the program has not answered in time')
	for name, f in d['forms'].items():
		if f['launches']:
			out.line('    probes: %-8s %5.1f %% of launches, %5.1f %% of GPU time' % (name, f['launches_percent'], f['gpu_ms_percent']))
	for w in sorted(d['whys_of_shown'], key=lambda w: -w['launches']):
		out.line('    %8.0f launches %9.2f ms  %s: %s' % (w['launches'], w['gpu_ms'], w['form'], w['why']))


def print_part(out, p, d):
	if 'tenants' not in p:
		out.line('%-11s %s: %s' % (p['part'], p['state'], p['text']))
		print_reasons(out, d)
		return
	out.line('%-11s %9.0f %8.1f %9.1f %11.2f %8.1f %9.1f %9s' % (p['part'], d['kernel_launches'],
		percent(d['stoppable_launches'], d['kernel_launches']), percent(d['persistent_launches'], d['kernel_launches']), d['gpu_ms'],
		percent(d['stoppable_gpu_ms'], d['gpu_ms']), percent(d['persistent_gpu_ms'], d['gpu_ms']),
		'%.2f' % p['pass_ms'] if p['pass_ms'] > 0 else '-'))
	for k in d['kernels'][:KERNELS]:
		out.line('    %8.0f x %9.1f us  %-34s %s' % (k['count'], k['est_us'], k['how'], k['name'][:48]))
	print_reasons(out, d)
	if 'probes' in d:
		print_probes(out, d['probes'])


def report(records, out):
	document = {}
	for name, body in records:
		if name == 'set_up':
			document = {'schema': 'gbpf.bench.reach/2', **body, 'parts': []}
			out.line('%-11s %9s %8s %9s %11s %8s %9s %9s' % ('PART', 'LAUNCHES', 'STOP %', 'PERSIST %', 'GPU ms', 'STOP %', 'PERSIST %',
				'PASS ms'))
		else:
			document['parts'].append(part_document(body))
			print_part(out, body, document['parts'][-1])
	out.line(NOTE)
	out.document(document)
