import json, os, sys
out = sys.argv[1]
import triton, triton.language as tl
from triton.compiler import ASTSource
from triton.backends.compiler import GPUTarget

@triton.jit
def add_kernel(x, y, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

@triton.jit
def softmax_kernel(o, x, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c, mask=c < n, other=-float('inf'))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(o + row * stride + c, v / tl.sum(v, axis=0), mask=c < n)

@triton.jit
def layernorm_kernel(x, w, b, o, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    m = c < n
    v = tl.load(x + row * n + c, mask=m, other=0.0)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(m, v - mean, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, axis=0) / n + eps)
    tl.store(o + row * n + c, d * r * tl.load(w + c, mask=m) + tl.load(b + c, mask=m), mask=m)

@triton.jit
def matmul_kernel(a, b, o, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc += tl.dot(x, y)
    tl.store(o + rm[:, None] * N + rn[None, :], acc)

@triton.jit
def histogram_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    s = tl.cumsum(v, axis=0)
    tl.store(o + i, s, mask=i < n)
    tl.atomic_add(o + n + (v & 15), 1, mask=i < n)

jobs = {
    'add': (add_kernel, {'x': '*fp32', 'y': '*fp32', 'o': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}, {'BLOCK': 512}),
    'softmax': (softmax_kernel, {'o': '*fp32', 'x': '*fp32', 'stride': 'i32', 'n': 'i32', 'BLOCK': 'constexpr'}, {'BLOCK': 512}),
    'layernorm': (layernorm_kernel, {'x': '*fp32', 'w': '*fp32', 'b': '*fp32', 'o': '*fp32', 'n': 'i32', 'eps': 'fp32', 'BLOCK': 'constexpr'}, {'BLOCK': 512}),
    'matmul': (matmul_kernel, {'a': '*fp16', 'b': '*fp16', 'o': '*fp32', 'M': 'i32', 'N': 'i32', 'K': 'i32', 'BM': 'constexpr', 'BN': 'constexpr', 'BK': 'constexpr'}, {'BM': 32, 'BN': 32, 'BK': 32}),
    'cumsum': (histogram_kernel, {'x': '*i32', 'o': '*i32', 'n': 'i32', 'BLOCK': 'constexpr'}, {'BLOCK': 256}),
}
for name, (fn, sig, consts) in jobs.items():
    for cc in (75, 80):
        try:
            k = triton.compile(ASTSource(fn=fn, signature=sig, constexprs=consts), target=GPUTarget('cuda', cc, 32))
        except Exception as e:
            print(name, cc, 'failed', str(e)[:200])
            continue
        open(f'{out}/triton_{name}.sm_{cc}.ptx', 'w').write(k.asm['ptx'])
        md = k.metadata
        print('triton', name, cc, 'entry', md.name, 'warps', md.num_warps, 'shared', md.shared)
