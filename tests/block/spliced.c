/* spliced IMAGE [ROUNDS]: runs a kernel of which only machine code exists from copies with entry
 * stubs that count blocks and warps, or store a word for each block, as probes do, but without
 * gBPF. Counts must be exact, results those of the original, and blocks that the gate sends away
 * must not be counted. With ROUNDS also prints what the stubs cost, from launches of all forms in
 * turn. Runs on the soft GPU and on GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../programs/program.h"
#include "base/strmap.h"
#include "cubin/cubin.h"
#include "stub_programs.h"

#define THREADS_MAX (1u << 20)
#define SMS_MAX 256u
#define CHAIN 8u	/* launches that are timed together */
#define BLOCK_NS 10000u /* of the long blocks that are timed */
#define ROUNDS 50u
#define ARRAY_AT 256u /* of the maps behind the environment */

/* STORE and COUNT: one store, and one addition, for each block. BLOCKS: two additions. ARGUMENT:
 * adds an argument of the kernel. */
enum form { ORIGINAL, GATE, STORE, COUNT, BLOCKS, BOTH, ARGUMENT, FORMS };
static const char *const form_names[] = { "original",	 "gate", "block_store", "block_count",
					  "block_enter", "both", "argument" };

static struct program p;
static CUfunction forms[FORMS];
static CUdeviceptr from, to, env, area;
static char *code; /* of the kernel */
static size_t code_bytes;
static unsigned arch, sms;

/* ---- making the forms ---- */

static void fail(const char *what, const struct report *r)
{
	struct buf why;

	buf_init(&why);
	report_text(r, &why);
	fprintf(stderr, "%s: %s\n", what, buf_text(&why));
	exit(1);
}

/* Caller frees. */
static char *compile(const char *text, size_t bytes, size_t *ret_bytes)
{
	CUlinkState s;
	void *image;
	char *copy;

	CU(cuLinkCreate(0, NULL, NULL, &s));
	CU(cuLinkAddData(s, CU_JIT_INPUT_PTX, unqual(text), bytes + 1, "stub", 0, NULL, NULL));
	CU(cuLinkComplete(s, &image, ret_bytes));
	copy = program_room(*ret_bytes);
	memcpy(copy, image, *ret_bytes);
	CU(cuLinkDestroy(s));
	return copy;
}

static struct ptx_probe store = { .hook = PROBE_BLOCK_ENTER,
				  .fields = PROBE_FIELD(3),
				  .name = "store",
				  .text = stub_store_text };
static struct ptx_probe count = { .hook = PROBE_BLOCK_ENTER,
				  .name = "count",
				  .text = stub_count_text };

static const struct {
	const struct ptx_probe *probes;
	unsigned n;
} programs_of[FORMS] = { [STORE] = { &store, 1 },
			 [COUNT] = { &count, 1 },
			 [BLOCKS] = { probe_both, 1 },
			 [BOTH] = { probe_both, 2 },
			 [ARGUMENT] = { &probe_of_arg, 1 } };

static const struct ptx_stub_kernel work = { "work", NULL };

/* All programs have one environment, which has the maps' addresses first. */
static uint32_t write_stub(struct buf *text, uint32_t pad, enum form f, struct report *r)
{
	const uint64_t envs[] = { env, env };
	struct ptx_stub_form form = { .pad = pad };
	int err;

	buf_init(text);
	err = f == GATE ? ptx_gate_stub(text, arch, pad)
			: ptx_probe_stub(text, arch, pad, &work, programs_of[f].probes, envs,
					 programs_of[f].n, &form, r);
	if (err) {
		fail("stub", r);
	}
	return form.pad;
}

static struct cubin_stub *make_stub(enum form f, struct report *r)
{
	uint32_t pads[] = { PTX_GATE_PAD_A, PTX_GATE_PAD_B };
	struct cubin_stub *s = NULL;
	size_t bytes[2];
	char *image[2];

	for (unsigned i = 0; i < 2; i++) {
		struct buf text;

		pads[i] = write_stub(&text, pads[i], f, r);
		image[i] = compile(buf_text(&text), text.len, &bytes[i]);
		buf_finish(&text);
	}
	if (cubin_stub_open(&s, image[0], bytes[0], pads[0], image[1], bytes[1], pads[1],
			    PTX_GATE_ENTRY, sizeof(struct ptx_gate_arg), r) < 0 ||
	    cubin_stub_check_programs(s, r) < 0) {
		fail("stub", r);
	}
	free(image[0]);
	free(image[1]);
	return s;
}

static CUfunction load(const void *image)
{
	CUfunction f;
	CUmodule m;

	CU(cuModuleLoadData(&m, image));
	CU(cuModuleGetFunction(&f, m, "work"));
	return f;
}

static void make_form(enum form f)
{
	struct cubin_patched *patched = NULL;
	const struct cubin_kernel *k;
	struct cubin_stub *s;
	struct report r;
	size_t bytes;

	report_init(&r);
	s = make_stub(f, &r);
	if (cubin_patch_copy(&patched, code, code_bytes, "work", s, NULL, NULL, &r) < 0) {
		fail("copy", &r);
	}
	forms[f] = load(cubin_patched_image(patched, &bytes));
	k = cubin_patched_find(patched, "work");
	printf("%s: registers %u instead of %u\n", form_names[f], k->patched_registers,
	       k->registers);
	cubin_patched_close(patched);
	cubin_stub_close(s);
	report_finish(&r);
}

/* ---- counts ---- */

struct counts {
	uint64_t blocks, sum;
	struct {
		uint64_t warps, lanes, time, reserved;
	} sm[SMS_MAX];
	uint64_t slot[STUB_SLOTS];
};

static void put_env(void)
{
	static const uint64_t counts_at[PTX_PROBE_MAPS_MAX] = { ARRAY_AT };
	static const uint64_t slots_at[PTX_PROBE_MAPS_MAX] = { ARRAY_AT +
							       offsetof(struct counts, slot) };
	uint64_t maps[2];

	count.map_offsets = counts_at;
	store.map_offsets = slots_at;
	env = program_zeros(ARRAY_AT + sizeof(struct counts));
	maps[0] = env + ARRAY_AT;
	maps[1] = maps[0] + offsetof(struct counts, sm);
	CU(cuMemcpyHtoD(env, maps, sizeof(maps)));
}

/* Returns the counts since the last call. */
static const struct counts *take_counts(void)
{
	static struct counts c;

	CU(cuCtxSynchronize());
	program_get(&c, env + ARRAY_AT, sizeof(c));
	CU(cuMemsetD8(env + ARRAY_AT, 0, sizeof(c)));
	CU(cuCtxSynchronize());
	return &c;
}

/* What a form counts of a grid from its block `from` on, of which `runs` run. */
static bool counted(enum form f, uint64_t first, uint64_t runs, uint64_t threads)
{
	const struct counts *c = take_counts();
	uint64_t blocks = f > STORE ? runs : 0,
		 warps = f == BOTH ? runs * ((threads + 31) / 32) : 0;
	uint64_t sum = f == ARGUMENT ? runs * ROUNDS
		       : f > COUNT   ? runs * first + runs * (runs - 1) / 2
				     : 0;
	uint64_t lanes = f == BOTH ? runs * threads : 0, w = 0, l = 0, wrong = 0;

	for (unsigned i = 0; i < SMS_MAX; i++) {
		w += c->sm[i].warps;
		l += c->sm[i].lanes;
	}
	for (uint64_t i = 0; i < STUB_SLOTS; i++) {
		bool stored = f == STORE && i >= first && i - first < runs;

		wrong += c->slot[i] != (stored ? i + 1 : 0);
	}
	if (c->blocks != blocks || c->sum != sum || w != warps || l != lanes || wrong) {
		fprintf(stderr,
			"%s: blocks %llu of %llu, indices %llu of %llu, warps %llu of %llu, "
			"lanes %llu of %llu, wrong slots %llu\n",
			form_names[f], (unsigned long long)c->blocks, (unsigned long long)blocks,
			(unsigned long long)c->sum, (unsigned long long)sum, (unsigned long long)w,
			(unsigned long long)warps, (unsigned long long)l, (unsigned long long)lanes,
			(unsigned long long)wrong);
		return false;
	}
	return true;
}

/* ---- launches ---- */

static void launch(enum form f, const unsigned *grid, const unsigned *block, uint32_t rounds,
		   struct ptx_gate_arg *arg)
{
	LAUNCH3(forms[f], grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, NULL, &from,
		&to, &rounds, arg);
}

/* Returns a hash of the results, and clears them. */
static uint64_t results(void)
{
	static uint32_t words[THREADS_MAX];

	CU(cuCtxSynchronize());
	program_get(words, to, sizeof(words));
	CU(cuMemsetD32(to, 0, THREADS_MAX));
	CU(cuCtxSynchronize());
	return hash_bytes(words, sizeof(words));
}

static const struct shape {
	unsigned grid[3], block[3];
} shapes[] = {
	{ { 1, 1, 1 }, { 1, 1, 1 } },	   { { 1, 1, 1 }, { 33, 1, 1 } },
	{ { 600, 1, 1 }, { 32, 1, 1 } },   { { 301, 1, 1 }, { 100, 1, 1 } },
	{ { 7, 5, 3 }, { 8, 4, 3 } },	   { { 64, 1, 1 }, { 1, 1, 64 } },
	{ { 200, 1, 1 }, { 1024, 1, 1 } }, { { 3, 40, 2 }, { 5, 7, 1 } },
};

static void run_shapes(void)
{
	struct ptx_gate_arg zero = { .gate = 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(shapes); i++) {
		const struct shape *s = &shapes[i];
		uint64_t blocks = (uint64_t)s->grid[0] * s->grid[1] * s->grid[2];
		uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
		uint64_t right;

		launch(ORIGINAL, s->grid, s->block, ROUNDS, &zero);
		right = results();
		for (enum form f = GATE; f < FORMS; f++) {
			launch(f, s->grid, s->block, ROUNDS, &zero);
			program_check(&p, results() == right, "results are the original's");
			program_check(&p, counted(f, 0, blocks, threads), "counts are exact");
		}
	}
}

/* A gate that is closed in the middle, and the launch that continues. */
static void run_gate(enum form f)
{
	static const unsigned grid[] = { 96, 1, 1 }, block[] = { 64, 1, 1 };
	const uint64_t n = grid[0], bound = 37;
	uint64_t closed = PTX_GATE_CLOSED | bound, open = n;
	struct ptx_gate_arg arg = { .leases = area,
				    .gate = area + PTX_GATE_WORD,
				    .done = area + PTX_GATE_WORD + 64,
				    .end = grid[0],
				    .number = 1 };
	uint64_t right;

	launch(ORIGINAL, grid, block, ROUNDS, &arg);
	right = results();
	CU(cuMemcpyHtoD(arg.gate, &closed, sizeof(closed)));
	launch(f, grid, block, ROUNDS, &arg);
	program_check(&p, counted(f, 0, bound, 64), "blocks that leave are not counted");
	CU(cuMemcpyHtoD(arg.gate, &open, sizeof(open)));
	arg.base = n;
	arg.from = (uint32_t)bound;
	launch(f, grid, block, ROUNDS, &arg);
	program_check(&p, counted(f, bound, n - bound, 64), "the continuation counts the rest");
	program_check(&p, results() == right, "results of both are the original's");
	CU(cuMemsetD8(area, 0, PTX_GATE_WORD + 128));
}

/* ---- times ---- */

static double time_us(enum form f, unsigned blocks, uint32_t rounds)
{
	const unsigned grid[] = { blocks, 1, 1 }, block[] = { 256, 1, 1 };
	struct ptx_gate_arg zero = { .gate = 0 };
	static CUevent begin, end;
	float ms = 0;

	if (!begin) {
		CU(cuEventCreate(&begin, 0));
		CU(cuEventCreate(&end, 0));
	}
	CU(cuEventRecord(begin, NULL));
	for (unsigned i = 0; i < CHAIN; i++) {
		launch(f, grid, block, rounds, &zero);
	}
	CU(cuEventRecord(end, NULL));
	CU(cuEventSynchronize(end));
	CU(cuEventElapsedTime(&ms, begin, end));
	return (double)ms * 1000 / CHAIN;
}

static int ascending(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;

	return a < b ? -1 : a > b;
}

static double median(double *v, unsigned n)
{
	qsort(v, n, sizeof(v[0]), ascending);
	return v[n / 2];
}

/* Waves of `per_sm` blocks on each multiprocessor. */
static void time_forms(unsigned per_sm, unsigned waves, uint32_t rounds, unsigned times)
{
	unsigned blocks = MIN(sms * per_sm * waves, THREADS_MAX / 256);
	double *us[FORMS], first = 0;

	waves = blocks / (sms * per_sm);
	for (enum form f = 0; f < FORMS; f++) {
		us[f] = program_room(times * sizeof(double));
	}
	for (unsigned t = 0; t < times; t++) {
		for (enum form f = 0; f < FORMS; f++) {
			us[f][t] = time_us(f, blocks, rounds);
		}
	}
	for (enum form f = 0; f < FORMS; f++) {
		double m = median(us[f], times);

		first = f ? first : m;
		printf("%u blocks of 256 threads, %u on each SM, %u waves, %u steps: %-11s "
		       "%9.2f us, ratio %.4f, %+.0f ns a wave\n",
		       blocks, per_sm, waves, rounds, form_names[f], m, m / first,
		       waves ? (m - first) * 1000 / waves : 0);
		free(us[f]);
	}
	(void)take_counts();
}

static void time_all(unsigned times)
{
	double us = time_us(ORIGINAL, sms, 20000);
	uint32_t rounds = (uint32_t)(20000 * (BLOCK_NS / 1000.0) / us) + 1;

	for (unsigned per_sm = 1; per_sm <= 8; per_sm *= 2) {
		time_forms(per_sm, 4, rounds, times);
	}
	time_forms(8, 3, 1, times);
}

int main(int argc, char **argv)
{
	int major = 0, minor = 0, n = 0;
	size_t bytes;
	char *text;

	program_open(&p, "spliced", argc, argv);
	CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, p.device));
	CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, p.device));
	CU(cuDeviceGetAttribute(&n, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p.device));
	arch = (unsigned)(major * 10 + minor);
	sms = (unsigned)n;
	text = program_read(argv[1], &bytes);
	code = compile(text, bytes, &code_bytes);
	free(text);
	from = program_zeros((size_t)4 * THREADS_MAX);
	to = program_zeros((size_t)4 * THREADS_MAX);
	area = program_zeros(PTX_GATE_WORD + 128);
	put_env();
	forms[ORIGINAL] = load(code);
	for (enum form f = GATE; f < FORMS; f++) {
		make_form(f);
	}
	run_shapes();
	for (enum form f = STORE; f < FORMS; f++) {
		run_gate(f);
	}
	if (argc > 2 && !p.wrong) {
		time_all((unsigned)strtoul(argv[2], NULL, 10) | 1);
	}
	free(code);
	return program_close(&p);
}
