#!/usr/bin/env python3
"""A service for `gbpf run --class latency`: a request to six transformer layers each 10 ms, until it is ended.

Prints the median and the 99th percentile of the last 100 requests, in ms."""
import statistics
import time

import torch

torch.set_grad_enabled(False)
layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True).half().cuda().eval()
net = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval()
x = torch.randn(8, 128, 512, dtype=torch.half, device='cuda')
times = []
while True:
	begin = time.perf_counter()
	net(x)
	torch.cuda.synchronize()
	times.append(1000 * (time.perf_counter() - begin))
	if len(times) == 100:
		times.sort()
		print(f'P50 {statistics.median(times):.2f} ms, P99 {times[98]:.2f} ms', flush=True)
		times.clear()
	time.sleep(0.01)
