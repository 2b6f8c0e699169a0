"""The part nccl of tests/gpu/memory: two processes of PyTorch, one on each of two GPUs, in one vGPU. Without arguments: starts both, passes
commands on to them, and puts their answers together: totals, frees, gots (one for each), refused, wrong; `absent`, with the reason, if
there are not two GPUs. With a rank: that process. Each command computes first: all_reduce and broadcast of integers, whose sums are
exact, on NCCL."""
import json
import os
import socket
import subprocess
import sys

MIB = 1 << 20
PIECES = (512 * MIB, 64 * MIB, 8 * MIB, 2 * MIB)
N = 1 << 22  # elements of a message


def say(**answer):
	print(json.dumps(answer), flush=True)


class Rank:
	def __init__(self, rank):
		import torch
		import torch.distributed as dist
		self.torch, self.dist, self.rank, self.held = torch, dist, rank, []
		torch.cuda.set_device(rank)
		dist.init_process_group('nccl', rank=rank, world_size=2)
		self.x = torch.empty(N, dtype=torch.int64, device='cuda')

	def wrong(self):
		"""Returns the number of collective operations with wrong results."""
		t = self.torch
		base = t.arange(N, device='cuda') % 1009
		self.x.copy_(base * (self.rank + 1))
		self.dist.all_reduce(self.x)
		wrong = int(not t.equal(self.x, base * 3))
		for root in range(2):
			self.x.copy_(base + 17 * self.rank)
			self.dist.broadcast(self.x, root)
			wrong += int(not t.equal(self.x, base + 17 * root))
		return wrong

	def fill(self):
		got, refused = 0, False
		for n in PIECES:
			while True:
				try:
					self.held.append(self.torch.empty(n, dtype=self.torch.uint8, device='cuda'))
				except self.torch.OutOfMemoryError:
					refused = True
					break
				got += n
		return got, refused

	def seen(self, **more):
		free, total = self.torch.cuda.mem_get_info()
		say(free=free, total=total, **more)

	def serve(self):
		self.seen(wrong=self.wrong())
		for line in sys.stdin:
			if line.strip() == 'fill':
				got, refused = self.fill()
				self.seen(got=got, refused=refused, wrong=0)
			else:  # the first piece is what the operations need
				del self.held[:1]
				wrong = self.wrong()
				self.held = []
				self.torch.cuda.empty_cache()
				self.seen(wrong=wrong + self.wrong())
		self.dist.destroy_process_group()


def devices():
	try:
		import torch
	except ImportError as e:
		return 0, str(e)
	return torch.cuda.device_count(), f'{torch.cuda.device_count()} GPU'


def main():
	count, why = devices()
	if count < 2:
		say(absent=why, one_gpu=count == 1)
		return
	with socket.socket() as s:
		s.bind(('127.0.0.1', 0))
		port = s.getsockname()[1]
	env = {**os.environ, 'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port)}
	ranks = [subprocess.Popen([sys.executable, os.path.abspath(__file__), str(r)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
		for r in range(2)]

	def answer():
		got = []
		for p in ranks:
			line = p.stdout.readline()
			while line and not line.startswith('{'):
				line = p.stdout.readline()
			if not line:
				raise SystemExit(f'a process ended early, with {p.wait()}')
			got.append(json.loads(line))
		say(totals=[g['total'] for g in got], frees=[g['free'] for g in got], gots=[g.get('got', 0) for g in got],
			refused=all(g.get('refused', True) for g in got), wrong=sum(g['wrong'] for g in got))
	try:
		answer()
		for line in sys.stdin:
			for p in ranks:
				p.stdin.write(line)
				p.stdin.flush()
			answer()
	finally:
		for p in ranks:
			p.stdin.close()
		for p in ranks:
			p.wait()


if len(sys.argv) > 1:
	Rank(int(sys.argv[1])).serve()
else:
	main()
