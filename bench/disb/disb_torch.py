"""disb_torch.py --page FD --model NAME [--graphs]: a task of `gbpf bench dev disb --torch`, the counterpart of
bench-client's role "model": the same page (bench/common/shared_page.h) and commands, but requests of a network in
PyTorch: its input is copied to the GPU, the network runs, and the result is copied back and waited for. The
coordinator has written the times of the requests into the page. The networks are those of the papers, with random
weights, batch 1, and need only PyTorch."""
import argparse
import ctypes
import gc
import mmap
import os
import signal
import struct
import sys
import time

MAGIC, READY, FAILED = 0x48434e42, 1, 2
REQUESTS, EXIT = 1, 4  # enum bench_page_op
ONE = 0  # enum bench_page_kind
AT = {'magic': 0, 'state': 4, 'command': 8, 'done': 12, 'op': 16, 'kind': 20, 'n': 24, 'limit': 40, 'epoch': 48, 'mps': 72, 'pid': 76,
	'device': 84, 'finished': 176, 'wrong': 184, 'checked': 192, 'begin': 200, 'end': 208, 'dropped': 216, 'samples': 224,
	'error': 236, 'request': 496}
DEVICE_BYTES, TEXT_BYTES, RECORDS = 64, 256, 65536
RECORD = struct.Struct('<Qffff')  # struct bench_page_request
WARM, NEAR_NS = 10, 150000
SYS_FUTEX, FUTEX_WAIT, FUTEX_WAKE = 202, 0, 1
MPS_ENABLED = 133  # CU_DEVICE_ATTRIBUTE_MPS_ENABLED


class Page:
	"""The coordinator's page. Words that change while the other side reads them are accessed by single loads and stores."""

	def __init__(self, fd):
		self.map = mmap.mmap(fd, 0)
		if len(self.map) < AT['request'] + RECORDS * RECORD.size or self.get('magic') != MAGIC:
			raise ValueError(f'--page {fd} is no page of a bench')
		self.words = {name: ctypes.c_uint32.from_buffer(self.map, AT[name]) for name in ('state', 'command', 'done')}
		self.libc = ctypes.CDLL(None, use_errno=True)
		self.told = 0

	def get(self, name, form='<I'):
		return struct.unpack_from(form, self.map, AT[name])[0]

	def put(self, name, value, form='<Q'):
		struct.pack_into(form, self.map, AT[name], value)

	def put_text(self, name, text, size):
		self.map[AT[name]:AT[name] + size] = text.encode('utf-8', 'replace')[:size - 1].ljust(size, b'\0')

	def futex(self, name, op, value, seconds=0.0):
		wait = struct.pack('<qq', int(seconds), int(seconds % 1 * 1e9))
		self.libc.syscall(ctypes.c_long(SYS_FUTEX), ctypes.byref(self.words[name]), ctypes.c_int(op), ctypes.c_uint32(value),
			wait if op == FUTEX_WAIT else None, None, ctypes.c_uint32(0))

	def tell(self, name, value):
		self.words[name].value = value
		self.futex('done', FUTEX_WAKE, 1 << 30)

	def has_next(self):
		return self.words['command'].value != self.told

	def next(self, parent):
		"""Waits for the next command; returns EXIT if the coordinator has exited."""
		while not self.has_next():
			self.futex('command', FUTEX_WAIT, self.told, 0.5)
			if os.getppid() != parent:
				return EXIT
		self.told = self.words['command'].value
		return self.get('op')

	def due(self):
		"""Returns the times of the requests; none: a closed loop."""
		return [RECORD.unpack_from(self.map, AT['request'] + i * RECORD.size)[0] for i in range(min(self.get('n'), RECORDS))]

	def note(self, due, begin, end):
		n = self.get('samples')
		if n < RECORDS:
			RECORD.pack_into(self.map, AT['request'] + n * RECORD.size, due, (begin - due) * 1e-3, -1, -1, (end - begin) * 1e-3)
			self.put('samples', n + 1, '<I')
		self.put('finished', self.get('finished', '<Q') + 1)


# ---- the networks ----

def conv(nn, i, o, kernel, stride=1, padding=0):
	return nn.Sequential(nn.Conv2d(i, o, kernel, stride, padding, bias=False), nn.BatchNorm2d(o, eps=1e-3), nn.ReLU())


def branches(torch, *parts):
	"""Passes the input to each module and concatenates their outputs."""
	class Branches(torch.nn.Module):
		def __init__(self):
			super().__init__()
			self.parts = torch.nn.ModuleList(parts)

		def forward(self, x):
			return torch.cat([part(x) for part in self.parts], 1)
	return Branches()


def vgg19(torch):
	nn, layers, width = torch.nn, [], 3
	for count, to in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
		for _ in range(count):
			layers += [nn.Conv2d(width, to, 3, 1, 1), nn.ReLU()]
			width = to
		layers.append(nn.MaxPool2d(2, 2))
	return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


def resnet152(torch):
	nn = torch.nn

	class Bottleneck(nn.Module):
		def __init__(self, i, width, stride):
			super().__init__()
			o = 4 * width
			self.body = nn.Sequential(nn.Conv2d(i, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
				nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
				nn.Conv2d(width, o, 1, bias=False), nn.BatchNorm2d(o))
			self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o or stride != 1 else None
			self.relu = nn.ReLU()

		def forward(self, x):
			return self.relu(self.body(x) + (self.down(x) if self.down is not None else x))

	layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
	i = 64
	for stage, count in enumerate((3, 8, 36, 3)):
		for block in range(count):
			layers.append(Bottleneck(i, 64 << stage, 2 if stage and not block else 1))
			i = 256 << stage
	return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def densenet201(torch):
	nn = torch.nn

	class Dense(nn.Module):
		def __init__(self, i):
			super().__init__()
			self.body = nn.Sequential(nn.BatchNorm2d(i), nn.ReLU(), nn.Conv2d(i, 128, 1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
				nn.Conv2d(128, 32, 3, 1, 1, bias=False))

		def forward(self, x):
			return torch.cat([x, self.body(x)], 1)

	layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
	i = 64
	for stage, count in enumerate((6, 12, 48, 32)):
		for _ in range(count):
			layers.append(Dense(i))
			i += 32
		layers += [nn.BatchNorm2d(i), nn.ReLU()]
		if stage < 3:
			layers += [nn.Conv2d(i, i // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
			i //= 2
	return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


def inception3(torch):
	nn, seq = torch.nn, torch.nn.Sequential

	def c(i, o, kernel, stride=1, padding=0):
		return conv(nn, i, o, kernel, stride, padding)

	def pool(i, o):
		return seq(nn.AvgPool2d(3, 1, 1), c(i, o, 1))

	def a(i, o):
		return branches(torch, c(i, 64, 1), seq(c(i, 48, 1), c(48, 64, 5, 1, 2)), seq(c(i, 64, 1), c(64, 96, 3, 1, 1), c(96, 96, 3, 1, 1)),
			pool(i, o))

	def b(w):
		wide, high = (1, 7), (7, 1)
		return branches(torch, c(768, 192, 1), seq(c(768, w, 1), c(w, w, wide, 1, (0, 3)), c(w, 192, high, 1, (3, 0))),
			seq(c(768, w, 1), c(w, w, high, 1, (3, 0)), c(w, w, wide, 1, (0, 3)), c(w, w, high, 1, (3, 0)), c(w, 192, wide, 1, (0, 3))),
			pool(768, 192))

	def split(i):
		return branches(torch, c(i, 384, (1, 3), 1, (0, 1)), c(i, 384, (3, 1), 1, (1, 0)))

	def e(i):
		return branches(torch, c(i, 320, 1), seq(c(i, 384, 1), split(384)), seq(c(i, 448, 1), c(448, 384, 3, 1, 1), split(384)), pool(i, 192))

	reduce1 = branches(torch, c(288, 384, 3, 2), seq(c(288, 64, 1), c(64, 96, 3, 1, 1), c(96, 96, 3, 2)), nn.MaxPool2d(3, 2))
	reduce2 = branches(torch, seq(c(768, 192, 1), c(192, 320, 3, 2)),
		seq(c(768, 192, 1), c(192, 192, (1, 7), 1, (0, 3)), c(192, 192, (7, 1), 1, (3, 0)), c(192, 192, 3, 2)), nn.MaxPool2d(3, 2))
	return seq(c(3, 32, 3, 2), c(32, 32, 3), c(32, 64, 3, 1, 1), nn.MaxPool2d(3, 2), c(64, 80, 1), c(80, 192, 3), nn.MaxPool2d(3, 2),
		a(192, 32), a(256, 64), a(288, 64), reduce1, b(128), b(160), b(160), b(192), reduce2, e(1280), e(2048),
		nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def distilbert(torch):
	nn = torch.nn

	class DistilBert(nn.Module):
		def __init__(self):
			super().__init__()
			self.words, self.places, self.norm = nn.Embedding(30522, 768), nn.Embedding(512, 768), nn.LayerNorm(768, eps=1e-12)
			self.layers = nn.Sequential(*[nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation='gelu', batch_first=True)
				for _ in range(6)])

		def forward(self, x):
			return self.layers(self.norm(self.words(x) + self.places(x)))
	return DistilBert()


# Name: constructor, input. 128 words, each below 512, so that they are valid positions, too.
IMAGE = (1, 3, 224, 224)
MODELS = {'R152': (resnet152, IMAGE), 'D201': (densenet201, IMAGE), 'V19': (vgg19, IMAGE), 'I3': (inception3, (1, 3, 299, 299)),
	'DB': (distilbert, (1, 128))}


class Task:
	def __init__(self, torch, name, graphs):
		torch.manual_seed(1)
		torch.set_num_threads(1)
		make, shape = MODELS[name]
		self.torch, self.graph = torch, None
		self.model = make(torch).eval().cuda()
		self.into = (torch.randint(0, 512, shape) if name == 'DB' else torch.randn(*shape)).pin_memory()
		self.x = self.into.cuda()
		for _ in range(WARM):
			y = self.model(self.x)
		torch.cuda.synchronize()
		if graphs:
			self.graph = torch.cuda.CUDAGraph()
			with torch.cuda.graph(self.graph):
				self.y = self.model(self.x)
		self.out = torch.empty(tuple(y.shape)).pin_memory()
		self.infer()
		self.want = self.out.clone()

	def infer(self):
		self.x.copy_(self.into, non_blocking=True)
		if self.graph:
			self.graph.replay()
		self.out.copy_(self.y if self.graph else self.model(self.x), non_blocking=True)
		self.torch.cuda.synchronize()

	def right(self):
		return bool(self.torch.allclose(self.out, self.want, rtol=1e-3, atol=1e-4))


def wait_until(when):
	now = time.monotonic_ns()
	if when > now + NEAR_NS:
		time.sleep((when - now - NEAR_NS) * 1e-9)
	while time.monotonic_ns() < when:
		pass


def request(page, task, due):
	begin = time.monotonic_ns()
	task.infer()
	page.note(due, begin, time.monotonic_ns())
	page.put('checked', page.get('checked', '<Q') + 1)
	if not task.right():
		page.put('wrong', page.get('wrong', '<Q') + 1)


def run_schedule(page, task):
	"""Keeps only the newest of the requests that could not begin in time."""
	end, due = page.get('epoch', '<Q') + page.get('limit', '<Q'), page.due()
	closed, i, dropped = not due, 0, 0
	while not page.has_next():
		now = time.monotonic_ns()
		while not closed and i + 1 < len(due) and due[i + 1] <= now:
			i, dropped = i + 1, dropped + 1
		when = max(page.get('epoch', '<Q') if closed else due[i] if i < len(due) else end, now)
		if when >= end:
			break
		wait_until(when)
		request(page, task, when if closed else due[i])
		i += 1
	page.put('dropped', dropped + (0 if closed else len(due) - i))
	wait_until(end)


def serve(page, task, parent):
	gc.collect()
	gc.disable()  # no pauses while requests are timed
	while True:
		op = page.next(parent)
		if op == EXIT:
			return
		if op == REQUESTS:
			count = page.get('n') if page.get('kind') == ONE else 0
			page.put('samples', 0, '<I')
			page.put('begin', time.monotonic_ns())
			for _ in range(count):
				request(page, task, time.monotonic_ns())
			if page.get('kind') != ONE:
				run_schedule(page, task)
			page.put('end', time.monotonic_ns())
		page.tell('done', page.told)


def is_mps():
	"""Returns CUDA's attribute of this process. Older drivers do not know it."""
	lib, value = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(0)
	if lib.cuInit(0) != 0 or lib.cuDeviceGetAttribute(ctypes.byref(value), MPS_ENABLED, 0) != 0:
		return 0
	return int(value.value > 0)


def main():
	parent = os.getppid()
	p = argparse.ArgumentParser(description=__doc__)
	p.add_argument('--page', type=int, required=True)
	p.add_argument('--model', choices=MODELS, required=True)
	p.add_argument('--graphs', action='store_true')
	p.add_argument('--libcuda', help='not used: PyTorch finds its own')
	a = p.parse_args()
	signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore the terminal's: the coordinator ends this process
	page = Page(a.page)
	page.put('pid', os.getpid(), '<I')
	try:
		import torch
		if not torch.cuda.is_available():
			raise RuntimeError('PyTorch sees no GPU')
		with torch.inference_mode():
			page.put_text('device', torch.cuda.get_device_name(0), DEVICE_BYTES)
			task = Task(torch, a.model, a.graphs)
			page.put('mps', is_mps(), '<I')
			page.tell('state', READY)
			serve(page, task, parent)
	except Exception as e:  # report every error to the waiting coordinator
		what = f'{sys.executable}: ' if isinstance(e, ImportError) else ''
		page.put_text('error', f'{what}{type(e).__name__}: {e}', TEXT_BYTES)
		page.tell('state', FAILED)
		raise
	return 0


if __name__ == '__main__':
	sys.exit(main())
