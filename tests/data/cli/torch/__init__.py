"""As much of PyTorch as disb_torch.py uses, without numbers: tensors have shapes, modules say what shape comes out and how many
parameters they have, and what does not fit raises as PyTorch does. So networks and the protocol can be checked without a card."""
import math
import os
import time


class Tensor:
	def __init__(self, shape):
		self.shape = tuple(shape)

	def __add__(self, other):
		if self.shape[-2:] != other.shape[-2:] or len(self.shape) != len(other.shape):
			raise RuntimeError(f'{self.shape} + {other.shape}')
		return Tensor(self.shape)

	def copy_(self, other, non_blocking=False):
		if self.shape != other.shape:
			raise RuntimeError(f'copy_: {self.shape}, {other.shape}')
		return self

	def clone(self):
		return Tensor(self.shape)

	pin_memory = cuda = clone


def randn(*shape):
	return Tensor(shape)


def randint(low, high, shape):
	return Tensor(shape)


def empty(shape):
	return Tensor(shape)


def cat(parts, dim):
	first = parts[0].shape
	for p in parts:
		if p.shape[:dim] + p.shape[dim + 1:] != first[:dim] + first[dim + 1:]:
			raise RuntimeError(f'cat: {[p.shape for p in parts]}')
	return Tensor(first[:dim] + (sum(p.shape[dim] for p in parts),) + first[dim + 1:])


def allclose(a, b, rtol, atol):
	return not os.environ.get('FAKE_TORCH_WRONG')


def manual_seed(seed):
	pass


def set_num_threads(n):
	pass


class inference_mode:
	def __enter__(self):
		return self

	def __exit__(self, *what):
		return None


def pair(v):
	return v if isinstance(v, tuple) else (v, v)


class nn:
	class Module:
		own = 0  # parameters besides those of its parts

		def __call__(self, x):
			return self.forward(x)

		def inner_modules(self):
			for v in vars(self).values():
				if isinstance(v, nn.Module):
					yield v
				elif isinstance(v, (list, tuple)):
					yield from (p for p in v if isinstance(p, nn.Module))

		def count(self):
			return self.own + sum(p.count() for p in self.inner_modules())

		def eval(self):
			return self

		cuda = eval

		def forward(self, x):
			return Tensor(x.shape)

	class Sequential(Module):
		def __init__(self, *parts):
			self.list = parts

		def forward(self, x):
			for p in self.list:
				x = p(x)
			return x

	class ModuleList(Module):
		def __init__(self, parts):
			self.list = list(parts)

		def __iter__(self):
			return iter(self.list)

	class MaxPool2d(Module):
		channels = None

		def __init__(self, kernel, stride=1, padding=0):
			self.kernel, self.stride, self.padding = pair(kernel), pair(stride), pair(padding)

		def forward(self, x):
			n, channels, *size = x.shape
			size = [(s + 2 * p - k) // t + 1 for s, k, t, p in zip(size, self.kernel, self.stride, self.padding)]
			if min(size) < 1:
				raise RuntimeError(f'{self.kernel} on {x.shape}')
			return Tensor((n, self.channels or channels, *size))

	class AvgPool2d(MaxPool2d):
		pass

	class Conv2d(MaxPool2d):
		def __init__(self, i, o, kernel, stride=1, padding=0, bias=True):
			super().__init__(kernel, stride, padding)
			self.i, self.channels = i, o
			self.own = i * o * math.prod(self.kernel) + (o if bias else 0)

		def forward(self, x):
			if x.shape[1] != self.i:
				raise RuntimeError(f'{self.i} channels wanted, {x.shape} given')
			return super().forward(x)

	class BatchNorm2d(Module):
		def __init__(self, n, eps=1e-5):
			self.n, self.own = n, 2 * n

		def forward(self, x):
			if x.shape[1] != self.n:
				raise RuntimeError(f'{self.n} channels wanted, {x.shape} given')
			return Tensor(x.shape)

	class AdaptiveAvgPool2d(Module):
		def __init__(self, size):
			self.size = pair(size)

		def forward(self, x):
			return Tensor(x.shape[:2] + self.size)

	class Flatten(Module):
		def forward(self, x):
			return Tensor((x.shape[0], math.prod(x.shape[1:])))

	class Linear(Module):
		def __init__(self, i, o):
			self.i, self.o, self.own = i, o, i * o + o

		def forward(self, x):
			if x.shape[-1] != self.i:
				raise RuntimeError(f'{self.i} wanted, {x.shape} given')
			return Tensor(x.shape[:-1] + (self.o,))

	class Embedding(Module):
		def __init__(self, n, width):
			self.width, self.own = width, n * width

		def forward(self, x):
			return Tensor(x.shape + (self.width,))

	class LayerNorm(Module):
		def __init__(self, width, eps=1e-5):
			self.own = 2 * width

	class ReLU(Module):
		pass

	class TransformerEncoderLayer(Module):
		def __init__(self, width, heads, inner, dropout, activation, batch_first):
			if width % heads:
				raise RuntimeError(f'{width} in {heads} heads')
			self.own = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width


class cuda:
	@staticmethod
	def is_available():
		return not os.environ.get('FAKE_TORCH_NO_GPU')

	@staticmethod
	def get_device_name(number):
		return 'no GPU, tensors without numbers'

	@staticmethod
	def synchronize():
		time.sleep(0.001)

	class CUDAGraph:
		def replay(self):
			pass

	class graph(inference_mode):
		def __init__(self, g):
			pass
