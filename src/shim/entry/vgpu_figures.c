/* The vGPU's figures for gBPF's NVML in this process (proto/vgpu_view.h): from the account that the
 * process has joined, or, before it has initialized CUDA, from one that gbpfd shows it. */
#include "proto/vgpu_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/account_figures.h"
#include "shim/mem/charge.h"
#include "shim/mem/swap_pool.h"
#include "shim/session/session_look.h"
#include "shim/shim.h"

EXPORT proto_vgpu_view_fn gbpf_shim_vgpu_view;

/* Adds a process's memory; it may have several lines for a moment, while it is replaced by exec. */
static void add_process(struct proto_vgpu_view *v, int32_t pid, uint64_t used)
{
	uint32_t i = 0;

	while (i < v->n && v->process[i].pid != pid) {
		i++;
	}
	if (i == v->n) {
		v->process[v->n++] = (struct proto_vgpu_process){ .pid = pid };
	}
	v->process[i].used += used;
}

/* Fills in what is in use and left of a device, as cuMemGetInfo has it. */
static void fill_use(struct proto_vgpu_view *v, const struct proto_account *page, uint32_t row)
{
	uint64_t pool = page == shim_mem_account() ? shim_swap_pool_bytes() : 0, away;

	v->limit = mem_account_limit(page, row);
	v->used = mem_account_used(page, row);
	v->left = mem_account_left(page, row);
	if (v->limit == UINT64_MAX) {
		return; /* no memory leaves the device */
	}
	if (mem_account_shows_mem(page)) {
		away = mem_account_away(page, row);
		v->used = MIN(v->used, v->limit);
		v->used += min_once(away, v->limit - v->used);
		v->left -= MIN(away, v->left);
	} else {
		v->swap = mem_account_limit(page, PROTO_ACCOUNT_SWAP);
		v->swap_left = min_once(v->swap, mem_account_left(page, PROTO_ACCOUNT_SWAP) + pool);
	}
}

/* Fills in the figures of a device; one that no process of the vGPU has seen has only the limits:
 * of the device, and of swap if that is shown. */
static void fill(struct proto_vgpu_view *v, const struct proto_account *page,
		 const uint8_t uuid[16], uint64_t limit, uint64_t swap)
{
	int row = page && mem_account_valid(page) ? mem_account_row(page, uuid) : -ENOENT;

	memset(v, 0, sizeof(*v));
	if (row < 0) {
		v->limit = v->left = limit ? limit : UINT64_MAX;
		v->swap = v->swap_left = limit ? swap : 0;
		return;
	}
	fill_use(v, page, (uint32_t)row);
	for (uint32_t line = 0; line < PROTO_ACCOUNT_LINES; line++) {
		int32_t pid;
		uint64_t used = mem_account_line(page, (uint32_t)row, line, &pid);

		if (pid > 0) {
			add_process(v, pid, used);
		}
	}
}

int gbpf_shim_vgpu_view(const uint8_t uuid[16], uint32_t device, size_t bytes,
			struct proto_vgpu_view *ret)
{
	const struct proto_account *own = shim_mem_account();
	const char *off = getenv("GBPF_OFF");
	struct shim_look look;
	int err;

	if (bytes != sizeof(*ret)) {
		return -EPROTO;
	}
	if (off && strcmp(off, "1") == 0) {
		return -ENOENT;
	}
	err = own ? shim_session_look_limit(&look) : shim_session_look(&look);
	if (err && !own) { /* the environment may have changed since the process has joined */
		return err;
	}
	if (own) {
		shim_mem_settle(); /* as cuMemGetInfo does */
	}
	fill(ret, own ? own : look.page, uuid, look.limit[MIN(device, PROTO_MAX_GPUS - 1u)],
	     look.swap);
	shim_look_finish(&look);
	return 0;
}
