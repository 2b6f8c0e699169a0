/* The kernels of `gbpf bench memory`, which use memory that may have left the device. stride: they
 * use one word in that many, so that the soft GPU, too, touches all pages of much memory. Built by
 * clang without the CUDA SDK. */
#define GLOBAL extern "C" __attribute__((global)) void

typedef unsigned long long u64;

static __attribute__((device)) u64 first(void)
{
	return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

static __attribute__((device)) u64 threads(void)
{
	return (u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}

/* a[i] = a[i] * 1664525 + i + seed */
GLOBAL quota_mix(unsigned *a, u64 words, u64 stride, unsigned seed)
{
	u64 step = threads() * stride;

	for (u64 i = first() * stride; i < words; i += step) {
		a[i] = a[i] * 1664525u + (unsigned)i + seed;
	}
}

/* A layer of a cycle: reads it, and with `change` writes it, and adds what it has read to the sum of
 * each thread. */
GLOBAL quota_layer(unsigned *a, u64 words, u64 stride, unsigned reads, unsigned change, unsigned *sums)
{
	u64 step = threads() * stride;
	unsigned sum = sums[first()];

	for (unsigned r = 1; r <= reads; r++) {
		for (u64 i = first() * stride; i < words; i += step) {
			unsigned v = a[i];

			sum += v * r;
			if (change) {
				a[i] = v * 1664525u + (unsigned)i;
			}
		}
	}
	sums[first()] = sum;
}
