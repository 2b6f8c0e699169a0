#!/usr/bin/env python3
"""gen_rows.py IN OUT: writes a .ptxt file from its .rows file, which has the same lines but for tables of computed rows.

Such a table says `rows` after its insn line and lists only the inputs, several rows on a line, separated by commas:

    insn u32 u32 -> u32 : add.sat.s32 %d, %a, %b;
    rows
    0xbde5c099 0xdeadbeef, 0x80000001 0x3fc1ea36

An input with a result (`0x1 0x0 = 0xffffffff`) is a row measured on hardware. `rows padded` writes results with leading zeros. `rows @NAME` names the inputs as well, so that a later table with the line
`rows @NAME` and nothing else has the same ones. The results come from ptx_insn.py, computed from the PTX manual with Python's
integers and fractions; tables that were measured or written by hand are copied."""
import re
import sys

import ptx_atom
import ptx_insn
import ptx_video

REGISTERS = ('%a', '%b', '%c', '%e')


def split_operands(text):
	"""Splits operands at the top level, not within braces and brackets."""
	out, depth, word = [], 0, ''
	for ch in text:
		depth += (ch in '{[') - (ch in '}]')
		if ch == ',' and depth == 0:
			out.append(word.strip())
			word = ''
		else:
			word += ch
	return out + [word.strip()] if word.strip() else out


def statements(text):
	text = text.strip()
	if text.startswith('{') and text.endswith('}'):
		text = text[1:-1]
	return [s.strip() for s in re.split(r';', text) if s.strip()]


class Table:
	"""One `insn` line: input and result types, and the instructions between them."""

	def __init__(self, line):
		types, code = line[len('insn '):].split(' : ', 1)
		ins, outs = types.split('->')
		self.ins, self.outs, self.code = ins.split(), outs.split(), statements(code)

	def results(self, inputs):
		"""The results for inputs as bits."""
		env = dict(zip(REGISTERS, inputs))
		state = {'carry': 0, 'memory': {'%at0': inputs[0]}}
		for s in self.code:
			if s.startswith(('.reg', '.shared', 'mov.u64 %x, s', 'mad.wide.u32 %x, %id')):
				continue # declarations, and the address of this thread's cell
			name, operands = (s.split(None, 1) + [''])[:2]
			if not operands or s[0] in '.@':
				raise ptx_insn.Unknown(s)
			self.one(name, split_operands(operands), env, state)
		return [env[r] & ((1 << ptx_insn.bits_of(t)) - 1) for r, t in zip(('%d', '%q'), self.outs)]

	@staticmethod
	def one(name, operands, env, state):
		if '[' in ''.join(operands):
			ptx_atom.execute(name, operands, env, state['memory'])
			return
		if name.startswith('mov.'):
			move(name, operands, env)
			return
		if re.match(r'v(add|sub|absdiff|min|max|avrg|set|mad|shl|shr)[24]?\.', name):
			minus = [o.startswith('-') for o in operands]
			words = [o.lstrip('-').split('.') + [''] for o in operands]
			env[words[0][0]] = ptx_video.compute(name, [w[1] for w in words], [env[w[0]] for w in words[1:]], minus)
			return
		targets = operands[0].split('|')
		values = []
		for o in operands[1:]:
			if re.fullmatch(r'!%\w+', o):
				values.append(1 - env[o[1:]])
			elif re.fullmatch(r'%\w+', o):
				values.append(env[o])
			elif re.fullmatch(r'0x[0-9a-fA-F]+|\d+', o):
				values.append(int(o, 0))
			else:
				raise ptx_insn.Unknown(o)
		out = ptx_insn.compute(name, values, state)
		for t, value in zip(targets, out):
			if t != '_':
				if not re.fullmatch(r'%\w+', t):
					raise ptx_insn.Unknown(t)
				env[t] = value


def move(name, operands, env):
	"""mov between a register and the parts of one in braces."""
	to, frm = ([x.strip() for x in o.strip('{} ').split(',')] for o in operands)
	if len(to) > 1:
		bits = ptx_insn.bits_of(name.split('.')[1]) // len(to)
		env.update({r: env[frm[0]] >> bits * i & ((1 << bits) - 1) for i, r in enumerate(to) if r != '_'})
		return
	bits = ptx_insn.bits_of(name.split('.')[1]) // len(frm)
	env[to[0]] = sum(((env[r] if r[0] == '%' else int(r, 0)) & ((1 << bits) - 1)) << bits * i for i, r in enumerate(frm))


def row(table, words, padded):
	if '=' in words:
		return ' '.join(words)
	values = [int(w, 0) & ((1 << ptx_insn.bits_of(t)) - 1) for w, t in zip(words, table.ins)]
	out = []
	for value, kind in zip(table.results(values), table.outs):
		out.append(f'{value:#0{ptx_insn.bits_of(kind) // 4 + 2}x}' if padded and kind != 'pred' else
			str(value) if kind == 'pred' else f'{value:#x}')
	return f"{' '.join(words)} = {' '.join(out)}"


def expand(lines):
	named, table, inputs, name, padded = {}, None, None, None, False
	for line in lines + ['']:
		if inputs is not None:
			if line:
				inputs += [r.split() for r in line.rstrip(',').split(', ')]
				continue
			if name:
				inputs = named.setdefault(name, inputs) if inputs else named[name]
			yield from (row(table, words, padded) for words in inputs)
			inputs = None
		if line.startswith('insn '):
			table = Table(line)
		if table and line.split()[:1] == ['rows']:
			words = line.split()[1:]
			padded, name = 'padded' in words, next((w for w in words if w[0] == '@'), None)
			inputs = []
			continue
		yield line


def main():
	lines = open(sys.argv[1]).read().splitlines()
	out = list(expand(lines))[:-1]
	with open(sys.argv[2], 'w') as f:
		f.write('\n'.join(out) + '\n')


if __name__ == '__main__':
	main()
