"""PART: the program of tests/gpu/memory. PART PART: two of them, as processes side by side.
Computes, then says what it sees: total, free, held (bytes that it holds), wrong (results), digest (of its results), apart (figures in
which NVML differs from CUDA, in a virtual GPU), or `absent` with the reason. Then it reads
commands as lines and answers each with a line of JSON: "info"; "fill": allocates until it is refused, smaller pieces last; "free":
frees the first piece, which its computation may need, computes, then frees the others and computes again; "take MIB": allocates that;
and those of the part, such as "work" and "rest" of giver, and "ask MIB" of taker.

MEMORY_PATHS in the environment: the program vgpu_paths, which has the parts that are not here. MEMORY_TAKEN: MiB that another process
of the driver API takes before this one begins. MEMORY_DEVICES: the devices of PART PART, where they are not the first."""
import ctypes
import hashlib
import json
import os
import struct
import subprocess
import sys
import threading
import time

MIB = 1 << 20
PIECES = (512 * MIB, 64 * MIB, 8 * MIB, 2 * MIB)


def say(**answer):
	print(json.dumps(answer), flush=True)


class Nvml:
	"""NVML's figures of the process's GPU."""

	def __init__(self):
		self.nvml, self.device = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_void_p()
		self.call('nvmlInit_v2')
		self.call('nvmlDeviceGetHandleByIndex_v2', int(os.environ.get('MEMORY_DEVICE', 0)), ctypes.byref(self.device))

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
		self.call('cuDevicePrimaryCtxRetain', ctypes.byref(ctx), int(os.environ.get('MEMORY_DEVICE', 0)))
		self.call('cuCtxSetCurrent', ctx)
		self.small = self.take(MIB)
		self.own = 2 * MIB  # what the driver takes for that

	def call(self, name, *a):
		r = getattr(self.cuda, name)(*a)
		if r:
			raise MemoryError() if r == 2 else RuntimeError(f'{name}: {r}')

	def devices(self):
		n = ctypes.c_int()
		self.call('cuDeviceGetCount', ctypes.byref(n))
		return n.value

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

	def bytes_of(self, p, n):
		back = (ctypes.c_ubyte * n)()
		self.call('cuMemcpyDtoH_v2', back, p, ctypes.c_size_t(n))
		return bytes(back)

	def compute(self):
		self.call('cuMemsetD8_v2', self.small, ctypes.c_ubyte(77), ctypes.c_size_t(4096))
		return set(self.bytes_of(self.small, 4096)) == {77}

	def digest(self):
		"""Returns a hash of results; the same in every process that computes the same, with gBPF and without."""
		for i in range(16):
			self.call('cuMemsetD32_v2', ctypes.c_uint64(self.small.value + 4096 * i), ctypes.c_uint(i * 0x9e3779b1 & 0xffffffff), ctypes.c_size_t(1024))
		return hashlib.sha256(self.bytes_of(self.small, 1 << 16)).hexdigest()[:16]


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


class Async(Driver):
	"""Like PyTorch's backend cudaMallocAsync: the default pool, which keeps what is freed until it is trimmed."""

	def __init__(self):
		super().__init__()
		self.pool = ctypes.c_void_p()
		self.call('cuDeviceGetDefaultMemPool', ctypes.byref(self.pool), 0)
		self.call('cuMemPoolSetAttribute', self.pool, 4, ctypes.byref(ctypes.c_uint64((1 << 64) - 1)))  # RELEASE_THRESHOLD

	def take(self, n):
		if n == MIB:  # of the computation
			return super().take(n)
		p = ctypes.c_uint64()
		self.call('cuMemAllocAsync', ctypes.byref(p), ctypes.c_size_t(n), None)
		self.call('cuMemsetD8Async', p, ctypes.c_ubyte(len(self.held) & 255), ctypes.c_size_t(n), None)
		return p

	def drop(self, pieces):
		for p in pieces:
			self.call('cuMemFreeAsync', p, None)
		self.call('cuCtxSynchronize')
		self.call('cuMemPoolTrimTo', self.pool, ctypes.c_size_t(0))


class Segments(Driver):
	"""Like PyTorch's expandable segments: one range of addresses for all, to whose end chunks are mapped; freed from the end."""
	CHUNK = 2 * MIB

	def __init__(self):
		super().__init__()
		self.prop = (ctypes.c_ubyte * 32)()  # CUmemAllocationProp: pinned, on device 0
		struct.pack_into('<iiii', self.prop, 0, 1, 0, 1, 0)
		self.access = struct.pack('<iii', 1, 0, 3)  # CUmemAccessDesc: device 0, read and write
		self.room, self.base, self.chunks = self.info()[1] * 9 // 8 // self.CHUNK * self.CHUNK, ctypes.c_uint64(), []
		self.call('cuMemAddressReserve', ctypes.byref(self.base), ctypes.c_size_t(self.room), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))

	def map_one(self):
		handle, at = ctypes.c_uint64(), ctypes.c_uint64(self.base.value + len(self.chunks) * self.CHUNK)
		self.call('cuMemCreate', ctypes.byref(handle), ctypes.c_size_t(self.CHUNK), self.prop, ctypes.c_uint64(0))
		self.call('cuMemMap', at, ctypes.c_size_t(self.CHUNK), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
		self.call('cuMemSetAccess', at, ctypes.c_size_t(self.CHUNK), self.access, ctypes.c_size_t(1))
		self.chunks.append(handle)

	def unmap_to(self, n):
		while len(self.chunks) > n:
			at = ctypes.c_uint64(self.base.value + (len(self.chunks) - 1) * self.CHUNK)
			self.call('cuMemUnmap', at, ctypes.c_size_t(self.CHUNK))
			self.call('cuMemRelease', self.chunks.pop())

	def take(self, n):
		if n == MIB:  # of the computation
			return super().take(n)
		first = len(self.chunks)
		try:
			while len(self.chunks) < first + n // self.CHUNK:
				self.map_one()
		except MemoryError:
			self.unmap_to(first)
			raise
		at = ctypes.c_uint64(self.base.value + first * self.CHUNK)
		self.call('cuMemsetD8_v2', at, ctypes.c_ubyte(first & 255), ctypes.c_size_t(n))
		return first

	def drop(self, pieces):
		if pieces is self.held:  # the first one alone is not at the end
			self.unmap_to(0)


class Cached(Driver):
	"""Like CuPy's and PyTorch's caching allocators: what is freed is kept, and returned before a refusal is passed on."""

	def __init__(self):
		self.cache = {}
		super().__init__()

	def take(self, n):
		if self.cache.get(n):
			return self.cache[n].pop(), n
		try:
			return super().take(n), n
		except MemoryError:
			if not self.release():
				raise
		return super().take(n), n

	def release(self):
		"""Returns the bytes that the driver gets back."""
		sizes = sum(n * len(pieces) for n, pieces in self.cache.items())
		for pieces in self.cache.values():
			super().drop(pieces)
		self.cache = {}
		return sizes

	def drop(self, pieces):
		for p, n in pieces:
			self.cache.setdefault(n, []).append(p)
		if pieces is self.held:
			self.release()

	def compute(self):
		small, self.small = self.small, self.small[0]
		try:
			return super().compute()
		finally:
			self.small = small

	def digest(self):
		small, self.small = self.small, self.small[0]
		try:
			return super().digest()
		finally:
			self.small = small


class Arena(Driver):
	"""Like XLA's allocator: takes three quarters of the card at once, less by tenths where that is refused, and divides it up."""

	def __init__(self):
		super().__init__()
		n = self.info()[1] * 3 // 4 // MIB * MIB
		while True:
			try:
				self.arena, self.size, self.next = super().take(n), n, 0
				self.own += n
				return
			except MemoryError:
				n = n * 9 // 10 // MIB * MIB
				if n < MIB:
					raise

	def take(self, n):
		if n == MIB:  # of the computation
			return super().take(n)
		if self.next + n > self.size:
			raise MemoryError()
		self.next += n
		return ctypes.c_uint64(self.arena.value + self.next - n)

	def drop(self, pieces):
		if pieces is self.held:
			self.next = 0


class Captured(Driver):
	"""Like PyTorch's CUDA graphs with private pools: memory that is taken by cuMemAlloc during a relaxed capture belongs to the graph,
	whose launches must find it unchanged, also after the process was refused memory."""

	def __init__(self):
		super().__init__()
		self.stream, self.graphs = ctypes.c_void_p(), []
		self.call('cuStreamCreate', ctypes.byref(self.stream), 1)
		self.graphs = [self.capture(i + 1) for i in range(2)]
		self.own += 2 * 4 * MIB

	def capture(self, value):
		g, run = ctypes.c_void_p(), ctypes.c_void_p()
		self.call('cuStreamBeginCapture_v2', self.stream, 2)
		p = ctypes.c_uint64()
		self.call('cuMemAlloc_v2', ctypes.byref(p), ctypes.c_size_t(4 * MIB))
		self.call('cuMemsetD8Async', p, ctypes.c_ubyte(value), ctypes.c_size_t(4 * MIB), self.stream)
		self.call('cuStreamEndCapture', self.stream, ctypes.byref(g))
		self.call('cuGraphInstantiateWithFlags', ctypes.byref(run), g, ctypes.c_uint64(0))
		self.call('cuGraphDestroy', g)
		return run, p, value

	def compute(self):
		for run, p, _ in self.graphs:
			self.call('cuMemsetD8_v2', p, ctypes.c_ubyte(0), ctypes.c_size_t(4 * MIB))
		self.call('cuCtxSynchronize')
		for run, _, _ in self.graphs:
			self.call('cuGraphLaunch', run, self.stream)
		self.call('cuStreamSynchronize', self.stream)
		return all(set(self.bytes_of(p, 4 * MIB)) == {value} for _, p, value in self.graphs) and super().compute()


ADD = b'''.version 6.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 at, .param .u32 n, .param .u32 apart) {
	.reg .b32 %r<7>; .reg .b64 %d<4>; .reg .pred %p;
	mov.u32 %r0, %ctaid.x;
	mov.u32 %r1, %ntid.x;
	mov.u32 %r2, %tid.x;
	mad.lo.u32 %r0, %r0, %r1, %r2;
	ld.param.u32 %r3, [n];
	setp.ge.u32 %p, %r0, %r3;
	@%p bra END;
	ld.param.u32 %r4, [apart];
	ld.param.u64 %d0, [at];
	mul.wide.u32 %d1, %r0, %r4;
	add.u64 %d2, %d0, %d1;
	ld.global.u32 %r5, [%d2];
	add.u32 %r6, %r5, 1;
	st.global.u32 [%d2], %r6;
END:
	ret;
}
'''


class Giver(Driver):
	"""Holds memory for which another virtual GPU asks. With "work" it sets all of it and lets a kernel change it, round after round; with
	"rest" it ends that. MEMORY_APART: the kernel changes one word in that many bytes."""
	WORD = 4
	CHECKED = 1 << 16  # bytes at both ends of a piece

	def __init__(self):
		super().__init__()
		self.pieces, self.round, self.longest_ms, self.thread, self.error = [], 0, 0.0, None, None
		self.apart, self.ended = int(os.environ.get('MEMORY_APART', self.WORD)), threading.Event()
		self.ctx, module, self.add = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
		self.call('cuCtxGetCurrent', ctypes.byref(self.ctx))
		self.call('cuModuleLoadData', ctypes.byref(module), ADD)
		self.call('cuModuleGetFunction', ctypes.byref(self.add), module, b'add')
		self.launch(self.small, MIB)  # what the driver takes for the first one

	def take(self, n):
		p = super().take(n)
		if n != MIB:  # of the computation
			self.pieces.append((p, n))
		return p

	def launch(self, p, size):
		n = size // self.apart
		values = (ctypes.c_uint64(p.value), ctypes.c_uint32(n), ctypes.c_uint32(self.apart))
		params = (ctypes.c_void_p * 3)(*(ctypes.addressof(v) for v in values))
		self.call('cuLaunchKernel', self.add, (n + 255) // 256, 1, 1, 256, 1, 1, 0, None, params, None)

	def word_of(self, i):
		"""Returns what a round sets piece i to."""
		return (self.round * 40503 + i) & 0xffffffff

	def rounds(self):
		try:
			self.call('cuCtxSetCurrent', self.ctx)
			while not self.ended.is_set():
				begin = time.perf_counter()
				self.round += 1
				for i, (p, n) in enumerate(self.pieces):
					self.call('cuMemsetD32Async', p, ctypes.c_uint(self.word_of(i)), ctypes.c_size_t(n // self.WORD), None)
					self.launch(p, n)
					self.call('cuCtxSynchronize')  # so that its work has ends, at which memory can leave
				self.longest_ms = max(self.longest_ms, (time.perf_counter() - begin) * 1e3)
		except (RuntimeError, MemoryError) as e:
			self.error = repr(e)

	def wrong(self):
		"""Returns the number of pieces whose ends do not have the value of the last round, or that of the beginning."""
		wrong = 0
		for i, (p, n) in enumerate(self.pieces):
			if self.round:
				words = [self.word_of(i)] * (self.CHECKED // self.WORD)
				words[::self.apart // self.WORD] = [self.word_of(i) + 1] * len(words[::self.apart // self.WORD])
				want = struct.pack(f'<{len(words)}I', *words)
			else:
				want = bytes([i & 255]) * self.CHECKED
			wrong += any(self.bytes_of(ctypes.c_uint64(p.value + at), self.CHECKED) != want for at in (0, n - self.CHECKED))
		return wrong

	def do_work(self):
		self.thread = threading.Thread(target=self.rounds)
		self.thread.start()
		return {}

	def do_rest(self):
		self.ended.set()
		if self.thread:
			self.thread.join()
		return {'rounds': self.round, 'longest_ms': self.longest_ms, 'wrong': self.wrong(), 'error': self.error}


class Taker(Driver):
	"""Asks for memory, keeps it, and says how long the call took, and whether the memory was zero as the driver makes it."""

	def do_ask(self, mib):
		p, n = ctypes.c_uint64(), int(mib) * MIB
		begin = time.perf_counter()
		r = self.cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n))
		ms = (time.perf_counter() - begin) * 1e3
		if r not in (0, 2):
			raise RuntimeError(f'cuMemAlloc_v2: {r}')
		if r:
			return {'ms': ms, 'refused': True, 'wrong': 0}
		wrong = sum(any(self.bytes_of(ctypes.c_uint64(p.value + at), MIB)) for at in (0, n - MIB))
		self.call('cuMemsetD8_v2', p, ctypes.c_ubyte(255), ctypes.c_size_t(n))
		self.held.append(p)
		return {'ms': ms, 'refused': False, 'wrong': wrong}


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

	def digest(self):
		a = (self.x[:1 << 14] % 127).reshape(128, 128).float()
		b = self.torch.softmax(a @ a.T / 4096, dim=-1).sum(dim=0) + self.torch.tanh(a).cumsum(dim=1)[5]
		return hashlib.sha256(bytes(b.cpu().view(self.torch.uint8).tolist())).hexdigest()[:16]


class Pools(Torch):
	"""Two CUDA graphs, each with a private pool."""

	def __init__(self):
		super().__init__()
		self.graphs = [self.capture(i + 1) for i in range(2)]

	def capture(self, k):
		x = self.x[:1 << 14].reshape(128, 128).float().clone()
		from torch_parts import captured
		g, y = captured(lambda: self.body(x, k), pool=self.torch.cuda.graph_pool_handle())
		return g, x, y, k

	def body(self, x, k):
		y = self.torch.tanh(x / 16384 * k)
		for _ in range(4):
			y = self.torch.tanh(y + x / 65536)
		return y.clone()

	def compute(self):
		for g, x, _, _ in self.graphs:
			x.add_(1)  # and not y.zero_(): under cudaMallocAsync a result has no memory before the first launch
			g.replay()
		self.torch.cuda.synchronize()
		return all(self.torch.equal(y, self.body(x, k)) for _, x, y, k in self.graphs) and super().compute()


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

	def digest(self):
		a = (self.x[:1 << 14] % 127).reshape(128, 128).astype('float32')
		b = self.cupy.tanh(a @ a.T / 4096).sum(axis=0) + self.cupy.tanh(a).cumsum(axis=1)[5]
		return hashlib.sha256(self.cupy.asnumpy(b).tobytes()).hexdigest()[:16]


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

	def digest(self):
		np = self.jax.numpy
		a = (self.x[:1 << 14] % 127).reshape(128, 128)
		b = np.tanh(a @ a.T / 4096).sum(axis=0) + np.tanh(a)[5]
		return hashlib.sha256(bytes(self.jax.device_get(b).tobytes())).hexdigest()[:16]


class JaxTaken(Jax):
	"""JAX on a card of which less than three quarters are free. It must not be refused later: where JAX 0.11 could not take its arena
	as a whole it ends itself at the first refusal ("spatial partitioning expects one central gap"), without gBPF as well."""

	def __init__(self):
		super().__init__()
		stats = self.jax.local_devices()[0].memory_stats()
		self.room = stats['pool_bytes'] * 9 // 10

	def take(self, n):
		if self.jax.local_devices()[0].memory_stats()['bytes_in_use'] + n > self.room:
			raise MemoryError()
		return super().take(n)


KINDS = {'driver': Driver, 'stack': Stack, 'graphs': Graphs, 'pinned': Pinned, 'driver-async': Async, 'driver-segments': Segments,
	'driver-cached': Cached, 'driver-arena': Arena, 'driver-taken': Arena, 'driver-captured': Captured, 'giver': Giver, 'taker': Taker,
	'caching': Torch, 'expandable': Torch, 'async': Torch, 'pools': Pools, 'pools-expandable': Pools, 'pools-async': Pools,
	'cupy': Cupy, 'jax': Jax, 'jax-eager': Jax, 'jax-taken': JaxTaken}


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


def command_of(part):
	return [os.environ['MEMORY_PATHS'], 'serve', part[3:]] if part.startswith('by-') else [sys.executable, os.path.abspath(__file__), part]


def start(part, device='0'):
	return subprocess.Popen(command_of(part), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
		env={**{k: v for k, v in os.environ.items() if k != 'MEMORY_TAKEN'}, 'MEMORY_DEVICE': device})


def end(p):
	p.stdin.close()
	p.wait()


def serve_taken(part, mib):
	"""Serves while another process holds that much."""
	other = start('driver')
	other.stdout.readline()
	other.stdin.write(f'take {mib}\n')
	other.stdin.flush()
	if not other.stdout.readline():
		raise RuntimeError(f'the other process does not get {mib} MiB')
	try:
		serve(part)
	finally:
		end(other)


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
	seen(held=getattr(k, 'own', 0), wrong=int(not k.compute()), digest=k.digest())
	for line in sys.stdin:
		words = line.split()
		if hasattr(k, 'do_' + words[0]):
			seen(**getattr(k, 'do_' + words[0])(*words[1:]))
		elif line.strip() == 'info':
			seen(devices=k.devices() if part == 'driver' else None)
		elif line.startswith('take '):
			k.held.append(k.take(int(line.split()[1]) * MIB))
			seen()
		elif line.strip() == 'fill':
			got, refused = fill(k)
			seen(got=got, refused=refused, wrong=0)
		else:
			k.drop([k.held.pop(0)] if k.held else [])
			wrong = int(not k.compute())
			k.drop(k.held)
			k.held = []
			seen(wrong=wrong + int(not k.compute()), digest=k.digest())


def twice(parts):
	"""Runs the parts as processes, passes each command on to all of them at once, and adds their answers up."""
	devices = os.environ.get('MEMORY_DEVICES', '0,0').split(',')
	programs = [start(p, d) for p, d in zip(parts, devices)]

	def answer():
		got = [json.loads(p.stdout.readline()) for p in programs]
		# of free memory, what the last one to answer sees
		say(total=got[0]['total'], free=max(g['free'] for g in got),
			 refused=all(g.get('refused') for g in got),
			**{k: sum(g.get(k, 0) for g in got) for k in ('held', 'wrong', 'got', 'apart') if k in got[0]})
	answer()
	for line in sys.stdin:
		for p in programs:
			p.stdin.write(line)
			p.stdin.flush()
		answer()
	for p in programs:
		end(p)


if len(sys.argv) > 2:
	twice(sys.argv[1:])
elif os.environ.get('MEMORY_TAKEN'):
	serve_taken(sys.argv[1], int(os.environ['MEMORY_TAKEN']))
elif sys.argv[1].startswith('by-'):
	command = command_of(sys.argv[1])
	os.execv(command[0], command)
else:
	serve(sys.argv[1])
