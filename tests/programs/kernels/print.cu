// printf in kernels: every kind of argument.
#include <stdio.h>

extern "C" __global__ void sayHello(int n)
{
	if (threadIdx.x == 0 && blockIdx.x == 0) {
		printf("hello from block %d of %d\n", blockIdx.x, gridDim.x);
		printf("%d %i %u %x %X %o %c %%\n", -7, 42, 4000000000u, 0xbeefu, 0xBEEFu, 8u, 'z');
		printf("%ld %lld %llu %llx\n", -5L, -6000000000LL, 18446744073709551615ULL,
		       0x123456789abcdefULL);
		printf("%f %.3f %e %g %10.4f|%-10d|%05d|%+d\n", 3.25, 2.0 / 3.0, 12345.678, 1e-5, 1.5f,
		       12, 34, 56);
		printf("%s and %s\n", "text", n > 3 ? "more" : "less");
		printf("no arguments\n");
	}
}

extern "C" __global__ void sayLanes()
{
	printf("lane %u of block %u: %d\n", threadIdx.x, blockIdx.x, (int)(threadIdx.x * threadIdx.x));
}
