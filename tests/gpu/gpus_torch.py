"""A PyTorch program on one of several GPUs. Reads commands as lines from standard input and answers each with a line of JSON.
one ORDINAL WIDTH: "run SECONDS": bf16 matrix products of that width, ten ahead; their rate.
ddp RANK: "run STEPS": steps of DistributedDataParallel over NCCL, a GPU for each rank; their rate, and the loss of the last one.
killed RANK: "start PORT": a rank of a smaller training in a process of its own, which writes a line for each step, without end; the one
before is killed. tensor: "run STEPS": steps of a model whose layers are split over both GPUs of one process. peers RANK: "run TIMES":
ways to the memory of the other rank's GPU, each TIMES times."""
import copy
import ctypes
import os
import signal
import sys
import time

import torch
import torch.distributed._symmetric_memory as symmetric
from torch.multiprocessing.reductions import reduce_tensor

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


def join(rank):
	torch.cuda.set_device(rank)
	torch.distributed.init_process_group('nccl', rank=rank, world_size=2, device_id=torch.device('cuda', rank))
	torch.manual_seed(0)


def training(rank, layers=LAYERS, width=WIDTH):
	join(rank)
	modules = [m for _ in range(layers) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]
	model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*modules).cuda(), device_ids=[rank])
	state = copy.deepcopy(model.state_dict())
	x = torch.randn(BATCH, width, device='cuda')

	def run(steps, each=lambda loss: None):
		model.load_state_dict(state)
		optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
		torch.cuda.synchronize()
		begin = time.monotonic()
		for _ in range(int(steps)):
			optimizer.zero_grad(set_to_none=True)
			loss = model(x).square().mean()
			loss.backward()
			optimizer.step()
			each(loss)
		torch.cuda.synchronize()
		return {'rate': steps / (time.monotonic() - begin), 'loss': loss.item().hex()}
	run(5)
	return run


def trained_without_end(rank):
	def each(loss):
		loss.item()
		say(at=time.monotonic_ns())
	run = training(rank, 4, 1024)
	while True:
		say(loss=run(20, each)['loss'])


def started_and_killed(rank):
	child = 0
	say(ready=os.getpid())
	for line in sys.stdin:
		if child:
			os.kill(child, signal.SIGKILL)
			os.waitpid(child, 0)
		os.environ['MASTER_PORT'] = line.split()[1]
		child = os.fork()
		if not child:
			ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
			try:
				trained_without_end(rank)
			finally:
				os._exit(1)
		say(pid=child)


def tensor():
	"""Layers whose weights are split over both GPUs; their sums go over the link. A CUDA graph of both is one step."""
	layers, width = 16, 4096
	gpus = [torch.device('cuda', g) for g in range(2)]
	x = [torch.empty(8, width, device=g, dtype=torch.bfloat16) for g in gpus]
	part, other = [[torch.empty_like(t) for t in x] for _ in range(2)]
	middle = [torch.empty(8, width, device=g, dtype=torch.bfloat16) for g in gpus]
	weights = []
	for _ in range(layers):
		for g in gpus:
			torch.manual_seed(len(weights))
			weights.append([torch.randn(width, width, device=g, dtype=torch.bfloat16) / 64 for _ in range(2)])
	streams = [torch.cuda.Stream(g) for g in gpus]
	for s in reversed(streams):
		torch.cuda.set_stream(s)

	def step():
		for n in range(layers):
			for g in range(2):
				with torch.cuda.device(g):
					torch.mm(x[g], weights[2 * n + g][0], out=middle[g])
					middle[g].relu_()
					torch.mm(middle[g], weights[2 * n + g][1], out=part[g])
			for g in range(2):
				other[g].copy_(part[1 - g])
			for g in range(2):
				with torch.cuda.device(g):
					torch.add(part[g], other[g], out=x[g])
					x[g].tanh_()

	def begin():
		for t in x:
			t.copy_(torch.linspace(-1, 1, width, device=t.device).expand(8, width))
		torch.cuda.synchronize(0)
		torch.cuda.synchronize(1)
	begin()
	step()
	graph = torch.cuda.CUDAGraph()
	with torch.cuda.graph(graph, stream=streams[0]):
		ready = torch.cuda.Event()
		ready.record(streams[0])
		streams[1].wait_event(ready)
		step()
		ready = torch.cuda.Event()
		ready.record(streams[1])
		streams[0].wait_event(ready)
	torch.cuda.set_stream(streams[1])
	torch.cuda.set_stream(streams[0])

	def run(steps):
		begin()
		start = time.monotonic()
		for _ in range(int(steps)):
			graph.replay()
		torch.cuda.synchronize(0)
		rate = steps / (time.monotonic() - start)
		sums = [t.view(torch.int16).long().sum().item() for t in x]
		return {'rate': rate, 'loss': str(sums)}
	run(5)
	return run


# ---- memory of the other GPU ----

P2P_ATTRIBUTES = range(1, 6)
DEVICE_ATTRIBUTES = (41, 102, 103, 104, 105, 116, 119, 125, 128)  # unified addressing, VMM and its handles, memory pools, IPC events, fabric


def answers():
	"""Returns the driver's answers about both GPUs and the memory that they and other processes can share: results and values."""
	cu, got, value = ctypes.CDLL('libcuda.so.1'), [], ctypes.c_int(-1)
	for a in range(2):
		b = 1 - a
		got.append((cu.cuDeviceCanAccessPeer(ctypes.byref(value), a, b), value.value))
		for x in P2P_ATTRIBUTES:
			got.append((cu.cuDeviceGetP2PAttribute(ctypes.byref(value), x, a, b), value.value))
		for x in DEVICE_ATTRIBUTES:
			got.append((cu.cuDeviceGetAttribute(ctypes.byref(value), x, a), value.value))
	return got


def peers(rank):
	"""Returns a function that times each way to the memory of the other rank's GPU, in GB/s, and sums up the results."""
	join(rank)
	dist, elements = torch.distributed, 1 << 26
	world, backend = dist.group.WORLD, dist.group.WORLD._get_backend(torch.device('cuda', rank))
	plain = torch.empty(elements, device='cuda')
	pool = torch.cuda.MemPool(backend.mem_allocator)
	with torch.cuda.use_mem_pool(pool):
		registered = torch.empty(elements, device='cuda')
	backend.register_mem_pool(pool)
	shared = symmetric.empty(elements, dtype=torch.float32, device=torch.device('cuda', rank))
	symmetric.rendezvous(shared, world.group_name)
	handles = [None, None]
	dist.all_gather_object(handles, reduce_tensor(plain))
	peer = handles[1 - rank][0](*handles[1 - rank][1])
	target = torch.empty(elements, device='cuda')

	def all_reduced(x):
		dist.all_reduce(x)
		return x

	def two_shot(x):
		torch.ops.symm_mem.two_shot_all_reduce_(x, 'sum', world.group_name)
		return x

	def copied(_):
		target.copy_(peer)
		return target
	ways = {'all_reduce': (plain, all_reduced), 'registered': (registered, all_reduced), 'symmetric': (shared, two_shot), 'ipc': (plain, copied)}

	def run(rounds):
		rate, loss = {}, []
		for name, (x, f) in ways.items():
			x.copy_(torch.arange(elements, device='cuda') % 251 + rank)
			torch.cuda.synchronize()
			dist.barrier()
			got = f(x).double().sum().item()
			loss.append(got)
			x.zero_()
			torch.cuda.synchronize()
			dist.barrier()
			begin = time.monotonic()
			for _ in range(int(rounds)):
				f(x)
			torch.cuda.synchronize()
			rate[name] = rounds * elements * 4 / (time.monotonic() - begin) / 1e9
			dist.barrier()
		return {'rate': rate, 'loss': str(loss)}
	run(3)
	return run


def main():
	kind, numbers = sys.argv[1], [int(x) for x in sys.argv[2:]]
	if kind == 'killed':
		started_and_killed(*numbers)
		return
	run = {'one': products, 'ddp': training, 'tensor': tensor, 'peers': peers}[kind](*numbers)
	say(ready=os.getpid(), answers=answers() if kind == 'peers' else [])
	for line in sys.stdin:
		say(**run(float(line.split()[1])))
	if torch.distributed.is_initialized():
		torch.distributed.destroy_process_group()


main()
