"""The video instructions of PTX on one, two and four parts, from the pseudocode in the manual."""
import re

COMPARE = {'eq': lambda a, b: a == b, 'ne': lambda a, b: a != b, 'lt': lambda a, b: a < b, 'le': lambda a, b: a <= b,
	'gt': lambda a, b: a > b, 'ge': lambda a, b: a >= b}
M32 = 0xffffffff


def signed(v, bits):
	v &= (1 << bits) - 1
	return v - (1 << bits) if v >> (bits - 1) else v


def typed(v, bits, kind):
	return signed(v, bits) if kind[0] == 's' else v & ((1 << bits) - 1)


def clamp(v, bits, kind):
	low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if kind[0] == 's' else (0, (1 << bits) - 1)
	return min(max(v, low), high)


def select(v, sel, kind):
	"""A byte or half of an operand, or all of it."""
	if not sel:
		return typed(v, 32, kind)
	bits = 8 if sel[0] == 'b' else 16
	return typed(v >> bits * int(sel[1]), bits, kind)


def basic(op, a, b):
	return {'add': a + b, 'sub': a - b, 'absdiff': abs(a - b), 'min': min(a, b), 'max': max(a, b),
		'avrg': (a + b + (a + b >= 0)) >> 1}[op]


def second(op, a, b, kind):
	a, b = typed(a, 32, kind), typed(b, 32, kind)
	return {'add': a + b, 'min': min(a, b), 'max': max(a, b)}[op]


def scalar(op, mods, sels, v, minus):
	kinds = [m for m in mods if re.fullmatch(r'[us]32', m)]
	sat = 'sat' in mods
	if op == 'set':
		ka, kb = kinds
		kd = 'u32'
		a, b = select(v[0], sels[1], ka), select(v[1], sels[2], kb)
		r = int(COMPARE[next(m for m in mods if m in COMPARE)](a, b))
	elif op == 'mad':
		kd, ka, kb = kinds
		a, b = select(v[0], sels[1], ka), select(v[1], sels[2], kb)
		product = minus[1] != minus[2]
		signed_c = 's' in ka[0] + kb[0] or product or minus[3]
		c = typed(v[2], 32, 's32' if signed_c else 'u32')
		r = (-a * b if product else a * b) + (-c if minus[3] else c) + int('po' in mods)
		shift = next((int(m[3:]) for m in mods if m.startswith('shr')), 0)
		r >>= shift
		return (clamp(r, 32, 's32' if signed_c else 'u32') if sat else r) & M32
	else:
		kd, ka, kb = kinds
		a, b = select(v[0], sels[1], ka), select(v[1], sels[2], kb)
		if op in ('shl', 'shr'):
			b = min(b, 32) if 'clamp' in mods else b & 31
			r = a << b if op == 'shl' else a >> b
		else:
			r = basic(op, a, b)
	bits = 32 if not sels[0] else 8 if sels[0][0] == 'b' else 16
	if sat:
		r = clamp(r, bits, kd)
	if sels[0]:
		at = bits * int(sels[0][1])
		mask = ((1 << bits) - 1) << at
		return (v[2] & ~mask | r << at & mask) & M32
	op2 = next((m for m in mods if m in ('add', 'min', 'max')), None)
	return (second(op2, r, v[2], kd) if op2 else r) & M32


def parts(op, n, mods, sels, v):
	kinds = [m for m in mods if re.fullmatch(r'[us]32', m)]
	kd, ka, kb = kinds if len(kinds) == 3 else ['u32'] + kinds
	bits = 32 // n
	source = [v[i // n] >> bits * (i % n) for i in range(2 * n)]
	pick = [[int(x) for x in s[1:]][::-1] if s else None for s in sels]
	a_of, b_of = pick[1] or list(range(n)), pick[2] or list(range(n, 2 * n))
	lanes = set(pick[0]) if pick[0] is not None else set(range(n))
	total, d = typed(v[2], 32, kd), v[2]
	for i in range(n):
		if i not in lanes:
			continue
		a, b = typed(source[a_of[i]], bits, ka), typed(source[b_of[i]], bits, kb)
		r = int(COMPARE[next(m for m in mods if m in COMPARE)](a, b)) if op == 'set' else basic(op, a, b)
		if 'sat' in mods:
			r = clamp(r, bits, kd)
		total += r
		mask = ((1 << bits) - 1) << bits * i
		d = d & ~mask | r << bits * i & mask
	return (total if 'add' in mods else d) & M32


def compute(name, sels, v, minus):
	op, *mods = name.split('.')
	m = re.fullmatch(r'v([a-z]+)([24]?)', op)
	if m[2]:
		return parts(m[1], int(m[2]), mods, sels, v)
	return scalar(m[1], mods, sels, v, minus)
