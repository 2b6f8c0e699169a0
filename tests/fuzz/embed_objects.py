#!/usr/bin/env python3
"""embed_objects.py OUT.h CLANG INCLUDE SOURCE...: writes the compiled sources as C arrays, for fuzzers that start from valid objects."""
import subprocess
import sys

out, clang, include, *sources = sys.argv[1:]
with open(out, 'w', encoding='utf-8') as f:
	names = []
	for i, source in enumerate(sources):
		elf = subprocess.run([clang, '-target', 'bpf', '-mcpu=v3', '-O2', '-g', '-w', f'-I{include}', '-c', source, '-o', '/dev/stdout'],
			stdout=subprocess.PIPE, check=True).stdout
		names.append(f'{{ object_{i}, sizeof(object_{i}) }}')
		f.write(f'static const unsigned char object_{i}[] = {{ {", ".join(map(str, elf))} }};\n')
	f.write('static const struct { const unsigned char *data; size_t bytes; } objects[] = {\n\t' + ',\n\t'.join(names) + ' };\n')
