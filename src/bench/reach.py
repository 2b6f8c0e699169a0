"""reach.py PART: one workload of `gbpf bench reach`. Prints "absent: why" when this Python does not offer it; else runs it,
prints "done SECONDS" and waits to be ended, so that gbpfd can be asked about it."""
import sys
import time


def torch_model(torch):
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0)
	model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
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
	train(torch, *torch_model(torch), 60)


def run_compile():
	import torch
	if not torch.cuda.is_available():
		raise ImportError('torch sees no GPU')
	model, x, optimizer = torch_model(torch)
	train(torch, torch.compile(model), x, optimizer, 60)


def run_cupy():
	import cupy
	a = cupy.random.random((2048, 2048), dtype=cupy.float32)
	scale = cupy.RawKernel(r'''extern "C" __global__ void scale(float *v, float f, int n) {
		int i = blockDim.x * blockIdx.x + threadIdx.x;
		if (i < n) { v[i] *= f; } }''', 'scale')
	for _ in range(60):
		b = cupy.tanh(a @ a.T * 0.001) + cupy.sqrt(cupy.abs(a))
		b -= b.mean(axis=1, keepdims=True)
		scale((b.size // 256,), (256,), (b, cupy.float32(0.5), cupy.int32(b.size)))
		a = cupy.sort(b, axis=0)
	cupy.cuda.Device().synchronize()


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

	w = [jax.random.normal(jax.random.PRNGKey(i), (1024, 1024)) * 0.02 for i in range(4)]
	x = jax.random.normal(jax.random.PRNGKey(9), (512, 1024))
	for _ in range(100):
		w = step(w, x)
	jnp.asarray(w[0]).block_until_ready()


PARTS = {'torch': run_torch, 'compile': run_compile, 'cupy': run_cupy, 'jax': run_jax}


def main():
	begin = time.monotonic()
	try:
		PARTS[sys.argv[1]]()
	except ImportError as e:
		print(f'absent: {e}', flush=True)
		return 0
	print(f'done {time.monotonic() - begin:.2f}', flush=True)
	time.sleep(60)
	return 0


sys.exit(main())
