/* Programs as PTX, run in this process by the engine of the soft GPU. */
#ifndef GBPF_TESTS_BPF_PTX_ENGINE_H
#define GBPF_TESTS_BPF_PTX_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"
#include "engines.h"

/* If not NULL, each module is also written to a file of its own in this folder. */
extern const char *ptx_folder;

/* A module of verified programs. One launch runs all of them in each of its threads. */
struct ptx_batch {
	struct buf text;
	unsigned n; /* number of programs */
	struct ptx_batch_program {
		int hook; /* inside kernels, or 0 */
		int lane; /* lanes run it whose bit in the context's field `active` is set */
		uint64_t fields, maps;
	} * programs; /* owned */
	/* NULL, or before programs are added: these are set by four control words, of the
	 * multiprocessors. */
	const uint32_t *control;
	uint32_t print_map_1; /* as in struct ebpf_jit_options */
};

void ptx_batch_begin(struct ptx_batch *b);
/* Adds a program. Returns 0, or the error of the compiler with its report. */
int ptx_batch_add(struct ptx_batch *b, const struct ebpf_insn *insns, uint32_t n,
		  const struct ebpf_env *env, struct report *r);
/* Likewise, for a program of a hook inside kernels. Its context is at r1; it has no result. */
int ptx_batch_add_device(struct ptx_batch *b, const struct ebpf_insn *insns, uint32_t n,
			 const struct ebpf_env *env, int hook, int lane, struct report *r);
void ptx_batch_finish(struct ptx_batch *b);
#define PTX_BLOCK 128u /* threads of a block; block i runs on multiprocessor i % 4 */

/* Runs the batch and ends it. Thread k has r1 = the address of bytes k * stride of mem (0 if bytes
 * is 0), and the result of program p is ret[k * n + p]. Maps and notes are those of t. Fails the
 * test if the module is refused or faults. */
void ptx_batch_run(struct ptx_batch *b, struct test_env *t, uint8_t *mem, size_t bytes,
		   size_t stride, unsigned threads, uint64_t *ret);

/* Runs a raw program as `gbpf policy exec --ptx` does. Returns 0 with *ret_r0, or -errno. */
int ptx_run_checked(const struct ebpf_insn *insns, uint32_t n, uint8_t *mem, size_t bytes,
		    uint64_t fuel, uint64_t *ret_r0);
/* The address of the memory in each such run. */
uint64_t ptx_raw_address(void);

#endif
