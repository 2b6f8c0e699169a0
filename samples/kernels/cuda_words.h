/* The few words of CUDA C that the sample kernels use, for a clang without the CUDA SDK:
 *	clang-14 -x cuda --cuda-device-only -nocudainc -nocudalib -O2 -S k.cu -o k.ptx */
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define KERNEL extern "C" __global__ void

#define threadIdx_x __nvvm_read_ptx_sreg_tid_x()
#define threadIdx_y __nvvm_read_ptx_sreg_tid_y()
#define blockIdx_x __nvvm_read_ptx_sreg_ctaid_x()
#define blockIdx_y __nvvm_read_ptx_sreg_ctaid_y()
#define blockDim_x __nvvm_read_ptx_sreg_ntid_x()
#define gridDim_x __nvvm_read_ptx_sreg_nctaid_x()
#define syncthreads() __nvvm_bar_sync(0)

#define GLOBAL_INDEX (blockIdx_x * blockDim_x + threadIdx_x)
