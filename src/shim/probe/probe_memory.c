/* A tool's memory on the GPU, one block for each context: the environment that its programs read,
 * its maps with the layout of the region that gbpfd sees, and a copy of its constants. Draining
 * copies the maps to the region; the values of several contexts are added, word by word, in hash
 * tables key by key. Kernels
 * that run meanwhile may change a map while it is copied, as with every read of a map. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/run/map/map_bucket.h"
#include "bpf/run/ptx_env.h"
#include "gpu/own_memory.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

#define PAGE ((size_t)4096)

/* Memory of a tool that has ended, in a context that was busy since. */
struct unused {
	struct unused *next;
	struct shim_probe_block block;
	uint64_t seen; /* round of the probe thread */
};

static struct unused *unused; /* shim_probe_build_mutex; owned */

/* Contexts with memory of tools are at most as many. */
static struct {
	CUcontext ctx; /* NULL: free */
	CUstream stream;
} streams[SHIM_PROBE_CONTEXTS_MAX]; /* shim_probe_build_mutex */

static bool is_device(const struct ebpf_map *m)
{
	return m->flags & (uint32_t)GBPF_F_DEVICE;
}

static size_t env_bytes(void)
{
	return EBPF_PTX_CONTROL_AT + ROUND_UP(EBPF_PTX_CONTROL_BYTES, PAGE);
}

/* Offset of the copy of the constants. */
static size_t constants_at(const struct shim_probe_tool *t)
{
	return env_bytes() + t->p.region_bytes[EBPF_REGION_TENANT];
}

static size_t block_bytes(const struct shim_probe_tool *t)
{
	return constants_at(t) + t->p.region_bytes[EBPF_REGION_GLOBAL];
}

/* Returns the context's stream for copies, which is made once: a driver takes device memory for a
 * stream. NULL: there is none. */
static CUstream stream_of(CUcontext ctx)
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
}

/* Runs an asynchronous copy on a stream of gBPF's own, which waits for no work of the program. */
static int copy(CUdeviceptr device, void *host, size_t bytes, bool down)
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

static struct shim_probe_block *block_of(struct shim_probe_tool *t, CUcontext ctx)
{
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		if (t->blocks[i].ctx == ctx) {
			return &t->blocks[i];
		}
	}
	return NULL;
}

static void fill_control(char *words, uint32_t every)
{
	for (uint32_t i = 0; i < EBPF_PTX_CONTROL_WORDS; i++) {
		memcpy(words + (size_t)i * EBPF_PTX_CONTROL_STRIDE, &every, sizeof(every));
	}
}

int shim_probe_memory_control(struct shim_probe_tool *t, uint32_t every)
{
	char words[EBPF_PTX_CONTROL_BYTES] = { 0 };
	CUcontext popped;
	int err = 0;

	fill_control(words, every);
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX; i++) {
		const struct shim_probe_block *b = &t->blocks[i];

		if (b->ctx && shim_driver.cuCtxPushCurrent_v2(b->ctx) == CUDA_SUCCESS) {
			err |= copy(b->mem + EBPF_PTX_CONTROL_AT, words, sizeof(words), false);
			(void)shim_driver.cuCtxPopCurrent_v2(&popped);
		}
	}
	t->every = every;
	return err;
}

uint64_t shim_probe_memory_map(const struct shim_probe_tool *t, uint64_t env, uint32_t map)
{
	const struct ebpf_map *m = map < t->p.env.n_maps ? &t->p.env.maps[map] : NULL;

	if (m && is_device(m)) {
		return env + env_bytes() + m->region_offset;
	}
	return m && m->region == EBPF_REGION_GLOBAL ? env + constants_at(t) + m->region_offset : 0;
}

static void fill_env(struct ebpf_ptx_env *env, const struct shim_probe_tool *t, CUdeviceptr mem)
{
	memset(env, 0, sizeof(*env));
	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		env->maps[i] = shim_probe_memory_map(t, mem, i);
	}
	env->random_state = (t->version ^ mem) | 1;
	fill_control((char *)env + EBPF_PTX_CONTROL_AT, t->every);
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
{
	size_t bytes = constants_at(t);
	struct ebpf_ptx_env *env = calloc(1, bytes);
	int err = env ? 0 : -ENOMEM;

	if (!err) {
		fill_env(env, t, b->mem);
		if (t->initial) {
			memcpy((char *)env + env_bytes(), t->initial,
			       t->p.region_bytes[EBPF_REGION_TENANT]);
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

static size_t bytes_in(CUcontext ctx)
{
	size_t bytes = 0;

	pthread_mutex_lock(&shim_probe_mutex);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		struct shim_probe_block *b =
			shim_probe_tools[i] ? block_of(shim_probe_tools[i], ctx) : NULL;

		bytes += b ? b->bytes : 0;
	}
	pthread_mutex_unlock(&shim_probe_mutex);
	for (const struct unused *u = unused; u; u = u->next) {
		bytes += u->block.ctx == ctx ? u->block.bytes : 0;
	}
	return bytes;
}

uint64_t shim_probe_memory_env(struct shim_probe_tool *t, CUcontext ctx, struct report *r)
{
	struct shim_probe_block *b = block_of(t, ctx);
	size_t bytes = block_bytes(t);

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
	if (keep_initial(t) < 0) {
		report_set(r, -ENOMEM, "memory", "out of memory");
		return 0;
	}
	if (shim_driver.cuMemAlloc_v2(&b->mem, bytes) != CUDA_SUCCESS) {
		report_set(r, -ENOMEM, "memory", "no memory of the GPU for its maps, %zu KiB",
			   bytes >> 10);
		return 0;
	}
	b->bytes = bytes;
	if (fill(t, b) < 0) {
		(void)shim_driver.cuMemFree_v2(b->mem);
		report_set(r, -EIO, "memory", "its maps cannot be written");
		return 0;
	}
	gpu_own_memory_add(&shim_driver, bytes, &b->device);
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

/* Adds what the words of a region's maps in memory of the GPU have gained in a context. */
static void add_maps(const struct shim_probe_tool *t, uint64_t *to, const uint64_t *from)
{
	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		const struct ebpf_map *m = &t->p.env.maps[i];
		size_t first = m->region_offset / 8;

		if (is_device(m) && ebpf_is_bucket_map(m)) {
			add_table(t, m, to, from);
			continue;
		}
		for (size_t w = 0; is_device(m) && w < m->bytes / 8; w++) {
			to[first + w] += from[first + w] - t->initial[first + w];
		}
	}
}

static void store_maps(const struct shim_probe_tool *t, const uint64_t *gained)
{
	uint64_t *region = t->p.region[EBPF_REGION_TENANT];

	for (uint32_t i = 0; i < t->p.env.n_maps; i++) {
		const struct ebpf_map *m = &t->p.env.maps[i];
		size_t first = m->region_offset / 8;
		bool table = ebpf_is_bucket_map(m);

		for (size_t w = 0; is_device(m) && w < m->bytes / 8; w++) {
			store_relaxed(&region[first + w],
				      (table ? 0 : t->initial[first + w]) + gained[first + w]);
		}
	}
}

/* Adds what was counted in a context. */
static int add_block(struct shim_probe_tool *t, const struct shim_probe_block *b, uint64_t *gained)
{
	size_t bytes = t->p.region_bytes[EBPF_REGION_TENANT];
	uint64_t *now = malloc(bytes);
	int err = now ? 0 : -ENOMEM;
	CUcontext popped;

	if (!err && shim_driver.cuCtxPushCurrent_v2(b->ctx) != CUDA_SUCCESS) {
		err = -EIO;
	} else if (!err) {
		err = copy(b->mem + env_bytes(), now, bytes, true);
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	if (!err) {
		add_maps(t, gained, now);
	}
	free(now);
	return err;
}

int shim_probe_memory_drain(struct shim_probe_tool *t)
{
	size_t bytes = t->p.region_bytes[EBPF_REGION_TENANT];
	uint64_t *gained;
	bool any = t->gone != NULL;
	int err = 0;

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
	for (unsigned i = 0; i < SHIM_PROBE_CONTEXTS_MAX && !err; i++) {
		if (t->blocks[i].ctx) {
			err = add_block(t, &t->blocks[i], gained);
			any = true;
		}
	}
	if (!err && any) { /* else it has its initial values */
		store_maps(t, gained);
	}
	free(gained);
	return err;
}

/* ---- leaving ---- */

static void free_block(struct shim_probe_block *b)
{
	CUcontext popped;

	if (shim_driver.cuCtxPushCurrent_v2(b->ctx) == CUDA_SUCCESS) {
		(void)shim_driver.cuMemFree_v2(b->mem);
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
	if (t->gone) {
		(void)add_block(t, b, t->gone);
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
	if (shim_driver.cuMemAlloc_v2(ret, PTX_LATE_BYTES) != CUDA_SUCCESS) {
		*ret = 0;
		return report_set(r, -ENOMEM, "memory",
				  "no memory of the GPU for the ends of blocks, %u KiB",
				  PTX_LATE_BYTES >> 10);
	}
	gpu_own_memory_add(&shim_driver, PTX_LATE_BYTES, ret_device);
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
