/* A tool's memory, one block for each context: the environment that its programs read, its maps of
 * the GPU with the layout of the region that gbpfd sees, whose first ones they are, and a copy of
 * its constants. Maps with GBPF_F_HOST, the last ones of the region, are in pinned host memory
 * (probe_pinned.c). Those between are the process's own. Draining copies the maps to the region;
 * the values of several contexts are added, word by word, in hash tables key by key. Kernels that
 * run meanwhile may change a map while it is copied, as with every read of a map. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/run/map/map_bucket.h"
#include "bpf/run/ptx_env.h"
#include "gpu/own_memory.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define CONTROL_PAGES (SHIM_PROBE_ROWS / EBPF_PTX_CONTROL_ROWS)
#define CONTROL_BYTES ((size_t)CONTROL_PAGES * EBPF_PTX_CONTROL_BYTES)

_Static_assert(SHIM_PROBE_ROWS % EBPF_PTX_CONTROL_ROWS == 0, "rows are written by pages");
_Static_assert((EBPF_PTX_CONTROL_AT | EBPF_PTX_CONTROL_BYTES) % 4096 == 0, "maps begin a page");

/* Memory of a tool that has ended, in a context that was busy since. */
struct unused {
	struct unused *next;
	struct shim_probe_block block;
	uint64_t seen; /* round of the probe thread */
};

static struct unused *unused GUARDED_BY(shim_probe_build_mutex); /* owned */

/* Contexts with memory of tools are at most as many. */
static struct {
	CUcontext ctx; /* NULL: free */
	CUstream stream;
} streams[SHIM_PROBE_CONTEXTS_MAX] GUARDED_BY(shim_probe_build_mutex);

static bool is_device(const struct ebpf_map *m)
{
	return m->flags & (uint32_t)GBPF_F_DEVICE;
}

/* Where maps are. */
enum place { ON_GPU, IN_HOST };

/* A WARP_SCRATCH is in neither and has no bytes. */
static bool is_in(const struct ebpf_map *m, enum place place)
{
	return is_device(m) && m->bytes &&
	       (m->flags & (uint32_t)GBPF_F_HOST ? IN_HOST : ON_GPU) == place;
}

static bool has_maps(const struct shim_probe_tool *t, enum place place)
{
	uint32_t i = 0;

	while (i < t->p.env.n_maps && !is_in(&t->p.env.maps[i], place)) {
		i++;
	}
	return i < t->p.env.n_maps;
}

/* Bytes at the beginning of the region that blocks have a copy of. */
static size_t gpu_bytes(const struct shim_probe_tool *t)
{
	return ebpf_maps_gpu_bytes(t->p.env.maps, t->p.env.n_maps);
}

/* Offset in the region of the maps in host memory. */
static size_t host_at(const struct shim_probe_tool *t)
{
	return ebpf_maps_host_at(t->p.env.maps, t->p.env.n_maps,
				 t->p.region_bytes[EBPF_REGION_TENANT]);
}

static size_t host_bytes(const struct shim_probe_tool *t)
{
	return t->p.region_bytes[EBPF_REGION_TENANT] - host_at(t);
}

/* The environment and, of a tool that can be set, its control words. */
static size_t env_bytes(const struct shim_probe_tool *t)
{
	return EBPF_PTX_CONTROL_AT + (t->settable ? CONTROL_BYTES : 0);
}

/* Offset of the copy of the constants. */
static size_t constants_at(const struct shim_probe_tool *t)
{
	return env_bytes(t) + gpu_bytes(t);
}

static size_t block_bytes(const struct shim_probe_tool *t)
{
	return constants_at(t) + t->p.region_bytes[EBPF_REGION_GLOBAL];
}

/* Returns the context's stream for copies, which is made once: a driver takes device memory for a
 * stream. NULL: there is none. */
static CUstream stream_of(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	for (unsigned i = 0; ctx && i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (streams[i].ctx == ctx) {
			return streams[i].stream;
		}
	}
	for (unsigned i = 0; ctx && i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (!streams[i].ctx &&
		    shim_driver.cuStreamCreate(&streams[i].stream, CU_STREAM_NON_BLOCKING) ==
			    CUDA_SUCCESS) {
			streams[i].ctx = ctx;
			return streams[i].stream;
		}
	}
	return NULL;
}

void shim_probe_memory_drop_stream(CUcontext ctx)
{
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (streams[i].ctx == ctx) {
			(void)shim_driver.cuStreamDestroy_v2(streams[i].stream);
			streams[i].ctx = NULL;
		}
	}
}

void shim_probe_memory_forget_streams(void)
{
	memset(streams, 0, sizeof(streams));
	shim_probe_pinned_forget();
}

/* Runs an asynchronous copy on a stream of gBPF's own, which waits for no work of the program. */
static int copy(CUdeviceptr device, void *host, size_t bytes, bool down)
	REQUIRES(shim_probe_build_mutex)
{
	CUcontext ctx = NULL;
	CUresult r = shim_driver.cuCtxGetCurrent(&ctx);
	CUstream s = r == CUDA_SUCCESS ? stream_of(ctx) : NULL;

	if (!s) {
		return -EIO;
	}
	r = down ? shim_driver.cuMemcpyDtoHAsync_v2(host, device, bytes, s)
		 : shim_driver.cuMemcpyHtoDAsync_v2(device, host, bytes, s);
	r = r ? r : shim_driver.cuStreamSynchronize(s);
	return r == CUDA_SUCCESS ? 0 : -EIO;
}

int shim_probe_memory_write(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy(to, unqual(from), bytes, false);
}

/* ---- creating ---- */

/* Returns the place of a block, or SHIM_PROBE_CONTEXTS_MAX. ctx NULL: a free one. */
static unsigned place_of(const struct shim_probe_tool *t, CUcontext ctx)
{
	unsigned i = 0;

	while (i < SHIM_PROBE_CONTEXTS_MAX && t->blocks[i].ctx != ctx) {
		i++;
	}
	return i;
}

static struct shim_probe_block *block_of(struct shim_probe_tool *t, CUcontext ctx)
{
	unsigned i = place_of(t, ctx);

	return i < SHIM_PROBE_CONTEXTS_MAX ? &t->blocks[i] : NULL;
}

/* ---- control words: a page has EBPF_PTX_CONTROL_ROWS rows ---- */

/* Words of the same multiprocessors are adjacent. */
static void fill_page(char *words, const struct shim_probe_tool *t, uint32_t page)
{
	const uint32_t *rows = t->rows + (size_t)page * EBPF_PTX_CONTROL_ROWS;

	for (uint32_t i = 0; i < EBPF_PTX_CONTROL_WORDS; i++) {
		memcpy(words + (size_t)i * EBPF_PTX_CONTROL_STRIDE, rows, EBPF_PTX_CONTROL_STRIDE);
	}
}

static int write_page(const struct shim_probe_tool *t, uint32_t page)
	REQUIRES(shim_probe_build_mutex)
{
	uint64_t at = EBPF_PTX_CONTROL_AT + (uint64_t)page * EBPF_PTX_CONTROL_BYTES;
	char words[EBPF_PTX_CONTROL_BYTES];
	CUcontext popped;
	int err = 0;

	fill_page(words, t, page);
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		const struct shim_probe_block *b = &t->blocks[i];

		if (b->ctx && shim_driver.cuCtxPushCurrent_v2(b->ctx) == CUDA_SUCCESS) {
			err |= copy(b->mem + at, words, sizeof(words), false);
			(void)shim_driver.cuCtxPopCurrent_v2(&popped);
		}
	}
	return err;
}

/* Returns whether a row from first on, in front of end, has another interval now. */
static bool renew_rows(struct shim_probe_tool *t, uint32_t first, uint32_t end)
	REQUIRES(shim_probe_build_mutex)
{
	bool changed = false;

	for (uint32_t row = first; row < end; row++) {
		uint32_t every;

		if (!shim_probe_row_is_used(row)) {
			continue; /* it is renewed when it is taken */
		}
		every = shim_probe_row_interval(&t->control, row);
		changed = changed || t->rows[row] != every;
		t->rows[row] = every;
	}
	return changed;
}

int shim_probe_memory_control(struct shim_probe_tool *t, uint32_t first, uint32_t end)
{
	int err = 0;

	while (t->rows && first < end) {
		uint32_t page = first / EBPF_PTX_CONTROL_ROWS;
		uint32_t next = MIN((page + 1) * EBPF_PTX_CONTROL_ROWS, end);

		if (renew_rows(t, first, next)) {
			err |= write_page(t, page);
		}
		first = next;
	}
	return err;
}

static int make_rows(struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex)
{
	if (!t->settable || t->rows) {
		return 0;
	}
	t->rows = calloc(SHIM_PROBE_ROWS, sizeof(t->rows[0]));
	if (!t->rows) {
		return -ENOMEM;
	}
	(void)renew_rows(t, 0, SHIM_PROBE_ROWS);
	return 0;
}

uint64_t shim_probe_memory_offset(const struct shim_probe_tool *t, uint32_t map)
{
	const struct ebpf_map *m = map < t->p.env.n_maps ? &t->p.env.maps[map] : NULL;

	if (m && is_in(m, ON_GPU)) {
		return env_bytes(t) + m->region_offset;
	}
	return m && m->region == EBPF_REGION_GLOBAL ? constants_at(t) + m->region_offset : 0;
}

static uint64_t map_in(const struct shim_probe_tool *t, const struct shim_probe_block *b,
		       uint32_t map) REQUIRES(shim_probe_build_mutex)
{
	uint64_t offset = shim_probe_memory_offset(t, map);

	if (map < t->p.env.n_maps && is_in(&t->p.env.maps[map], IN_HOST)) {
		return b->host_mem + (t->p.env.maps[map].region_offset - host_at(t));
	}
	return offset ? b->mem + offset : 0;
}

uint64_t shim_probe_memory_map(const struct shim_probe_tool *t, CUcontext ctx, uint32_t map)
{
	unsigned i = ctx ? place_of(t, ctx) : SHIM_PROBE_CONTEXTS_MAX;

	return i < SHIM_PROBE_CONTEXTS_MAX ? map_in(t, &t->blocks[i], map) : 0;
}

static void fill_env(struct ebpf_ptx_env *env, const struct shim_probe_tool *t,
		     const struct shim_probe_block *b) REQUIRES(shim_probe_build_mutex)
{
	memset(env, 0, sizeof(*env));
	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		env->maps[i] = map_in(t, b, i);
	}
	env->random_state = (t->version ^ b->mem) | 1;
	for (uint32_t page = 0; t->rows && page < CONTROL_PAGES; page++) {
		fill_page((char *)env + EBPF_PTX_CONTROL_AT + (size_t)page * EBPF_PTX_CONTROL_BYTES,
			  t, page);
	}
}

/* Keeps the initial values, which gbpfd has written to the region: draining overwrites it. */
static int keep_initial(struct shim_probe_tool *t)
{
	size_t bytes = t->p.region_bytes[EBPF_REGION_TENANT];

	if (t->initial || !bytes || !t->p.region[EBPF_REGION_TENANT]) {
		return 0;
	}
	t->initial = malloc(bytes);
	if (!t->initial) {
		return -ENOMEM;
	}
	memcpy(t->initial, t->p.region[EBPF_REGION_TENANT], bytes);
	return 0;
}

static int fill(const struct shim_probe_tool *t, const struct shim_probe_block *b)
	REQUIRES(shim_probe_build_mutex)
{
	size_t bytes = constants_at(t);
	struct ebpf_ptx_env *env = calloc(1, bytes);
	int err = env ? 0 : -ENOMEM;

	if (!err) {
		fill_env(env, t, b);
		if (t->initial) {
			memcpy((char *)env + env_bytes(t), t->initial, gpu_bytes(t));
		}
		err = copy(b->mem, env, bytes, false);
	}
	if (!err && t->p.region[EBPF_REGION_GLOBAL]) {
		err = copy(b->mem + bytes, t->p.region[EBPF_REGION_GLOBAL],
			   t->p.region_bytes[EBPF_REGION_GLOBAL], false);
	}
	free(env);
	return err;
}

static size_t bytes_in(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	size_t bytes = 0;

	lock_take(&shim_probe_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		struct shim_probe_block *b =
			shim_probe_tools[i] ? block_of(shim_probe_tools[i], ctx) : NULL;

		bytes += b ? b->bytes + b->host_bytes : 0;
	}
	lock_release(&shim_probe_mutex);
	for (const struct unused *u = unused; u; u = u->next) {
		bytes += u->block.ctx == ctx ? u->block.bytes + u->block.host_bytes : 0;
	}
	return bytes;
}

/* Gives a block its memory in the current context. */
static int take(struct shim_probe_tool *t, struct shim_probe_block *b, struct report *r)
	REQUIRES(shim_probe_build_mutex)
{
	const char *initial = (const char *)t->initial;
	size_t pinned = host_bytes(t), bytes = block_bytes(t);
	int err =
		pinned ? shim_probe_pinned_take(b, pinned, initial ? initial + host_at(t) : NULL, r)
		       : 0;

	if (err) {
		return err;
	}
	if (gpu_own_memory_alloc(&shim_driver, bytes, &b->mem, &b->device) != CUDA_SUCCESS) {
		shim_probe_pinned_put(b, true);
		return report_set(r, -ENOMEM, "memory",
				  "no memory of the GPU for its maps, %zu KiB", bytes >> 10);
	}
	b->bytes = bytes;
	if (fill(t, b) < 0) {
		gpu_own_memory_free(&shim_driver, b->mem, bytes, b->device);
		shim_probe_pinned_put(b, true);
		return report_set(r, -EIO, "memory", "its maps cannot be written");
	}
	return 0;
}

uint64_t shim_probe_memory_env(struct shim_probe_tool *t, CUcontext ctx, struct report *r)
{
	struct shim_probe_block *b = block_of(t, ctx);
	size_t bytes = block_bytes(t) + host_bytes(t);

	if (b) {
		return b->mem;
	}
	b = block_of(t, NULL);
	if (!b || bytes + bytes_in(ctx) > SHIM_PROBE_MAP_BYTES) {
		report_set(r, -E2BIG, "memory",
			   b ? "the maps of all tools need more than 256 MiB in a context"
			     : "the process has more than 16 contexts with probes");
		return 0;
	}
	if (keep_initial(t) < 0 || make_rows(t) < 0) {
		report_set(r, -ENOMEM, "memory", "out of memory");
		return 0;
	}
	if (take(t, b, r) < 0) {
		return 0;
	}
	b->ctx = ctx;
	return b->mem;
}

/* ---- draining ---- */

/* Adds the keys of a hash table in a context to those of others: equal keys have equal places in no
 * two contexts. A table is empty at first except for its seed. */
static void add_table(const struct shim_probe_tool *t, const struct ebpf_map *m, uint64_t *to,
		      const uint64_t *from)
{
	struct ebpf_map sum, part;

	memcpy((char *)to + m->region_offset + EBPF_BUCKET_SEED,
	       (const char *)t->initial + m->region_offset + EBPF_BUCKET_SEED,
	       2 * sizeof(uint64_t));
	ebpf_map_at(&sum, m, to);
	ebpf_map_at(&part, m, unqual(from));
	ebpf_bucket_add(&sum, &part);
}

/* Adds what the words of a region's maps in one place have gained in a context. */
static void add_maps(const struct shim_probe_tool *t, enum place place, uint64_t *to,
		     const uint64_t *from)
{
	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		const struct ebpf_map *m = &t->p.env.maps[i];
		size_t first = m->region_offset / 8;

		if (is_in(m, place) && ebpf_is_bucket_map(m)) {
			add_table(t, m, to, from);
			continue;
		}
		for (size_t w = 0; is_in(m, place) && w < m->bytes / 8; w++) {
			to[first + w] += from[first + w] - t->initial[first + w];
		}
	}
}

static void store_maps(const struct shim_probe_tool *t, enum place place, const uint64_t *gained)
{
	uint64_t *region = t->p.region[EBPF_REGION_TENANT];

	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		const struct ebpf_map *m = &t->p.env.maps[i];
		size_t first = m->region_offset / 8;
		bool table = ebpf_is_bucket_map(m);

		for (size_t w = 0; is_in(m, place) && w < m->bytes / 8; w++) {
			store_relaxed(&region[first + w],
				      (table ? 0 : t->initial[first + w]) + gained[first + w]);
		}
	}
}

static int copy_gpu(const struct shim_probe_tool *t, const struct shim_probe_block *b,
		    uint64_t *ret) REQUIRES(shim_probe_build_mutex)
{
	CUcontext popped;
	int err;

	if (shim_driver.cuCtxPushCurrent_v2(b->ctx) != CUDA_SUCCESS) {
		return -EIO;
	}
	err = copy(b->mem + env_bytes(t), ret, gpu_bytes(t), true);
	(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	return err;
}

/* A copy, since kernels may change the words between two reads of them. */
static void copy_host(const struct shim_probe_tool *t, const struct shim_probe_block *b,
		      uint64_t *ret)
{
	uint64_t *to = ret + host_at(t) / 8;

	for (size_t w = 0; w < b->host_bytes / 8; w++) {
		to[w] = load_relaxed(&b->host[w]);
	}
}

/* Adds what was counted in the maps that are in one place in a context. */
static int add_block(const struct shim_probe_tool *t, const struct shim_probe_block *b,
		     enum place place, uint64_t *gained) REQUIRES(shim_probe_build_mutex)
{
	uint64_t *now = malloc(t->p.region_bytes[EBPF_REGION_TENANT]);
	int err = now ? 0 : -ENOMEM;

	if (!err && place == IN_HOST) {
		copy_host(t, b, now);
	} else if (!err) {
		err = copy_gpu(t, b, now);
	}
	if (!err) {
		add_maps(t, place, gained, now);
	}
	free(now);
	return err;
}

/* gained: what contexts that have ended have counted. */
static int drain(const struct shim_probe_tool *t, enum place place, uint64_t *gained)
	REQUIRES(shim_probe_build_mutex)
{
	bool any = t->gone != NULL;
	int err = 0;

	if (!has_maps(t, place)) {
		return 0;
	}
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX && !err; i++) {
		if (t->blocks[i].ctx) {
			err = add_block(t, &t->blocks[i], place, gained);
			any = true;
		}
	}
	if (!err && any) { /* else it has its initial values */
		store_maps(t, place, gained);
	}
	return err;
}

int shim_probe_memory_drain(struct shim_probe_tool *t)
{
	size_t bytes = t->p.region_bytes[EBPF_REGION_TENANT];
	uint64_t *gained;
	int err_host, err;

	if (!bytes || !t->p.region[EBPF_REGION_TENANT]) {
		return 0;
	}
	gained = calloc(1, bytes);
	if (!gained) {
		return -ENOMEM;
	}
	if (t->gone) {
		memcpy(gained, t->gone, bytes);
	}
	/* First, because it needs no driver: a context that has failed lets no copy through, and
	 * one of a hanging GPU may take forever. */
	err_host = drain(t, IN_HOST, gained);
	err = drain(t, ON_GPU, gained);
	free(gained);
	return err_host ? err_host : err;
}

/* ---- leaving ---- */

static void free_block(struct shim_probe_block *b) REQUIRES(shim_probe_build_mutex)
{
	CUcontext popped;
	bool current = shim_driver.cuCtxPushCurrent_v2(b->ctx) == CUDA_SUCCESS;

	if (current) {
		(void)shim_driver.cuMemFree_v2(b->mem);
	}
	shim_probe_pinned_put(b, current);
	if (current) {
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	gpu_own_memory_sub(b->device, b->bytes);
	b->ctx = NULL;
}

void shim_probe_memory_leave(struct shim_probe_tool *t, CUcontext ctx)
{
	struct shim_probe_block *b = block_of(t, ctx);

	if (!b) {
		return;
	}
	if (t->initial && !t->gone) {
		t->gone = calloc(1, t->p.region_bytes[EBPF_REGION_TENANT]);
	}
	for (enum place place = ON_GPU; t->gone && place <= IN_HOST; place++) {
		if (has_maps(t, place)) {
			(void)add_block(t, b, place, t->gone);
		}
	}
	free_block(b);
	shim_probe_clock_forget(ctx);
}

void shim_probe_memory_abandon(struct shim_probe_tool *t)
{
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		struct shim_probe_block *b = &t->blocks[i];
		struct unused *u = b->ctx ? calloc(1, sizeof(*u)) : NULL;

		if (u) {
			u->block = *b;
			u->next = unused;
			unused = u;
		} else if (b->ctx) {
			free_block(b);
		}
	}
}

void shim_probe_memory_discard(CUcontext ctx, CUdeviceptr mem)
{
	struct unused *u = calloc(1, sizeof(*u));

	if (!u) {
		(void)shim_driver.cuMemFree_v2(mem);
		return;
	}
	u->block.ctx = ctx;
	u->block.mem = mem;
	u->next = unused;
	unused = u;
}

int shim_probe_memory_late(CUcontext ctx, CUdeviceptr *ret, CUdevice *ret_device, struct report *r)
{
	void *zero;
	int err;

	if (bytes_in(ctx) + PTX_LATE_BYTES > SHIM_PROBE_MAP_BYTES) {
		return report_set(r, -E2BIG, "memory",
				  "the maps of all tools need more than 256 MiB in a context");
	}
	if (gpu_own_memory_alloc(&shim_driver, PTX_LATE_BYTES, ret, ret_device) != CUDA_SUCCESS) {
		return report_set(r, -ENOMEM, "memory",
				  "no memory of the GPU for the ends of blocks, %u KiB",
				  PTX_LATE_BYTES >> 10);
	}
	zero = calloc(1, PTX_LATE_BYTES);
	err = zero ? shim_probe_memory_write(*ret, zero, PTX_LATE_BYTES) : -ENOMEM;
	free(zero);
	if (err) {
		shim_probe_memory_late_end(ctx, *ret, *ret_device);
		*ret = 0;
		return report_set(r, err, "memory",
				  "the table of the ends of blocks cannot be written");
	}
	return 0;
}

void shim_probe_memory_late_end(CUcontext ctx, CUdeviceptr table, CUdevice on)
{
	struct unused *u = table ? calloc(1, sizeof(*u)) : NULL;

	if (u) {
		u->block = (struct shim_probe_block){
			.ctx = ctx, .mem = table, .bytes = PTX_LATE_BYTES, .device = on
		};
		u->next = unused;
		unused = u;
	} else if (table) { /* it stays until the context ends */
		gpu_own_memory_sub(on, PTX_LATE_BYTES);
	}
}

bool shim_probe_memory_sweep(CUcontext ctx, bool idle)
{
	bool remain = false;

	for (struct unused **link = &unused; *link;) {
		struct unused *u = *link;
		bool own = u->block.ctx == ctx;

		if (!own || (idle && !shim_probe_quiet_step())) {
			remain = remain || own;
			link = &u->next;
			continue;
		}
		*link = u->next;
		free_block(&u->block);
		free(u);
	}
	return remain;
}

bool shim_probe_memory_remains(CUcontext ctx)
{
	const struct unused *u = unused;

	while (u && u->block.ctx != ctx) {
		u = u->next;
	}
	return u != NULL;
}

CUcontext shim_probe_memory_unused(uint64_t round)
{
	const struct unused *u = unused;

	while (u && u->seen == round) {
		u = u->next;
	}
	return u ? u->block.ctx : NULL;
}

void shim_probe_memory_mark(CUcontext ctx, uint64_t round)
{
	for (struct unused *u = unused; u; u = u->next) {
		u->seen = u->block.ctx == ctx ? round : u->seen;
	}
}
