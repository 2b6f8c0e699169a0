"""Stands for any object of a framework: every attribute, call, item and operator gives another one, and each call launches one small
kernel on the GPU at hand, so that gBPF sees a program like any other. Results are the same in every run. FAKE_FAILS names a
function whose call raises, FAKE_HANGS one that never ends, FAKE_DIFFERS gives other results under gBPF's shim."""
import ctypes
import os
import time

PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry KERNEL(.param .u64 data) {
	.reg .u32 %r<4>; .reg .u64 %d; .reg .pred %p;
	mov.u32 %r0, 0;
LOOP:
	add.u32 %r0, %r0, 1;
	setp.lt.u32 %p, %r0, 200;
	@%p bra LOOP;
	ld.param.u64 %d, [data];
	red.global.add.u32 [%d], 1;
	ret;
}
'''


class Device:
	"""The driver's library, if it can be loaded; nothing is launched otherwise."""

	def __init__(self):
		self.cu = None
		try:
			cu = ctypes.CDLL('libcuda.so.1')
		except OSError:
			return
		context, module, self.word = (ctypes.c_void_p() for _ in range(3))
		self.function = ctypes.c_void_p()
		if cu.cuInit(0) or cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) or cu.cuCtxSetCurrent(context):
			raise RuntimeError('the GPU does not work')
		name = os.environ.get('FAKE_KERNEL', 'fake').encode()
		if cu.cuModuleLoadData(ctypes.byref(module), PTX.replace(b'KERNEL', name)) or \
				cu.cuModuleGetFunction(ctypes.byref(self.function), module, name):
			raise RuntimeError('the kernel cannot be loaded')
		if cu.cuMemAlloc_v2(ctypes.byref(self.word), ctypes.c_size_t(4)):
			raise RuntimeError('no memory')
		self.params = (ctypes.c_void_p * 1)(ctypes.addressof(self.word))
		self.cu = cu

	def launch(self):
		if self.cu and self.cu.cuLaunchKernel(self.function, 24, 1, 1, 1, 1, 1, 0, None, self.params, None):
			raise RuntimeError('a launch failed')

	def synchronize(self):
		if self.cu and self.cu.cuCtxSynchronize():
			raise RuntimeError('a synchronization failed')


DEVICE = None


def device():
	global DEVICE
	DEVICE = DEVICE or Device()
	return DEVICE


def differs():
	return bool(os.environ.get('FAKE_DIFFERS')) and any('/shim/' in line for line in open('/proc/self/maps', encoding='utf-8'))


class Anything:
	"""name: what it was taken from, for FAKE_FAILS and FAKE_HANGS."""
	dtype = 'any'
	VALUES = {'item': lambda: 1.0, 'numel': lambda: 4, 'dim': lambda: 1, 'element_size': lambda: 4, 'elapsed_time': lambda: 1.0,
		'is_available': lambda: True}

	def __init__(self, name='anything'):
		self._name = name

	def __getattr__(self, name):
		if name.startswith('__'):
			raise AttributeError(name)
		if name in Anything.VALUES:
			device().synchronize()
			return lambda *a, **k: Anything.VALUES[name]()
		if name == 'tobytes':
			device().synchronize()
			return lambda: b'other' if differs() else b'same'
		return Anything(name)

	def __call__(self, *args, **more):
		if self._name == os.environ.get('FAKE_FAILS'):
			raise RuntimeError(f'{self._name} fails as it was told to')
		while self._name == os.environ.get('FAKE_HANGS'):
			time.sleep(60)
		if self._name in ('synchronize', 'block_until_ready'):
			device().synchronize()
		elif self._name == 'wraps' or (len(args) == 1 and callable(args[0]) and not isinstance(args[0], Anything) and not more):
			return args[0]  # a decorator
		else:
			device().launch()
		return Anything(self._name + '()')

	def __getitem__(self, _):
		return Anything(self._name)

	def __iter__(self):
		return iter([Anything() for _ in range(3 if 'permute' in self._name else 4)])

	def __enter__(self):
		return self

	def __exit__(self, *_):
		return None

	def __setitem__(self, _, value):
		pass

	def __mro_entries__(self, _):
		return (object,)

	def __index__(self):
		return 4

	def __bool__(self):
		return True

	def __float__(self):
		return 1.0


def operator(name):
	def f(self, *_):
		device().launch()
		return Anything()
	setattr(Anything, name, f)


for n in ('add', 'sub', 'mul', 'matmul', 'truediv', 'floordiv', 'mod', 'pow', 'and', 'or', 'xor', 'lshift', 'rshift'):
	operator(f'__{n}__')
	operator(f'__r{n}__')
for n in ('gt', 'lt', 'ge', 'le', 'neg', 'invert'):
	operator(f'__{n}__')
