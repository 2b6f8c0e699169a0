/* PTX execution for the soft GPU. A module is decoded once; a launch runs block by block, so that
 * the scheduler can interleave launches and suspend a block between any two instructions. Knows no
 * sockets, streams or contexts. */
#ifndef GBPF_SOFT_SERVER_EXEC_EXEC_H
#define GBPF_SOFT_SERVER_EXEC_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

/* Device memory of one context as kernels see it: a window of device addresses backed by host
 * memory of the server. Byte i of the window has device address base + i and host address host + i.
 * An access is valid if every byte lies in the window and in a page whose entry in pages[] allows
 * it (bit 0 readable, bit 1 writable). Host memory is mapped for all valid pages. Bit 2 marks
 * memory of the host, which a GPU reaches over its link. */
#define EXEC_PAGE_BYTES 4096u
#define EXEC_PAGE_LINK 4u
struct exec_space {
	uint64_t base;
	uint64_t bytes;
	uint8_t *host;
	const uint8_t *pages; /* bytes / EXEC_PAGE_BYTES entries */
	uint8_t *shadow;      /* EXEC_SHADOW_* of each byte of the window; NULL unless checking */
};
/* Fills fresh memory while checking: NaN in every float, -1 in every integer. */
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
	uint32_t registers;   /* 32-bit words of virtual registers per thread, reported as register
				 count (max 255) */
	uint32_t max_threads; /* 1024, or the kernel's .maxntid */
};

/* Parses and decodes PTX text (need not be zero-terminated). Returns 0; -EINVAL for an unknown or
 * unsupported instruction, with place "NAME:LINE" and its name in the report; or -ENOMEM. name
 * appears in messages. */
int exec_module_load(struct exec_module **ret, const char *ptx, size_t bytes, const char *name,
		     struct report *r);
void exec_module_unref(struct exec_module *m); /* NULL allowed; launches hold references */
struct exec_module *exec_module_ref(struct exec_module *m);

/* Returns the host memory that the decoded kernels take. */
size_t exec_module_code_bytes(const struct exec_module *m);

/* Module-scope .global and .const variables live in device memory. The caller allocates
 * exec_module_global_bytes() at a page boundary and binds the module to it; bind writes the initial
 * values through host, the server's mapping of device_address. */
size_t exec_module_global_bytes(const struct exec_module *m);
void exec_module_bind(struct exec_module *m, uint64_t device_address, void *host);
/* Returns address and size of a named global, or -ENOENT. */
int exec_module_global(const struct exec_module *m, const char *name, uint64_t *ret_address,
		       uint64_t *ret_bytes);

/* Returns true if the variable (NULL: any variable) is .managed: programs use it at its device
 * address. */
bool exec_module_managed(const struct exec_module *m, const char *name);

/* Returns true if the variable has this opaque type, ".texref" or ".surfref": it holds the handle
 * of an object. */
bool exec_module_reference(const struct exec_module *m, const char *name, const char *type);

const struct exec_function *exec_module_function(const struct exec_module *m,
						 const char *name); /* or NULL */
unsigned exec_module_functions(const struct exec_module *m);
const struct exec_function *exec_module_function_at(const struct exec_module *m,
						    unsigned i); /* entries only */
const struct exec_function_info *exec_function_info(const struct exec_function *f);

/* Findings of --check. Texts are borrowed for the call. */
enum exec_finding_kind {
	EXEC_FINDING_BOUNDS, /* outside any allocation, or the block's shared memory */
	EXEC_FINDING_FREED,  /* in memory that was freed */
	EXEC_FINDING_UNINITIALIZED,
	EXEC_FINDING_RACE, /* shared memory: conflicting access of another warp since the last
			      barrier */
};

struct exec_finding {
	enum exec_finding_kind kind;
	const char *kernel, *module;
	const char *space; /* "device" or "shared" */
	uint64_t address;  /* in shared memory: an offset */
	uint32_t bytes;
	uint32_t
		distance; /* bytes past the end of the nearest allocation plus 1; 0: none is near */
	uint32_t line;	  /* of the PTX */
	uint32_t block[3], thread;
	bool write;
	uint32_t other_line, other_thread; /* the conflicting access of a race */
	bool other_writes;
	const char *program; /* that was inserted and makes the access; NULL: the kernel does */
	uint32_t insn;	     /* of the program; UINT32_MAX: not known */
};

/* Makes modules be decoded with checks. Call before the first module is loaded. Kernels then take
 * about ten times as long. */
void exec_check_enable(bool on);
bool exec_checking(void);

/* The directions of the link: to the GPU, and from it. */
enum exec_link_way { EXEC_LINK_UP, EXEC_LINK_DOWN, EXEC_LINK_WAYS };

/* Makes modules be decoded so that accesses to host memory are counted. Call before the first
 * module is loaded. Without it nothing is emitted for them. */
void exec_link_enable(bool on);
bool exec_link_counted(void);

/* Services for kernels, called from any worker without the machine's lock. */
struct exec_host {
	void (*print)(void *arg, const char *text, size_t n);	 /* formatted output of vprintf */
	void (*complain)(void *arg, const char *text, size_t n); /* text of a failed assertion */
	/* The heap of malloc(): returns a device address, or 0 if it is full. release returns
	 * -ENOENT for an address that is not allocated. */
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
	uint32_t clock_khz; /* rate of %clock; 0: 1 GHz */
	uint64_t grid_id;
	uint64_t ring_end; /* where its record ends in the ring: textures that were destroyed before
			      are no longer valid */
	uint64_t grid_workspace; /* cooperative launch: device address of the grid barrier, read
				    through %envreg1 and %envreg2; 0: none */
	const struct exec_host *host; /* borrowed; NULL: output of kernels is dropped */
};

enum exec_status {
	EXEC_DONE,	    /* the block has ended */
	EXEC_BUDGET,	    /* the budget is used up; call exec_block_run again */
	EXEC_FAULT_ADDRESS, /* access outside valid memory */
	EXEC_FAULT_ALIGN,
	EXEC_FAULT_TRAP, /* trap, or a barrier that can never complete */
	EXEC_FAULT_INSN, /* an instruction that cannot be executed */
	EXEC_FAULT_ASSERT,
	EXEC_NO_MEMORY,
};

struct exec_fault {
	uint64_t address;
	uint32_t line;	     /* of the PTX */
	uint32_t block[3];   /* of the grid */
	uint32_t thread;     /* linear in the block */
	const char *what;    /* static text */
	const char *program; /* that was inserted and has the fault, until the module ends; NULL:
				the kernel has it */
	uint32_t insn;	     /* of the program; UINT32_MAX: not known */
};

/* Writes ", program NAME, instruction N" to out, or "" if program is NULL. */
void exec_program_text(char *out, size_t room, const char *program, uint32_t insn);

struct exec_block;

/* A resident block: registers, shared and local memory. create returns NULL without memory. reset
 * prepares the block for another block index of the same launch; smid is the value of %smid. */
uint64_t exec_block_bytes(const struct exec_launch *l); /* host memory of one such block */
struct exec_block *exec_block_create(const struct exec_launch *l);
void exec_block_destroy(struct exec_block *b);
void exec_block_reset(struct exec_block *b, uint64_t block_index, uint32_t smid);
/* Gives each warp the next of the bits that are set as the value of %warpid. Without it that is the
 * warp's number. */
void exec_block_place_warps(struct exec_block *b, uint64_t slots);

/* Runs warps of the block for about budget warp instructions; state is kept between calls. Blocks
 * may run concurrently on several threads: atomics in global memory are host atomics. *ret_used:
 * warp instructions executed. */
enum exec_status exec_block_run(struct exec_block *b, uint64_t budget, uint64_t *ret_used,
				struct exec_fault *ret_fault);
/* Lane instructions of the last exec_block_run: the sum of active lanes over its warp instructions.
 */
uint64_t exec_block_lanes(const struct exec_block *b);
/* Bytes of host memory that the last exec_block_run moved in one direction; 0 unless counted. */
uint64_t exec_block_link_bytes(const struct exec_block *b, enum exec_link_way way);

#endif
