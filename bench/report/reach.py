"""`gbpf bench reach`: the share of launches and of their GPU time that gBPF can stop between blocks, by gbpfd's statistics."""
import stats

NOTE = '''TWIN: kernels that can be stopped between blocks, of the launches counted (those of the most frequent
kernels) and of their GPU time, as it was learned; PASS: one pass of the workload, by its own clock'''


def shares(tenants):
	"""Sums up the processes of a part. Launches include kernels that are not shown; GPU time is number times learned duration."""
	kernels = [k for t in tenants for k in t.get('kernels', ())]
	twins = [k for k in kernels if k.get('block')]
	without = {}
	for k in kernels:
		if not k.get('block') and k.get('block_why'):
			without[k['block_why']] = without.get(k['block_why'], 0.0) + k['count']

	def gpu_ms(of):
		return sum(float(k['count'] * k.get('est_ns', 0)) for k in of) * 1e-6
	return {'launches': sum(float(t['stats']['launches']) for t in tenants), 'launches_shown': sum(float(k['count']) for k in kernels),
		'launches_with_twin': sum(float(k['count']) for k in twins),
		'block_launches': sum(float(t['stats']['block_launches']) for t in tenants), 'gpu_ms_shown': gpu_ms(kernels),
		'gpu_ms_with_twin': gpu_ms(twins), 'without_twin': without, 'kernels': [{'name': k['name'], 'count': float(k['count']),
			'est_us': k.get('est_ns', 0) * 1e-3, 'twin': bool(k.get('block'))} for k in kernels]}


def part_document(p):
	d = {k: p[k] for k in ('part', 'is', 'state')}
	if p['text']:
		d['settings' if 'tenants' in p else 'why'] = p['text']
	if 'tenants' in p:
		d.update(shares(p['tenants']))
	if p['pass_ms'] > 0:
		d['pass_ms'] = p['pass_ms']
	return d


def print_part(out, p, d):
	if 'tenants' not in p:
		out.line('%-11s %s: %s' % (p['part'], p['state'], p['text']))
		return
	out.line('%-11s %9.0f %9.0f %8.1f %11.2f %8.1f %9s' % (p['part'], d['launches'], d['launches_shown'],
		100 * stats.ratio(d['launches_with_twin'], d['launches_shown']), d['gpu_ms_shown'],
		100 * stats.ratio(d['gpu_ms_with_twin'], d['gpu_ms_shown']), '%.2f' % p['pass_ms'] if p['pass_ms'] > 0 else '-'))


def report(records, out):
	document = {}
	for name, body in records:
		if name == 'set_up':
			document = {'schema': 'gbpf.bench.reach/1', **body, 'parts': []}
			out.line('%-11s %9s %9s %8s %11s %8s %9s' % ('PART', 'LAUNCHES', 'COUNTED', 'TWIN %', 'GPU ms', 'TWIN %', 'PASS ms'))
		else:
			document['parts'].append(part_document(body))
			print_part(out, body, document['parts'][-1])
	out.line(NOTE)
	out.document(document)
