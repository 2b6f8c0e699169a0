"""A PyTorch program on one of several GPUs. Reads commands as lines from standard input and answers each with a line of JSON.
one ORDINAL WIDTH: "run SECONDS": bf16 matrix products of that width, ten ahead; their rate.
ddp RANK: "run STEPS": steps of DistributedDataParallel over NCCL, a GPU for each rank; their rate, and the loss of the last one."""
import copy
import os
import sys
import time

import torch

from torch_parts import say

LAYERS, WIDTH, BATCH = 12, 4096, 512


def products(ordinal, width):
	torch.cuda.set_device(ordinal)
	a = torch.randn(width, width, device='cuda', dtype=torch.bfloat16)
	b = torch.randn(width, width, device='cuda', dtype=torch.bfloat16)

	def run(seconds):
		n, begin = 0, time.monotonic()
		while time.monotonic() - begin < seconds:
			for _ in range(10):
				torch.mm(a, b)
			torch.cuda.synchronize()
			n += 10
		return {'rate': n / (time.monotonic() - begin)}
	run(0.5)
	return run


def training(rank):
	torch.cuda.set_device(rank)
	torch.distributed.init_process_group('nccl', rank=rank, world_size=2, device_id=torch.device('cuda', rank))
	torch.manual_seed(0)
	layers = [m for _ in range(LAYERS) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
	model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).cuda(), device_ids=[rank])
	state = copy.deepcopy(model.state_dict())
	x = torch.randn(BATCH, WIDTH, device='cuda')

	def run(steps):
		model.load_state_dict(state)
		optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
		torch.cuda.synchronize()
		begin = time.monotonic()
		for _ in range(int(steps)):
			optimizer.zero_grad(set_to_none=True)
			loss = model(x).square().mean()
			loss.backward()
			optimizer.step()
		torch.cuda.synchronize()
		return {'rate': steps / (time.monotonic() - begin), 'loss': loss.item().hex()}
	run(5)
	return run


def main():
	run = products(int(sys.argv[2]), int(sys.argv[3])) if sys.argv[1] == 'one' else training(int(sys.argv[2]))
	say(ready=os.getpid())
	for line in sys.stdin:
		say(**run(float(line.split()[1])))
	if torch.distributed.is_initialized():
		torch.distributed.destroy_process_group()


main()
