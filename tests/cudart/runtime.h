// What programs of these tests need of the CUDA runtime: our own declarations, and the few words of
// the language that clang leaves to headers.
#ifndef GBPF_TESTS_CUDART_RUNTIME_H
#define GBPF_TESTS_CUDART_RUNTIME_H

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))

#define dim3 plain_dim3 // C++ wants one with constructors
#include "cudart/rt_types.h"
#undef dim3

struct dim3 {
	unsigned x, y, z;
	__host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z)
	{
	}
};

extern "C" {
#include "prototypes.h" // generated
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0,
				     void *stream = nullptr);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorName(cudaError_t e);
const char *cudaGetErrorString(cudaError_t e);
cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f);
int printf(const char *format, ...);
void exit(int status);
}

#define SREG(name) ((int)__nvvm_read_ptx_sreg_##name())
#define THREAD (SREG(ctaid_x) * SREG(ntid_x) + SREG(tid_x))

// Ends the test unless the condition holds.
#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			printf("%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__,         \
			       #condition, cudaGetErrorName(cudaPeekAtLastError()));               \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call)                                                                                   \
	do {                                                                                       \
		cudaError_t ok_ = call;                                                            \
		if (ok_ != cudaSuccess) {                                                          \
			printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                       \
			       cudaGetErrorName(ok_));                                             \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define FAILS(error, call)                                                                         \
	do {                                                                                       \
		cudaError_t ok_ = call;                                                            \
		if (ok_ != error) {                                                                \
			printf("%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call,               \
			       cudaGetErrorName(ok_), #error);                                     \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

#endif
