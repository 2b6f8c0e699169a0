"""Large operations of PyTorch; see heavy.py."""
import hashlib
import os

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from heavy import group, main  # noqa: E402
from torch_parts import captured  # noqa: E402

torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.backends.cuda.matmul.allow_tf32 = False


def rand(*shape, dtype=torch.float32, seed=1):
	return torch.randn(*shape, device='cuda', generator=torch.Generator('cuda').manual_seed(seed)).to(dtype)


@group
def gemm_f32():
	return [rand(8192, 8192) @ rand(8192, 8192, seed=2)]


@group
def gemm_bf16():
	return [rand(8192, 8192, dtype=torch.bfloat16) @ rand(8192, 8192, dtype=torch.bfloat16, seed=2)]


@group
def elementwise():
	x = rand(1 << 27)
	for _ in range(20):
		x = torch.tanh(x * 1.01) + 0.01
	return [x]


@group
def softmax():
	return [F.softmax(rand(16384, 16384), 1), F.layer_norm(rand(16384, 8192), (8192,))]


@group
def sort_and_scan():
	x = rand(1 << 25)
	return [x.sort().values, x.cumsum(0), x.argsort(stable=True)]


@group
def convolution():
	return [F.conv2d(rand(64, 128, 112, 112), rand(128, 128, 3, 3, seed=2), padding=1)]


@group
def attention():
	q, k, v = (rand(4, 32, 4096, 128, dtype=torch.bfloat16, seed=i) for i in range(3))
	return [F.scaled_dot_product_attention(q, k, v, is_causal=True)]


@group
def fourier():
	return [torch.view_as_real(torch.fft.fft2(rand(128, 1024, 1024)))]


@group
def streams_and_events():
	"""40 streams, each of which waits for its neighbour's half."""
	here, out = torch.cuda.current_stream(), []
	streams = [torch.cuda.Stream() for _ in range(40)]
	for i, s in enumerate(streams):
		s.wait_stream(here)
		with torch.cuda.stream(s):
			x = rand(1024, 1024, seed=i)
			for _ in range(3):
				x = F.softmax(x @ x.T, 1) + x
			if out:
				s.wait_event(half)
				x = x + out[-1]
			half = torch.cuda.Event()
			half.record(s)
			out.append(x)
	for s in streams:
		here.wait_stream(s)
	torch.cuda.synchronize()
	return out[-4:]


@group
def graph():
	x, w = rand(2048, 2048), rand(2048, 2048, seed=2)
	g, y = captured(lambda: F.gelu(x @ w).softmax(1), lambda: F.gelu(x @ w))
	for _ in range(20):
		g.replay()
		x.copy_(torch.roll(y, 1, 0) * 3 + x)
	return [x.clone()]


@group
def allocations():
	"""Memory of many sizes, given back to the driver between uses."""
	out = rand(1 << 20)
	for i in range(12):
		x = out.repeat(1 + 5 * i % 17) * 1.0001
		out = out + x[-(1 << 20):]
		if i % 4 == 3:
			del x
			torch.cuda.empty_cache()
	return [out]


def digest(tensors):
	"""A sum of all words with weights, on the device, so that it is interrupted, too."""
	words = []
	for t in tensors:
		bits = t.detach().contiguous().reshape(-1).view(torch.int16 if t.element_size() == 2 else torch.int32)
		for part in bits.split(1 << 25):
			weight = torch.arange(part.numel(), device='cuda') % 65521 + 1
			words.append(str((part.to(torch.int64) * weight).sum().item()))
	return hashlib.sha256(','.join(words).encode()).hexdigest()[:16]


main(digest)
