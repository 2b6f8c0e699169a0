// Products of matrices with the warp's matrix instructions, written out as PTX, and through wmma.
#include <cuda_fp16.h>
#include <mma.h>

extern "C" {
// One warp: D (16x8, f32) = A (16x16, row) * B (16x8, column) + C.
__global__ void mmaHalf(float *d, const __half *a, const __half *b, const float *c)
{
	int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
	unsigned ra[4], rb[2];
	float rd[4], rc[4];

	for (int i = 0; i < 4; i++) {
		int row = group + i % 2 * 8, col = pair + i / 2 * 8;

		ra[i] = *(const unsigned *)(a + row * 16 + col);
		rc[i] = c[(group + i / 2 * 8) * 8 + pair + i % 2];
	}
	for (int i = 0; i < 2; i++) {
		rb[i] = *(const unsigned *)(b + group * 16 + pair + i * 8);
	}
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%10,%11,%12,%13};"
		     : "=f"(rd[0]), "=f"(rd[1]), "=f"(rd[2]), "=f"(rd[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(rc[0]),
		       "f"(rc[1]), "f"(rc[2]), "f"(rc[3]));
	for (int i = 0; i < 4; i++) {
		d[(group + i / 2 * 8) * 8 + pair + i % 2] = rd[i];
	}
}

// The same with bytes: D (16x8, s32) = A (16x32) * B (32x8).
__global__ void mmaBytes(int *d, const signed char *a, const signed char *b)
{
	int lane = threadIdx.x, group = lane / 4, four = lane % 4 * 4, pair = lane % 4 * 2;
	unsigned ra[4], rb[2];
	int rd[4];

	for (int i = 0; i < 4; i++) {
		ra[i] = *(const unsigned *)(a + (group + i % 2 * 8) * 32 + four + i / 2 * 16);
	}
	for (int i = 0; i < 2; i++) {
		rb[i] = *(const unsigned *)(b + group * 32 + four + i * 16);
	}
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%10,%10,%10,%10};"
		     : "=r"(rd[0]), "=r"(rd[1]), "=r"(rd[2]), "=r"(rd[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(0));
	for (int i = 0; i < 4; i++) {
		d[(group + i / 2 * 8) * 8 + pair + i % 2] = rd[i];
	}
}

// tf32: D (16x8, f32) = A (16x8) * B (8x8); bf16 with the same shape of registers, k16.
__global__ void mmaTf32(float *d, const float *a, const float *b)
{
	int lane = threadIdx.x, group = lane / 4, in = lane % 4, pair = lane % 4 * 2;
	unsigned ra[4], rb[2];
	float rd[4];

	for (int i = 0; i < 4; i++) {
		asm("cvt.rna.tf32.f32 %0, %1;"
		    : "=r"(ra[i])
		    : "f"(a[(group + i % 2 * 8) * 8 + in + i / 2 * 4]));
	}
	for (int i = 0; i < 2; i++) {
		asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[i]) : "f"(b[group * 8 + in + i * 4]));
	}
	asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%10,%10,%10,%10};"
		     : "=f"(rd[0]), "=f"(rd[1]), "=f"(rd[2]), "=f"(rd[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(0.0f));
	for (int i = 0; i < 4; i++) {
		d[(group + i / 2 * 8) * 8 + pair + i % 2] = rd[i];
	}
}

// Tiles through ldmatrix: D = A * B for A 16x16 and B 16x8 that lie in shared memory.
__global__ void mmaLdmatrix(float *d, const __half *a, const __half *b)
{
	__shared__ __align__(16) __half sa[16 * 16], sb[16 * 8];
	int lane = threadIdx.x, group = lane / 4, pair = lane % 4 * 2;
	unsigned ra[4], rb[2];
	float rd[4];

	for (int i = lane; i < 256; i += 32) {
		sa[i] = a[i];
	}
	for (int i = lane; i < 128; i += 32) {
		sb[i] = b[i];
	}
	__syncwarp();
	unsigned at = (unsigned)__cvta_generic_to_shared(sa + lane % 16 * 16 + lane / 16 * 8);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3])
		     : "r"(at));
	at = (unsigned)__cvta_generic_to_shared(sb + lane % 16 * 8);
	asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
		     : "=r"(rb[0]), "=r"(rb[1])
		     : "r"(at));
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
		     "{%8,%9}, {%10,%10,%10,%10};"
		     : "=f"(rd[0]), "=f"(rd[1]), "=f"(rd[2]), "=f"(rd[3])
		     : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "f"(0.0f));
	for (int i = 0; i < 4; i++) {
		d[(group + i / 2 * 8) * 8 + pair + i % 2] = rd[i];
	}
}
}
