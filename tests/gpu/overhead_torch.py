"""The program of tests/gpu/overhead. Prepares its parts, then answers each line "PART SECONDS" with a line of JSON: the times of the
part's steps in us. training, inference, graph: a step and a synchronization; forward: likewise, a pass through 12 layers, which
is bound by launches; launch: the host's time of one launch of an empty
batch of work, the mean of 200; queue: 200 launches and the synchronization after them, per launch; long: one matrix product of about
1 ms, 20 in the queue."""
import sys
import time

import torch

from torch_parts import captured, encoder, halving, say, training_step

torch.manual_seed(1)
device = torch.device('cuda')
LAUNCHES, LONG = 200, 20


def timed(step, seconds, share=1):
	us, end = [], time.perf_counter() + seconds
	while True:
		begin = time.perf_counter()
		step()
		torch.cuda.synchronize()
		now = time.perf_counter()
		us.append((now - begin) * 1e6 / share)
		if now > end:
			return us


def training():
	_, step = training_step(1e-4)
	return lambda seconds: timed(step, seconds)


def passes(layers, batch):
	model = encoder(layers, torch.bfloat16)
	x = torch.randn(batch, 64, 512, device=device, dtype=torch.bfloat16)

	def step():
		with torch.inference_mode():
			model(x)
	return lambda seconds: timed(step, seconds)


def inference():
	return passes(4, 4)


def forward():
	return passes(12, 1)


def graph():
	g, _ = captured(halving()[1])
	return lambda seconds: timed(g.replay, seconds)


def launch():
	x = torch.zeros(1, device=device)

	def measure(seconds):
		us, end = [], time.perf_counter() + seconds
		while True:
			begin = time.perf_counter()
			for _ in range(LAUNCHES):
				x.zero_()
			us.append((time.perf_counter() - begin) * 1e6 / LAUNCHES)
			torch.cuda.synchronize()
			if time.perf_counter() > end:
				return us
	return measure


def queue():
	x = torch.zeros(1 << 16, device=device)

	def step():
		for _ in range(LAUNCHES):
			x.add_(1)
	return lambda seconds: timed(step, seconds, LAUNCHES)


def long():
	a, b = (torch.randn(4096, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))

	def step():
		for _ in range(LONG):
			a @ b.T
	return lambda seconds: timed(step, seconds, LONG)


def main():
	parts = {}
	for name in sys.argv[1].split(','):
		parts[name] = globals()[name]()
		parts[name](0.1)
	say(ready=True)
	for line in sys.stdin:
		name, seconds = line.split()
		say(us=parts[name](float(seconds)))


main()
