/* PTX execution for the soft GPU: modules are decoded once; a launch is run block by block, so that
 * the device's scheduler can interleave launches and stop a block between any two instructions.
 * Knows no sockets, streams or contexts. */
#ifndef GBPF_SOFT_SERVER_EXEC_EXEC_H
#define GBPF_SOFT_SERVER_EXEC_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

/* Device memory of one context as kernels see it: a window of virtual addresses backed by host
 * memory of the server. An access is valid when every byte lies in the window and in a page whose
 * byte in pages[] is not 0 (bit 0 readable, bit 1 writable). The device address of window byte i is
 * base + i. Host memory at host + i is mapped for valid pages. */
#define EXEC_PAGE_BYTES 4096u
struct exec_space {
	uint64_t base;
	uint64_t bytes;
	uint8_t *host;
	const uint8_t *pages; /* bytes / EXEC_PAGE_BYTES entries */
	uint8_t *shadow; /* while checking: EXEC_SHADOW_* of each byte of the window; else NULL */
};
/* What memory that nothing has written is filled with then: a NaN in every float, -1 in every
 * integer. */
#define EXEC_POISON 0xff
enum { EXEC_SHADOW_ALLOCATED = 1, EXEC_SHADOW_INITIALIZED = 2, EXEC_SHADOW_FREED = 4 };

struct exec_module;
struct exec_function;

struct exec_param {
	uint32_t offset; /* in the parameter block */
	uint32_t bytes;
};

struct exec_function_info {
	const char *name; /* borrowed */
	uint32_t n_params;
	const struct exec_param *params; /* borrowed */
	uint32_t param_bytes;
	uint32_t shared_bytes; /* static */
	uint32_t local_bytes;  /* per thread */
	uint32_t const_bytes;
	uint32_t registers; /* virtual registers of one thread in 32-bit words, reported as register
			       count (capped 255) */
	uint32_t max_threads; /* 1024, or the kernel's .maxntid */
};

/* Parses and decodes PTX text (need not be zero-terminated). 0; -EINVAL with place "NAME:LINE" and
 * the instruction's name when something is unknown or not supported; -ENOMEM. name is for messages.
 */
int exec_module_load(struct exec_module **ret, const char *ptx, size_t bytes, const char *name,
		     struct report *r);
void exec_module_unref(struct exec_module *m); /* NULL allowed; launches hold references */
struct exec_module *exec_module_ref(struct exec_module *m);

/* Of the host's memory that its decoded kernels take. */
size_t exec_module_code_bytes(const struct exec_module *m);

/* Module-scope .global and .const variables live in device memory: the caller allocates that many
 * bytes at the beginning of a page, and binds; bind writes initial values through host (where
 * the window's bytes of that address lie). */
size_t exec_module_global_bytes(const struct exec_module *m);
void exec_module_bind(struct exec_module *m, uint64_t device_address, void *host);
/* Address and size of a named global; -ENOENT. */
int exec_module_global(const struct exec_module *m, const char *name, uint64_t *ret_address,
		       uint64_t *ret_bytes);

/* Whether that variable, or with NULL any, is .managed: programs use it at its device address. */
bool exec_module_managed(const struct exec_module *m, const char *name);

const struct exec_function *exec_module_function(const struct exec_module *m,
						 const char *name); /* or NULL */
unsigned exec_module_functions(const struct exec_module *m);
const struct exec_function *exec_module_function_at(const struct exec_module *m,
						    unsigned i); /* entries only */
const struct exec_function_info *exec_function_info(const struct exec_function *f);

/* What checking finds. Texts are borrowed for the call. */
enum exec_finding_kind {
	EXEC_FINDING_BOUNDS, /* outside any allocation, or the block's shared memory */
	EXEC_FINDING_FREED,  /* in memory that was freed */
	EXEC_FINDING_UNINITIALIZED,
	EXEC_FINDING_RACE, /* shared memory: another warp's access since the last barrier */
};

struct exec_finding {
	enum exec_finding_kind kind;
	const char *kernel, *module;
	const char *space; /* "device" or "shared" */
	uint64_t address;  /* in shared memory: an offset */
	uint32_t bytes;
	uint32_t distance; /* bytes behind the end of an allocation, 0: none is near */
	uint32_t line;	   /* of the PTX */
	uint32_t block[3], thread;
	bool write;
	uint32_t other_line, other_thread; /* of a race */
	bool other_writes;
};

/* From now on modules are decoded with checks; before the first one is loaded. Kernels take about
 * ten times as long. */
void exec_check_enable(bool on);
bool exec_checking(void);

/* What kernels ask of the world outside; called from any worker, without the device's lock. */
struct exec_host {
	void (*print)(void *arg, const char *text, size_t n);	 /* formatted output of vprintf */
	void (*complain)(void *arg, const char *text, size_t n); /* a failed assertion */
	/* The heap of malloc: a device address or 0; -ENOENT for what it has not given. */
	uint64_t (*allocate)(void *arg, uint64_t bytes);
	int (*release)(void *arg, uint64_t address);
	void (*finding)(void *arg, const struct exec_finding *f); /* only while checking */
	void *arg;
};

struct exec_launch {
	const struct exec_function *function;
	uint32_t grid[3], block[3];
	uint32_t dynamic_shared_bytes;
	const void *params; /* param_bytes, borrowed until the launch has ended */
	const struct exec_space *space;
	uint32_t sm_count;  /* for %nsmid */
	uint32_t clock_khz; /* of %clock; 0: as fast as nanoseconds */
	uint64_t grid_id;
	uint64_t grid_workspace; /* of a cooperative launch: device address of its grid barrier,
				    which %envreg1 and %envreg2 tell; 0: none */
	const struct exec_host *host; /* borrowed; NULL: what programs print is dropped */
};

enum exec_status {
	EXEC_DONE,	    /* the block has ended */
	EXEC_BUDGET,	    /* the budget is used up; call run again */
	EXEC_FAULT_ADDRESS, /* access outside valid memory */
	EXEC_FAULT_ALIGN,
	EXEC_FAULT_TRAP, /* trap, or a barrier that can never be passed */
	EXEC_FAULT_INSN, /* reached something that cannot be executed */
	EXEC_FAULT_ASSERT,
	EXEC_NO_MEMORY,
};

struct exec_fault {
	uint64_t address;
	uint32_t line;	   /* of the PTX */
	uint32_t block[3]; /* of the grid */
	uint32_t thread;   /* linear in the block */
	const char *what;  /* static text */
};

struct exec_block;

/* A resident block: registers, shared and local memory. NULL: no memory. smid for %smid. Blocks are
 * reusable for further block indices of the same launch by exec_block_reset. */
uint64_t exec_block_bytes(const struct exec_launch *l); /* of memory that such a block takes */
struct exec_block *exec_block_create(const struct exec_launch *l);
void exec_block_destroy(struct exec_block *b);
void exec_block_reset(struct exec_block *b, uint64_t block_index, uint32_t smid);

/* Runs warps of the block for about budget warp instructions. State is kept between calls. Several
 * blocks may run on several threads at once (atomics in global memory are real atomics). *ret_used:
 * warp instructions executed. */
enum exec_status exec_block_run(struct exec_block *b, uint64_t budget, uint64_t *ret_used,
				struct exec_fault *ret_fault);
/* Lane instructions of the last call of exec_block_run: warp instructions times the lanes that
 * stood at them. */
uint64_t exec_block_lanes(const struct exec_block *b);

#endif
