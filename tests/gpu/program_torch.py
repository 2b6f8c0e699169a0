"""Typical PyTorch programs: training, inference, torch.compile, a CUDA graph, several streams, or those named. Prints one JSON line:
for each part a hash of its results and the median time of a step."""
import hashlib
import json
import os
import statistics
import sys
import time

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
import torch  # noqa: E402

torch.use_deterministic_algorithms(True)
torch.manual_seed(1)
device = torch.device('cuda')


def digest(*tensors):
	h = hashlib.sha256()
	for t in tensors:
		h.update(t.detach().float().cpu().numpy().tobytes())
	return h.hexdigest()[:16]


def timed(step, n, warm=3):
	for _ in range(warm):
		step()
	torch.cuda.synchronize()
	times = []
	for _ in range(n):
		begin = time.perf_counter()
		step()
		torch.cuda.synchronize()
		times.append(time.perf_counter() - begin)
	return statistics.median(times)


def training():
	model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).to(device)
	optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
	x = torch.randn(256, 512, device=device)

	def step():
		optimizer.zero_grad()
		loss = ((model(x) - x) ** 2).mean()
		loss.backward()
		optimizer.step()
	t = timed(step, 60)
	return digest(*model.parameters()), t


def inference():
	layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0)
	model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).to(device).eval()
	x = torch.randn(4, 64, 512, device=device)
	out = []

	def step():
		with torch.no_grad():
			out[:] = [model(x)]
	return (lambda t: (digest(out[0]), t))(timed(step, 60))


def compiled():
	@torch.compile
	def f(a, b):
		return torch.softmax(torch.tanh(a * b + 1.5) @ b, dim=-1).sum(dim=0)
	a, b = torch.randn(256, 256, device=device), torch.randn(256, 256, device=device)
	out = []

	def step():
		out[:] = [f(a, b)]
	return (lambda t: (digest(out[0]), t))(timed(step, 60))


def graph():
	x = torch.zeros(1 << 16, device=device)
	w = torch.randn(1 << 16, device=device)

	def body():
		for _ in range(10):
			x.mul_(0.5).add_(w)
	side = torch.cuda.Stream()
	side.wait_stream(torch.cuda.current_stream())
	with torch.cuda.stream(side):
		body()
	torch.cuda.current_stream().wait_stream(side)
	g = torch.cuda.CUDAGraph()
	with torch.cuda.graph(g):
		body()
	t = timed(g.replay, 60)
	return digest(x), t


def streams():
	lanes = [torch.cuda.Stream() for _ in range(4)]
	xs = [torch.randn(512, 512, device=device) for _ in lanes]
	sums = torch.zeros(512, 512, device=device)

	def step():
		for lane, x in zip(lanes, xs):
			lane.wait_stream(torch.cuda.current_stream())
			with torch.cuda.stream(lane):
				for _ in range(5):
					x.copy_(torch.tanh(x @ x * 0.01))
		for lane in lanes:
			torch.cuda.current_stream().wait_stream(lane)
		for x in xs:
			sums.add_(x)
	t = timed(step, 60)
	return digest(sums), t


result = {}
for part in (training, inference, compiled, graph, streams):
	if sys.argv[1:] and part.__name__ not in sys.argv[1:]:
		continue
	torch.manual_seed(2)
	h, t = part()
	result[part.__name__] = {'hash': h, 'step_us': t * 1e6}
print(json.dumps(result))
