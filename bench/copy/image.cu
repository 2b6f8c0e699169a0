/* The kernel of `gbpf bench dev copy --overlap`: like a step of SRAD it reads and writes every pixel of an
 * image, with as much arithmetic as is asked for. Built by clang without the CUDA SDK. */
#define GLOBAL extern "C" __attribute__((global)) void

/* Computes v = v * a + b, iterations times, for every pixel. */
GLOBAL bench_image(float *image, unsigned pixels, float a, float b, int iterations)
{
	unsigned threads = __nvvm_read_ptx_sreg_ntid_x(), step = threads * __nvvm_read_ptx_sreg_nctaid_x();

	for (unsigned p = __nvvm_read_ptx_sreg_ctaid_x() * threads + __nvvm_read_ptx_sreg_tid_x(); p < pixels; p += step) {
		float v = image[p];

		for (int i = 0; i < iterations; i++) {
			v = __builtin_fmaf(v, a, b);
		}
		image[p] = v;
	}
}
