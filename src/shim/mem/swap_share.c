/* Memory of cuMemAlloc that can leave the device, shared with other processes
 * (shim/mem/swap_share.h). */
#include "shim/mem/swap_share.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fd.h"
#include "shim/capture_state.h"
#include "shim/mem/charge.h"
#include "shim/mem/packs.h"
#include "shim/mem/sharing.h"
#include "shim/mem/swap_chunk.h"
#include "shim/mem/swap_int.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/work.h"
#include "shim/object/green_context.h"
#include "shim/shim.h"

#define SHARE_NS UINT64_C(1000000000)	  /* since chunks have last returned to the device */
#define SHARE_ALL_NS UINT64_C(4000000000) /* others may take the room of each that returns */
#define OPEN_NS UINT64_C(2000000000)	  /* for each answer of an opening, */
#define OPEN_ALL_NS UINT64_C(4000000000)  /* and for all of them */
#define AGAIN_NS UINT64_C(1000000)
#define OPEN_BYTES_MAX (UINT64_C(1) << 40) /* what another process says that its memory has */
#define MAGIC UINT64_C(0x9d1f43c7e05ab628) /* at random; what the driver has there is its own */

/* What a handle of gBPF's consists of. */
struct token {
	uint64_t magic;
	uint8_t key[PROTO_IPC_KEY];
	int32_t pid;	    /* of the process that has the memory, as gbpfd sees it */
	uint8_t device[16]; /* UUID */
	uint32_t offset;    /* of the allocation in a pack, bytes */
	uint8_t zero[16];
};
_Static_assert(sizeof(struct token) == sizeof(CUipcMemHandle), "a token is a handle");
_Static_assert(sizeof(((struct mem_swap_region *)0)->key) == PROTO_IPC_KEY, "keys are the same");

static const uint8_t no_key[PROTO_IPC_KEY];

bool shim_swap_is_token(const CUipcMemHandle *handle)
{
	static const uint8_t zero[sizeof(((struct token *)0)->zero)];
	struct token t;

	memcpy(&t, handle, sizeof(t));
	return t.magic == MAGIC && memcmp(t.zero, zero, sizeof(zero)) == 0;
}

/* Returns the region with that key which is the program's, or NULL. ctx: of those that are
 * imported, only the one that was opened in it. */
static struct mem_swap_region *find(const uint8_t key[PROTO_IPC_KEY], CUcontext ctx)
	REQUIRES(shim_swap_mutex)
{
	for (size_t i = 0; i < shim_swap_map.n && memcmp(key, no_key, sizeof(no_key)) != 0; i++) {
		struct mem_swap_region *r = shim_swap_map.region[i];

		if (memcmp(r->key, key, sizeof(r->key)) == 0 && !r->freed &&
		    (!r->imported || r->owner == (uint64_t)(uintptr_t)ctx)) {
			return r;
		}
	}
	return NULL;
}

/* ---- the process that has the memory ---- */

/* Returns that of a token's region: all allocations in a pack have the same. */
static struct shim_mem_identity identity_of(const struct token *t)
{
	struct token of_region = *t;

	of_region.offset = 0;
	return shim_mem_identity_of_handle(&of_region, sizeof(of_region));
}

/* Bytes of a region's chunks at a place. */
static uint64_t bytes_at(const struct mem_swap_region *r, enum mem_swap_place place)
	REQUIRES(shim_swap_mutex)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < r->n; i++) {
		bytes += r->chunk[i].place == place ? r->chunk[i].bytes : 0;
	}
	return bytes;
}

/* Makes the token of an address in a region all of which is on the device, and notes that others
 * may use the region. */
static CUresult make_token(struct mem_swap_region *r, CUdeviceptr address, CUipcMemHandle *ret)
	REQUIRES(shim_swap_mutex)
{
	struct token t = { .magic = MAGIC, .pid = shim_mem_session()->pid() };
	bool is_new = memcmp(r->key, no_key, sizeof(no_key)) == 0;

	if (!t.pid) { /* gbpfd would not find it */
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (is_new && getrandom(r->key, sizeof(r->key), 0) != (ssize_t)sizeof(r->key)) {
		memset(r->key, 0, sizeof(r->key));
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	memcpy(t.key, r->key, sizeof(t.key));
	memcpy(t.device, shim_mem_account()->uuid[r->row], sizeof(t.device));
	for (uint32_t i = 0; is_new && i < r->n; i++) {
		shim_swap_place(&r->chunk[i], MEM_SWAP_SHARED);
	}
	if (is_new) {
		r->share = shim_mem_note_export(r->row, identity_of(&t), r->reserved);
	}
	t.offset = (uint32_t)(address - r->base);
	memcpy(ret, &t, sizeof(t));
	return CUDA_SUCCESS;
}

/* Returns CUDA_ERROR_NOT_READY if a part of it is on the host. */
static CUresult share_once(CUdeviceptr base, uint64_t id, CUipcMemHandle *ret)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct mem_pack_part *part;
	struct mem_swap_region *r;

	lock_take(&shim_swap_mutex);
	r = shim_packs_find(base, id, &part);
	if (r && !(part ? part->freed : r->freed)) {
		result = bytes_at(r, MEM_SWAP_HOST) ? CUDA_ERROR_NOT_READY
						    : make_token(r, base, ret);
	}
	lock_release(&shim_swap_mutex);
	return result;
}

/* Returns why a region has not returned to the device. */
static CUresult why_away(CUdeviceptr base, uint64_t id)
{
	const struct mem_swap_region *r;
	struct mem_pack_part *part;
	uint64_t missing, movable, host;
	CUresult result = CUDA_ERROR_NOT_READY;

	lock_take(&shim_swap_mutex);
	r = shim_packs_find(base, id, &part);
	if (r && !shim_swap_context_of(r->row)) {
		result = CUDA_ERROR_NOT_SUPPORTED;
	} else if (r) {
		missing = bytes_at(r, MEM_SWAP_HOST);
		missing -= MIN(missing, shim_mem_room(r->row));
		movable = shim_swap_map.at[r->row][MEM_SWAP_DEVICE].bytes -
			  bytes_at(r, MEM_SWAP_DEVICE);
		host = shim_mem_room(PROTO_ACCOUNT_SWAP) + shim_swap_pool_bytes();
		if (missing > movable || (missing && host < SHIM_SWAP_MIN)) {
			result = CUDA_ERROR_OUT_OF_MEMORY;
		}
	}
	lock_release(&shim_swap_mutex);
	return result;
}

CUresult shim_swap_share(CUdeviceptr base, uint64_t id, CUipcMemHandle *ret)
{
	uint64_t begin = clock_now_ns(), until = begin + clock_patience(SHARE_NS);
	uint64_t end = begin + clock_patience(SHARE_ALL_NS);
	CUresult r;

	while ((r = share_once(base, id, ret)) == CUDA_ERROR_NOT_READY) {
		if (clock_now_ns() >= until) {
			return why_away(base, id);
		}
		if (shim_swap_fetch_region(base, id)) {
			until = MIN(clock_now_ns() + clock_patience(SHARE_NS), end);
		} else {
			clock_sleep_ns(AGAIN_NS);
		}
	}
	return r;
}

void shim_swap_give(struct proto_ipc *m, int fds[PROTO_IPC_CHUNKS])
{
	const struct mem_swap_region *r;
	CUresult result = CUDA_SUCCESS;

	m->n = 0;
	m->error = ENOENT;
	if (!shim_swap_is_on()) {
		return;
	}
	lock_take(&shim_swap_mutex);
	r = find(m->key, NULL);
	if (r && m->first < r->n) {
		m->error = 0;
		m->bytes = r->bytes;
		while (result == CUDA_SUCCESS && m->n < PROTO_IPC_CHUNKS &&
		       m->first + m->n < r->n) {
			result = shim_work_driver.cuMemExportToShareableHandle(
				&fds[m->n], r->chunk[m->first + m->n].handle,
				CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
			m->n += result == CUDA_SUCCESS;
		}
	}
	lock_release(&shim_swap_mutex);
	if (result != CUDA_SUCCESS) {
		while (m->n) {
			fd_close(fds[--m->n]);
		}
		m->error = EIO;
	}
}

/* ---- the process that opens it ---- */

/* What is being opened. */
struct opening {
	struct token token;
	CUcontext ctx;
	int row;
	CUdevice device;
	int sock; /* owned; negative: none yet */
	struct mem_swap_region *region;
	uint32_t n; /* chunks that it has */
};

/* Returns whether the token, which is not trusted, names an address that can be open in a region:
 * its base, or where an allocation in a pack can begin. */
static bool is_within(const struct opening *o, const struct mem_swap_region *r)
{
	uint32_t offset = o->token.offset;

	return !offset || (r->opened && offset < r->bytes && offset % MEM_PACK_GRAIN == 0);
}

/* Adds a use of what the token names in an imported region. Returns its address. */
static CUdeviceptr use(const struct opening *o, struct mem_swap_region *r) REQUIRES(shim_swap_mutex)
{
	r->opens++;
	if (r->opened) {
		r->opened[o->token.offset / MEM_PACK_GRAIN]++;
	}
	return r->base + o->token.offset;
}

/* Answers for memory that this process has already. Returns false if it has none. */
static bool is_known(const struct opening *o, CUresult *ret_result, CUdeviceptr *ret)
	REQUIRES(shim_swap_mutex)
{
	struct mem_swap_region *r = find(o->token.key, o->ctx);

	if (!r) {
		return false;
	}
	*ret_result = !r->imported	? CUDA_ERROR_INVALID_CONTEXT
		      : is_within(o, r) ? CUDA_SUCCESS
					: CUDA_ERROR_INVALID_VALUE;
	if (*ret_result == CUDA_SUCCESS) {
		*ret = use(o, r);
	}
	return true;
}

static CUresult result_of(int err)
{
	switch (err) {
	case -ENOENT:
		return CUDA_ERROR_INVALID_VALUE;
	case -ETIMEDOUT:
		return CUDA_ERROR_NOT_READY;
	default:
		return CUDA_ERROR_MAP_FAILED;
	}
}

/* Makes the region of memory of that many bytes. */
static CUresult make_region(struct opening *o, uint64_t bytes)
{
	bool is_pack = bytes == MEM_PACK_BYTES; /* or may be one */
	struct mem_swap_region *r = shim_swap_region_create(bytes, o->row);

	o->region = r;
	if (r && is_pack) {
		r->opened = calloc(MEM_PACK_GRAINS, sizeof(*r->opened));
	}
	if (!r || (is_pack && !r->opened)) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return is_within(o, r) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Makes handles of the chunks that were given. The other process is not trusted to have given the
 * memory that it describes: a smaller chunk cannot be mapped. */
static CUresult take(struct opening *o, const struct proto_ipc *m, const int *fds)
{
	CUresult result = CUDA_SUCCESS;

	if (!o->region && m->bytes && m->bytes <= OPEN_BYTES_MAX) {
		result = make_region(o, m->bytes);
		if (result != CUDA_SUCCESS) {
			return result;
		}
	}
	if (!o->region || m->bytes != o->region->bytes || m->first != o->n ||
	    m->n != MIN(o->region->n - o->n, PROTO_IPC_CHUNKS)) {
		return CUDA_ERROR_MAP_FAILED;
	}
	for (uint32_t i = 0; i < m->n && result == CUDA_SUCCESS; i++) {
		CUmemGenericAllocationHandle handle;

		result = shim_work_driver.cuMemImportFromShareableHandle(
			&handle, (void *)(intptr_t)fds[i],
			CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
		if (result == CUDA_SUCCESS) {
			o->region->chunk[o->n++].handle = handle;
		}
	}
	return result;
}

static CUresult fetch(struct opening *o)
{
	uint64_t end = clock_now_ns() + clock_patience(OPEN_ALL_NS);
	CUresult result;

	do {
		uint64_t deadline = MIN(clock_now_ns() + clock_patience(OPEN_NS), end);
		struct proto_ipc m = { .pid = o->token.pid, .first = o->n };
		int fds[PROTO_IPC_CHUNKS], err;

		memcpy(m.key, o->token.key, sizeof(m.key));
		err = shim_mem_session()->open_ipc(&o->sock, deadline, &m, fds);
		if (err) {
			return result_of(err);
		}
		result = take(o, &m, fds);
		while (m.n) {
			fd_close_foreign(fds[--m.n]);
		}
	} while (result == CUDA_SUCCESS && o->n < o->region->n);
	return result;
}

/* Maps it, unless another thread has opened it meanwhile. */
static CUresult map(struct opening *o, CUdeviceptr *ret)
{
	struct mem_swap_region *r = o->region;
	CUresult result;

	lock_take(&shim_swap_mutex);
	if (!is_known(o, &result, ret)) {
		r->imported = true;
		r->device = o->device;
		r->id = shim_swap_new_id();
		memcpy(r->key, o->token.key, sizeof(r->key));
		result = shim_swap_place_region(r);
		if (result == CUDA_SUCCESS) {
			shim_mem_import_opened(r->base, r->bytes, identity_of(&o->token));
			*ret = use(o, r);
			o->region = NULL;
		}
	}
	lock_release(&shim_swap_mutex);
	return result;
}

/* A process whose own memory cannot leave the device makes none of these calls before. */
static void prepare(void) REQUIRES(shim_swap_mutex)
{
	static bool prepared GUARDED_BY(shim_swap_mutex);

	if (!prepared && !shim_swap_is_on()) {
		shim_work_prepare();
	}
	prepared = true;
}

/* Opens it in the current context. */
static CUresult open_here(struct opening *o, CUdeviceptr *ret)
{
	CUresult result;
	bool known;

	lock_take(&shim_swap_mutex);
	prepare();
	known = is_known(o, &result, ret);
	lock_release(&shim_swap_mutex);
	if (known) {
		return result;
	}
	result = fetch(o);
	fd_close_peer(o->sock);
	if (result == CUDA_SUCCESS) {
		result = map(o, ret);
	}
	if (o->region) {
		o->region->imported = true; /* its memory is not charged here */
		shim_swap_discard(o->region);
	}
	return result;
}

CUresult shim_swap_open(CUdeviceptr *ret, const CUipcMemHandle *handle, unsigned flags)
{
	struct opening o = { .sock = -1 };
	CUstreamCaptureMode mode;
	CUresult result;
	int cancel;

	memcpy(&o.token, handle, sizeof(o.token));
	if (!ret || (flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!shim_swap_is_possible()) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	result = shim_driver.cuCtxGetDevice(&o.device);
	if (result != CUDA_SUCCESS) {
		return result;
	}
	(void)shim_driver.cuCtxGetCurrent(&o.ctx);
	o.ctx = shim_green_base(o.ctx);
	o.row = shim_mem_row(o.device);
	if (o.row < 0) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	if (memcmp(o.token.device, shim_mem_account()->uuid[o.row], sizeof(o.token.device)) != 0) {
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	}
	shim_swap_settle(); /* what was closed during a capture */
	(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	mode = shim_capture_exempt();
	result = open_here(&o, ret);
	shim_capture_restore(mode);
	(void)pthread_setcancelstate(cancel, NULL);
	return result;
}
