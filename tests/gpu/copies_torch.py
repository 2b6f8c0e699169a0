"""Times small copies of PyTorch, each with nothing else in flight. Prints a line of JSON: medians in us by name, and how many of 300
results were right. Run by tests/gpu/copies."""
import json
import time

import torch

REPEATS, WARM_UP = 1500, 100
device = torch.device('cuda')


def median_us(call):
	times = []
	for i in range(WARM_UP + REPEATS):
		torch.cuda.synchronize()
		begin = time.perf_counter_ns()
		call()
		if i >= WARM_UP:
			times.append(time.perf_counter_ns() - begin)
	torch.cuda.synchronize()
	return sorted(times)[REPEATS // 2] / 1000


def right():
	"""Computes with fresh data; returns how often the result was right."""
	n = 0
	for _ in range(300):
		x = torch.randn(512)
		n += int(torch.equal((x.to(device) * 2).cpu(), x * 2))
	return n


def main():
	one = torch.tensor(3.0, device=device)
	rows = {'nothing': median_us(lambda: None), 'item()': median_us(one.item), 'add_(1).item()': median_us(lambda: one.add_(1).item())}
	for floats in (1, 64, 1024, 16384):
		host, pinned, there = torch.randn(floats), torch.empty(floats, pin_memory=True), torch.empty(floats, device=device)
		size = f'{4 * floats} B'
		rows[f'copy_ {size} up'] = median_us(lambda: there.copy_(host))
		rows[f'copy_ {size} up, pinned'] = median_us(lambda: there.copy_(pinned, non_blocking=True))
		rows[f'copy_ {size} down'] = median_us(lambda: host.copy_(there))
	rows['tensor([8 floats])'] = median_us(lambda: torch.tensor([1., 2., 3., 4., 5., 6., 7., 8.], device=device))
	print(json.dumps({'us': rows, 'right': right()}))


main()
