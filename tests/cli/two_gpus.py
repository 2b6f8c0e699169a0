"""A latency program that has a context on each of its two GPUs and requests on one of them alone: argv[1] is its ordinal.
The contexts are switched under way; argv[2] requests of 20 short kernels, each awaited."""
import ctypes
import sys

PTX = b'''
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u32 n) {
	.reg .u32 %r<3>;
	.reg .pred %p;
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 0;
loop:
	add.u32 %r2, %r2, 1;
	setp.lt.u32 %p, %r2, %r1;
	@%p bra loop;
	ret;
}
'''
cuda = ctypes.CDLL('libcuda.so.1')


def call(name, *args):
	r = getattr(cuda, name)(*args)
	if r:
		sys.exit(f'{name}: {r}')


call('cuInit', 0)
contexts, functions = [], []
for ordinal in range(2):
	ctx, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
	call('cuCtxCreate_v2', ctypes.byref(ctx), 0, ordinal)
	call('cuModuleLoadData', ctypes.byref(module), PTX)
	call('cuModuleGetFunction', ctypes.byref(function), module, b'spin')
	contexts.append(ctx)
	functions.append(function)

n = ctypes.c_uint(2000)
args = (ctypes.c_void_p * 1)(ctypes.addressof(n))
wanted, other = int(sys.argv[1]), 1 - int(sys.argv[1])
for _ in range(int(sys.argv[2])):
	call('cuCtxSetCurrent', contexts[other])  # as frameworks do between devices
	call('cuCtxSetCurrent', contexts[wanted])
	for _ in range(20):
		call('cuLaunchKernel', functions[wanted], 2, 1, 1, 32, 1, 1, 0, None, args, None)
	call('cuCtxSynchronize')
print('done')
