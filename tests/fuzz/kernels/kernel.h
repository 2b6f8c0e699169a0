/* Random kernels: a program as a tree, its PTX, and a reference that runs one lane after the other.
 * Independent of the engine. A kernel is k(in, out, sums): in has IN_BYTES per lane, out OUT_BYTES
 * per lane, sums SUMS_BYTES in total; out and sums are zeroed first. */
#ifndef GBPF_FUZZ_KERNEL_H
#define GBPF_FUZZ_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define IN_BYTES 128u
#define PRIVATE_BYTES 64u
#define OUT_BYTES 512u
#define SUMS_BYTES 128u
#define BLOCKS 2u
#define THREADS_MAX 96u
#define LANES_MAX (BLOCKS * THREADS_MAX)

struct kernel;

struct kernel *kernel_create(uint64_t seed, unsigned size);
/* Returns a kernel with a single instruction, to test each form; NULL after the last form. */
struct kernel *kernel_of_form(unsigned form, uint64_t seed);
const char *kernel_form(unsigned form);
void kernel_destroy(struct kernel *k);
uint64_t kernel_seed(const struct kernel *k);
unsigned kernel_threads(const struct kernel *k); /* threads per block, a multiple of 32 */
void kernel_print(const struct kernel *k, FILE *to);
void kernel_inputs(const struct kernel *k, uint8_t *in);
void kernel_reference(const struct kernel *k, const uint8_t *in, uint8_t *out, uint8_t *sums);
/* Prints the differences of two outputs to stderr. Returns the number of different bytes. */
unsigned kernel_compare(const struct kernel *k, const uint8_t *out, const uint8_t *want_out,
			const uint8_t *sums, const uint8_t *want_sums);
uint64_t kernel_digest(uint64_t h, const uint8_t *data, size_t bytes);

#endif
