/* Generates kernels from the fuzzer's bytes and runs them for a while with every handler set, whole
 * and a few operations at a time. All runs must leave equal memory contents and touch only the
 * memory of the context. Most accesses are valid, some have random addresses. Built with the other
 * fuzzers; "fuzz_engine -runs=0 FILE" with GBPF_FUZZ_SHOW=1 prints the kernel of a file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "soft/server/exec/exec.h"
#include "soft/server/exec/handlers.h"
#include "soft/texture.h"

#define BASE UINT64_C(0x700000000000)
#define WINDOW ((size_t)64 << 10)
#define PAGES (WINDOW / EXEC_PAGE_BYTES)
#define BUFFER (3 * EXEC_PAGE_BYTES) /* start of the kernel's buffer: two pages, then a hole */
#define OPERATIONS 4000u
#define PARAM_BYTES 64u
#define OBJECTS_AT EXEC_PAGE_BYTES /* textures and surfaces, in the second page of the module */
#define OBJECTS 16u

/* Source of choices: the bytes of the input, then numbers derived from them. */
struct choices {
	const uint8_t *data;
	size_t left;
	uint64_t state;
	bool noisy; /* the result depends on time or on host addresses */
};

static uint32_t choose(struct choices *c, uint32_t n)
{
	uint32_t v;

	c->state = c->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	if (c->left) {
		v = *c->data++;
		c->left--;
		c->state ^= (uint64_t)v << 20;
		if (n > 256) {
			v = v << 8 ^ (uint32_t)(c->state >> 40);
		}
	} else {
		v = (uint32_t)(c->state >> 33);
	}
	return v % n;
}

/* $r $q $f $d $h $p $x: registers; $R $Q $F $D: or a constant; $P: a predicate, perhaps negated;
 * $G $S $L $A: a valid address in global, shared, local memory or a generic one; $W: any address;
 * $l: a label; $i: a small number; $T: a handle of an object, often of a plausible one. */
static const char *const forms[] = {
#include "fuzz_engine.def"
};

static const char *constant32(struct choices *c)
{
	static const char *const v[] = { "0",	 "1",	       "2",	     "3",	  "5",
					 "7",	 "8",	       "16",	     "31",	  "32",
					 "33",	 "63",	       "64",	     "100",	  "0xff",
					 "4095", "0x7fffffff", "0x80000000", "0xffffffff" };

	return v[choose(c, ARRAY_SIZE(v))];
}

static void any_address(struct choices *c, struct buf *out)
{
	static const char *const v[] = { "%q0", "%q1", "%q2",  "%q3",  "%q4",  "%q5",
					 "%r0", "%r1", "%q20", "%q21", "%q16", "%q17",
					 "%q0", "%q0", "%q6",  "%q7",  "%q18" };
	static const int32_t offsets[] = { 0,	 1,    2,    4,	   8,	 12,	16,   24,   32,
					   60,	 64,   -4,   -16,  252,	 256,	4064, 4080, 4088,
					   4092, 8160, 8176, 8188, 8192, -4096, 65532 };
	static const char *const at[] = { "0x6fffffffffff",	"0x700000010000",
					  "0x70000000fff0",	"0x7100000000000000",
					  "0x72000000000000f0", "0x7300000000000030",
					  "0x7400000000000000", "0xffffffffffffffff",
					  "0xfffffffffffffff0", "0",
					  "0x70ffffffffffffff", "0x71ffffffffffffff" };

	if (choose(c, 6) == 0) {
		buf_printf(out, "[%s]", at[choose(c, ARRAY_SIZE(at))]);
	} else {
		buf_printf(out, "[%s+%d]", v[choose(c, ARRAY_SIZE(v))],
			   offsets[choose(c, ARRAY_SIZE(offsets))]);
	}
}

/* Generates a valid address: appends code for its register to `before` and the operand to `out`. */
static void valid_address(struct choices *c, struct buf *before, struct buf *out, char space)
{
	static const char *const bases[] = { "%q0", "%q20", "%q21" };
	unsigned which = space == 'G' ? 0 : space == 'S' ? 1 : space == 'L' ? 2 : choose(c, 3);
	unsigned reg = choose(c, 10);
	const char *base =
		space == 'A' ? (const char *const[]){ "%q0", "%q22", "%q23" }[which] : bases[which];

	if (choose(c, 4) == 0) { /* one address for all lanes */
		buf_printf(out, "[%s+%u]", base, 32 * choose(c, 2));
		return;
	}
	if (choose(c, 2)) { /* lanes in a row */
		unsigned step = 4u << choose(c, which ? 1 : 4);

		buf_printf(before, "mul.lo.u32 %%r14, %%lane, %u; and.b32 %%r14, %%r14, %u;\n",
			   step, which ? 32 : 0xfe0 | (step < 32 ? 31 & ~(step - 1) : 0));
	} else {
		buf_printf(before, "and.b32 %%r14, %%r%u, %u;\n", reg, which == 0 ? 0x1fe0 : 0x20);
	}
	buf_printf(before, "cvt.u64.u32 %%q14, %%r14; add.u64 %%q14, %s, %%q14;\n", base);
	buf_puts(out, "[%q14]");
}

static void operand(struct choices *c, char letter, unsigned labels, struct buf *before,
		    struct buf *out)
{
	switch (letter) {
	case 'R':
		if (choose(c, 3) == 0) {
			buf_puts(out, constant32(c));
			break;
		}
		buf_printf(out, "%%r%u", choose(c, 10));
		break;
	case 'r':
		buf_printf(out, "%%r%u", choose(c, 10));
		break;
	case 'Q':
		if (choose(c, 3) == 0) {
			buf_puts(out, constant32(c));
			break;
		}
		buf_printf(out, "%%q%u", 1 + choose(c, 8));
		break;
	case 'q':
		buf_printf(out, "%%q%u", 1 + choose(c, 8));
		break;
	case 'F':
		if (choose(c, 4) == 0) {
			buf_printf(out, "0f%08X", choose(c, 65536) * 65537u);
			break;
		}
		buf_printf(out, "%%f%u", choose(c, 6));
		break;
	case 'f':
		buf_printf(out, "%%f%u", choose(c, 6));
		break;
	case 'D':
	case 'd':
		buf_printf(out, "%%d%u", choose(c, 6));
		break;
	case 'h':
		buf_printf(out, "%%h%u", choose(c, 6));
		break;
	case 'x':
		buf_printf(out, "%%x%u", choose(c, 3));
		break;
	case 'p':
		buf_printf(out, "%%p%u", choose(c, 6));
		break;
	case 'P':
		buf_printf(out, "%s%%p%u", choose(c, 2) ? "!" : "", choose(c, 6));
		break;
	case 'i':
		buf_printf(out, "%u", choose(c, 20));
		break;
	case 'l':
		buf_printf(out, "L%u", choose(c, labels));
		break;
	case 'T':
		buf_printf(before, "mov.u64 %%q19, 0x%llx;\n",
			   (unsigned long long)(BASE + OBJECTS_AT +
						choose(c, OBJECTS) * SOFT_TEXTURE_ALIGN) |
				   1ull << SOFT_TEXTURE_USE_SHIFT);
		buf_puts(out, choose(c, 30) ? "%q19" : "%q1");
		break;
	case 'W':
		any_address(c, out);
		break;
	default:
		if (choose(c, 40) == 0) {
			any_address(c, out);
		} else {
			valid_address(c, before, out, letter);
		}
		break;
	}
}

static void statement(struct choices *c, unsigned labels, struct buf *out)
{
	const char *s = forms[choose(c, ARRAY_SIZE(forms))];
	struct buf before, text;

	buf_init(&before);
	buf_init(&text);
	if (*s == '~') {
		c->noisy = true;
		s++;
	}
	if (choose(c, 4) == 0 && *s != '{') {
		buf_printf(&text, "@%s%%p%u ", choose(c, 2) ? "!" : "", choose(c, 6));
	}
	for (; *s; s++) {
		if (*s == '$') {
			operand(c, *++s, labels, &before, &text);
		} else {
			buf_printf(&text, "%c", *s);
		}
	}
	if (before.len) {
		buf_puts(out, buf_text(&before));
	}
	buf_puts(out, buf_text(&text));
	buf_puts(out, "\n");
	buf_finish(&before);
	buf_finish(&text);
}

static void body(struct choices *c, struct buf *out, bool entry)
{
	unsigned n = 4 + choose(c, 40), labels = 1 + choose(c, 6), placed = 0;

	buf_puts(out,
		 ".reg .b32 %r<16>; .reg .b64 %q<24>; .reg .f32 %f<6>; .reg .f64 %d<6>;\n"
		 ".reg .b16 %h<6>; .reg .pred %p<6>; .reg .b128 %x<3>; .reg .b32 %lane;\n"
		 ".local .align 32 .b8 loc[128];\n"
		 "mov.u32 %lane, %laneid; mov.u32 %r0, %tid.x; mov.u32 %r1, %laneid;\n"
		 "mov.u64 %q0, 0x700000003000; mov.u64 %q20, sh; mov.u64 %q21, loc;\n"
		 "cvta.shared.u64 %q22, %q20; cvta.local.u64 %q23, %q21;\n"
		 "mad.wide.u32 %q1, %r0, 4, %q0; mov.u64 %q6, %q22; mov.u64 %q7, %q23;\n"
		 "mov.u64 %q16, g; mov.u64 %q17, k; mov.u64 %q18, dyn;\n"
		 "mov.u32 %r2, 0x9e3779b9; mad.lo.u32 %r3, %r2, %r0, 7; cvt.rn.f32.u32 %f0, %r0;\n"
		 "cvt.rn.f64.s32 %d0, %r3; setp.lt.u32 %p0, %r1, 7; setp.gt.s32 %p1, %r3, 0;\n"
		 "cvt.u16.u32 %h0, %r3; mov.b32 %f1, %r3; mov.b64 %q2, {%r0, %r3};\n");
	buf_puts(out, entry ? "mov.u64 %q18, s; cvta.param.u64 %q18, %q18;\n"
			    : "ld.param.u32 %r4, [a]; ld.param.u64 %q3, [b];\n");
	for (unsigned i = 0; i < n; i++) {
		while (placed < labels && choose(c, n) < labels) {
			buf_printf(out, "L%u:\n", placed++);
		}
		statement(c, labels, out);
	}
	while (placed < labels) {
		buf_printf(out, "L%u:\n", placed++);
	}
	if (entry) {
		buf_puts(out,
			 "mad.wide.u32 %q15, %r0, 32, %q0; st.global.v4.u32 [%q15], {%r1, %r2, "
			 "%r3, %r4}; st.global.v2.u64 [%q15+16], {%q4, %q5};\n"
			 "st.shared.f32 [%q20+64], %f2; st.global.f64 [%q15+8], %d1;\n");
	} else {
		buf_puts(out, "st.param.b32 [r], %r4;\n");
	}
	buf_puts(out, "ret;\n}\n");
}

static void grow(struct choices *c, struct buf *out)
{
	unsigned functions = 2;

	buf_puts(out, ".version 8.3\n.target sm_90\n.address_size 64\n"
		      ".global .align 16 .u32 g[64] = {1,2,3,4,5,6,7,8};\n"
		      ".const .align 16 .u32 k[16] = {9,8,7,6,5,4,3,2};\n"
		      ".global .align 1 .b8 text[24] = {37,100,32,37,115,37,102,10,0,65,0};\n"
		      ".shared .align 32 .b8 sh[192];\n.extern .shared .align 16 .b8 dyn[];\n"
		      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
		      ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
		      ".extern .func free(.param .b64 p);\n");
	for (unsigned i = 0; i < functions; i++) {
		buf_printf(out, ".func (.param .b32 r) f%u(.param .b32 a, .param .b64 b);\n", i);
	}
	buf_puts(out, ".func (.reg .b32 r) fr(.reg .b32 a, .reg .b64 b)\n"
		      "{ add.u32 r, a, 3; cvt.u32.u64 a, b; xor.b32 r, r, a; ret; }\n");
	if (c->noisy) {
		buf_puts(out, ".global .align 8 .u64 table[2] = {f0, f1};\n");
	}
	for (unsigned i = 0; i < functions; i++) {
		buf_printf(out, ".func (.param .b32 r) f%u(.param .b32 a, .param .b64 b)\n{\n", i);
		body(c, out, false);
	}
	buf_puts(out, ".visible .entry kernel(.param .u64 p, .param .u32 n, .param .align 16 .b8 "
		      "s[32])\n{\n");
	body(c, out, true);
}

struct testbed {
	uint8_t *memory;
	uint8_t pages[PAGES];
	uint64_t heap, printed; /* checksum of the printed output */
	enum exec_status status[2];
	struct exec_fault fault;
	uint64_t used;
};

static uint64_t objects_seed; /* of this input */

static void note(void *arg, const char *text, size_t n)
{
	struct testbed *w = arg;

	for (size_t i = 0; i < n; i++) {
		w->printed = w->printed * 31 + (uint8_t)text[i];
	}
}

static uint64_t give(void *arg, uint64_t bytes)
{
	struct testbed *w = arg;

	if (bytes > 64 || w->heap > 256) {
		return 0;
	}
	w->heap += 64;
	return BASE + BUFFER + 4096 + w->heap;
}

static int take(void *arg, uint64_t address)
{
	return address % 64 ? -ENOENT : 0;
}

static struct exec_module *load(const struct exec_handlers *h, const struct buf *ptx)
{
	struct exec_module *m = NULL;
	struct report r;

	exec_handlers_force(h);
	report_init(&r);
	if (exec_module_load(&m, buf_text(ptx), ptx->len, "fuzz", &r) < 0 &&
	    getenv("GBPF_FUZZ_SHOW")) {
		fprintf(stderr, "%s: %s\n", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	return m;
}

/* Writes objects: small ones in the kernel's buffer, and in places wild values. */
static void write_objects(uint8_t *memory, uint64_t seed)
{
	struct choices c = { .state = seed };

	for (unsigned i = 0; i < OBJECTS; i++) {
		uint64_t at = OBJECTS_AT + (uint64_t)i * SOFT_TEXTURE_ALIGN;
		struct soft_texture t = { .handle = (BASE + at) | UINT64_C(1)
									  << SOFT_TEXTURE_USE_SHIFT,
					  .dead_after = choose(&c, 20) ? UINT64_MAX : 0,
					  .address = BASE + BUFFER + 16 * choose(&c, 64),
					  .pitch = choose(&c, 2) ? 0 : 64 * choose(&c, 4),
					  .kind = choose(&c, 3) ? SOFT_TEXTURE_SAMPLED
								: SOFT_TEXTURE_SURFACE,
					  .format = choose(&c, SOFT_TEXEL_FORMATS),
					  .channels = 1u << choose(&c, 3),
					  .flags = choose(&c, 128),
					  .width = 1 + choose(&c, 9),
					  .height = choose(&c, 9),
					  .depth = choose(&c, 7),
					  .levels = 1 + choose(&c, 4) };
		uint32_t words[sizeof(t) / sizeof(uint32_t)];

		t.last_level = choose(&c, t.levels);
		t.first_level = choose(&c, t.last_level + 1);
		t.depth += t.flags & SOFT_TEXTURE_LAYERED ? 1 : 0;
		t.layers = t.flags & SOFT_TEXTURE_LAYERED ? 1 + choose(&c, t.depth) : 0;
		t.first_layer = t.layers ? choose(&c, t.depth - t.layers + 1) : 0;
		for (unsigned k = 0; k < 3; k++) {
			t.address_mode[k] = choose(&c, 4);
		}
		t.max_level = (float)choose(&c, 5);
		t.bias = (float)choose(&c, 8) / 3;
		t.border[0] = (float)choose(&c, 512) / 7;
		memcpy(words, &t, sizeof(t));
		if (choose(&c, 3) == 0) { /* not the handle */
			words[2 + choose(&c, ARRAY_SIZE(words) - 2)] = (uint32_t)(c.state >> 32);
		}
		memcpy(memory + at, words, sizeof(words));
	}
}

static void run(struct testbed *w, struct exec_module *m, uint64_t budget, uint32_t threads)
{
	const struct exec_host host = {
		.print = note, .complain = note, .allocate = give, .release = take, .arg = w
	};
	struct exec_space space = { .base = BASE, .bytes = WINDOW, .pages = w->pages };
	uint8_t params[PARAM_BYTES] = { 1, 2, 3, 4, 5, 6, 7, 8 };
	struct exec_launch l = { .function = exec_module_function(m, "kernel"),
				 .grid = { 2, 1, 1 },
				 .block = { threads, 1, 1 },
				 .dynamic_shared_bytes = 48,
				 .params = params,
				 .space = &space,
				 .sm_count = 1,
				 .grid_workspace = BASE + BUFFER,
				 .host = &host };
	struct exec_block *b;

	memset(w->memory, 0, WINDOW);
	memset(w->pages, 0, sizeof(w->pages));
	memset(w->pages, 3, 2); /* page of the module */
	memset(w->pages + BUFFER / EXEC_PAGE_BYTES, 3, 2);
	w->pages[PAGES - 1] = 3;
	space.host = w->memory;
	w->heap = w->printed = w->used = 0;
	w->fault = (struct exec_fault){ 0 };
	exec_module_bind(m, BASE, w->memory);
	write_objects(w->memory, threads * UINT64_C(0x9e3779b97f4a7c15) + exec_module_functions(m) +
					 objects_seed);
	b = exec_block_create(&l);
	for (unsigned k = 0; b && k < 2; k++) {
		uint64_t used = 0, total = 0;

		exec_block_reset(b, k, 0);
		w->status[k] = EXEC_BUDGET;
		for (unsigned calls = 0;
		     calls < 2 * OPERATIONS && total < OPERATIONS && w->status[k] == EXEC_BUDGET;
		     calls++) {
			uint64_t n = budget < OPERATIONS - total ? budget : OPERATIONS - total;

			w->status[k] = exec_block_run(b, n, &used, &w->fault);
			if (used > n) {
				abort(); /* the turn took too long */
			}
			total += used;
		}
		w->used += total;
	}
	exec_block_destroy(b);
}

static void compare(const struct testbed *a, const struct testbed *b, const char *what)
{
	const char *differs = NULL;

	if (memcmp(a->status, b->status, sizeof(a->status)) != 0) {
		differs = "status";
	} else if (memcmp(a->memory, b->memory, WINDOW) != 0) {
		differs = "memory";
	} else if (a->printed != b->printed) {
		differs = "text";
	} else if (a->fault.address != b->fault.address || a->fault.line != b->fault.line ||
		   a->fault.thread != b->fault.thread) {
		differs = "fault";
	} else if (a->used != b->used && !a->fault.what) {
		differs = "operations";
	}
	if (differs) {
		fprintf(stderr,
			"%s differs: %s; status %d %d, %d %d, operations %llu %llu, lines %u %u\n",
			what, differs, a->status[0], a->status[1], b->status[0], b->status[1],
			(unsigned long long)a->used, (unsigned long long)b->used, a->fault.line,
			b->fault.line);
		for (size_t i = 0; i < WINDOW; i++) {
			if (a->memory[i] != b->memory[i]) {
				fprintf(stderr, "first at offset %zu: %02x %02x\n", i, a->memory[i],
					b->memory[i]);
				break;
			}
		}
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct testbed first, other;
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];
	unsigned n = exec_handlers_sets(sets);
	struct choices c = { .data = data, .left = size, .state = size };
	uint64_t budget;
	uint32_t threads;
	struct buf ptx;

	if (!first.memory) {
		/* The window ends where the accessible memory ends. */
		first.memory = aligned_alloc(EXEC_PAGE_BYTES, WINDOW);
		other.memory = aligned_alloc(EXEC_PAGE_BYTES, WINDOW);
	}
	threads = (const uint32_t[]){ 32, 32, 20, 1, 40, 64, 128 }[choose(&c, 7)];
	budget = 1 + choose(&c, 40) % 7;
	buf_init(&ptx);
	c.noisy = choose(&c, 8) == 0;
	objects_seed = choose(&c, 65536);
	grow(&c, &ptx);
	if (getenv("GBPF_FUZZ_SHOW")) {
		fprintf(stderr, "%s// %u threads, budget %u%s\n", buf_text(&ptx), threads,
			(unsigned)budget, c.noisy ? ", noisy" : "");
	}
	for (unsigned i = 0; i < n; i++) {
		struct exec_module *m = load(sets[i], &ptx);

		if (!m) {
			break;
		}
		run(i ? &other : &first, m, OPERATIONS, threads);
		if (i && !c.noisy) {
			compare(&first, &other, sets[i]->name);
		}
		run(&other, m, budget, threads);
		if (!c.noisy && threads <= EXEC_LANES) {
			compare(&first, &other, "a small budget");
		}
		exec_module_unref(m);
	}
	exec_handlers_force(NULL);
	buf_finish(&ptx);
	return 0;
}

#ifdef FIXED_SEEDS
/* Without the fuzzer: runs kernels of consecutive seeds. */
int main(int argc, char **argv)
{
	uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 500;

	for (uint64_t i = first; i < first + n; i++) {
		uint64_t seed = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
		uint8_t bytes[sizeof(seed)];

		seed ^= seed >> 29;
		memcpy(bytes, &seed, sizeof(seed));
		fprintf(stderr, "\rkernel %llu", (unsigned long long)i);
		LLVMFuzzerTestOneInput(bytes, sizeof(bytes));
	}
	fprintf(stderr, "\n");
	return 0;
}
#endif
