"""The parts training-* of tests/gpu/memory: steps of PyTorch, each as one CUDA graph of forward, backward and optimizer. Prints a line of JSON:
losses, digest (of the weights and the state of the optimizer), ms (median step), steps; then waits until its input ends.

LAYERS, WIDTH, BATCH, STEPS are arguments. 12 layers of 4096 need 3 GiB, and what PyTorch and its libraries take."""
import hashlib
import os
import statistics
import sys
import time

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')  # the same algorithms in each run
import torch

from torch_parts import captured, say

WARM = 3  # steps before the capture: the optimizer makes its state in the first one


def digest_of(tensors):
	h = hashlib.sha256()
	for t in tensors:
		h.update(t.detach().cpu().contiguous().numpy().tobytes())
	return h.hexdigest()[:16]


def main():
	layers, width, batch, steps = map(int, sys.argv[1:5])
	torch.manual_seed(1)
	model = torch.nn.Sequential(*(m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.Tanh()))).to('cuda')
	optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=True)
	x, y = torch.randn(batch, width, device='cuda'), torch.randn(batch, width, device='cuda')

	def step():
		optimizer.zero_grad(set_to_none=True)
		loss = ((model(x) - y) ** 2).mean()
		loss.backward()
		optimizer.step()
		return loss

	def warm():
		for _ in range(WARM):
			step()
		optimizer.zero_grad(set_to_none=True)
	graph, loss = captured(step, warm)
	losses, ms = [], []
	for _ in range(steps):
		begin = time.perf_counter()
		graph.replay()
		losses.append(loss.item())  # waits for the step
		ms.append((time.perf_counter() - begin) * 1e3)
	state = [s[name] for s in (optimizer.state[p] for p in model.parameters()) for name in ('exp_avg', 'exp_avg_sq')]
	say(losses=losses, digest=digest_of([*model.parameters(), *state]), ms=statistics.median(ms), steps=steps)
	sys.stdin.read()


main()
