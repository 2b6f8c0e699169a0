/* An aligned access of up to 16 bytes, scalar or vector, is one access: another block finds a store
 * whole or not at all, and a load never returns parts of two stores. The PTX manual does not
 * promise this for vectors; GPUs do it, and CUB's descriptors of tiles (status and value in one
 * vector) are wrong without it. Checked instruction by instruction, with every handler set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../trap_step.h"
#include "base/compiler.h"
#include "engine.h"
#include "soft/server/exec/handlers.h"

#define LANES 32u
#define LANE_BYTES 32u /* of a lane's element, which may be two accesses of 16 bytes */
#define ACCESS_MAX 16u
#define OUT_BYTES 64u /* of a lane's loaded components */
#define OLD 0x5a

enum where { GLOBAL, GENERIC, MIXED };

struct shape {
	const char *type; /* with the vector */
	unsigned n, bytes;
	bool wide; /* .b128 */
};

static const struct shape shapes[] = {
	{ ".u16", 1, 2, false },    { ".u32", 1, 4, false },	{ ".u64", 1, 8, false },
	{ ".v2.u8", 2, 1, false },  { ".v4.u8", 4, 1, false },	{ ".v2.u16", 2, 2, false },
	{ ".v4.u16", 4, 2, false }, { ".v2.u32", 2, 4, false }, { ".v4.u32", 4, 4, false },
	{ ".v2.u64", 2, 8, false }, { ".b128", 2, 8, true },	{ ".v8.u32", 8, 4, false },
	{ ".v4.u64", 4, 8, false },
};

struct access {
	const struct shape *shape;
	enum where where;
	bool some, load; /* some: not all lanes take part */
};

static const char head[] =
	".version 8.8\n.target sm_100\n.address_size 64\n"
	".visible .entry k(.param .u64 io, .param .u64 out)\n{\n"
	"	.reg .pred %p<4>;\n	.reg .b16 %h<10>;\n	.reg .b32 %r<24>;\n"
	"	.reg .b64 %d<24>;\n	.reg .b128 %q;\n"
	"	.shared .align 32 .b8 area[1024];\n"
	"	ld.param.u64 %d20, [io];\n	ld.param.u64 %d21, [out];\n"
	"	mov.u32 %r20, %tid.x;\n	mul.wide.u32 %d22, %r20, 32;\n"
	"	add.u64 %d20, %d20, %d22;\n	and.b32 %r21, %r20, 1;\n"
	"	setp.eq.u32 %p2, %r21, 1;\n	mov.u64 %d23, area;\n"
	"	cvta.shared.u64 %d23, %d23;\n	add.u64 %d23, %d23, %d22;\n"
	"	mul.wide.u32 %d22, %r20, 64;\n	add.u64 %d21, %d21, %d22;\n"
	"	mul.lo.u32 %r21, %r20, 0xaaaaaaab;\n	setp.gt.u32 %p1, %r21, 0x55555555;\n";

static const char *register_of(const struct shape *s)
{
	return s->bytes == 8 ? "%d" : s->bytes == 4 ? "%r" : "%h";
}

/* Two yields of the only warp end a turn of the block. */
#define PAUSE "	nanosleep.u32 1;\n	nanosleep.u32 1;\n"

/* Stored bytes differ from OLD and from component to component. */
static uint64_t value_of(unsigned k)
{
	return UINT64_C(0x1111111111111111) * (k + 1);
}

static void write_kernel(const struct access *a, char *text, size_t room)
{
	const struct shape *s = a->shape;
	const char *reg = register_of(s);
	char list[160] = "", values[1024] = "", outs[1024] = "";
	unsigned bits = s->bytes * 8;
	const bool vector = s->n > 1 && !s->wide;
	size_t n = 0, v = 0, o = 0;

	for (unsigned k = 0; k < s->n; k++) {
		n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s%u", k ? ", " : "", reg, k);
		v += (size_t)snprintf(values + v, sizeof(values) - v, "	mov.u%u %s%u, 0x%llx;\n",
				      MAX(bits, 16u), reg, k,
				      (unsigned long long)(value_of(k) >> (64 - bits)));
		o += (size_t)snprintf(outs + o, sizeof(outs) - o,
				      "	st.global.u%u [%%d21+%u], %s%u;\n", bits, k * s->bytes, reg,
				      k);
	}
	snprintf(text, room, "%s%s%s%s%s	%s%s%s%s %s%s%s%s%s;\n%s%s%s	ret;\n}\n", head,
		 values, a->where == MIXED ? "	selp.u64 %d20, %d23, %d20, %p2;\n" : "",
		 s->wide ? "	mov.b128 %q, {%d0, %d1};\n" : "", PAUSE, a->some ? "@%p1 " : "",
		 a->load ? "ld.relaxed.gpu" : "st.relaxed.gpu", a->where == GLOBAL ? ".global" : "",
		 s->type, a->load ? "" : "[%d20], ", vector ? "{" : "", s->wide ? "%q" : list,
		 vector ? "}" : "", a->load ? ", [%d20]" : "", PAUSE,
		 s->wide && a->load ? "	mov.b128 {%d0, %d1}, %q;\n" : "", a->load ? outs : "");
}

struct rig {
	struct engine e;
	uint8_t *io, *out;
	struct exec_block *block;
	const struct access *access;
	unsigned torn, looks;
	enum exec_status status;
};

static void turn(void *arg)
{
	struct rig *r = arg;
	struct exec_fault fault;
	uint64_t used;

	r->status = exec_block_run(r->block, UINT64_MAX, &used, &fault);
}

/* Makes the block and runs it to the access. */
static void rig_init(struct rig *r, const struct access *a, uint64_t params[2])
{
	struct exec_launch l = { .grid = { 1, 1, 1 }, .block = { LANES, 1, 1 }, .params = params };
	char text[4096], message[512] = "";

	engine_init(&r->e);
	r->access = a;
	r->torn = r->looks = 0;
	write_kernel(a, text, sizeof(text));
	if (engine_load(&r->e, text, strlen(text), "tearing", message, sizeof(message)) < 0) {
		fail_msg("%s\n%s", message, text);
	}
	r->io = engine_take(&r->e, (size_t)LANES * LANE_BYTES, &params[0]);
	r->out = engine_take(&r->e, (size_t)LANES * OUT_BYTES, &params[1]);
	l.function = exec_module_function_at(r->e.module, 0);
	l.space = &r->e.space;
	r->block = exec_block_create(&l);
	assert_non_null(r->block);
	memset(r->io, OLD, (size_t)LANES * LANE_BYTES);
	turn(r);
	assert_int_equal(r->status, EXEC_BUDGET);
}

static void rig_finish(struct rig *r)
{
	exec_block_destroy(r->block);
	engine_finish(&r->e);
}

static bool takes_part(const struct access *a, unsigned lane)
{
	return (!a->some || lane * 0xaaaaaaabu > 0x55555555u) && (a->where != MIXED || !(lane & 1));
}

/* Returns true if each access of the lane's store has changed all of its bytes or none. */
static bool is_whole(const struct access *a, const uint8_t *p)
{
	unsigned all = a->shape->n * a->shape->bytes, step = MIN(all, ACCESS_MAX);

	for (unsigned at = 0; at < all; at += step) {
		unsigned old = 0;

		for (unsigned i = 0; i < step; i++) {
			old += p[at + i] == OLD;
		}
		if (old != 0 && old != step) {
			return false;
		}
	}
	return true;
}

static bool is_stored(const struct access *a, const uint8_t *p)
{
	for (unsigned i = 0; i < a->shape->n * a->shape->bytes; i++) {
		if (p[i] != (uint8_t)value_of(i / a->shape->bytes)) {
			return false;
		}
	}
	return true;
}

static void look_at_stores(void *arg)
{
	struct rig *r = arg;

	for (unsigned lane = 0; lane < LANES; lane++) {
		r->torn += !is_whole(r->access, r->io + lane * LANE_BYTES);
	}
}

static void check_stores(const struct rig *r)
{
	for (unsigned lane = 0; lane < LANES; lane++) {
		const uint8_t *p = r->io + lane * LANE_BYTES;

		assert_true(takes_part(r->access, lane) ? is_stored(r->access, p) : p[0] == OLD);
	}
}

/* At each instruction all of the memory is another byte: a lane that loads it in one access finds
 * one byte only. */
static void change_for_loads(void *arg)
{
	struct rig *r = arg;
	uint64_t *io = (uint64_t *)(void *)r->io;
	const uint64_t next = UINT64_C(0x0101010101010101) * (++r->looks % 255 + 1);

	for (unsigned i = 0; i < LANES * LANE_BYTES / 8; i++) {
		io[i] = next;
	}
}

static void check_loads(struct rig *r)
{
	const unsigned all = r->access->shape->n * r->access->shape->bytes;

	for (unsigned lane = 0; lane < LANES; lane++) {
		const uint8_t *p = r->out + lane * OUT_BYTES;

		for (unsigned i = 0; takes_part(r->access, lane) && i < all; i++) {
			assert_int_not_equal(p[i], 0);
			r->torn += p[i] != p[i - i % ACCESS_MAX];
		}
	}
}

static void one_access(const struct access *a)
{
	struct rig *r = malloc(sizeof(*r));
	uint64_t params[2];

	assert_non_null(r);
	rig_init(r, a, params);
	assert_true(trap_step(turn, a->load ? change_for_loads : look_at_stores, r) > 10);
	assert_int_equal(r->status, EXEC_BUDGET);
	turn(r);
	assert_int_equal(r->status, EXEC_DONE);
	if (a->load) {
		check_loads(r);
	} else {
		check_stores(r);
	}
	if (r->torn) {
		fail_msg("%s%s, where %d, some %d: seen in part %u times", a->load ? "ld" : "st",
			 a->shape->type, a->where, a->some, r->torn);
	}
	rig_finish(r);
	free(r);
}

static void all_accesses(bool load)
{
	static const struct access ways[] = {
		{ .where = GLOBAL },
		{ .where = GLOBAL, .some = true },
		{ .where = GENERIC },
		{ .where = MIXED, .some = true },
	};
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];
	unsigned n = exec_handlers_sets(sets);

	for (unsigned k = 0; k < n; k++) {
		exec_handlers_force(sets[k]);
		for (size_t i = 0; i < ARRAY_SIZE(shapes) * ARRAY_SIZE(ways); i++) {
			struct access a = ways[i % ARRAY_SIZE(ways)];

			a.shape = &shapes[i / ARRAY_SIZE(ways)];
			a.load = load;
			one_access(&a);
		}
	}
	exec_handlers_force(NULL);
}

static void a_store_is_seen_whole(void **state)
{
	all_accesses(false);
}

static void a_load_sees_one_store(void **state)
{
	all_accesses(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_store_is_seen_whole),
		cmocka_unit_test(a_load_sees_one_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
