/* The variants that a CUDA 13 program calls by the plain names. */
#ifndef GBPF_TESTS_SHIM_VARIANTS_H
#define GBPF_TESTS_SHIM_VARIANTS_H

#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpy2DAsync cuMemcpy2DAsync_v2
#define cuMemcpy3DAsync cuMemcpy3DAsync_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuCtxDestroy cuCtxDestroy_v2
#define cuGetProcAddress cuGetProcAddress_v2

#endif
