#!/usr/bin/env python3
"""A job for `gbpf run --class batch` that fills the GPU with softmax and layer norm of 1 GiB, until it is ended.

Prints its rate each second."""
import time

import torch

x = torch.randn(32768, 8192, device='cuda')
weight = torch.ones(8192, device='cuda')
begin, passes = time.perf_counter(), 0
while True:
	for _ in range(16):
		torch.nn.functional.layer_norm(torch.softmax(x, 1), (8192,), weight)
	torch.cuda.synchronize()
	passes += 16
	if time.perf_counter() - begin >= 1:
		print(f'{passes / (time.perf_counter() - begin):.0f} passes/s', flush=True)
		begin, passes = time.perf_counter(), 0
