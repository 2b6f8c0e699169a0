"""Loads, stores and atomic operations of one thread on one cell, from the PTX manual."""
import re

import ptx_insn

OPS = ('add', 'min', 'max', 'and', 'or', 'xor', 'exch', 'cas', 'inc', 'dec')


def cell_of(operand):
	m = re.fullmatch(r'\[(%\w+)\]', operand)
	if not m:
		raise ptx_insn.Unknown(operand)
	return m[1]


def words(operand):
	return [w.strip() for w in operand.strip('{} ').split(',')]


def new_value(op, kind, mods, old, given):
	bits = ptx_insn.bits_of(kind)
	if op == 'exch':
		return given[0]
	if op == 'cas':
		return given[1] if old == given[0] else old
	if op == 'inc':
		return 0 if old >= given[0] else old + 1
	if op == 'dec':
		return given[0] if old == 0 or old > given[0] else old - 1
	# Single precision in global memory flushes subnormals, in shared memory it does not (as the H200).
	suffix = '.ftz' if kind == 'f32' and op == 'add' and 'shared' not in mods else ''
	return ptx_insn.compute(f'{op}{suffix}.{kind}', [old, given[0]], {})[0] & ((1 << bits) - 1)


def execute(name, operands, env, memory):
	op, *mods = name.split('.')
	kind = next((m for m in mods if ptx_insn.KINDS.fullmatch(m)), None)
	if kind is None or kind == 'pred' or (op in ('ld', 'st') and kind == 'b128'):
		raise ptx_insn.Unknown(name)
	mask = (1 << ptx_insn.bits_of(kind)) - 1
	if op == 'st':
		memory[cell_of(operands[0])] = env[operands[1]] & mask
		return
	if op == 'ld':
		env[operands[0]] = memory[cell_of(operands[1])] & mask
		return
	if op not in ('atom', 'red'):
		raise ptx_insn.Unknown(name)
	targets = words(operands[0]) if op == 'atom' else []
	cell, *given = operands[1:] if op == 'atom' else operands
	cell = cell_of(cell)
	what = next(m for m in mods if m in OPS)
	n = 2 if 'v2' in mods else 1
	given = [[env[w] for w in words(g)] for g in given]
	bits = ptx_insn.bits_of(kind)
	old = [memory[cell] >> bits * i & mask for i in range(n)]
	new = [new_value(what, kind, mods, o, [g[i] & mask for g in given]) for i, o in enumerate(old)]
	memory[cell] = sum((x & mask) << bits * i for i, x in enumerate(new))
	for t, o in zip(targets, old):
		if t != '_':
			env[t] = o
