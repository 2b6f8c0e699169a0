"""Results of PTX instructions, computed from the text of the PTX ISA manual with integers and exact fractions. Independent of
gBPF's engines. execute() raises Unknown for an instruction, or an input, whose result the manual does not define."""
import re
from fractions import Fraction

import ptx_float as fl

FLOATS = ('f16', 'bf16', 'f32', 'f64', 'tf32')


class Unknown(Exception):
	pass


def bits_of(kind):
	if kind == 'pred':
		return 1
	if kind in ('f16x2', 'bf16x2', 'u16x2', 's16x2'):
		return 32
	if kind == 'bf16':
		return 16
	if kind == 'tf32':
		return 32
	m = re.fullmatch(r'[usfb](\d+)', kind)
	if not m:
		raise Unknown(kind)
	return int(m[1])


def signed(v, bits):
	v &= (1 << bits) - 1
	return v - (1 << bits) if v >> (bits - 1) else v


def as_number(v, kind):
	bits = bits_of(kind)
	return signed(v, bits) if kind[0] == 's' else v & ((1 << bits) - 1)


def limits(kind):
	bits = bits_of(kind)
	return (-1 << (bits - 1), (1 << (bits - 1)) - 1) if kind[0] == 's' else (0, (1 << bits) - 1)


def clamp(v, kind):
	low, high = limits(kind)
	return min(max(v, low), high)


def quotient(a, b):
	q = abs(a) // abs(b)
	return -q if (a < 0) != (b < 0) else q


# ---- integers ----


def mul_part(mods, a, b, bits):
	p = a * b
	return p >> bits if 'hi' in mods else p


def mul24(mods, kind, a, b):
	a, b = (signed(x, 24) if kind[0] == 's' else x & 0xffffff for x in (a, b))
	p = a * b
	return p >> 16 if 'hi' in mods else p


def permute(mode, a, b, c):
	data = [(a | b << 32) >> 8 * i & 255 for i in range(8)]
	n = c & 3
	if mode is None:
		out = []
		for i in range(4):
			s = c >> 4 * i & 15
			byte = data[s & 7]
			out.append((255 if byte >> 7 else 0) if s & 8 else byte)
	else:
		out = {
			'f4e': lambda: [data[n + i] for i in range(4)],
			'b4e': lambda: [data[(n - i) & 7] for i in range(4)],
			'rc8': lambda: [data[n]] * 4,
			'ecl': lambda: [data[max(i, n)] for i in range(4)],
			'ecr': lambda: [data[min(i, n)] for i in range(4)],
			'rc16': lambda: [data[2 * (n & 1)], data[2 * (n & 1) + 1]] * 2,
		}[mode]()
	return sum(x << 8 * i for i, x in enumerate(out))


def nth_set(mask, base, offset):
	if offset == 0:
		return base if mask >> base & 1 else 0xffffffff
	offset = signed(offset, 32)
	pos, step, left = base, 1 if offset > 0 else -1, abs(offset)
	while 0 <= pos < 32:
		if mask >> pos & 1:
			left -= 1
			if left == 0:
				return pos
		pos += step
	return 0xffffffff


def field(bits, pos, length):
	"""Bit fields. The H200 uses all bits of the position and length of a 64-bit field."""
	return (pos & 255, length & 255) if bits == 32 else (pos, length)


def bit_field(kind, a, b, c):
	bits = bits_of(kind)
	pos, length = field(bits, b, c)
	if length == 0:
		return 0
	top = min(pos + length - 1, bits - 1)
	sign = a >> top & 1 if kind[0] == 's' else 0
	d = 0
	for i in range(bits):
		d |= (a >> (pos + i) & 1 if i < length and pos + i < bits else sign) << i
	return d


def insert_field(bits, a, b, c, e):
	pos, length = field(bits, c, e)
	for i in range(max(0, min(length, bits - pos))):
		if pos + i < bits:
			b = b & ~(1 << (pos + i)) | (a >> i & 1) << (pos + i)
	return b


def find_top(mods, kind, a):
	bits = bits_of(kind)
	a = as_number(a, kind)
	if a < 0:
		a = ~a
	top = a.bit_length() - 1
	if top < 0:
		return 0xffffffff
	return bits - 1 - top if 'shiftamt' in mods else top


def dot(mods, ka, kb, a, b, c):
	if 'lo' in mods or 'hi' in mods:
		a_parts = [signed(a >> 16 * i, 16) if ka[0] == 's' else a >> 16 * i & 0xffff for i in range(2)]
		base = 2 if 'hi' in mods else 0
		n = 2
	else:
		a_parts = [signed(a >> 8 * i, 8) if ka[0] == 's' else a >> 8 * i & 255 for i in range(4)]
		base, n = 0, 4
	b_parts = [signed(b >> 8 * (base + i), 8) if kb[0] == 's' else b >> 8 * (base + i) & 255 for i in range(n)]
	return c + sum(x * y for x, y in zip(a_parts, b_parts))


def whole(op, mods, kind, v, state):
	"""Computes an integer instruction; v: operands as bits. Returns the result before truncation to the type."""
	bits = bits_of(kind)
	n = [as_number(x, kind) for x in v]
	mask = (1 << bits) - 1
	sat = 'sat' in mods
	if op in ('add', 'sub', 'addc', 'subc'):
		# a - b is a + ~b + 1 to the flag: the carry of that sum, NOT borrow, is what a subtraction leaves and reads.
		a, b = n[0] & mask, n[1] & mask
		r = a + b if op[:3] == 'add' else a + (b ^ mask)
		r += state['carry'] if op[-1] == 'c' else int(op == 'sub')
		if 'cc' in mods:
			state['carry'] = r >> bits
		if sat:
			return clamp(n[0] + n[1] if op == 'add' else n[0] - n[1], kind)
		return r
	if op == 'mul':
		return n[0] * n[1] if 'wide' in mods else mul_part(mods, n[0], n[1], bits)
	if op in ('mad', 'madc'):
		if 'wide' in mods:
			return n[0] * n[1] + (as_number(v[2], kind[0] + str(2 * bits)))
		p = mul_part(mods, n[0], n[1], bits)
		if op == 'madc' or 'cc' in mods:
			r = (p & mask) + (n[2] & mask) + (state['carry'] if op == 'madc' else 0)
			if 'cc' in mods:
				state['carry'] = r >> bits
			return r
		return clamp(p + n[2], kind) if sat else p + n[2]
	if op == 'mul24':
		return mul24(mods, kind, v[0], v[1])
	if op == 'mad24':
		r = mul24(mods, kind, v[0], v[1])
		return clamp(signed(r, 32) + n[2], kind) if sat else r + n[2]
	if op == 'sad':
		return n[2] + abs(n[0] - n[1])
	if op in ('div', 'rem'):
		if n[1] == 0 or (n[1] == -1 and n[0] == limits(kind)[0]):
			raise Unknown('division')
		q = quotient(n[0], n[1])
		return q if op == 'div' else n[0] - q * n[1]
	if op in ('min', 'max'):
		r = min(n[:2]) if op == 'min' else max(n[:2])
		return max(r, 0) if 'relu' in mods else r
	simple = {
		'abs': lambda: abs(n[0]), 'neg': lambda: -n[0], 'not': lambda: ~n[0], 'cnot': lambda: int(n[0] == 0),
		'and': lambda: n[0] & n[1], 'or': lambda: n[0] | n[1], 'xor': lambda: n[0] ^ n[1],
		'popc': lambda: bin(v[0] & mask).count('1'), 'clz': lambda: bits - (v[0] & mask).bit_length(),
		'brev': lambda: int(f'{v[0] & mask:0{bits}b}'[::-1], 2),
		'bfind': lambda: find_top(mods, kind, v[0]),
		'bfe': lambda: bit_field(kind, v[0], v[1], v[2]),
		'bfi': lambda: insert_field(bits, v[0], v[1], v[2], v[3]),
		'fns': lambda: nth_set(v[0], v[1], v[2]) if v[1] < 32 else unknown('fns'),
		'shl': lambda: n[0] << min(v[1] & 0xffffffff, 64), 'shr': lambda: n[0] >> min(v[1] & 0xffffffff, bits),
		'lop3': lambda: sum((v[3] >> ((v[0] >> i & 1) << 2 | (v[1] >> i & 1) << 1 | v[2] >> i & 1) & 1) << i for i in range(32)),
		'prmt': lambda: permute(next((m for m in mods if m != 'b32'), None), v[0], v[1], v[2]),
	}
	if op in simple:
		return simple[op]()
	if op == 'bmsk':
		pos, length = (min(v[0], 32), min(v[1], 32)) if 'clamp' in mods else (v[0] & 31, v[1] & 31)
		return ((1 << length) - 1) << pos if 'clamp' not in mods or v[0] < 32 else 0
	if op == 'szext':
		size = v[1] & 31 if 'wrap' in mods else min(v[1], 32)
		return 0 if size == 0 else (signed(v[0], size) if kind[0] == 's' else v[0] & ((1 << size) - 1))
	if op == 'shf':
		k = v[2] & 31 if 'wrap' in mods else min(v[2], 32)
		pair = v[1] << 32 | v[0]
		return (pair << k) >> 32 if 'l' in mods else pair >> k
	raise Unknown(op)


def unknown(why):
	raise Unknown(why)


# ---- floating point ----


def flush(x):
	return fl.Number('num', x.sign, Fraction(0)) if x.subnormal else x


def finish(fmt, bits, mods):
	"""Applies saturation and .relu to a result."""
	x = fl.decode(fmt, bits)
	if 'sat' in mods:
		if x.kind == fl.NAN or x.sign:
			return 0
		return min(bits, fl.encode(fmt, 0, Fraction(1)))
	if 'relu' in mods and x.kind != fl.NAN and x.sign:
		return 0
	return bits


def mode_of(mods):
	return next((m for m in mods if m in ('rn', 'rz', 'rm', 'rp', 'rna')), 'rn')


def fused(fmt, mods, product_of, c):
	"""a * b + c, rounded once; b may be None: a + c."""
	mode, ftz = mode_of(mods), 'ftz' in mods
	a, b = product_of
	every = [x for x in (a, b, c) if x]
	if any(x.kind == fl.NAN for x in every):
		return fl.nan(fmt)
	sign = a.sign ^ (b.sign if b else 0)
	if b and (a.kind == 'inf' or b.kind == 'inf') and any(x.kind == 'num' and x.value == 0 for x in (a, b)):
		return fl.nan(fmt)
	inf = a.kind == 'inf' or bool(b and b.kind == 'inf')
	if inf:
		return fl.nan(fmt) if c and c.kind == 'inf' and c.sign != sign else fl.infinity(fmt, sign)
	if c and c.kind == 'inf':
		return fl.infinity(fmt, c.sign)
	p = a.value * (b.value if b else 1)
	if c is None:
		return fl.encode(fmt, sign, p, mode, ftz)
	r = (-p if sign else p) + c.signed()
	if r == 0:
		return fl.zero(fmt, sign if sign == c.sign and p == 0 and c.value == 0 else int(mode == 'rm'))
	return fl.encode(fmt, int(r < 0), abs(r), mode, ftz)


def compare(cmp, a, b, is_float):
	if is_float and fl.NAN in (a.kind, b.kind):
		return cmp in ('equ', 'neu', 'ltu', 'leu', 'gtu', 'geu', 'nan', 'ne') and cmp != 'ne' or cmp == 'nan'
	if is_float:
		rank = lambda x: x.signed() if x.kind == 'num' else Fraction(2) ** 2000 * (-1 if x.sign else 1)
		a, b = rank(a), rank(b)
	return {'eq': a == b, 'ne': a != b, 'lt': a < b, 'le': a <= b, 'gt': a > b, 'ge': a >= b, 'lo': a < b, 'ls': a <= b,
		'hi': a > b, 'hs': a >= b, 'equ': a == b, 'neu': a != b, 'ltu': a < b, 'leu': a <= b, 'gtu': a > b, 'geu': a >= b,
		'num': True, 'nan': False}[cmp]


def extreme(op, fmt, mods, v):
	x = [fl.decode(fmt, b) for b in v]
	w = fl.width(fmt)
	if 'ftz' in mods:
		x = [flush(y) for y in x]
		v = [fl.zero(fmt, y.sign) if y.kind == 'num' and y.value == 0 else b for y, b in zip(x, v)]
	sign = 0
	if 'xorsign' in mods:
		for y in x:
			sign ^= y.sign
		v = [b & ~(1 << (w - 1)) for b in v]
		x = [fl.decode(fmt, b) for b in v]
	good = [(y, b) for y, b in zip(x, v) if y.kind != fl.NAN]
	if not good or ('NaN' in mods and len(good) < len(x)):
		return fl.nan(fmt)
	rank = lambda p: (p[0].signed() if p[0].kind == 'num' else Fraction(2) ** 2000 * (-1 if p[0].sign else 1), -p[0].sign)
	best = min(good, key=rank)[1] if op == 'min' else max(good, key=rank)[1]
	return best | sign << (w - 1)


def floating(op, mods, fmt, v):
	if op in ('min', 'max'):
		return finish(fmt, extreme(op, fmt, mods, v), mods)
	x = [fl.decode(fmt, b & ((1 << fl.width(fmt)) - 1)) for b in v]
	top = 1 << (fl.width(fmt) - 1)
	if op == 'copysign':
		return v[0] & top | v[1] & ~top
	if op == 'testp':
		a = x[0]
		return int({'finite': a.kind == 'num', 'infinite': a.kind == 'inf', 'number': a.kind != fl.NAN,
			'notanumber': a.kind == fl.NAN, 'normal': a.kind == 'num' and not a.subnormal,
			'subnormal': a.subnormal}[mods[0]]) # the H200 calls zeros normal
	if op in ('neg', 'abs'):
		if x[0].kind == fl.NAN and fmt != 'f64':
			return fl.nan(fmt)
		bits = v[0] if not ('ftz' in mods and x[0].subnormal) else fl.zero(fmt, x[0].sign)
		return bits ^ top if op == 'neg' else bits & ~top
	if 'approx' in mods or 'full' in mods:
		raise Unknown('approximation')
	if 'ftz' in mods:
		x = [flush(y) for y in x]
	mode = mode_of(mods)
	if op in ('add', 'sub'):
		if op == 'sub':
			x[1] = fl.Number(x[1].kind, 1 - x[1].sign, x[1].value)
		r = fused(fmt, mods, (x[0], None), x[1])
	elif op == 'mul':
		r = fused(fmt, mods, (x[0], x[1]), None)
	elif op in ('fma', 'mad'):
		r = fused(fmt, mods, (x[0], x[1]), x[2])
	elif op in ('div', 'rcp'):
		a, b = (x[0], x[1]) if op == 'div' else (fl.Number('num', 0, Fraction(1)), x[0])
		sign = a.sign ^ b.sign
		if fl.NAN in (a.kind, b.kind) or (a.kind == b.kind == 'inf') or \
				(a.kind == b.kind == 'num' and a.value == b.value == 0):
			r = fl.nan(fmt)
		elif a.kind == 'inf' or (b.kind == 'num' and b.value == 0):
			r = fl.infinity(fmt, sign)
		elif b.kind == 'inf':
			r = fl.zero(fmt, sign)
		else:
			r = fl.encode(fmt, sign, a.value / b.value, mode, 'ftz' in mods)
	elif op == 'sqrt':
		a = x[0]
		if a.kind == fl.NAN or (a.sign and not (a.kind == 'num' and a.value == 0)):
			r = fl.nan(fmt)
		elif a.kind == 'inf':
			r = fl.infinity(fmt, 0)
		else:
			r = fl.zero(fmt, a.sign) if a.value == 0 else fl.root(fmt, a.value, mode)
	else:
		raise Unknown(op)
	return finish(fmt, r, mods)


# ---- conversions ----


def carry_nan(to, frm, v):
	"""Conversions from and to f64 keep a NaN's sign and the top of its payload, made quiet, as on the H200; so does bf16 to f32,
	which only shifts."""
	if (frm, to) == ('bf16', 'f32'):
		return v << 16
	if 'f64' not in (frm, to) or frm == to:
		return v if frm == to == 'f64' else fl.nan(to)
	m_from, m_to = fl.FORMATS[frm][1], fl.FORMATS[to][1]
	payload = v & ((1 << m_from) - 1)
	payload = payload << (m_to - m_from) if m_to > m_from else payload >> (m_from - m_to)
	sign = v >> (fl.width(frm) - 1) & 1
	return fl.infinity(to, sign) | payload | 1 << (m_to - 1)


def pack(to, v, rest_given):
	"""cvt.pack: a and b saturated, above the remaining bits of c."""
	bits = bits_of(to) if to[1:] in ('8', '16') else int(to[1:])
	low, high = (-1 << (bits - 1), (1 << (bits - 1)) - 1) if to[0] == 's' else (0, (1 << bits) - 1)
	a, b = (min(max(signed(x, 32), low), high) & ((1 << bits) - 1) for x in v[:2])
	return (v[2] << 2 * bits if rest_given else 0) | a << bits | b


def convert(mods, to, frm, v):
	ftz, sat = 'ftz' in mods, 'sat' in mods
	if frm not in FLOATS and to not in FLOATS:
		n = as_number(v, frm)
		return clamp(n, to) if sat else n
	if frm not in FLOATS:
		n = as_number(v, frm)
		r = fl.encode(to, int(n < 0), Fraction(abs(n)), mode_of(mods)) if n else 0
		return finish(to, r, mods)
	x = fl.decode(frm, v & ((1 << fl.width(frm)) - 1))
	if ftz and frm == 'f32':
		x = flush(x)
	if to not in FLOATS:
		if x.kind == fl.NAN:
			return 1 << (bits_of(to) - 1) if 'f64' == frm or bits_of(to) == 64 else 0 # as on the H200
		low, high = limits(to)
		if x.kind == 'inf':
			return low if x.sign else high
		return clamp(fl.to_whole(x, next(m for m in mods if m in ('rni', 'rzi', 'rmi', 'rpi'))), to)
	inner = next((m for m in mods if m in ('rni', 'rzi', 'rmi', 'rpi')), None)
	if x.kind == fl.NAN:
		r = carry_nan(to, frm, v)
	elif x.kind == 'inf':
		r = fl.infinity(to, x.sign) if 'satfinite' not in mods else fl.largest(to, x.sign)
	elif inner:
		n = fl.to_whole(x, inner)
		r = fl.encode(to, x.sign, Fraction(abs(n)))
	else:
		r = fl.encode(to, x.sign, x.value, mode_of(mods))
		if ftz and to == 'f32' and fl.decode(to, r).subnormal:
			r = fl.zero(to, x.sign)
		if 'satfinite' in mods and fl.decode(to, r).kind == 'inf':
			r = fl.largest(to, x.sign)
	if to == 'tf32':
		r <<= 13
		r = 0x7fffffff if x.kind == fl.NAN else r
		return 0 if 'relu' in mods and x.kind != fl.NAN and x.sign else r
	return finish(to, r, mods)


# ---- one instruction ----

KINDS = re.compile(r'[usbf](8|16|32|64)$|bf16$|tf32$|pred$|(f16|bf16|u16|s16)x2$|e4m3x2$|e5m2x2$')


def compute(name, v, state):
	"""The results of instruction `name` (with its suffixes) on operands v (bits), as a list of bits."""
	op, *mods = name.split('.')
	kinds = [m for m in mods if KINDS.fullmatch(m)]
	rest = [m for m in mods if not KINDS.fullmatch(m)]
	kind = kinds[-1] if kinds else None
	if op == 'cvt' and 'pack' in rest:
		return [pack(mods[2], v, len(v) > 2)]
	if op == 'cvt':
		to, frm = kinds[0], kinds[1]
		if to in ('f16x2', 'bf16x2') and frm == 'f32':
			half = to[:-2]
			return [convert(rest, half, 'f32', v[0]) << 16 | convert(rest, half, 'f32', v[1])]
		if to in ('f16x2', 'bf16x2') and frm in ('e4m3x2', 'e5m2x2'):
			FLOATS_8 = frm[:-2]
			parts = []
			for i in range(2):
				x = fl.decode(FLOATS_8, v[0] >> 8 * i & 255)
				r = fl.nan('f16') if x.kind == fl.NAN else fl.infinity('f16', x.sign) if x.kind == 'inf' else \
					fl.encode('f16', x.sign, x.value)
				parts.append(finish('f16', r, rest))
			return [parts[1] << 16 | parts[0]]
		if frm in ('f16x2', 'bf16x2') or to in ('e4m3x2', 'e5m2x2'):
			fmt, source = to[:-2], 'f32' if frm == 'f32' else frm[:-2]
			src = [v[1], v[0]] if frm == 'f32' else [v[0] & 0xffff, v[0] >> 16]
			out = 0
			for i, s in enumerate(src):
				x = fl.decode(source, s)
				if x.kind == fl.NAN:
					r = fl.nan(fmt)
				elif x.kind == 'inf':
					r = fl.largest(fmt, x.sign)
				else:
					r = fl.encode(fmt, x.sign, x.value)
					if fl.decode(fmt, r).kind != 'num':
						r = fl.largest(fmt, x.sign)
				out |= finish(fmt, r, rest) << 8 * i
			return [out]
		return [convert(rest, to, frm, v[0])]
	if op in ('setp', 'set'):
		return comparison(op, rest, kinds, v)
	if kind in ('f16x2', 'bf16x2'):
		f = kind[:-2]
		parts = [floating(op, rest, f, [x >> 16 * i & 0xffff for x in v]) for i in range(2)]
		return [parts[1] << 16 | parts[0]]
	if kind in ('u16x2', 's16x2'):
		parts = [whole(op, rest, kind[:-2], [x >> 16 * i & 0xffff for x in v], state) & 0xffff for i in range(2)]
		return [parts[1] << 16 | parts[0]]
	if kind in FLOATS:
		return [floating(op, rest, kind, v)]
	if op in ('dp4a', 'dp2a'):
		return [dot(rest, kinds[0], kinds[1], v[0], v[1], v[2])]
	if op == 'lop3' and rest:
		d = whole(op, [], 'b32', v[:4], state)
		q = int(d != 0)
		return [d, q & v[4] if 'and' in rest else q | v[4]]
	return [whole(op, rest, kind, v, state)]


def comparison(op, rest, kinds, v):
	cmp = rest[0]
	logic = next((m for m in rest if m in ('and', 'or', 'xor')), None)
	kind = kinds[-1]
	pair = kind.endswith('x2')
	part = kind[:-2] if pair else kind
	answers = []
	for i in range(2 if pair else 1):
		a, b = (x >> 16 * i & 0xffff if pair else x for x in v[:2])
		if part in FLOATS:
			x = [fl.decode(part, a), fl.decode(part, b)]
			if 'ftz' in rest:
				x = [flush(y) for y in x]
			r = bool(compare(cmp, x[0], x[1], True))
		else:
			r = bool(compare(cmp, as_number(a, part), as_number(b, part), False))
		c = bool(v[2]) if logic else None
		answers.append({None: r, 'and': r and c, 'or': r or c, 'xor': r != c}[logic])
	if op == 'setp':
		return [int(x) for x in answers] if pair else [int(answers[0]), int(not r if not logic else 0)]
	to = kinds[0]
	one = {'f16': 0x3c00, 'bf16': 0x3f80, 'f32': 0x3f800000}
	if to in ('f16x2', 'bf16x2'):
		return [sum((one[to[:-2]] if x else 0) << 16 * i for i, x in enumerate(answers))]
	if pair:
		return [sum((0xffff if x else 0) << 16 * i for i, x in enumerate(answers))]
	return [(one.get(to) or (1 << bits_of(to)) - 1) if answers[0] else 0]
