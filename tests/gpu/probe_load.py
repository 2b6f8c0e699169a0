"""Workloads whose kernels are probed; see probe_cost. Argument: gemm, attention, training or triton. Reads lines "time N": times N
passes by events and answers with their times in us and a hash of the result, which must not change."""
import hashlib
import sys

import torch

from torch_parts import say


def rand(*shape, seed=1):
	return torch.randn(*shape, device='cuda', generator=torch.Generator('cuda').manual_seed(seed)).bfloat16()


def gemm():
	a, b = rand(4096, 4096), rand(4096, 4096, seed=2)
	return lambda: a @ b


def attention():
	q, k, v = (rand(4, 16, 2048, 64, seed=s) for s in (1, 2, 3))
	return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def training():
	torch.manual_seed(0)
	model = torch.nn.Sequential(torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048)).to('cuda', torch.bfloat16)
	optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # so each step computes the same
	x = rand(4096, 2048)

	def run():
		optimizer.zero_grad()
		loss = ((model(x) - x) ** 2).mean()
		loss.backward()
		optimizer.step()
		return loss
	return run


def triton():
	from probe_load_triton import row_softmax, tiled_product
	x, out = torch.randn(8192, 2048, device='cuda', generator=torch.Generator('cuda').manual_seed(1)), torch.empty(8192, 2048, device='cuda')
	a, b, c = rand(2048, 2048), rand(2048, 2048, seed=2), torch.empty(2048, 2048, device='cuda')

	def run():
		row_softmax[(8192,)](x, out, COLUMNS=2048)
		tiled_product[(32, 32)](a, b, c, 2048, BLOCK=64)
		return c
	return run


def main():
	run = globals()[sys.argv[1]]()
	for _ in range(10):
		result = run()
	torch.cuda.synchronize()
	say(ready=True)
	for line in sys.stdin:
		events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(int(line.split()[1]))]
		for begin, end in events:
			begin.record()
			result = run()
			end.record()
		torch.cuda.synchronize()
		say(us=[1000 * b.elapsed_time(e) for b, e in events],
			hash=hashlib.sha256(result.detach().float().cpu().numpy().tobytes()).hexdigest()[:16])


main()
