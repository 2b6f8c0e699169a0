#!/usr/bin/env python3
"""gen_textures OUT: writes textures, fetches from them and the results, computed with exact fractions from the appendix "Texture
Fetching" of the CUDA C++ Programming Guide and the rounding that an H100 and an H200 show, without gBPF's code. texture_cases runs
them. Seeds are fixed."""
import math
import random
import struct
import sys
from fractions import Fraction as F

FORMATS = {'u8': ('B', 0, 255), 's8': ('b', -128, 127), 'u16': ('H', 0, 65535), 's16': ('h', -32768, 32767), 'u32': ('I', 0, 2**32 - 1),
	's32': ('i', -2**31, 2**31 - 1), 'f16': ('e', None, None), 'f32': ('f', None, None)}
WIDENING = {'u8': F(257), 's8': F(32767, 127), 'u16': F(1), 's16': F(1)}
WHOLE = ('u8', 's8', 'u16', 's16', 'u32', 's32')
HALF = F(1, 2)
rand = random.Random(17)


def bits(value, code='f'):
	return int.from_bytes(struct.pack('<' + code, value), 'little')


def nearest(x):
	"""Rounds to a whole number, a half upwards."""
	return (x + HALF).__floor__()


def as_float(x):
	"""The nearest float of a fraction: a double of 53 bits is exact enough for the operands here, and is checked to be exact."""
	d = float(x)
	return bits(d)


def scaled_s8(total):
	"""From a sum of signed bytes with weights of 256 to 16 bits: the low 4 bits of the sum are left out of the correction."""
	return total + ((total >> 4) * 257 + 1024 >> 11)


def exponent(x, least):
	return max(math.frexp(float(abs(x)))[1], least)


def away(x, unit):
	"""Rounds to the nearest multiple of the unit, a half away from 0."""
	n = (abs(x) / unit + HALF).__floor__() * unit
	return n if x >= 0 else -n


def toward_zero(x, unit):
	n = (abs(x) / unit).__floor__() * unit
	return n if x >= 0 else -n


def aligned_sum(values, weights, digits, least):
	"""Operands are aligned to the largest one that has a weight, with 4 more bits, and cut."""
	unit = F(2) ** (max([exponent(v, least) for v, w in zip(values, weights) if w and v] or [least]) - digits - 4)
	return sum(toward_zero(v, unit) * w for v, w in zip(values, weights)) / 256


def sum_floats(values, weights, fmt):
	"""Four texels, of one slice or level, at a time; the sum of all is rounded once."""
	digits, least = (11, -13) if fmt == 'f16' else (24, -125)
	total = sum(aligned_sum(values[i:i + 4], weights[i:i + 4], digits, least) for i in range(0, len(values), 4))
	return bits(float(away(total, F(2) ** (exponent(total, least) - digits)))) if total else 0


class Texture:
	def __init__(self, dims, fmt, channels=1, modes=('clamp',) * 3, linear=False, whole=False, normalized=False, levels=1, kind='array',
			mip_linear=False, bias=0.0, low=0.0, high=0.0, border=(0.0,) * 4):
		self.dims, self.fmt, self.channels, self.modes, self.linear, self.whole = dims, fmt, channels, modes, linear, whole
		self.normalized, self.levels, self.kind, self.mip_linear = normalized, levels, kind, mip_linear
		self.bias, self.low, self.high, self.border = bias, low, high, border
		self.data = []
		for level in range(levels):
			n = 1
			for size in self.sizes(level):
				n *= size
			self.data.append([[self.value() for _ in range(channels)] for _ in range(n)])

	def sizes(self, level):
		deep = self.dims[2] if self.kind != 'array' else self.dims[2] >> level
		return max(self.dims[0] >> level, 1), max(self.dims[1] >> level, 1), max(deep, 1)

	def value(self):
		code, low, high = FORMATS[self.fmt]
		if low is None:
			return rand.randrange(-4096, 4096) / 64 if code == 'f' else rand.randrange(-64, 64) / 8
		return rand.choice((low, high, rand.randint(low, high), rand.randint(low, high)))

	def fraction(self):
		"""Whether results are fractions of 1."""
		return not self.whole and self.fmt in WIDENING

	def line(self):
		out = b''.join(struct.pack('<' + FORMATS[self.fmt][0], v) for level in self.data for texel in level for v in texel)
		flags = (1 if self.whole else 0) | (2 if self.normalized else 0)
		return (f'texture {self.kind} {self.fmt} {self.channels} {" ".join(map(str, self.dims))} {self.levels} {" ".join(self.modes)} '
			f'{int(self.linear)} {int(self.mip_linear)} {flags} {bits(self.bias):#x} {bits(self.low):#x} {bits(self.high):#x} '
			f'{" ".join(f"{bits(v):#x}" for v in self.border)}\ndata {out.hex()}\n')

	def wide(self, v):
		return nearest(F(v) * WIDENING[self.fmt])

	def result(self, wide):
		"""From a whole number of 16 bits to the bits of a result."""
		one = 65535 if self.fmt[0] == 'u' else 32767
		if self.fraction():
			return as_float(F(max(wide, -32767), one))
		return nearest(F(wide) / WIDENING[self.fmt]) & 0xffffffff

	def point(self, v):
		"""A texel as a fraction of 1."""
		return as_float(F(max(v, -127), 127)) if self.fmt == 's8' else self.result(self.wide(v))

	def texel(self, level, x, y, z):
		"""A texel, or the border."""
		w, h, d = self.sizes(level)
		if None in (x, y, z):
			if not self.fraction():
				return [F(v) if self.fmt[0] == 'f' else bits(v) for v in self.border[:self.channels]]
			one = FORMATS[self.fmt][2]
			return [nearest(F(v) * one) for v in self.border[:self.channels]]
		assert x < w and y < h and z < d
		return self.data[level][(z * h + y) * w + x]

	def address(self, axis, i, n):
		mode = self.modes[axis]
		if 0 <= i < n:
			return i
		if mode == 'border':
			return None
		if mode == 'clamp' or not self.normalized:
			return 0 if i < 0 else n - 1
		if mode == 'wrap':
			return i % n
		return i % n if i // n % 2 == 0 else n - 1 - i % n

	def finish(self, terms):
		"""terms: texels with their weights of 256; one term: not interpolated."""
		out = []
		for k in range(self.channels):
			values = [texel[k] for texel, _ in terms]
			if len(terms) == 1:
				v = values[0]
				out.append(bits(float(v)) if self.fmt[0] == 'f' else self.point(v) if self.fraction() else v & 0xffffffff)
			elif self.fmt == 's8' and self.fraction():
				out.append(self.result(scaled_s8(sum(v * w for v, (_, w) in zip(values, terms)))))
			elif self.fmt in WIDENING:
				out.append(self.result(nearest(sum(F(self.wide(v)) * w for v, (_, w) in zip(values, terms)) / 256)))
			elif self.fmt in WHOLE:
				out.append((sum(F(v) * w for v, (_, w) in zip(values, terms)) / 256).__floor__() & 0xffffffff)
			else:
				out.append(sum_floats([F(v) for v in values], [w for _, w in terms], self.fmt))
		return out + [0] * (4 - self.channels)

	def axis(self, axis, x, n):
		"""The two neighbours and the weight of the second; not interpolated: the texel."""
		x = (F(x) * 2**21).__floor__() * F(n, 2**21) if self.normalized else F(x)
		if not self.linear:
			return [self.address(axis, x.__floor__(), n)], 0
		fixed = nearest((x - HALF) * 256)
		found = [self.address(axis, fixed // 256 + i, n) for i in (0, 1)]
		clamps = self.modes[axis] == 'clamp' or self.modes[axis] != 'border' and not self.normalized
		return found, 0 if clamps and found[0] == found[1] else fixed % 256

	def terms(self, point, level=0, layer=0, all_=256):
		"""Texels of a level and their weights, whose sum is all_."""
		sizes = self.sizes(level)
		found = [self.axis(i, x, sizes[i]) for i, x in enumerate(point)]
		x, a = found[0]
		y, b = found[1] if len(found) > 1 else ([0, 0], 0)
		z, c = found[2] if len(found) > 2 else ([layer, layer], 0)
		if not self.linear:
			return [(self.texel(level, x[0], y[0], z[0]), all_)]
		terms = []
		far = nearest(F(all_ * c, 256))
		for slice_, total in ((0, all_ - far), (1, far)) if len(found) > 2 else ((0, all_),):
			right = nearest(F(total * a, 256))
			for column, weight in ((0, total - right), (1, right)):
				near = nearest(F(weight * (b if column else 256 - b), 256))
				split = (weight - near, near) if column else (near, weight - near)
				terms += [(self.texel(level, x[column], y[row], z[slice_]), split[row]) for row in (0, 1)]
		return terms

	def sample(self, point, level=0, layer=0):
		return self.finish(self.terms(point, level, layer))

	def sample_levels(self, point, lod):
		"""Interpolates between levels: the fraction of the level is cut to 8 bits."""
		level, part = divmod((min(max(lod, F(0)), F(self.levels - 1)) * 256).__floor__(), 256)
		terms = self.terms(point, level, 0, 256 - part)
		return self.finish(terms + (self.terms(point, level + 1, 0, part) if part else []))


def point_of(t, n, level=0):
	"""Coordinates that floats hold exactly, some outside the texture, many between weights."""
	spans = t.sizes(level)
	out = []
	for axis in range(n):
		fixed = F(rand.randrange(-2 * spans[axis] * 1024, 3 * spans[axis] * 1024), 1024)
		out.append(F(struct.unpack('<f', struct.pack('<f', float(fixed / spans[axis])))[0]) if t.normalized else fixed)
	return out


def emit(out, t, instruction, rows):
	out.append(t.line() + f'run {instruction}\n')
	for inputs, results in rows:
		out.append(f'{" ".join(f"{v:#x}" for v in (inputs + [0] * 4)[:4])} = {" ".join(f"{v:#x}" for v in results)}\n')
	out.append('\n')


D = '{%r1, %r2, %r3, %r4}'
COORDINATES = {1: '{%f0}', 2: '{%f0, %f1}', 3: '{%f0, %f1, %f2, %f2}'}


def plain(out, t, n, rows=24):
	points = [point_of(t, n) for _ in range(rows)]
	emit(out, t, f'tex.{n}d.v4.u32.f32 {D}, [%t, {COORDINATES[n]}];', [([bits(float(x)) for x in p], t.sample(p)) for p in points])


def main():
	out = []
	dims = {1: (13, 0, 0), 2: (7, 5, 0), 3: (5, 4, 3)}
	for fmt in FORMATS:
		for channels in (1, 2, 4):
			plain(out, Texture(dims[1], fmt, channels), 1, 8)
			plain(out, Texture(dims[2], fmt, channels, whole=True), 2, 8)
		for n in (1, 2, 3):
			plain(out, Texture(dims[n], fmt, 2, linear=True), n)
			plain(out, Texture(dims[n], fmt, 1, linear=True, whole=True), n)
	for mode in ('wrap', 'clamp', 'mirror', 'border'):
		for linear in (False, True):
			for n in (1, 2, 3):
				modes = (mode, 'clamp' if n == 1 else mode, 'clamp' if n < 3 else mode)
				plain(out, Texture(dims[n], 's16', 1, modes, linear, normalized=True, border=(0.25,) * 4), n)
				plain(out, Texture(dims[n], 'f32', 1, modes, linear, border=(9.5,) * 4), n)
	# whole coordinates: outside the texture 0
	t = Texture((6, 4, 0), 'u16', 4, whole=True)
	emit(out, t, f'tex.2d.v4.s32.s32 {D}, [%t, {{%r5, %r6}}];', [([x & 0xffffffff, y & 0xffffffff],
		list(t.texel(0, x, y, 0)) if 0 <= x < 6 and 0 <= y < 4 else [0] * 4) for x in range(-2, 8) for y in (-1, 0, 3, 4)])
	# layers
	for fmt, linear in (('u8', False), ('f32', False), ('u16', True)):
		t = Texture((6, 4, 5), fmt, 1, kind='layered', linear=linear)
		points = [(rand.randrange(0, 8), point_of(t, 2)) for _ in range(24)]
		emit(out, t, f'tex.a2d.v4.f32.f32 {D}, [%t, {{%r5, %f1, %f2, %f2}}];',
			[([layer] + [bits(float(x)) for x in p], t.sample(p, 0, min(layer, 4))) for layer, p in points])
	t = Texture((9, 0, 3), 's8', 2, kind='layered')
	points = [(rand.randrange(0, 5), point_of(t, 1)) for _ in range(16)]
	emit(out, t, f'tex.a1d.v4.f32.f32 {D}, [%t, {{%r5, %f1}}];',
		[([layer] + [bits(float(x)) for x in p], t.sample(p, 0, min(layer, 2))) for layer, p in points])
	# levels
	for fmt, linear in (('u16', False), ('u16', True), ('f32', False)):
		t = Texture((16, 8, 0), fmt, 1, levels=5, linear=linear, normalized=True, high=9.0)
		rows = []
		for _ in range(32):
			lod = F(rand.randrange(-64, 64 * 6), 64)
			level = min(max(nearest(lod), 0), 4)
			p = point_of(t, 2, level)
			rows.append(([bits(float(p[0])), bits(float(p[1])), bits(float(lod))], t.sample(p, level)))
		emit(out, t, f'tex.level.2d.v4.f32.f32 {D}, [%t, {{%f0, %f1}}], %f2;', rows)
	for fmt in ('u8', 's8', 'f16', 'f32'):
		t = Texture((16, 8, 0), fmt, 2, levels=4, linear=True, normalized=True, mip_linear=True, high=9.0)
		points = [point_of(t, 2, rand.randrange(4)) + [F(rand.randrange(-512, 512 * 4), 512)] for _ in range(32)]
		emit(out, t, f'tex.level.2d.v4.f32.f32 {D}, [%t, {{%f0, %f1}}], %f2;', [([bits(float(x)) for x in p], t.sample_levels(p[:2], p[2]))
			for p in points])
	# offsets
	t = Texture((8, 8, 0), 'u32', 1, whole=True)
	emit(out, t, f'tex.2d.v4.u32.f32 {D}, [%t, {{%f0, %f1}}], {{%r7, %r8}};', [([bits(x + 0.5), bits(y + 0.5), a & 0xffffffff, b & 0xffffffff],
		t.sample([F(x + a) + HALF, F(y + b) + HALF])) for x, y, a, b in [(rand.randrange(8), rand.randrange(8), rand.randrange(-8, 8),
		rand.randrange(-8, 8)) for _ in range(24)]])
	# four texels at once
	for component, letter in enumerate('rgba'):
		t = Texture((6, 5, 0), 'u8', 4, whole=True)
		rows = []
		for _ in range(12):
			x, y = rand.randrange(-8, 28), rand.randrange(-8, 24)
			left, top = (F(x, 4) - HALF).__floor__(), (F(y, 4) - HALF).__floor__()
			rows.append(([bits(x / 4), bits(y / 4)], [t.texel(0, t.address(0, left + i, 6), t.address(1, top + j, 5), 0)[component]
				for i, j in ((0, 1), (1, 1), (1, 0), (0, 0))]))
		emit(out, t, f'tld4.{letter}.2d.v4.u32.f32 {D}, [%t, {{%f0, %f1}}];', rows)
	# queries
	t = Texture((16, 8, 0), 'u16', 2, levels=4, high=9.0)
	for query, answer in (('width', 16), ('height', 8)):
		emit(out, t, f'txq.{query}.b32 %r1, [%t]; mov.b32 %r2, 0; mov.b32 %r3, 0; mov.b32 %r4, 0;', [([], [answer, 0, 0, 0])])
	# faces of a cube: axis, sign, and where the direction leads on the face
	t = Texture((4, 4, 6), 'f32', 1, kind='cube', normalized=True)
	faces = (lambda s, v: (1, -v, -s), lambda s, v: (-1, -v, s), lambda s, v: (s, 1, v), lambda s, v: (s, -1, -v),
		lambda s, v: (s, -v, 1), lambda s, v: (-s, -v, -1))
	rows = []
	for number, face in enumerate(faces):
		for i in range(4):
			for j in range(4):
				direction = face(F(2 * i - 3, 4), F(2 * j - 3, 4))
				rows.append(([bits(float(x)) for x in direction], t.finish([(t.texel(0, i, j, number), 256)])))
	emit(out, t, f'tex.cube.v4.f32.f32 {D}, [%t, {{%f0, %f1, %f2, %f2}}];', rows)
	with open(sys.argv[1], 'w', encoding='ascii') as f:
		f.write(''.join(out))


main()
