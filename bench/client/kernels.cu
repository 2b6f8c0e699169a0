/* The kernels of the benches: blocks of adjustable duration that leave a trace each, which reveals a
 * block that ran twice, not at all, or wrong. Built by clang without the CUDA SDK. */
#define GLOBAL extern "C" __attribute__((global)) void

/* Every thread computes v = v * a + b, iterations times, from its index in the block; thread 0 counts
 * its block. mask + 1: the size of out in threads, a power of two. */
GLOBAL bench_block(float *out, unsigned *count, float a, float b, int iterations, unsigned mask)
{
	unsigned block = __nvvm_read_ptx_sreg_ctaid_x(), thread = __nvvm_read_ptx_sreg_tid_x();
	float v = (float)thread;

	for (int i = 0; i < iterations; i++) {
		v = __builtin_fmaf(v, a, b);
	}
	out[(block * __nvvm_read_ptx_sreg_ntid_x() + thread) & mask] = v;
	if (thread == 0) {
		count[block]++;
	}
}

/* Same as bench_block; the first block stores its start time. */
GLOBAL bench_timed(float *out, unsigned *count, float a, float b, int iterations, unsigned mask, unsigned long long *when)
{
	unsigned block = __nvvm_read_ptx_sreg_ctaid_x(), thread = __nvvm_read_ptx_sreg_tid_x();
	unsigned long long now;
	float v = (float)thread;

	if (block == 0 && thread == 0) {
		__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
		*(volatile unsigned long long *)when = now;
	}
	for (int i = 0; i < iterations; i++) {
		v = __builtin_fmaf(v, a, b);
	}
	out[(block * __nvvm_read_ptx_sreg_ntid_x() + thread) & mask] = v;
	if (thread == 0) {
		count[block]++;
	}
}

/* Stores the GPU's clock into memory that the host can read. */
GLOBAL bench_stamp(unsigned long long *when)
{
	unsigned long long now;

	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
	*(volatile unsigned long long *)when = now;
}
