"""One half of a PyTorch pair. Reads commands as lines from standard input and answers each with a line of JSON.
ROLE lc: "run SECONDS SEED": requests at random times (40 a second on average), their latencies in ms, and how many had a
wrong result. ROLE be: "work" until "rest": matrix products and elementwise passes, the number of rounds and their time."""
import os
import random
import select
import sys
import time

import torch

from torch_parts import say

role, kind = sys.argv[1], sys.argv[2]
torch.manual_seed(0)
device = torch.device('cuda')
WIDTH, LAYERS, TOKENS, HEADS = 1024, 12, 128, 16


def weight(*shape):
	return torch.randn(*shape, device=device, dtype=torch.bfloat16) * 0.02


class Service:
	"""Twelve transformer layers, batch 1: about a hundred small library kernels, launched asynchronously."""

	def __init__(self):
		self.layers = [(weight(WIDTH, 3 * WIDTH), weight(WIDTH, WIDTH), weight(WIDTH, 4 * WIDTH), weight(4 * WIDTH, WIDTH))
			       for _ in range(LAYERS)]
		self.x = torch.randn(1, TOKENS, WIDTH, device=device, dtype=torch.bfloat16)
		self.streams = [torch.cuda.Stream() for _ in range(4)] if kind == 'streams' else []
		self.graph = None
		for _ in range(20):
			self.forward()
		torch.cuda.synchronize()
		if kind == 'graph':
			self.graph = torch.cuda.CUDAGraph()
			with torch.cuda.graph(self.graph):
				self.result = self.forward()
		self.reference = self.request()

	def layer(self, x, weights):
		qkv, out, up, down = weights
		f = torch.nn.functional
		h = f.layer_norm(x, (WIDTH,))
		q, k, v = (h @ qkv).view(1, TOKENS, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
		x = x + f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, TOKENS, WIDTH) @ out
		return x + f.gelu(f.layer_norm(x, (WIDTH,)) @ up) @ down

	def forward(self):
		x = self.x
		for i, weights in enumerate(self.layers):
			if self.streams:
				stream = self.streams[i % len(self.streams)]
				stream.wait_stream(torch.cuda.current_stream())
				with torch.cuda.stream(stream):
					x = self.layer(x, weights)
				torch.cuda.current_stream().wait_stream(stream)
			else:
				x = self.layer(x, weights)
			if kind == 'sync':
				torch.cuda.current_stream().synchronize()
		return x.float().sum()

	def request(self):
		if self.graph:
			self.graph.replay()
			return self.result.item()
		return self.forward().item()

	def run(self, seconds, seed):
		gaps, times, wrong, end = random.Random(seed), [], 0, time.time() + seconds
		while time.time() < end:
			time.sleep(gaps.expovariate(40))
			begin = time.perf_counter()
			result = self.request()
			times.append((time.perf_counter() - begin) * 1e3)
			wrong += result != self.reference
		say(ms=times, wrong=wrong)


def triton_pass():
	"""Uses an elementwise Triton kernel instead of PyTorch's."""
	import triton
	import triton.language as tl

	@triton.jit
	def scale(x, y, n, block: tl.constexpr):
		at = tl.program_id(0) * block + tl.arange(0, block)
		v = tl.load(x + at, mask=at < n)
		for _ in range(64):
			v = v * 1.0001 + 0.5
		tl.store(y + at, v, mask=at < n)

	x = torch.randn(64 << 20, device=device)
	y = torch.empty_like(x)
	return lambda: scale[(x.numel() // 1024,)](x, y, x.numel(), block=1024)


class Batch:
	def __init__(self):
		self.a, self.b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
		self.y = torch.randn(64 << 20, device=device)
		self.other = triton_pass() if kind == 'triton' else lambda: self.y * 1.5 + 2
		self.marks = [torch.cuda.Event() for _ in range(3)]
		for _ in range(5):
			self.step()
		torch.cuda.synchronize()

	def step(self):
		if kind != 'triton':
			self.c = self.a @ self.b
		self.z = self.other()

	def work(self):
		begin, n = time.time(), 0
		while not select.select([sys.stdin], [], [], 0)[0]:
			self.step()
			self.marks[n % 3].record()
			n += 1
			if n >= 3:
				self.marks[n % 3].synchronize()
		torch.cuda.synchronize()
		return n, time.time() - begin


with torch.inference_mode():
	it = Service() if role == 'lc' else Batch()
	say(ready=os.getpid())
	for line in sys.stdin:
		words = line.split()
		if words[0] == 'run':
			it.run(float(words[1]), int(words[2]))
		elif words[0] == 'work':
			done, seconds = it.work()
			say(rounds=done, seconds=seconds)
