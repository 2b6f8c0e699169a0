import sys, os
src, out = sys.argv[1:3]
from cuda.bindings import nvrtc
e, major, minor = nvrtc.nvrtcVersion(); print('nvrtc', major, minor)
for name in ('functions', 'histogram', 'monte_carlo'):
    text = open(f'{src}/{name}.cu').read().replace('#include "words.h"', '')
    for arch in ('75',):
        e, p = nvrtc.nvrtcCreateProgram(text.encode(), (name + '.cu').encode(), 0, [], [])
        opts = [b'--gpu-architecture=compute_' + arch.encode(), b'--std=c++17', b'-default-device']
        e, = nvrtc.nvrtcCompileProgram(p, len(opts), opts)
        if int(e) != 0:
            _, n = nvrtc.nvrtcGetProgramLogSize(p); log = b' ' * n; nvrtc.nvrtcGetProgramLog(p, log)
            print('nvrtc', name, arch, 'failed', log[:600].decode()); continue
        _, n = nvrtc.nvrtcGetPTXSize(p); ptx = b' ' * n; nvrtc.nvrtcGetPTX(p, ptx)
        open(f'{out}/{name}.nvrtc_{arch}.ptx', 'wb').write(ptx.rstrip(b'\0'))
