/* Test engine for PTX execution: a memory window, and launches that run to completion. */
#ifndef GBPF_TESTS_EXEC_ENGINE_H
#define GBPF_TESTS_EXEC_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/server/exec/exec.h"

#define ENGINE_BASE UINT64_C(0x700000000000)
#define ENGINE_BYTES ((size_t)24 << 20)

struct engine {
	struct exec_space space;
	uint8_t *host;
	uint8_t pages[ENGINE_BYTES / EXEC_PAGE_BYTES];
	size_t used;
	struct exec_module *module;
	struct exec_fault fault;
	uint64_t operations; /* operations of the last launch */
	size_t n_printed;    /* bytes that kernels have printed */
	char printed[8192];
	uint64_t heap, heap_end; /* range for malloc() in kernels */
};

void engine_init(struct engine *e);
void engine_finish(struct engine *e);
/* Loads and binds a module. Returns 0 or the error, with its text in message. */
int engine_load(struct engine *e, const char *ptx, size_t len, const char *name, char *message,
		size_t room);
/* Allocates in the window, followed by an unreadable page; *ret_address: device address. */
void *engine_take(struct engine *e, size_t bytes, uint64_t *ret_address);

/* Fills in the host services that engine_run gives kernels: printing and a heap. */
void engine_host(struct engine *e, struct exec_host *ret);

struct engine_launch {
	const char *kernel; /* NULL: the first kernel */
	uint32_t grid[3], block[3];
	uint32_t shared;
	const void *params;
	const struct exec_host *host; /* NULL: those of engine_host */
	uint64_t budget;	      /* budget of each exec_block_run; 0: unlimited */
	uint64_t limit;		      /* operations after which a launch counts as hanging */
};
enum exec_status engine_run(struct engine *e, const struct engine_launch *l);

#endif
