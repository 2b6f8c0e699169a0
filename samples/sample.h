/* Common functions of the samples: a device, a module from embedded PTX, buffers, and checks that
 * end the program with the error's name. */
#ifndef SAMPLES_SAMPLE_H
#define SAMPLES_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_min.h"

/* Ends the program with status 3 and the error's name when a driver call fails. */
#define CHECK(call) sample_check((call), #call)
void sample_check(CUresult result, const char *call);

/* Initializes device 0 with its primary context current; prints nothing. */
void sample_begin(void);
void sample_end(void);

CUfunction sample_function(CUmodule module, const char *name);
CUmodule sample_module(const char *ptx);

CUdeviceptr sample_upload(const void *data, size_t bytes);
CUdeviceptr sample_zeros(size_t bytes);
void sample_download(void *data, CUdeviceptr from, size_t bytes); /* also frees the device memory */
void *sample_alloc(size_t count, size_t bytes); /* host memory; ends the program if there is none */

/* Launches a 1D grid on the default stream. */
void sample_launch(CUfunction f, unsigned blocks, unsigned threads, void **params);

/* xorshift64*: returns the same sequence on every machine. */
uint64_t sample_random(uint64_t *state);
float sample_random_float(uint64_t *state); /* [0, 1) */

double sample_now(void); /* seconds, monotonic */
bool sample_close(double got, double want, double relative);

#define ARGS(...) ((void *[]){ __VA_ARGS__ })

/* A known kernel: runs it on about n elements, returns whether the result is right. */
typedef bool sample_fn(int n);
sample_fn vecadd, saxpy, reduction, scan, histogram, transpose, matmul, hotspot, bfs, nbody,
	softmax, spmv;

/* PTX of samples/kernels, made at build time. */
extern const char ptx_vecadd[], ptx_saxpy[], ptx_reduction[], ptx_scan[], ptx_histogram[],
	ptx_transpose[], ptx_matmul[], ptx_hotspot[], ptx_bfs[], ptx_nbody[], ptx_softmax[],
	ptx_spmv[], ptx_service[];

#endif
