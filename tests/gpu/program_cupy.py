"""CuPy: elementwise, matrix product, reduction, a raw kernel (NVRTC), streams. Prints one JSON line like program_torch.py."""
import hashlib
import json
import statistics
import time

import cupy as cp


def digest(a):
	return hashlib.sha256(cp.asnumpy(a).tobytes()).hexdigest()[:16]


def timed(step, n=60):
	for _ in range(3):
		step()
	cp.cuda.Device().synchronize()
	times = []
	for _ in range(n):
		begin = time.perf_counter()
		step()
		cp.cuda.Device().synchronize()
		times.append(time.perf_counter() - begin)
	return statistics.median(times) * 1e6


rng = cp.random.default_rng(3)
a, b = rng.random((512, 512), dtype=cp.float32), rng.random((512, 512), dtype=cp.float32)
raw = cp.RawKernel('extern "C" __global__ void f(const float *x, float *y, int n) {'
	'int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * 2.f + 1.f; }', 'f')
out = {}


def elementwise():
	out['elementwise'] = cp.sqrt(a * b) + cp.sin(a)


def matmul():
	out['matmul'] = a @ b


def reduction():
	out['reduction'] = cp.sort(a, axis=0).cumsum(axis=1)


def raw_kernel():
	y = cp.empty_like(a)
	raw((1024,), (256,), (a, y, a.size))
	out['raw_kernel'] = y


def streams():
	lanes = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
	cp.cuda.Device().synchronize()
	parts = []
	for s in lanes:
		with s:
			parts.append(cp.tanh(a) + b)
	for s in lanes:
		s.synchronize()
	out['streams'] = parts[0] + parts[1] + parts[2]


result = {}
for f in (elementwise, matmul, reduction, raw_kernel, streams):
	t = timed(f)
	result[f.__name__] = {'hash': digest(out[f.__name__]), 'step_us': t}
print(json.dumps(result))
