#!/usr/bin/env python3
"""Writes rows of arithmetic and conditions for every instruction, computed with Python's integers from the text of
RFC 9669 (section 4), so that they do not depend on any of gBPF's engines."""
import itertools
import sys

M64, M32 = (1 << 64) - 1, (1 << 32) - 1
VALUES = [0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 255, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, 0x100000000,
	0x123456789abcdef0, 0x7fffffffffffffff, 1 << 63, M64, M64 - 6, 0xffffffff80000000, 0xdeadbeef00000000]
DIVISORS = [3, 5, 6, 10, 11, 25, 100, 125, 641, 1000, 12345, 60000, 0x10001, 1000000, 0x40000001, 1000000007, 0x7ffffffe]


def signed(v, bits):
	v &= (1 << bits) - 1
	return v - (1 << bits) if v >> (bits - 1) else v


def trunc_div(a, b):
	q = abs(a) // abs(b)
	return -q if (a < 0) != (b < 0) else q


def alu(op, a, b, bits):
	mask = (1 << bits) - 1
	a, b = a & mask, b & mask
	sa, sb = signed(a, bits), signed(b, bits)
	shift = b % bits
	result = {
		'add': lambda: a + b, 'sub': lambda: a - b, 'mul': lambda: a * b,
		'div': lambda: a // b if b else 0, 'mod': lambda: a % b if b else a,
		'sdiv': lambda: trunc_div(sa, sb) if b else 0,
		'smod': lambda: sa - trunc_div(sa, sb) * sb if b else a,
		'or': lambda: a | b, 'and': lambda: a & b, 'xor': lambda: a ^ b, 'mov': lambda: b,
		'lsh': lambda: a << shift, 'rsh': lambda: a >> shift, 'arsh': lambda: sa >> shift,
	}[op]()
	return result & mask


def taken(op, a, b, bits):
	mask = (1 << bits) - 1
	a, b = a & mask, b & mask
	sa, sb = signed(a, bits), signed(b, bits)
	return int({'jeq': a == b, 'jne': a != b, 'jgt': a > b, 'jge': a >= b, 'jlt': a < b, 'jle': a <= b,
		'jset': a & b != 0, 'jsgt': sa > sb, 'jsge': sa >= sb, 'jslt': sa < sb, 'jsle': sa <= sb}[op])


def unary(out):
	def swap(v, bits):
		return int.from_bytes((v & ((1 << bits) - 1)).to_bytes(bits // 8, 'little'), 'big')
	for a in VALUES:
		out.append(f'alu neg {a:#x} = {-a & M64:#x}')
		out.append(f'alu neg32 {a:#x} = {-a & M32:#x}')
		for bits in (16, 32, 64):
			out.append(f'alu le{bits} {a:#x} = {a & ((1 << bits) - 1):#x}')
			out.append(f'alu be{bits} {a:#x} = {swap(a, bits):#x}')
			out.append(f'alu bswap{bits} {a:#x} = {swap(a, bits):#x}')


def moves(out):
	for a, b in zip(VALUES, VALUES[3:] + VALUES[:3] + [0x80, 0x7f, 0x1280, 0x12345678]):
		for bits in (8, 16, 32):
			out.append(f'alu movsx{bits} {a:#x} {b:#x} = {signed(b, bits) & M64:#x}')
			if bits < 32:
				out.append(f'alu movsx{bits}w {a:#x} {b:#x} = {signed(b, bits) & M32:#x}')


out = []
for a, b in itertools.product(VALUES, VALUES):
	for op in ('add', 'sub', 'mul', 'div', 'mod', 'sdiv', 'smod', 'or', 'and', 'xor', 'mov', 'lsh', 'rsh', 'arsh'):
		out.append(f'alu {op} {a:#x} {b:#x} = {alu(op, a, b, 64):#x}')
		out.append(f'alu {op}32 {a:#x} {b:#x} = {alu(op, a, b, 32):#x}')
	for op in ('jeq', 'jne', 'jgt', 'jge', 'jlt', 'jle', 'jset', 'jsgt', 'jsge', 'jslt', 'jsle'):
		out.append(f'jmp {op} {a:#x} {b:#x} = {taken(op, a, b, 64)}')
		out.append(f'jmp {op}32 {a:#x} {b:#x} = {taken(op, a, b, 32)}')
for a, b in itertools.product(VALUES, DIVISORS):
	for op in ('div', 'mod', 'sdiv', 'smod'):
		out.append(f'alu {op} {a:#x} {b:#x} = {alu(op, a, b, 64):#x}')
		out.append(f'alu {op}32 {a:#x} {b:#x} = {alu(op, a, b, 32):#x}')
for d in DIVISORS:  # around multiples, where a rounded reciprocal would go wrong first
	for bits, top in ((64, M64), (32, M32)):
		for a in (top // d * d - 1, top // d * d, d - 1, d, d + 1, d * 12345 - 1, d * 12345):
			suffix = '' if bits == 64 else '32'
			out.append(f'alu div{suffix} {a:#x} {d:#x} = {alu("div", a, d, bits):#x}')
			out.append(f'alu mod{suffix} {a:#x} {d:#x} = {alu("mod", a, d, bits):#x}')
unary(out)
moves(out)
with open(sys.argv[1], 'w') as f:
	f.write('\n'.join(out) + '\n')
