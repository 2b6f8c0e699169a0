/* Runs clones on the GPU of libcuda.so.1; used by hand. Usage: clone_on_gpu FILE... | --cost FILE.
 * Each .ptxt case that neither faults nor is refused runs as a clone, in pieces of random size,
 * with leases that the host sets and clears in between, until each block has run; the results are
 * compared with those of the kernel. --cost: measures the cost of a clone's blocks by their
 * duration and the number of resident blocks per SM. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../unit/exec/ptxt.h"
#include "base/compiler.h"
#include "cuabi/api.h"
#include "need.h"
#include "ptx/block.h"

#define BUFFER_BYTES 16384u
#define STACK_BYTES 8192u
#define ROUNDS 9u

struct setting {
	CUdeviceptr leases, counter, done, buffers[PTXT_BUFFERS];
	uint32_t *host; /* leases, counter, done: pinned memory, also mapped on the device */
	uint64_t random;
	unsigned cases, clones, launches, stopped;
};

static uint32_t draw(struct setting *s, uint32_t n)
{
	s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return n ? (uint32_t)(s->random >> 33) % n : 0;
}

static void begin(struct setting *s)
{
	CUcontext context;
	CUdevice device;
	void *p;

	*s = (struct setting){ .random = 1 };
	need(cuInit(0), "cuInit");
	need(cuDeviceGet(&device, 0), "cuDeviceGet");
	need(cuCtxCreate_v2(&context, 0, device), "cuCtxCreate");
	need(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK_BYTES), "stack");
	need(cuMemAlloc_v2(&s->leases, 4096), "memory");
	need(cuMemAlloc_v2(&s->counter, PTX_BLOCK_READY + 4096), "memory");
	need(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
	need(cuMemHostGetDevicePointer_v2(&s->done, p, 0), "its address");
	s->host = p;
	need(cuMemsetD8_v2(s->leases, 0, 4096), "set");
	for (unsigned i = 0; i < PTXT_BUFFERS; i++) {
		need(cuMemAlloc_v2(&s->buffers[i], BUFFER_BYTES), "memory");
	}
}

/* Returns CUDA_SUCCESS if the driver refuses the original as well. */
static CUresult refused_anyway(const char *ptx, size_t len)
{
	char *copy = strndup(ptx, len);
	CUmodule m;
	CUresult r = copy ? cuModuleLoadData(&m, copy) : CUDA_ERROR_OUT_OF_MEMORY;

	free(copy);
	return r == CUDA_SUCCESS ? CUDA_ERROR_INVALID_PTX : CUDA_SUCCESS;
}

/* Loads the rewritten text. Returns false if it has no clone. The module has the name of the case.
 */
static bool load(const char *ptx, size_t len, CUmodule *m, CUfunction *clone, CUfunction *plain,
		 struct ptx_block_entry *ret)
{
	const struct ptx_block_entry *e = NULL;
	struct ptx_module *parsed = NULL;
	char name[256];
	struct report r;
	struct buf text;
	uint32_t n = 0;
	bool ok;

	report_init(&r);
	buf_init(&text);
	ok = ptx_module_parse(&parsed, ptx, len, "case", &r) == 0 &&
	     ptx_block_run(parsed, &e, &n, &r) == 0 && n && e[0].why == PROTO_BLOCK_OK &&
	     ptx_module_print(parsed, &text) == 0;
	if (ok) {
		*ret = e[0];
		ok = cuModuleLoadData(m, text.data) == CUDA_SUCCESS;
	}
	if (!ok && text.len) {
		need(refused_anyway(ptx, len), "the rewritten module");
	}
	if (ok) {
		need(cuModuleGetFunction(plain, *m, e[0].name), e[0].name);
		snprintf(name, sizeof(name), "%s" PTX_BLOCK_SUFFIX, e[0].name);
		need(cuModuleGetFunction(clone, *m, name), name);
	}
	ptx_module_free(parsed);
	buf_finish(&text);
	report_finish(&r);
	return ok;
}

static uint32_t word_at(CUdeviceptr at)
{
	uint32_t v;

	need(cuMemcpyDtoH_v2(&v, at, sizeof(v)), "copy");
	return v;
}

static struct ptx_block_arg argument(struct setting *s, const uint32_t *grid)
{
	struct ptx_block_arg a = {
		.leases = s->leases,
		.tickets = s->counter,
		.done = s->done,
		.first = UINT32_MAX - draw(s, 20),
		.total = grid[0] * grid[1] * grid[2],
		.number = 1 + draw(s, 1000),
		.groups = 1 + draw(s, 3),
		.grid_x = grid[0],
		.grid_y = grid[1],
		.grid_z = grid[2],
	};

	*(volatile uint32_t *)s->host = 0;
	need(cuMemcpyHtoD_v2(s->counter, &a.first, sizeof(a.first)), "copy");
	need(cuMemcpyHtoD_v2(s->counter + PTX_BLOCK_READY, &a.first, sizeof(a.first)), "copy");
	return a;
}

/* Randomly sets a lease that is in force at any time, or clears it. One of its two words, whose
 * times are opposite, always lies in the future. */
static bool toss_lease(struct setting *s, const struct ptx_block_arg *a)
{
	uint32_t words[64] = { 0 }, at = draw(s, 4 * a->groups - 1);
	bool up = draw(s, 3) == 0;

	if (up) {
		words[at] = 0x20000000;
		words[at + 1] = 0xa0000000;
	}
	need(cuMemcpyHtoD_v2(s->leases, words, sizeof(words)), "copy");
	return up;
}

static const char *run_clone(struct setting *s, const struct ptxt_case *c, CUfunction clone,
			     const struct ptx_block_entry *e, uint8_t *params)
{
	struct ptx_block_arg a = argument(s, c->grid);
	size_t bytes = e->arg_offset + sizeof(a);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };

	memcpy(params + e->arg_offset, &a, sizeof(a));
	for (uint32_t drawn = 0; drawn < a.total;) {
		uint32_t n = 1 + draw(s, a.total - drawn), now;
		bool up = toss_lease(s, &a);

		need(cuLaunchKernel(clone, n, 1, 1, c->block[0], c->block[1], c->block[2],
				    PTX_BLOCK_SMEM(c->shared), NULL, NULL, extra),
		     "launch");
		need(cuCtxSynchronize(), c->name);
		now = word_at(s->counter) - a.first;
		s->launches++;
		s->stopped += now == drawn;
		if (now > a.total || now != drawn + (up ? 0 : n)) {
			return "the counter is wrong";
		}
		if ((now == a.total) != (*(volatile uint32_t *)s->host == a.number)) {
			return "the word in host memory is wrong";
		}
		if (word_at(s->counter + PTX_BLOCK_READY) !=
		    a.first + (now == a.total ? a.total : 0)) {
			return "what later launches look at is wrong";
		}
		drawn = now;
	}
	return NULL;
}

static size_t put_params(struct setting *s, const struct ptxt_case *c, uint8_t *params)
{
	static uint8_t data[BUFFER_BYTES];
	size_t at = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];
		unsigned bytes = ptxt_bytes(b->kind), width = b->is_param ? bytes : 8;

		for (uint32_t k = 0; k < b->n; k++) {
			memcpy(data + (size_t)k * bytes, &b->in[k].bits, bytes);
		}
		if (!b->is_param) {
			need(cuMemcpyHtoD_v2(s->buffers[i], data, (size_t)b->n * bytes), "copy");
		}
		at = (at + width - 1) / width * width;
		memcpy(params + at, b->is_param ? &b->in[0].bits : (const uint64_t *)&s->buffers[i],
		       width);
		at += width;
	}
	return at;
}

/* Copies the contents of the buffers. */
static void take(struct setting *s, const struct ptxt_case *c, uint8_t (*to)[BUFFER_BYTES])
{
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];

		if (!b->is_param) {
			need(cuMemcpyDtoH_v2(to[i], s->buffers[i],
					     (size_t)b->n * ptxt_bytes(b->kind)),
			     "copy");
		}
	}
}

static int run_case(const struct ptxt_case *c, void *arg)
{
	static uint8_t had[PTXT_BUFFERS][BUFFER_BYTES], has[PTXT_BUFFERS][BUFFER_BYTES];
	static uint8_t params[512];
	struct setting *s = arg;
	struct ptx_block_entry e;
	CUfunction clone, plain;
	const char *wrong;
	size_t bytes;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUmodule m;

	if (*c->refused || *c->fault || c->print.len) {
		return 0;
	}
	s->cases++;
	if (!load(c->ptx.data, c->ptx.len, &m, &clone, &plain, &e)) {
		return 0;
	}
	s->clones++;
	bytes = put_params(s, c, params);
	need(cuLaunchKernel(plain, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
			    c->block[2], c->shared, NULL, NULL, extra),
	     "launch");
	need(cuCtxSynchronize(), c->name);
	take(s, c, had);
	put_params(s, c, params);
	wrong = run_clone(s, c, clone, &e, params);
	take(s, c, has);
	for (uint32_t i = 0; i < c->n_buffers && !wrong; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];

		if (!b->is_param &&
		    memcmp(had[i], has[i], (size_t)b->n * ptxt_bytes(b->kind)) != 0) {
			wrong = "not what the kernel itself leaves";
		}
	}
	if (wrong) {
		printf("%s: %s\n", c->name, wrong);
	}
	cuModuleUnload(m);
	return wrong != NULL;
}

/* Each block adds numbers; `turns` sets the duration. */
static const char cost_ptx[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry work(.param .u64 to, .param .u32 turns)\n{\n"
	".reg .pred %p; .reg .b32 %r<5>; .reg .f32 %f<3>; .reg .b64 %d<3>;\n"
	"ld.param.u64 %d1, [to]; ld.param.u32 %r1, [turns]; mov.u32 %r2, %ctaid.x;\n"
	"mov.u32 %r3, %tid.x; cvt.rn.f32.u32 %f1, %r3; mov.f32 %f2, 0f3F7FFFF0;\n"
	"loop: fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f2;\n"
	"fma.rn.f32 %f1, %f1, %f2, %f2; fma.rn.f32 %f1, %f1, %f2, %f2;\n"
	"sub.u32 %r1, %r1, 1; setp.ne.u32 %p, %r1, 0; @%p bra loop;\n"
	"setp.ne.f32 %p, %f1, 0f00000000; @%p bra out; mul.wide.u32 %d2, %r2, 4;\n"
	"add.u64 %d1, %d1, %d2; st.global.f32 [%d1], %f1;\nout: ret;\n}\n";

static float time_of(struct setting *s, CUfunction f, const struct ptx_block_entry *clone,
		     unsigned blocks, unsigned shared, uint32_t turns)
{
	static uint8_t params[256];
	uint32_t grid[3] = { blocks, 1, 1 };
	struct ptx_block_arg a = argument(s, grid);
	size_t bytes = clone ? clone->arg_offset + sizeof(a) : 12;
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUevent from, to;
	float ms;

	a.groups = 1;
	memcpy(params, &s->buffers[0], 8);
	memcpy(params + 8, &turns, 4);
	if (clone) {
		memcpy(params + clone->arg_offset, &a, sizeof(a));
	}
	need(cuEventCreate(&from, 0), "event");
	need(cuEventCreate(&to, 0), "event");
	need(cuEventRecord(from, NULL), "event");
	need(cuLaunchKernel(f, blocks, 1, 1, 256, 1, 1, clone ? PTX_BLOCK_SMEM(shared) : shared,
			    NULL, NULL, extra),
	     "launch");
	need(cuEventRecord(to, NULL), "event");
	need(cuCtxSynchronize(), "kernel");
	need(cuEventElapsedTime(&ms, from, to), "time");
	cuEventDestroy_v2(from);
	cuEventDestroy_v2(to);
	return ms * 1000;
}

static int by_value(const void *a, const void *b)
{
	return (*(const float *)a > *(const float *)b) - (*(const float *)a < *(const float *)b);
}

/* Measures waves of blocks, alternating between kernel and clone; prints medians. */
static void cost_row(struct setting *s, CUfunction plain, CUfunction clone,
		     const struct ptx_block_entry *e, unsigned sms, unsigned resident, float us)
{
	unsigned waves = 20, blocks = sms * resident * waves;
	unsigned shared = resident >= 8 ? 0 : 200u * 1024 / resident - 2048;
	float p[ROUNDS], t[ROUNDS], one;
	uint32_t turns = 64;

	while ((one = time_of(s, plain, NULL, blocks, shared, turns) / (float)waves) < us &&
	       turns < 1u << 24) {
		turns = MAX(turns + 1, (uint32_t)((float)turns * MIN(2.0f, us / one)));
		if (one > us * 0.98f) {
			break;
		}
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		p[i] = time_of(s, plain, NULL, blocks, shared, turns);
		t[i] = time_of(s, clone, e, blocks, shared, turns);
	}
	qsort(p, ROUNDS, sizeof(*p), by_value);
	qsort(t, ROUNDS, sizeof(*t), by_value);
	printf("%8u %10.1f %12.1f %12.1f %9.2f %% %10.0f\n", resident,
	       (double)(p[ROUNDS / 2] / (float)waves), (double)p[ROUNDS / 2], (double)t[ROUNDS / 2],
	       (double)(t[ROUNDS / 2] / p[ROUNDS / 2] - 1) * 100,
	       (double)(t[ROUNDS / 2] - p[ROUNDS / 2]) * 1000 / waves);
}

static int cost(struct setting *s)
{
	static const unsigned resident[] = { 1, 2, 4, 8 };
	static const float us[] = { 3, 10, 30, 100 };
	struct ptx_block_entry e;
	CUfunction clone, plain;
	CUdevice device;
	CUmodule m;
	int sms = 1, room = 0;

	need(cuCtxGetDevice(&device), "device");
	need(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device), "SMs");
	need(cuDeviceGetAttribute(&room, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
				  device),
	     "shared memory");
	if (!load(cost_ptx, sizeof(cost_ptx) - 1, &m, &clone, &plain, &e)) {
		return 1;
	}
	need(cuFuncSetAttribute(plain, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, room),
	     "room");
	need(cuFuncSetAttribute(clone, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, room),
	     "room");
	printf("%d SMs, 20 waves, medians of %u\n%8s %10s %12s %12s %11s %10s\n", sms, ROUNDS,
	       "resident", "block us", "plain us", "clone us", "cost", "ns a block");
	for (size_t i = 0; i < ARRAY_SIZE(us); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(resident); k++) {
			if (resident[k] >= 8 || 200 * 1024 / (int)resident[k] - 2048 < room) {
				cost_row(s, plain, clone, &e, (unsigned)sms, resident[k], us[i]);
			}
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct setting s;
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	begin(&s);
	if (argc > 1 && strcmp(argv[1], "--cost") == 0) {
		return cost(&s);
	}
	for (int i = 1; i < argc; i++) {
		int n = ptxt_file(argv[i], run_case, &s);

		bad += n < 0 ? 1 : n;
	}
	printf("%u cases, %u with a clone, %u launches of which %u were stopped, %d failures\n",
	       s.cases, s.clones, s.launches, s.stopped, bad);
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
