/* The process's part in a vGPU: its ledger, and what it has been charged for. While the process is
 * in no vGPU none of this is used: the slots of shim_real lead to the driver. Once it has joined
 * one, they lead to the functions of this folder for calls that take device memory, return it, or
 * ask how much there is. docs/MEMORY.md says what is charged, and when. */
#ifndef GBPF_SHIM_MEM_CHARGE_H
#define GBPF_SHIM_MEM_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "cuabi/types.h"
#include "mem/ledger.h"
#include "proto/wire.h"
#include "shim/part.h"

#define SHIM_MEM_UNIT (2u << 20)  /* the driver takes device memory in units of this, bytes */
#define SHIM_MEM_STEP (32u << 20) /* the same for pools and graphs, H200 */

struct ptx_pointers;

/* A kernel that is launched. */
struct shim_kernel_glance {
	bool known;    /* which memory it can access */
	bool library;  /* the handle is a CUkernel */
	uint64_t hash; /* of its name, as policies see it; 0: not known */
};

/* What the process needs of its session; called from any thread. */
struct shim_mem_session {
	/* A call was refused for lack of memory, for that reason; at most once a second. */
	void (*note)(const char *text);
	/* Sends PROTO_MEM_ASK. Returns 0, or negative without gbpfd. */
	int (*ask)(const struct proto_mem_ask *m);
	/* Returns true on the thread that must not wait. */
	bool (*is_agent)(void);
	/* shim/kernel/kernel_handle.h: shim_kernel_glance() */
	bool (*kernel_of)(const void *handle, struct shim_kernel_glance *ret,
			  struct ptx_pointers *ret_pointers);
	/* Returns the process's number as gbpfd sees it. */
	int (*pid)(void);
	/* Asks gbpfd for chunks that another process has shared; m: PROTO_IPC_OPEN, and then the
	 * answer, whose descriptors are the caller's. *sock: negative at first; a connection for
	 * the next question, the caller's. Waits until the deadline at most (clock_now_ns()).
	 * Returns 0; -ENOENT: there is no such memory; -ETIMEDOUT: there is no answer; or another
	 * -errno. */
	int (*open_ipc)(int *sock, uint64_t deadline, struct proto_ipc *m,
			int fds[PROTO_IPC_CHUNKS]);
};

/* Joins the vGPU whose account is mapped at page, as its given line; uuid: of the process's devices
 * by ordinal. Called once, before cuInit returns. Returns 0 or -EPROTO. */
int shim_mem_join(struct proto_account *page, uint32_t line, uint8_t (*uuid)[16], uint32_t gpus,
		  const struct shim_mem_session *session);
/* Returns true if the process is in a vGPU. */
bool shim_mem_joined(void);
/* Returns it once the process has joined; constant. */
const struct shim_mem_session *shim_mem_session(void);
/* Returns the account of the vGPU, NULL if the process is in none. It stays mapped. */
const struct proto_account *shim_mem_account(void);
/* With a context goes what was allocated in it until its end began: what is allocated later belongs
 * to another context, whose handle may be the same. */
extern const struct shim_part shim_mem_part;
/* Work has finished: memory that pools have returned to the device is taken off the account. Costs
 * a load unless the process uses pools in a vGPU. */
void shim_mem_settle(void);

/* ---- for the files of this folder ---- */

/* Around a change of memory: from before it is charged until the figures are right again, or from
 * before it is freed until its charge is released. A wait for memory is no part of it. _end() notes
 * the most that the process has held. */
void shim_mem_move_begin(void);
void shim_mem_move_end(void);
/* The same where the driver has answered nothing that this thread asks for: during a wait, and for
 * a free of any thread that has taken effect by now. */
void shim_mem_move_over(void);
/* Returns a value that differs before and after each change. *ret_moving: one is going on. */
uint64_t shim_mem_moves(bool *ret_moving);
/* Managed memory that is charged, which the driver does not count as the process's. */
void shim_mem_managed_add(int row, uint64_t bytes);
void shim_mem_managed_sub(int row, uint64_t bytes);
/* Memory that the driver has taken, or may take, without a charge, until it has given it back: that
 * of pools beyond the limit, and the block that it is asked for at the limit. It is not overhead.
 */
void shim_mem_excess_add(int row, uint64_t bytes);
void shim_mem_excess_sub(int row, uint64_t bytes);
/* Returns what the process is known to hold of what the driver counts as its memory, overhead
 * excepted. */
uint64_t shim_mem_held(int row);
/* The same for a time in which memory comes and goes: _held_since() returns at least what it was at
 * any moment since the mark, also of memory that came and went in between. */
struct shim_mem_mark {
	uint64_t released, managed, excess_gone;
};
void shim_mem_mark(int row, struct shim_mem_mark *ret);
uint64_t shim_mem_held_since(int row, const struct shim_mem_mark *m);
uint64_t shim_mem_overhead(int row);
/* Shows memory of other processes that this one uses. */
void shim_mem_share(int row, uint64_t bytes);
void shim_mem_unshare(int row, uint64_t bytes);
uint64_t shim_mem_shared(int row);
/* What part of what is charged to a row is of that kind (proto/account.h), or no longer is; rows of
 * the host have no kinds. Added once it is charged, taken off before it is released. */
void shim_mem_kind_add(int row, enum proto_kind kind, uint64_t bytes);
void shim_mem_kind_sub(int row, enum proto_kind kind, uint64_t bytes);
/* Shows what chunks of a row's device have on the host. */
void shim_mem_set_away(int row, uint64_t bytes);
/* The ledger, for files that write other words of the account; valid while the process is in a
 * vGPU. */
const struct mem_ledger *shim_mem_ledger(void);
/* Has gbpfd look for imports that no process is charged for. */
void shim_mem_tell_shares(int row);
/* Shows what gBPF itself has taken. */
void shim_mem_set_gbpf(int row, uint64_t bytes);
/* Changes the overhead that is charged. Returns false if it exceeds the limit: unchanged. force: it
 * is charged beyond the limit, too. The caller serializes. */
bool shim_mem_set_overhead(int row, uint64_t bytes, bool force, const char *call);

/* Returns the row of a device, or of the current context's device; negative: none, as in a process
 * without a context. */
int shim_mem_row(CUdevice device);
/* Returns the device of such a row, which is one of the process's. */
CUdevice shim_mem_device(int row);
int shim_mem_row_current(void);
/* Returns the row of pinned host memory; negative: the process is in no vGPU. */
int shim_mem_row_host(void);
/* Returns the row of swap; negative: the process is in no vGPU, or that has no swap now. If it is
 * taken back after that, the row has a limit of 0: charges are refused, releases are counted. */
int shim_mem_row_swap(void);
/* Charges bytes; if they exceed what is allowed, takes what pools can return to the device, asks
 * gbpfd for more within the limit, and waits as long as the vGPU is given. Returns true if they are
 * charged; otherwise writes a note that names the call. The caller holds no mutex, and for a device
 * it is between shim_mem_move_begin() and _end(). */
bool shim_mem_charge(int row, uint64_t bytes, const char *call);
/* The same without waiting, and without a note. */
bool shim_mem_charge_now(int row, uint64_t bytes);
/* Has gbpfd grant what the limit has, if it is not granted yet. */
void shim_mem_ask(int row, uint64_t bytes);
/* The same as shim_mem_charge_now() for memory that may lie on the host instead: waits only while
 * other vGPUs release memory. */
bool shim_mem_charge_or_host(int row, uint64_t bytes);
/* Charges bytes within what is allowed, or, with _whole(), within the limit. Returns false if they
 * exceed it. Until the change of memory ends, or they are released, they do not count for the most
 * that the process has held: the driver may still refuse them. */
bool shim_mem_try_charge(int row, uint64_t bytes);
bool shim_mem_try_charge_whole(int row, uint64_t bytes);
void shim_mem_release(int row, uint64_t bytes);
/* Charges bytes that are taken already, beyond the limit if need be. */
void shim_mem_force(int row, uint64_t bytes);
/* Changes a charge of `from` bytes to `to`, without waiting for memory: the caller holds some.
 * Returns false if that exceeds the limit: unchanged. */
bool shim_mem_recharge(int row, uint64_t from, uint64_t to, const char *call);
/* Returns the limit; UINT64_MAX, or with _limited() 0: there is none. */
uint64_t shim_mem_limit(int row);
uint64_t shim_mem_limited(int row);
uint64_t shim_mem_used(int row);
/* Returns what the vGPU may still take; with _room(), what it may take now, which is less where
 * other vGPUs have reserved memory. */
uint64_t shim_mem_left(int row);
uint64_t shim_mem_room(int row);
/* Returns the limit of swap, by which a device of that row may seem larger; 0: the vGPU has none
 * now, or the device has no limit, so that no memory leaves it. */
uint64_t shim_mem_swap_limit(int row);

/* wait.c: what follows a refusal. Returns true once the bytes are charged. wait_ns: how long it
 * waits; reclaim: other vGPUs may release memory for it. With either, the caller must hold none of
 * what it asks for, and, if the row is that of a device, be between shim_mem_move_begin() and
 * _end(). */
bool shim_mem_charge_later(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			   const struct shim_mem_session *session, uint64_t wait_ns, bool reclaim);
/* Returns true while a thread of the process waits for memory. */
bool shim_mem_waits(void);

/* A call of the program that the driver refuses although its charge fits: the device is full. Zero
 * before the first attempt. */
struct shim_mem_attempt {
	uint64_t until_ns; /* it waits until then; 0: it does not wait */
	uint32_t seq;	   /* of gbpfd's answer after which it tries; 0: none */
	bool charged;	   /* set by the caller: the charge was granted, and the driver asked */
	bool or_host; /* set by the caller: the memory may lie on the host instead of waiting */
	uint32_t reclaims; /* questions for which other vGPUs could release memory */
};

/* The attempt at bytes on a row has ended with r, and nothing is charged for it unless r is
 * CUDA_SUCCESS. Returns true if the driver shall be asked again: memory of the device was freed, or
 * may have been. Waits for that, as long as the vGPU's calls wait for memory. call: for a note,
 * which an attempt with or_host does not write; NULL there. */
bool shim_mem_again(struct shim_mem_attempt *a, int row, uint64_t bytes, CUresult r,
		    const char *call);
/* Notes that a call was refused since the device is full. */
void shim_mem_note_full(int row, uint64_t bytes, const char *call);
/* wait.c: the same after a refusal. reclaim: other vGPUs may release memory. */
bool shim_mem_wait_for_device(struct mem_ledger *l, uint32_t row, uint64_t bytes,
			      const struct shim_mem_session *session, struct shim_mem_attempt *a,
			      bool reclaim);

/* Each file's slots. */
void shim_mem_install_linear(void);
void shim_mem_install_chunks(void);
void shim_mem_install_arrays(void);
void shim_mem_install_pools(void);
void shim_mem_install_info(void);
void shim_mem_install_host(void);
void shim_mem_install_imports(void);
void shim_mem_install_graphs(void);
void shim_mem_install_overhead(uint8_t (*uuid)[16], uint32_t gpus);

/* Makes memory of cuMemCreate that is mapped in a range, and could leave the device, the driver's:
 * it does not move any more. On errors the rest of it still can. */
CUresult shim_mem_settle_range(CUdeviceptr address, size_t bytes, const char *call);

void shim_mem_linear_context_ended(CUcontext ctx, uint64_t epoch);
void shim_mem_arrays_context_ended(CUcontext ctx, uint64_t epoch);
void shim_mem_imports_context_ended(CUcontext ctx, uint64_t epoch);
/* Memory was freed that is not this process's: an imported pointer. */
void shim_mem_import_freed(CUdeviceptr address);
void shim_mem_host_context_ended(CUcontext ctx, uint64_t epoch);
void shim_mem_overhead_context_ended(CUcontext ctx);
/* Returns a new epoch, greater than all before. Called before the driver allocates. */
uint64_t shim_mem_epoch(void);
/* Allocates as cuMemAlloc, without waiting for memory, or for the device: at the limit no block is
 * tried, since cuMemFree waits for all work. On the device of the current context, which must be
 * the row's. The memory may be freed by cuMemFreeAsync. */
CUresult shim_mem_linear_try(CUdeviceptr *ret, size_t bytes, int row);
/* Releases what cuMemFreeAsync has freed meanwhile. */
void shim_mem_linear_settle(void);
/* Measures what the process's pools hold, and charges that. trim: has them return what they can. */
void shim_mem_pools_measure(bool trim);

/* Return the bytes in whole units, or steps; UINT64_MAX if that is too large. */
static inline uint64_t shim_mem_round(uint64_t bytes)
{
	return bytes > UINT64_MAX - SHIM_MEM_UNIT ? UINT64_MAX
						  : ROUND_UP(bytes, (uint64_t)SHIM_MEM_UNIT);
}

static inline uint64_t shim_mem_round_step(uint64_t bytes)
{
	return bytes > UINT64_MAX - SHIM_MEM_STEP ? UINT64_MAX
						  : ROUND_UP(bytes, (uint64_t)SHIM_MEM_STEP);
}

#endif
