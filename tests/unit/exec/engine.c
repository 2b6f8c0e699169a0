/* Test engine: a memory window, and launches that run to completion. */
#include "engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"

static void collect(void *arg, const char *text, size_t n)
{
	struct engine *e = arg;

	n = MIN(n, sizeof(e->printed) - 1 - e->n_printed);
	memcpy(e->printed + e->n_printed, text, n);
	e->n_printed += n;
}

/* A heap that only grows; released addresses are not checked. */
static uint64_t heap_take(void *arg, uint64_t bytes)
{
	struct engine *e = arg;
	uint64_t at = e->heap;

	if (at == 0) {
		engine_take(e, 65536, &at);
		e->heap_end = at + 65536;
	}
	if (bytes > e->heap_end - at) {
		return 0;
	}
	e->heap = at + ROUND_UP(bytes, (uint64_t)16);
	return at;
}

static int heap_give(void *arg, uint64_t address)
{
	const struct engine *e = arg;

	return address % 16 == 0 && address < e->heap ? 0 : -ENOENT;
}

void engine_init(struct engine *e)
{
	*e = (struct engine){ 0 };
	e->host = mmap(NULL, ENGINE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (e->host == MAP_FAILED) {
		abort();
	}
	e->space = (struct exec_space){
		.base = ENGINE_BASE, .bytes = ENGINE_BYTES, .host = e->host, .pages = e->pages
	};
	e->used = EXEC_PAGE_BYTES;
}

void engine_finish(struct engine *e)
{
	exec_module_unref(e->module);
	munmap(e->host, ENGINE_BYTES);
}

void *engine_take(struct engine *e, size_t bytes, uint64_t *ret_address)
{
	size_t room = ROUND_UP(bytes, (size_t)EXEC_PAGE_BYTES), at = e->used;

	if (at + room + EXEC_PAGE_BYTES > ENGINE_BYTES) {
		abort();
	}
	memset(e->pages + at / EXEC_PAGE_BYTES, 3, room / EXEC_PAGE_BYTES);
	e->used = at + room + EXEC_PAGE_BYTES;
	*ret_address = e->space.base + at;
	return e->host + at;
}

int engine_load(struct engine *e, const char *ptx, size_t len, const char *name, char *message,
		size_t room)
{
	struct report r;
	uint64_t address;
	void *host;
	int err;

	report_init(&r);
	err = exec_module_load(&e->module, ptx, len, name, &r);
	if (err < 0) {
		snprintf(message, room, "%s: %s", buf_text(&r.place), buf_text(&r.message));
	} else {
		host = engine_take(e, exec_module_global_bytes(e->module) + 1, &address);
		exec_module_bind(e->module, address, host);
	}
	report_finish(&r);
	return err;
}

void engine_host(struct engine *e, struct exec_host *ret)
{
	*ret = (struct exec_host){ .print = collect,
				   .complain = collect,
				   .allocate = heap_take,
				   .release = heap_give,
				   .arg = e };
}

enum exec_status engine_run(struct engine *e, const struct engine_launch *l)
{
	struct exec_host host;
	struct exec_launch launch = { .dynamic_shared_bytes = l->shared,
				      .params = l->params,
				      .space = &e->space,
				      .sm_count = 4,
				      .grid_id = 7,
				      .grid_workspace = UINT64_C(0x1234567890),
				      .host = l->host ? l->host : &host };
	uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2], used;
	enum exec_status s = EXEC_DONE;
	struct exec_block *b;

	engine_host(e, &host);
	launch.function = l->kernel ? exec_module_function(e->module, l->kernel)
				    : exec_module_function_at(e->module, 0);
	memcpy(launch.grid, l->grid, sizeof(launch.grid));
	memcpy(launch.block, l->block, sizeof(launch.block));
	e->operations = 0;
	b = launch.function ? exec_block_create(&launch) : NULL;
	if (!b) {
		return EXEC_NO_MEMORY;
	}
	for (uint64_t i = 0; i < blocks && s == EXEC_DONE; i++) {
		exec_block_reset(b, i, (uint32_t)(i % 4));
		do {
			s = exec_block_run(b, l->budget ? l->budget : UINT64_MAX, &used, &e->fault);
			e->operations += used;
		} while (s == EXEC_BUDGET && (!l->limit || e->operations < l->limit));
	}
	exec_block_destroy(b);
	return s;
}
