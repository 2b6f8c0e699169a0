"""Floating-point formats as exact fractions, rounded once: the arithmetic of gen_rows.py, independent of gBPF's engines."""
from fractions import Fraction
from math import isqrt

# name: bits of exponent, bits of mantissa, canonical NaN
FORMATS = {'f16': (5, 10, 0x7fff), 'bf16': (8, 7, 0x7fff), 'f32': (8, 23, 0x7fffffff), 'f64': (11, 52, 0x7ff8000000000000),
	'tf32': (8, 10, 0x3ffff), 'e4m3': (4, 3, 0x7f), 'e5m2': (5, 2, 0x7f)}
NAN = 'nan'


class Number:
	"""A decoded value: kind 'num' (with an exact magnitude), 'inf' or 'nan'; sign is 0 or 1."""

	def __init__(self, kind, sign, value=None, subnormal=False):
		self.kind, self.sign, self.value, self.subnormal = kind, sign, value, subnormal

	def signed(self):
		return -self.value if self.sign else self.value


def width(fmt):
	return 1 + FORMATS[fmt][0] + FORMATS[fmt][1]


def decode(fmt, bits):
	e_bits, m_bits, _ = FORMATS[fmt]
	sign, e, m = bits >> (e_bits + m_bits) & 1, bits >> m_bits & ((1 << e_bits) - 1), bits & ((1 << m_bits) - 1)
	top, bias = (1 << e_bits) - 1, (1 << (e_bits - 1)) - 1
	if fmt == 'e4m3':
		if e == top and m == 7:
			return Number(NAN, sign)
	elif e == top:
		return Number('inf', sign) if m == 0 else Number(NAN, sign)
	if e == 0:
		return Number('num', sign, Fraction(m) * Fraction(2) ** (1 - bias - m_bits), m != 0)
	return Number('num', sign, Fraction(m | 1 << m_bits) * Fraction(2) ** (e - bias - m_bits))


def infinity(fmt, sign):
	e_bits, m_bits, _ = FORMATS[fmt]
	return sign << (e_bits + m_bits) | ((1 << e_bits) - 1) << m_bits


def largest(fmt, sign):
	return infinity(fmt, sign) - 1 if fmt != 'e4m3' else sign << 7 | 0x7e


def nan(fmt):
	return FORMATS[fmt][2]


def zero(fmt, sign):
	return sign << (width(fmt) - 1)


def up(sign, odd, rest, half, mode):
	"""Returns whether a magnitude is rounded away from zero when `rest` of a quantum is dropped."""
	if rest == 0:
		return False
	if mode == 'rn':
		return rest > half or (rest == half and odd)
	if mode == 'rna':
		return rest >= half
	return mode == ('rm' if sign else 'rp')


def encode(fmt, sign, value, mode='rn', ftz=False):
	"""The bits of the magnitude `value`, rounded once."""
	e_bits, m_bits, _ = FORMATS[fmt]
	bias = (1 << (e_bits - 1)) - 1
	if value == 0:
		return zero(fmt, sign)
	n, d = value.numerator, value.denominator
	e = n.bit_length() - d.bit_length()
	if Fraction(2) ** e > value:
		e -= 1
	if ftz and e < 1 - bias:
		return zero(fmt, sign)
	e = max(e, 1 - bias)
	scaled = value / Fraction(2) ** (e - m_bits)
	q = scaled.numerator // scaled.denominator
	q += up(sign, q & 1, scaled - q, Fraction(1, 2), mode)
	if q >> (m_bits + 1):
		q, e = q >> 1, e + 1
	bits = ((e + bias - 1) << m_bits) + q if q >> m_bits else q
	if bits > largest(fmt, 0):
		if fmt == 'e4m3':
			return largest(fmt, sign)
		to_inf = mode in ('rn', 'rna') or mode == ('rm' if sign else 'rp')
		return infinity(fmt, sign) if to_inf else largest(fmt, sign)
	return zero(fmt, sign) | bits


def root(fmt, value, mode):
	"""The bits of the square root of a magnitude that is not 0."""
	shift = 2 * (FORMATS[fmt][1] + 8)
	n, d = value.numerator, value.denominator
	scale = 0
	while (n << scale) // d >> shift == 0:
		scale += 2
	whole, rest = divmod(n << scale, d)
	r = isqrt(whole)
	exact = r * r == whole and rest == 0
	# a quarter of the last relevant digit represents all further digits
	return encode(fmt, 0, (Fraction(r) + (0 if exact else Fraction(1, 4))) / Fraction(2) ** (scale // 2), mode)


def to_whole(x, mode):
	"""Rounds a number to an integer, with sign."""
	q, rest = divmod(x.value, 1)
	q = int(q) + up(x.sign, int(q) & 1, rest, Fraction(1, 2), {'rni': 'rn', 'rzi': 'rz', 'rmi': 'rm', 'rpi': 'rp'}.get(mode, mode))
	return -q if x.sign else q
