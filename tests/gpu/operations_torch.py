"""Operations of PyTorch, in groups by the libraries that serve them: [--rounds N] [--group NAME]... Each group computes from the
same inputs in every round. Prints one JSON line: for each group the hashes of its results, one per different result."""
import argparse
import collections
import hashlib
import json
import os
import sys

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from torch_parts import captured  # noqa: E402

GROUPS = {}


def group(f):
	GROUPS[f.__name__] = f
	return f


def rand(*shape, dtype=torch.float32, seed=1):
	g = torch.Generator().manual_seed(seed)
	return torch.randn(*shape, generator=g).to(dtype).cuda()


def integers(high, *shape, seed=1):
	g = torch.Generator().manual_seed(seed)
	return torch.randint(0, high, shape, generator=g).cuda()


def gradients(f, *inputs):
	leaves = [x.detach().clone().requires_grad_() for x in inputs]
	out = f(*leaves)
	return [out, *torch.autograd.grad(out.float().square().sum(), leaves)]


@group
def gemm_f32():
	return [rand(2048, 2048) @ rand(2048, 2048, seed=2), torch.addmm(rand(512), rand(333, 777), rand(777, 512, seed=2))]


@group
def gemm_tf32():
	torch.backends.cuda.matmul.allow_tf32 = True
	try:
		return [rand(2048, 2048) @ rand(2048, 2048, seed=2)]
	finally:
		torch.backends.cuda.matmul.allow_tf32 = False


@group
def gemm_half():
	return [rand(n, n, dtype=t) @ rand(n, n, dtype=t, seed=2) for t in (torch.bfloat16, torch.float16) for n in (256, 1024, 4096)]


@group
def gemm_f64():
	return [rand(1024, 1024, dtype=torch.float64) @ rand(1024, 1024, dtype=torch.float64, seed=2)]


@group
def gemm_int8():
	a, b = integers(255, 512, 1024), integers(255, 1024, 512, seed=2)
	return [torch._int_mm((a - 128).to(torch.int8), (b - 128).to(torch.int8))]


@group
def gemm_batched():
	return [torch.bmm(rand(64, 128, 96), rand(64, 96, 160, seed=2)), torch.einsum('bij,bkj->bik', rand(16, 200, 64), rand(16, 300, 64, seed=2))]


@group
def gemv():
	return [rand(8192, 4096) @ rand(4096, seed=2), F.linear(rand(1, 4096, dtype=torch.bfloat16), rand(11008, 4096, dtype=torch.bfloat16, seed=2))]


@group
def convolution_1d():
	return gradients(lambda x, w: F.conv1d(x, w, padding=3), rand(16, 64, 512), rand(96, 64, 7, seed=2))


@group
def convolution_2d():
	return gradients(lambda x, w: F.conv2d(x, w, padding=1), rand(32, 64, 56, 56), rand(128, 64, 3, 3, seed=2)) + \
		[F.conv2d(rand(16, 64, 56, 56, dtype=torch.float16).to(memory_format=torch.channels_last), rand(64, 64, 3, 3, dtype=torch.float16, seed=2), padding=1),
			F.conv2d(rand(16, 96, 40, 40), rand(96, 1, 3, 3, seed=2), groups=96)]


@group
def convolution_3d():
	return [F.conv3d(rand(4, 16, 24, 24, 24), rand(32, 16, 3, 3, 3, seed=2), padding=1)]


@group
def convolution_transposed():
	return [F.conv_transpose2d(rand(8, 64, 28, 28), rand(64, 32, 4, 4, seed=2), stride=2, padding=1)]


@group
def attention_flash():
	q, k, v = (rand(4, 16, 1024, 64, dtype=torch.bfloat16, seed=i) for i in range(3))
	with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
		return [F.scaled_dot_product_attention(q, k, v, is_causal=True)]


@group
def attention_efficient():
	q, k, v = (rand(4, 16, 512, 64, seed=i) for i in range(3))
	with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
		return [F.scaled_dot_product_attention(q, k, v)]


@group
def attention_cudnn():
	q, k, v = (rand(4, 16, 1024, 128, dtype=torch.bfloat16, seed=i) for i in range(3))
	with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.CUDNN_ATTENTION, torch.nn.attention.SDPBackend.MATH]):
		return [F.scaled_dot_product_attention(q, k, v)]


@group
def norms():
	x = rand(64, 128, 1024)
	return gradients(lambda a, w: F.layer_norm(a, (1024,), w), x, rand(1024, seed=2)) + \
		[F.group_norm(rand(16, 64, 32, 32), 8), F.batch_norm(rand(16, 64, 32, 32), None, None, training=True), F.rms_norm(x, (1024,))]


@group
def softmaxes():
	return gradients(lambda x: F.softmax(x, -1), rand(512, 4097)) + [F.log_softmax(rand(64, 50257), -1), torch.logsumexp(rand(300, 7000), 1)]


@group
def activations():
	x = rand(1000, 10007)
	return [F.gelu(x), F.silu(x), F.relu(x), torch.tanh(x), torch.sigmoid(x), x.to(torch.bfloat16) * 3, F.leaky_relu(x.half())]


@group
def reductions():
	x = rand(3000, 5001)
	return [x.sum(), x.sum(0), x.mean(1), x.var(1), x.amax(0), x.argmax(1), x.norm(dim=0), x.prod(1), (x > 0).all(), torch.median(x, 1).values]


@group
def scans():
	return [rand(500, 9001).cumsum(1), rand(9001, 50).cumsum(0), integers(100, 5000000).cumsum(0), rand(300, 4000).cummax(1).values, torch.logcumsumexp(rand(200, 3000), 1)]


@group
def sorts():
	x = rand(300, 20011)
	return [x.sort(1).values, torch.sort(x, dim=1, stable=True).indices, x.topk(57, 1).values, integers(100000, 3000000).sort().values, torch.unique(integers(5000, 300000)), x.kthvalue(100, 1).values]


@group
def indexing():
	x, i = rand(50000, 64), integers(50000, 120000)
	return [x[i], x.index_select(0, i), torch.gather(x, 1, integers(64, 50000, 30)), x[x > 1.5], (x > 2).nonzero(), x.index_add(0, i.unique(), rand(i.unique().numel(), 64, seed=3)),
		integers(9, 4096, 100).scatter_add(1, integers(100, 4096, 100, seed=2), integers(5, 4096, 100, seed=3)), torch.take_along_dim(x, integers(64, 50000, 3, seed=4), 1)]


@group
def counting():
	return [torch.bincount(integers(1000, 2000000)), torch.histc(rand(1000000), 300, -3, 3), torch.bucketize(rand(500000), rand(1000, seed=2).sort().values), torch.searchsorted(rand(3000, seed=2).sort().values, rand(300000))]


@group
def layout():
	x = rand(64, 96, 50, 40)
	return [x.permute(3, 1, 0, 2).contiguous(), torch.cat([x, x * 2], 1), torch.stack([x, x]), x.flip(2), torch.roll(x, 7, 3), F.pad(x, (3, 2, 1, 5), mode='reflect'), x.repeat(1, 2, 1, 1), torch.tril(rand(3000, 3000)), x.to(memory_format=torch.channels_last).clone()]


@group
def pooling():
	x = rand(16, 64, 56, 56)
	return [F.max_pool2d(x, 3, 2), F.avg_pool2d(x, 3, 2), F.interpolate(x, scale_factor=2, mode='nearest'), F.adaptive_avg_pool2d(x, 7), F.interpolate(x, scale_factor=2, mode='bilinear'), F.grid_sample(x, rand(16, 40, 40, 2, seed=2).tanh(), align_corners=False)]


@group
def losses():
	return [F.cross_entropy(rand(2048, 5000), integers(5000, 2048)), F.mse_loss(rand(500, 999), rand(500, 999, seed=2)), F.kl_div(F.log_softmax(rand(300, 500), 1), F.softmax(rand(300, 500, seed=2), 1), reduction='batchmean'), F.smooth_l1_loss(rand(9999), rand(9999, seed=2))]


@group
def embeddings():
	return [F.embedding(integers(30000, 64, 512), rand(30000, 256)), F.embedding_bag(integers(3000, 500, 20), rand(3000, 128), mode='sum'), F.one_hot(integers(100, 20000), 100)]


@group
def transforms():
	x = rand(64, 4096)
	return [torch.view_as_real(torch.fft.fft(x)), torch.view_as_real(torch.fft.rfft2(rand(8, 1000, 720))), torch.fft.irfft(torch.fft.rfft(rand(16, 30030))), torch.view_as_real(torch.fft.fftn(rand(60, 70, 80)))]


@group
def linear_algebra():
	a = rand(300, 300) + 20 * torch.eye(300, device='cuda')
	s = a @ a.T
	return [torch.linalg.solve(a, rand(300, 5, seed=2)), torch.linalg.cholesky(s), torch.linalg.qr(rand(400, 300)).R, torch.linalg.inv(a), torch.linalg.lu_factor(a).LU, torch.linalg.eigvalsh(s), torch.linalg.det(a[:50, :50]), torch.linalg.solve_triangular(s.triu(), rand(300, 7, seed=3), upper=True)]


@group
def sparse():
	m = (rand(3000, 2000) > 2).float() * rand(3000, 2000, seed=2)
	return [m.to_sparse_csr() @ rand(2000, 64, seed=3), m.to_sparse().coalesce().values(), torch.sparse.sum(m.to_sparse(), 0).to_dense()]


@group
def recurrent():
	torch.manual_seed(5)
	lstm, gru = torch.nn.LSTM(128, 256, 2).cuda(), torch.nn.GRU(64, 128, bidirectional=True).cuda()
	return [lstm(rand(50, 32, 128))[0], gru(rand(40, 16, 64))[0]]


@group
def random_numbers():
	torch.manual_seed(9)
	return [torch.rand(1000003, device='cuda'), torch.randn(300, 777, device='cuda'), F.dropout(rand(2000, 1000), 0.3), torch.randperm(100003, device='cuda'), torch.multinomial(rand(50, 900).softmax(1), 100), torch.poisson(rand(5000).abs() * 4)]


@group
def complex_and_distances():
	z = torch.complex(rand(400, 500), rand(400, 500, seed=2))
	return [torch.view_as_real(z @ z.mH), torch.view_as_real(z.exp()), torch.cdist(rand(500, 64), rand(700, 64, seed=2)), rand(2000, 300).renorm(2, 0, 1)]


@group
def optimizers():
	out = []
	for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop):
		torch.manual_seed(3)
		model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 64)).cuda()
		optimizer = kind(model.parameters(), lr=1e-3)
		for step in range(5):
			optimizer.zero_grad()
			model(rand(128, 256, seed=step)).square().mean().backward()
			torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
			optimizer.step()
		out += [p.detach() for p in model.parameters()]
	return out


@group
def transformer():
	torch.manual_seed(4)
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0)
	model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).cuda()
	return gradients(model, rand(8, 128, 512))


@group
def amp():
	torch.manual_seed(6)
	model = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)).cuda()
	scaler = torch.amp.GradScaler('cuda')
	with torch.autocast('cuda', torch.float16):
		loss = F.cross_entropy(model(rand(16, 3, 64, 64)), integers(10, 16))
	scaler.scale(loss).backward()
	return [p.grad for p in model.parameters()]


@group
def graph():
	x, w = rand(256, 512), rand(512, 512, seed=2)
	g, y = captured(lambda: F.gelu(x @ w).softmax(1), lambda: F.gelu(x @ w))
	for _ in range(10):
		g.replay()
		x.copy_(y * 3)
	return [x]


@group
def streams():
	streams, out = [torch.cuda.Stream() for _ in range(8)], []
	here = torch.cuda.current_stream()
	for i, s in enumerate(streams):
		s.wait_stream(here)
		with torch.cuda.stream(s):
			x = rand(300, 300, seed=i)
			for _ in range(6):
				x = F.softmax(x @ x.T, 1)
			out.append(x)
	for s in streams:
		here.wait_stream(s)
	return out


def digest(tensors):
	h = hashlib.sha256()
	for t in tensors:
		h.update(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else str(t.item()).encode())
	return h.hexdigest()[:16]


def main():
	p = argparse.ArgumentParser(description=__doc__)
	p.add_argument('--rounds', type=int, default=2)
	p.add_argument('--group', action='append')
	p.add_argument('--hold', action='store_true', help='end when standard input does')
	a = p.parse_args()
	torch.backends.cudnn.benchmark = False
	torch.backends.cudnn.deterministic = True
	torch.backends.cuda.matmul.allow_tf32 = False
	out = collections.defaultdict(list)
	for _ in range(a.rounds):
		for name in a.group or GROUPS:
			try:
				h = digest(GROUPS[name]())
			except (RuntimeError, TypeError, ValueError) as e:
				h = 'error: ' + str(e).splitlines()[0][:150]
			if h not in out[name]:
				out[name].append(h)
	torch.cuda.synchronize()
	print(json.dumps(out), flush=True)
	if a.hold:
		sys.stdin.read()


main()
