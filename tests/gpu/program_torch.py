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

from torch_parts import captured, encoder, halving, training_step  # noqa: E402

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
	parameters, step = training_step(1e-3)
	t = timed(step, 60)
	return digest(*parameters()), t


def inference():
	model = encoder(6)
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
	x, body = halving()
	g, _ = captured(body)
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
