"""reach.py PART: one workload of `gbpf bench dev reach`. Prints "absent: REASON" if this Python lacks it; else runs it,
prints "done SECONDS ms=PASS" and its settings, and waits to be ended, so that gbpfd can be asked about it. PASS: by
this program's own clock, the duration of the work after compiling and loading, the shortest of several passes."""
import os
import pathlib
import subprocess
import sys
import time

PASSES = 5
CUDA = pathlib.Path(__file__).resolve().parent.parent / 'cuda'  # bin/ptxas in it is gBPF's


def torch_model(torch, layers):
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0)
	model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
	x = torch.randn(8, 128, 512, device='cuda')
	optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
	return model, x, optimizer


def train(torch, model, x, optimizer, steps):
	for _ in range(steps):
		optimizer.zero_grad()
		loss = ((model(x) - x) ** 2).mean()
		loss.backward()
		optimizer.step()
	torch.cuda.synchronize()


def run_torch():
	import torch
	if not torch.cuda.is_available():
		raise ImportError('torch sees no GPU')
	model, x, optimizer = torch_model(torch, 4)
	return lambda: train(torch, model, x, optimizer, 60)


def run_compile():
	import torch
	if not torch.cuda.is_available():
		raise ImportError('torch sees no GPU')
	model, x, optimizer = torch_model(torch, 1)  # compiling takes long
	compiled = torch.compile(model)
	return lambda: train(torch, compiled, x, optimizer, 60)


def run_triton():
	import torch
	import triton
	import triton.language as tl
	if not torch.cuda.is_available():
		raise ImportError('torch sees no GPU')

	@triton.jit
	def scale(x, y, n, BLOCK: tl.constexpr):
		i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
		tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n) * 0.5), mask=i < n)

	@triton.jit
	def softmax(x, y, COLUMNS: tl.constexpr):
		i = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
		v = tl.load(x + i)
		e = tl.exp(v - tl.max(v, 0))
		tl.store(y + i, e / tl.sum(e, 0))

	x = torch.randn(4096, 4096, device='cuda')
	y, z = torch.empty_like(x), torch.empty_like(x)

	def work():
		for _ in range(60):
			scale[(x.numel() // 1024,)](x, y, x.numel(), BLOCK=1024)
			softmax[(4096,)](y, z, COLUMNS=4096)
		torch.cuda.synchronize()

	work()
	if not torch.allclose(z, torch.softmax(torch.exp(x * 0.5), 1), atol=1e-5):
		raise RuntimeError('wrong results')
	return work


def run_cupy():
	import cupy
	start = cupy.random.random((2048, 2048), dtype=cupy.float32)
	scale = cupy.RawKernel(r'''extern "C" __global__ void scale(float *v, float f, int n) {
		int i = blockDim.x * blockIdx.x + threadIdx.x;
		if (i < n) { v[i] *= f; } }''', 'scale')

	def work():
		a = start
		for _ in range(60):
			b = cupy.tanh(a @ a.T * 0.001) + cupy.sqrt(cupy.abs(a))
			b -= b.mean(axis=1, keepdims=True)
			scale((b.size // 256,), (256,), (b, cupy.float32(0.5), cupy.int32(b.size)))
			a = cupy.sort(b, axis=0)
		cupy.cuda.Device().synchronize()

	return work


def run_jax():
	import jax
	import jax.numpy as jnp
	if not any(d.platform in ('gpu', 'cuda') for d in jax.devices()):
		raise ImportError('jax sees no GPU')

	@jax.jit
	def step(w, x):
		def loss(w):
			h = x
			for m in w:
				h = jax.nn.gelu(h @ m)
			return ((h - x) ** 2).mean()
		g = jax.grad(loss)(w)
		return [m - 0.01 * d for m, d in zip(w, g)]

	start = [jax.random.normal(jax.random.PRNGKey(i), (1024, 1024)) * 0.02 for i in range(4)]
	x = jax.random.normal(jax.random.PRNGKey(9), (512, 1024))

	def work():
		w = start
		for _ in range(100):
			w = step(w, x)
		jnp.asarray(w[0]).block_until_ready()

	return work


def run_numba():
	import numpy
	# Some releases of numba-cuda name this function, which new releases of NumPy no longer have.
	if not hasattr(numpy, 'row_stack'):
		numpy.row_stack = numpy.vstack
	from numba import cuda
	if not cuda.is_available():
		raise ImportError('numba sees no GPU')

	@cuda.jit
	def scale_add(n, a, x, y):
		i = cuda.grid(1)
		if i < n:
			y[i] += a * x[i]

	@cuda.jit
	def total(x, out):
		part = cuda.shared.array(256, numpy.float32)
		i, t = cuda.grid(1), cuda.threadIdx.x
		part[t] = x[i]
		cuda.syncthreads()
		k = 128
		while k:
			if t < k:
				part[t] += part[t + k]
			cuda.syncthreads()
			k //= 2
		if t == 0:
			cuda.atomic.add(out, 0, part[0])

	n = 1 << 22
	x = cuda.to_device(numpy.ones(n, numpy.float32))
	y = cuda.to_device(numpy.zeros(n, numpy.float32))
	out = cuda.to_device(numpy.zeros(1, numpy.float32))

	def work():
		for _ in range(300):
			scale_add[n // 256, 256](n, numpy.float32(0.001), x, y)
			total[n // 256, 256](y, out)
		cuda.synchronize()

	work()
	if not numpy.allclose(y.copy_to_host(), 0.3, rtol=1e-4) or abs(out.copy_to_host()[0] / n - 45.15) > 0.1:
		raise RuntimeError('wrong results')
	return work


def own_ptxas():
	"""Makes Triton use its own ptxas, as it does if it finds no other."""
	for name in ('TRITON_PTXAS_PATH', 'TRITON_PTXAS_BLACKWELL_PATH'):
		os.environ[name] = '/nonexistent'
	return ''


def cupy_ptx():
	os.environ['CUPY_COMPILE_WITH_PTX'] = '1'
	return 'CUPY_COMPILE_WITH_PTX=1'


def jax_ptxas():
	"""Returns the flags of the first list that this XLA knows: it aborts programs for unknown flags."""
	folder = f'--xla_gpu_cuda_data_dir={CUDA}'
	no_library = '--xla_gpu_enable_libnvptxcompiler=false'
	lists = [f'{no_library} {mode} {folder}' for mode in ('--xla_gpu_libnvjitlink_mode=disabled',
		'--xla_gpu_libnvjitlink_mode=LIB_NV_JIT_LINK_MODE_DISABLED', '--xla_gpu_enable_libnvjitlink=false')]
	lists += [f'{no_library} {folder}', f'--xla_gpu_enable_llvm_module_compilation_parallelism=true {folder}', folder]
	for flags in lists:
		env = {**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu', 'LD_PRELOAD': ''}
		tried = subprocess.run([sys.executable, '-c', 'import jax; jax.jit(lambda x: x + 1)(1)'], env=env, capture_output=True, text=True)
		if tried.returncode == 0:
			os.environ.update(XLA_FLAGS=flags, CUDA_ROOT=str(CUDA))
			return f'CUDA_ROOT={CUDA} XLA_FLAGS="{flags}"'
		if 'No module named' in tried.stderr:
			break
	return ''


PARTS = {'torch': (run_torch, None), 'triton': (run_triton, None), 'triton-own': (run_triton, own_ptxas),
	'compile': (run_compile, None), 'compile-own': (run_compile, own_ptxas), 'cupy': (run_cupy, None), 'cupy-ptx': (run_cupy, cupy_ptx),
	'jax': (run_jax, None), 'jax-ptxas': (run_jax, jax_ptxas), 'numba': (run_numba, None)}


def shortest_ms(work):
	"""Returns the shortest of several passes, after one in which the kernels' durations are learned."""
	times = []
	for _ in range(PASSES + 1):
		begin = time.monotonic()
		work()
		times.append(time.monotonic() - begin)
	return min(times[1:]) * 1000


def main():
	begin = time.monotonic()
	run, settings = PARTS[sys.argv[1]]
	os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'] = 'false'
	said = settings() if settings else ''
	try:
		work = run()
		ms = shortest_ms(work)
	except ImportError as e:
		print(f'absent: {e}', flush=True)
		return 0
	print(f'done {time.monotonic() - begin:.2f} ms={ms:.3f} {said}', flush=True)
	time.sleep(60)
	return 0


sys.exit(main())
