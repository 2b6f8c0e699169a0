"""PART: the program of tests/gpu/memory. PART PART: the same twice, as two processes side by side.
Computes, then says what it sees: total, free, held (bytes that it holds), wrong (results), apart (figures in which NVML differs from
CUDA, in a virtual GPU), or `absent` with the reason. Then it reads
commands as lines and answers each with a line of JSON: "info"; "fill": allocates until it is refused, smaller pieces last; "free":
frees the first piece, which its computation may need, computes, then frees the others and computes again."""
import ctypes
import json
import os
import struct
import subprocess
import sys

MIB = 1 << 20
PIECES = (512 * MIB, 64 * MIB, 8 * MIB, 2 * MIB)


def say(**answer):
	print(json.dumps(answer), flush=True)


class Nvml:
	"""NVML's figures of the first GPU."""

	def __init__(self):
		self.nvml, self.device = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_void_p()
		self.call('nvmlInit_v2')
		self.call('nvmlDeviceGetHandleByIndex_v2', 0, ctypes.byref(self.device))

	def call(self, name, *a):
		r = getattr(self.nvml, name)(*a)
		if r:
			raise RuntimeError(f'{name}: {r}')

	def info(self):
		"""Returns free and total, by both versions of the call."""
		first, second = (ctypes.c_uint64 * 3)(), (ctypes.c_uint64 * 5)(2 << 24 | 40)
		self.call('nvmlDeviceGetMemoryInfo', self.device, first)
		self.call('nvmlDeviceGetMemoryInfo_v2', self.device, second)
		return (first[1], first[0]), (second[3], second[1])

	def apart(self, cuda):
		"""Returns the number of figures that differ from CUDA's. Another process may allocate or free meanwhile."""
		before = cuda()
		seen = self.info()
		after = cuda()
		low, high = sorted((before[0], after[0]))
		return sum(not low <= free <= high for free, _ in seen) + sum(total != before[1] for _, total in seen)


class Driver:
	"""The driver API alone."""

	def __init__(self):
		self.cuda, self.held = ctypes.CDLL('libcuda.so.1'), []
		self.call('cuInit', 0)
		ctx = ctypes.c_void_p()
		self.call('cuDevicePrimaryCtxRetain', ctypes.byref(ctx), 0)
		self.call('cuCtxSetCurrent', ctx)
		self.small = self.take(MIB)

	def call(self, name, *a):
		r = getattr(self.cuda, name)(*a)
		if r:
			raise MemoryError() if r == 2 else RuntimeError(f'{name}: {r}')

	def info(self):
		free, total = ctypes.c_size_t(), ctypes.c_size_t()
		self.call('cuMemGetInfo_v2', ctypes.byref(free), ctypes.byref(total))
		return free.value, total.value

	def take(self, n):
		p = ctypes.c_uint64()
		self.call('cuMemAlloc_v2', ctypes.byref(p), ctypes.c_size_t(n))
		self.call('cuMemsetD8_v2', p, ctypes.c_ubyte(len(self.held) & 255), ctypes.c_size_t(n))
		return p

	def drop(self, pieces):
		for p in pieces:
			self.call('cuMemFree_v2', p)

	def compute(self):
		back = (ctypes.c_ubyte * 4096)()
		self.call('cuMemsetD8_v2', self.small, ctypes.c_ubyte(77), ctypes.c_size_t(4096))
		self.call('cuMemcpyDtoH_v2', back, self.small, ctypes.c_size_t(4096))
		return set(back) == {77}


class Stack(Driver):
	"""With a large stack for each thread, which the driver takes at once."""

	def __init__(self):
		super().__init__()
		self.call('cuCtxSetLimit', 0, ctypes.c_size_t(4096))


class Graphs(Driver):
	"""Takes memory by allocation nodes, each in a graph of its own that is launched once."""

	def take(self, n):
		if n == MIB:  # of the computation
			return super().take(n)
		params = bytearray(120)  # CUDA_MEM_ALLOC_NODE_PARAMS: pinned, on device 0
		struct.pack_into('<iiii', params, 0, 1, 0, 1, 0)
		struct.pack_into('<Q', params, 104, n)
		raw = (ctypes.c_ubyte * 120).from_buffer(params)
		g, node, run = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
		self.call('cuGraphCreate', ctypes.byref(g), 0)
		try:
			self.call('cuGraphAddMemAllocNode', ctypes.byref(node), g, None, ctypes.c_size_t(0), raw)
			self.call('cuGraphInstantiateWithFlags', ctypes.byref(run), g, ctypes.c_uint64(0))
			self.call('cuGraphLaunch', run, None)
			self.call('cuCtxSynchronize')
		except MemoryError:
			if run:
				self.call('cuGraphExecDestroy', run)
			self.call('cuGraphDestroy', g)
			raise
		return g, run, ctypes.c_uint64(struct.unpack_from('<Q', params, 112)[0])

	def drop(self, pieces):
		for g, run, p in pieces:
			self.call('cuMemFree_v2', p)
			self.call('cuGraphExecDestroy', run)
			self.call('cuGraphDestroy', g)
		self.call('cuDeviceGraphMemTrim', 0)


class Pinned(Driver):
	"""Pinned memory of the host."""

	def take(self, n):
		if n == MIB:  # of the computation
			return super().take(n)
		p = ctypes.c_void_p()
		self.call('cuMemHostAlloc', ctypes.byref(p), ctypes.c_size_t(n), 0)
		return p

	def drop(self, pieces):
		for p in pieces:
			self.call('cuMemFreeHost', p)


class Torch:
	def __init__(self):
		import torch
		self.torch, self.x = torch, torch.arange(1 << 16, device='cuda', dtype=torch.float64)

	def info(self):
		return self.torch.cuda.mem_get_info()

	def take(self, n):
		try:
			return self.torch.empty(n, dtype=self.torch.uint8, device='cuda')
		except self.torch.OutOfMemoryError:
			raise MemoryError() from None

	def drop(self, pieces):
		pieces.clear()
		self.torch.cuda.synchronize()
		self.torch.cuda.empty_cache()

	def compute(self):
		n = 1 << 16
		return int((self.x * 2 + 1).sum().item()) == n * (n - 1) + n


class Cupy:
	def __init__(self):
		import cupy
		self.cupy, self.x = cupy, cupy.arange(1 << 16, dtype='float64')

	def info(self):
		return self.cupy.cuda.runtime.memGetInfo()

	def take(self, n):
		try:
			return self.cupy.empty(n, dtype='uint8')
		except self.cupy.cuda.memory.OutOfMemoryError:
			raise MemoryError() from None

	def drop(self, pieces):
		pieces.clear()
		self.cupy.get_default_memory_pool().free_all_blocks()

	def compute(self):
		n = 1 << 16
		return int((self.x * 2 + 1).sum()) == n * (n - 1) + n


class Jax(Driver):
	"""JAX, whose own figures do not say what the device has: these are asked of the driver."""

	def __init__(self):
		import jax
		import jax.numpy
		self.jax, self.x = jax, jax.numpy.arange(1 << 16, dtype='float32')
		self.x.block_until_ready()
		self.cuda, self.held = ctypes.CDLL('libcuda.so.1'), []
		ctx = ctypes.c_void_p()
		self.call('cuDevicePrimaryCtxRetain', ctypes.byref(ctx), 0)
		self.call('cuCtxSetCurrent', ctx)

	def take(self, n):
		try:
			return self.jax.block_until_ready(self.jax.numpy.zeros(n, dtype='uint8'))
		except Exception as e:
			if 'RESOURCE_EXHAUSTED' in str(e):
				raise MemoryError() from None
			raise

	def drop(self, pieces):
		pieces.clear()

	def compute(self):
		return float((self.x * 2 + 1)[1000]) == 2001


KINDS = {'driver': Driver, 'stack': Stack, 'graphs': Graphs, 'pinned': Pinned, 'caching': Torch, 'expandable': Torch, 'async': Torch, 'cupy': Cupy, 'jax': Jax, 'jax-eager': Jax}


def fill(k):
	"""Returns the bytes taken until the smallest piece was refused, and whether one was."""
	got, refused = 0, False
	for n in PIECES:
		while True:
			try:
				k.held.append(k.take(n))
			except MemoryError:
				refused = True
				break
			got += n
	return got, refused


def serve(part):
	try:
		k = KINDS[part]()
	except ImportError as e:
		say(absent=str(e))
		return
	k.held = []
	nvml = Nvml() if os.environ.get('GBPF_VGPU') else None

	def seen(**more):
		free, total = k.info()
		say(free=free, total=total, apart=nvml.apart(k.info) if nvml else 0, **more)
	seen(held=0, wrong=int(not k.compute()))
	for line in sys.stdin:
		if line.strip() == 'info':
			seen()
		elif line.strip() == 'fill':
			got, refused = fill(k)
			seen(got=got, refused=refused, wrong=0)
		else:
			k.drop([k.held.pop(0)] if k.held else [])
			wrong = int(not k.compute())
			k.drop(k.held)
			k.held = []
			seen(wrong=wrong + int(not k.compute()))


def twice(parts):
	"""Runs the parts as processes, passes each command on to all of them at once, and adds their answers up."""
	programs = [subprocess.Popen([sys.executable, os.path.abspath(__file__), p], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
		for p in parts]

	def answer():
		got = [json.loads(p.stdout.readline()) for p in programs]
		# of free memory, what the last one to answer sees
		say(total=got[0]['total'], free=max(g['free'] for g in got),
			 refused=all(g.get('refused') for g in got),
			**{k: sum(g[k] for g in got) for k in ('held', 'wrong', 'got', 'apart') if k in got[0]})
	answer()
	for line in sys.stdin:
		for p in programs:
			p.stdin.write(line)
			p.stdin.flush()
		answer()
	for p in programs:
		p.stdin.close()
		p.wait()


if len(sys.argv) > 2:
	twice(sys.argv[1:])
else:
	serve(sys.argv[1])
