/* Loads one object for each construct (tests/data/load). Arguments: the name of a compiler and
 * instruction set, the folder of the sources, and the objects. A source's first line states the
 * expected result: accept:, open: (loaded but not verified), or refuse: and a text that the message
 * contains. Accepted objects are also inspected and run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <bpf/libbpf.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/load/elf/link.h"
#include "bpf/load/policy.h"
#include "random.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
#define GBPF_MAP_TYPE(id, name, ops, doc) MAP_##name = id,
#include "gbpf/hooks.def"
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

static const char *variant, *sources;
static char **objects;
static int n_objects;

static void read_all(const char *path, struct buf *out)
{
	buf_init(out);
	if (buf_read_file(out, path, 1u << 24)) {
		fail_msg("cannot read %s", path);
	}
}

/* ".../variant_name.bpf.o" among the arguments. */
static const char *object(const char *name)
{
	char end[128];

	snprintf(end, sizeof(end), "/%s_%s.bpf.o", variant, name);
	for (int i = 0; i < n_objects; i++) {
		size_t n = strlen(objects[i]), m = strlen(end);

		if (n >= m && strcmp(objects[i] + n - m, end) == 0) {
			return objects[i];
		}
	}
	fail_msg("no object %s among the arguments", name);
	return NULL;
}

/* ---- expectations in the first lines of the sources ---- */

static int decide(const void *elf, size_t bytes, int verify, struct report *r)
{
	static struct ebpf_object o;
	int err = ebpf_object_open(&o, elf, bytes, "x.bpf.o", r);

	if (err) {
		return err;
	}
	for (uint32_t i = 0; verify && err == 0 && i < o.n_progs; i++) {
		err = ebpf_verify(&o.progs[i], o.maps, o.n_maps, 0, NULL, r);
	}
	ebpf_object_finish(&o);
	return err;
}

static void check(const char *path)
{
	const char *base = strrchr(path, '/') + 1 + strlen(variant) + 1;
	char source[512];
	struct buf text, elf, all;
	struct report r;
	int err, wanted;

	snprintf(source, sizeof(source), "%s/%.*s.bpf.c", sources,
		 (int)(strstr(base, ".bpf.o") - base), base);
	read_all(source, &text);
	read_all(path, &elf);
	report_init(&r);
	buf_init(&all);
	wanted = strncmp(text.data, "/* refuse: ", 11) != 0;
	err = decide(elf.data, elf.len, strncmp(text.data, "/* open:", 8) != 0, &r);
	report_text(&r, &all);
	if (wanted && err) {
		fail_msg("%s (%s): %s", source, variant, buf_text(&all));
	} else if (!wanted) {
		char *want = text.data + strlen("/* refuse: ");

		*strstr(want, " */") = 0;
		if (!err || !strstr(buf_text(&all), want)) {
			fail_msg("%s (%s): wanted '%s', got: %s", source, variant, want,
				 err ? buf_text(&all) : "accepted");
		}
		assert_true(r.place.len > 0 && r.code[0] != 0);
	}
	buf_finish(&all);
	buf_finish(&text);
	buf_finish(&elf);
	report_finish(&r);
}

static void objects_are_decided_as_written(void **state)
{
	assert_true(n_objects >= 12);
	for (int i = 0; i < n_objects; i++) {
		if (!strstr(objects[i], "_link_")) {
			check(objects[i]);
		}
	}
}

/* ---- a policy in a process that plays all parts ---- */

struct stage {
	struct ebpf_built built;
	int fds[EBPF_REGIONS];
	void *mem[EBPF_REGIONS];
	struct ebpf_policy engines[2]; /* compiled, interpreted */
};

static void start(struct stage *s, const void *elf, size_t bytes)
{
	struct report r;
	int err;

	memset(s, 0, sizeof(*s));
	report_init(&r);
	err = ebpf_policy_build(&s->built, elf, bytes, "file.bpf.o", 1, 0, &r);
	if (err) {
		fail_msg("%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	report_finish(&r);
	for (int i = 0; i < EBPF_REGIONS; i++) {
		size_t n = s->built.region_bytes[i];

		s->fds[i] = n ? shm_create("region", n, SHM_NOEXEC) : -1;
		s->mem[i] = n ? shm_map(s->fds[i], n, 1) : NULL;
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ebpf_policy_open(&s->engines[i], s->built.image_fd, s->fds,
						  EBPF_OPEN_DAEMON | (i ? EBPF_OPEN_NO_JIT : 0)),
				 0);
	}
}

static void start_named(struct stage *s, const char *name)
{
	struct buf elf;

	read_all(object(name), &elf);
	start(s, elf.data, elf.len);
	buf_finish(&elf);
}

static void stop(struct stage *s)
{
	for (int i = 0; i < 2; i++) {
		ebpf_policy_close(&s->engines[i]);
	}
	for (int i = 0; i < EBPF_REGIONS; i++) {
		shm_unmap(s->mem[i], s->built.region_bytes[i]);
		if (s->fds[i] >= 0) {
			close(s->fds[i]);
		}
	}
	ebpf_built_finish(&s->built);
}

/* On both engines, each time from the maps' beginnings. */
static void expect(struct stage *s, int hook, const void *ctx, size_t bytes, uint64_t want)
{
	for (int i = 0; i < 2; i++) {
		uint64_t copy[64] = { 0 };

		memcpy(copy, ctx, bytes);
		for (int r = 0; r < EBPF_REGIONS; r++) {
			if (s->mem[r]) {
				memset(s->mem[r], 0, s->built.region_bytes[r]);
				ebpf_built_init_region(&s->built, (enum ebpf_region)r, s->mem[r]);
			}
		}
		assert_non_null(s->engines[i].insns[hook]);
		assert_int_equal(ebpf_policy_run(&s->engines[i], (unsigned)hook, copy), want);
	}
}

/* The contexts' layouts, as gbpf.bpf.h has them. */
typedef uint64_t u64;
typedef uint32_t u32;
typedef int32_t s32;
#define GBPF_CTX_BEGIN(hook) struct hook##_ctx {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

static const struct ebpf_prog *prog_of(const struct ebpf_object *o, int hook)
{
	for (uint32_t i = 0; i < o->n_progs; i++) {
		if (o->progs[i].hook == hook) {
			return &o->progs[i];
		}
	}
	fail_msg("no program for hook %d", hook);
	return NULL;
}

static uint32_t map_of(const struct ebpf_object *o, const char *name)
{
	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, name) == 0) {
			return i;
		}
	}
	fail_msg("no map %s", name);
	return 0;
}

static struct ebpf_object *open_named(const char *name)
{
	static struct ebpf_object o;
	struct report r;
	struct buf elf;

	report_init(&r);
	read_all(object(name), &elf);
	if (ebpf_object_open(&o, elf.data, elf.len, name, &r)) {
		fail_msg("%s: %s", name, buf_text(&r.message));
	}
	buf_finish(&elf); /* nothing is borrowed from the bytes */
	report_finish(&r);
	return &o;
}

/* ---- one construct each ---- */

static void a_callback_is_a_function_of_each_program_that_names_it(void **state)
{
	struct ebpf_object *o = open_named("ok_callback");
	struct submit_ctx submit = { 0 };
	struct dispatch_ctx dispatch = { 0 };
	static struct stage s;

	assert_int_equal(o->n_progs, 2);
	for (uint32_t i = 0; i < o->n_progs; i++) {
		const struct ebpf_prog *p = &o->progs[i];
		uint32_t seen = 0;

		for (uint32_t pc = 0; pc < p->n_insns; pc++) {
			const struct ebpf_insn *in = &p->insns[pc];

			if (in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_FUNC) {
				uint32_t to = (uint32_t)((int32_t)pc + 1 + in->imm), k = 1;

				for (; k < p->n_subprogs && p->subprog[k] != to; k++) {
				}
				assert_true(k < p->n_subprogs);
				assert_int_equal(in[1].imm, 0);
				seen++;
			}
			pc += in->code == EBPF_LD_IMM64;
		}
		assert_int_equal(seen, p->hook == HOOK_submit ? 1 : 2);
		assert_int_equal(p->n_subprogs, 1 + seen);
	}
	ebpf_object_finish(o);
	start_named(&s, "ok_callback");
	expect(&s, HOOK_dispatch, &dispatch, sizeof(dispatch), 453);
	expect(&s, HOOK_submit, &submit, sizeof(submit), 3);
	stop(&s);
}

static void tails_are_functions_of_the_program_in_order(void **state)
{
	struct ebpf_object *o = open_named("ok_tails");
	const struct ebpf_prog *p = prog_of(o, HOOK_dispatch);
	uint32_t map = map_of(o, "ranks");
	static struct stage s;

	assert_int_equal(o->n_progs, 1);
	assert_string_equal(p->name, "rank");
	assert_int_equal(p->n_subprogs, 4); /* rank, low, high, scaled */
	assert_int_equal(p->n_tails, 3);
	for (uint32_t i = 0; i < 3; i++) {
		static const uint32_t index[] = { 1, 6, 7 };

		assert_int_equal(p->tails[i].map, map);
		assert_int_equal(p->tails[i].index, index[i]);
		assert_string_equal(p->subprog_name[p->tails[i].subprog], i == 1 ? "high" : "low");
	}
	assert_int_equal(o->maps[map].type, MAP_PROG_ARRAY);
	assert_int_equal(o->maps[map].value_bytes, 4);
	ebpf_object_finish(o);
	start_named(&s, "ok_tails");
	for (uint32_t queue = 0; queue < 10; queue++) {
		struct dispatch_ctx ctx = { .queue = queue, .held_ns = 7 };
		uint32_t low = queue == 1 || queue == 7;

		expect(&s, HOOK_dispatch, &ctx, sizeof(ctx), low ? 5 : queue == 6 ? 21 : 9);
		ctx.held_ns = 101;
		expect(&s, HOOK_dispatch, &ctx, sizeof(ctx), low || queue == 6 ? 5 : 9);
	}
	stop(&s);
}

static int open_with_tails(const struct stage *s, const struct ebpf_tail_at *tails, uint32_t n)
{
	struct ebpf_image_header h = *(const struct ebpf_image_header *)s->engines[0].image;
	const struct ebpf_map_def *defs =
		(const void *)((const char *)s->engines[0].image + sizeof(h));
	const struct ebpf_insn *insns = (const void *)(defs + h.n_maps);
	static struct ebpf_policy p;
	int fd, err;

	h.n_tails = n;
	h.progs[HOOK_dispatch].n_tails = n;
	h.progs[HOOK_dispatch].code_offset = UINT32_MAX;
	fd = ebpf_image_build_parts(
		&h, &(struct ebpf_image_parts){ .defs = defs, .insns = insns, .tails = tails });
	assert_true(fd >= 0);
	err = ebpf_policy_open(&p, fd, s->fds, EBPF_OPEN_DAEMON);
	if (err == 0) {
		ebpf_policy_close(&p);
	}
	close(fd);
	return err;
}

static void an_image_with_wrong_tails_is_refused(void **state)
{
	static struct stage s;
	struct ebpf_tail_at good[3], t[3];
	const struct ebpf_insn *insns;
	uint32_t wide = 0;

	start_named(&s, "ok_tails");
	memcpy(good, s.engines[0].tails[HOOK_dispatch], sizeof(good));
	insns = s.engines[0].insns[HOOK_dispatch];
	while (insns[wide].code != EBPF_LD_IMM64) {
		wide++;
	}
	assert_int_equal(open_with_tails(&s, good, 3), 0);
	for (int k = 0; k < 7; k++) {
		memcpy(t, good, sizeof(t));
		switch (k) {
		case 0: /* out of order */
			t[0] = good[1];
			t[1] = good[0];
			break;
		case 1: /* twice the same */
			t[1] = t[0];
			break;
		case 2: /* behind max_entries */
			t[2].index = 8;
			break;
		case 3: /* no such map */
			t[2].map = 1;
			break;
		case 4: /* behind the program */
			t[0].insn = s.engines[0].n_insns[HOOK_dispatch];
			break;
		case 5: /* where control comes from before */
			t[0].insn++;
			break;
		default: /* a second half */
			t[0].insn = wide + 1;
		}
		assert_int_equal(open_with_tails(&s, t, 3), -EINVAL);
	}
	stop(&s);
}

static void arrays_of_maps_begin_as_written(void **state)
{
	struct ebpf_object *o = open_named("ok_inner");
	uint32_t both = map_of(o, "both"), none = map_of(o, "none");
	uint32_t first = map_of(o, "first"), second = map_of(o, "second");
	const uint32_t *entries = o->init[both];
	static struct stage s;

	assert_int_equal(o->maps[both].type, MAP_ARRAY_OF_MAPS);
	assert_true(o->maps[both].inner_1 == first + 1 || o->maps[both].inner_1 == second + 1);
	assert_true(o->maps[none].inner_1 == first + 1 || o->maps[none].inner_1 == second + 1);
	assert_int_equal(entries[0], second + 1);
	assert_int_equal(entries[1], 0);
	assert_int_equal(entries[2], first + 1);
	assert_int_equal(((const uint32_t *)o->init[none])[0], 0);
	ebpf_object_finish(o);
	start_named(&s, "ok_inner");
	for (uint32_t queue = 0; queue < 4; queue++) {
		struct dispatch_ctx ctx = { .queue = queue };

		expect(&s, HOOK_dispatch, &ctx, sizeof(ctx), queue % 2 ? 1000 : 0);
		expect(&s, HOOK_tick, (struct tick_ctx[1]){ 0 }, sizeof(struct tick_ctx), 0);
		ebpf_policy_run(&s.engines[0], HOOK_tick, &ctx);
		assert_int_equal(ebpf_policy_run(&s.engines[1], HOOK_dispatch, &ctx),
				 queue == 0   ? 2
				 : queue == 2 ? 20
					      : 1000);
	}
	stop(&s);
}

static void a_lock_is_found_in_its_value(void **state)
{
	struct ebpf_object *o = open_named("ok_lock");
	const struct ebpf_map_def *d = &o->maps[map_of(o, "shared")];
	struct tick_ctx ctx = { .tenants = 4 };
	static struct stage s;

	assert_int_equal(d->lock_1, 8 + 1);
	assert_int_equal(d->value_bytes, 16);
	ebpf_object_finish(o);
	start_named(&s, "ok_lock");
	expect(&s, HOOK_tick, &ctx, sizeof(ctx), 0);
	ebpf_policy_run(&s.engines[0], HOOK_tick, &ctx);
	assert_int_equal(((const uint64_t *)s.mem[EBPF_REGION_DAEMON])[0], 8);
	stop(&s);
}

static void helpers_are_found_by_name(void **state)
{
	struct ebpf_object *o = open_named("ok_extern");
	const struct ebpf_prog *p = prog_of(o, HOOK_submit);
	struct submit_ctx ctx = { .est_ns = 5 };
	int called = 0;
	static struct stage s;

	for (uint32_t pc = 0; pc < p->n_insns; pc++) {
		const struct ebpf_insn *in = &p->insns[pc];

		assert_int_not_equal(in->code == (EBPF_JMP | EBPF_CALL) && in->imm == -1, 1);
		called |= in->code == (EBPF_JMP | EBPF_CALL) && in->src == 0 && in->imm == 1003;
	}
	assert_true(called);
	assert_string_equal(o->version, "2024.11");
	assert_int_equal(p->n_poisons, 1);
	assert_non_null(strstr(p->poisons[0].why, "gbpf_from_the_future"));
	ebpf_object_finish(o);
	start_named(&s, "ok_extern");
	expect(&s, HOOK_submit, &ctx, sizeof(ctx), GBPF_DEFER);
	assert_int_equal(s.engines[0].env.notes[3], 5);
	stop(&s);
}

static void a_struct_of_programs_is_a_policy(void **state)
{
	struct ebpf_object *o = open_named("ok_ops");
	struct submit_ctx ctx = { .est_ns = 1001 };
	static struct stage s;

	assert_string_equal(o->name, "struct_form");
	assert_string_equal(o->version, "1.2-rc3");
	assert_int_equal(o->n_progs, 4);
	assert_string_equal(prog_of(o, HOOK_submit)->name, "go");
	assert_string_equal(prog_of(o, HOOK_tick)->name, "count");
	assert_string_equal(prog_of(o, HOOK_init)->name, "begin");
	assert_string_equal(prog_of(o, HOOK_retire)->name, "done");
	ebpf_object_finish(o);
	start_named(&s, "ok_ops");
	expect(&s, HOOK_submit, &ctx, sizeof(ctx), GBPF_HOLD);
	stop(&s);
}

static void the_tables_names_are_hooks(void **state)
{
	struct ebpf_object *o = open_named("ok_gdrv");

	assert_string_equal(o->name, "tables");
	assert_string_equal(o->version, "");
	assert_int_equal(o->n_progs, 3);
	assert_string_equal(prog_of(o, HOOK_submit)->name, "go");
	assert_string_equal(prog_of(o, HOOK_queue_create)->name, "create");
	assert_string_equal(prog_of(o, HOOK_exit)->name, "end");
	ebpf_object_finish(o);
}

static void fields_are_found_where_they_are(void **state)
{
	struct submit_ctx ctx = {
		.est_ns = 11, .blocks = 12, .weight = 13, .tenant = 14, .flags = 15, .threads = 77
	};
	struct ebpf_object *o = open_named("ok_core");
	static struct stage s;

	assert_int_equal(prog_of(o, HOOK_submit)->n_poisons, 1); /* the unreachable one */
	ebpf_object_finish(o);
	start_named(&s, "ok_core");
	expect(&s, HOOK_submit, &ctx, sizeof(ctx), GBPF_HOLD);
	ctx.blocks = 0;
	expect(&s, HOOK_submit, &ctx, sizeof(ctx), GBPF_GO);
	stop(&s);
	start_named(&s, "ok_core_array");
	expect(&s, HOOK_submit, &ctx, sizeof(ctx), GBPF_HOLD);
	stop(&s);
}

static void data_of_every_kind_begins_as_written(void **state)
{
	struct dispatch_ctx ctx = { .queue = 2 };
	struct ebpf_object *o = open_named("ok_sections");
	const struct ebpf_prog *p = prog_of(o, HOOK_dispatch);
	static struct stage s;

	assert_int_equal(p->n_subprogs, 3);
	assert_string_equal(o->license, "Apache-2.0");
	assert_int_equal(o->maps[map_of(o, ".data.mine")].flags, 0);
	assert_int_equal(o->maps[map_of(o, ".bss.tenant")].flags, GBPF_F_TENANT);
	assert_int_equal(*(const uint64_t *)o->init[map_of(o, ".data")], 5);
	assert_true(o->value_type[map_of(o, ".data")] > 0);
	ebpf_object_finish(o);
	start_named(&s, "ok_data");
	expect(&s, HOOK_dispatch, &ctx, sizeof(ctx), 3 + 40 + 5 + 8 + 6 + 11 + 't');
	stop(&s);
	start_named(&s, "ok_sections");
	expect(&s, HOOK_dispatch, &ctx, sizeof(ctx), 3 * 2 + 40 + 5 + 6);
	stop(&s);
}

static void maps_of_every_kind_have_their_numbers(void **state)
{
	static const struct {
		const char *name;
		uint32_t type, key, value, entries, flags;
	} want[] = {
		{ "m_hash", MAP_HASH, 8, 16, 100, 0 },
		{ "m_lru", MAP_LRU_HASH, 4, 8, 100, GBPF_F_TENANT },
		{ "m_thread", MAP_THREAD_ARRAY, 4, 8, 4, GBPF_F_TENANT },
		{ "m_hist", MAP_HISTOGRAM, 4, 512, 3, GBPF_F_TENANT },
		{ "m_sm", MAP_SM_ARRAY, 4, 8, 4, GBPF_F_DEVICE },
		{ "m_warp", MAP_WARP_ARRAY, 4, 16, 4, GBPF_F_DEVICE },
		{ "m_sm_ring", MAP_SM_RING, 0, 16, 64, GBPF_F_DEVICE },
		{ "m_scratch", MAP_WARP_SCRATCH, 4, 16, 4, GBPF_F_DEVICE },
		{ "m_pinned", MAP_LRU_HASH, 4, 8, 100, GBPF_F_DEVICE | GBPF_F_HOST },
		{ "m_ring", MAP_RINGBUF, 0, 0, 65536, GBPF_F_TENANT },
		{ "m_queue", MAP_QUEUE, 0, 4, 16, GBPF_F_DAEMON },
		{ "m_stack", MAP_STACK, 0, 4, 16, GBPF_F_DAEMON },
		{ "m_trie", MAP_LPM_TRIE, 12, 4, 16, 0 },
		{ "m_epoch", MAP_ARRAY, 4, 24, 16, GBPF_F_EPOCH },
	};
	struct ebpf_object *o = open_named("ok_maps");

	assert_int_equal(o->n_maps, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		uint32_t k = map_of(o, want[i].name);
		const struct ebpf_map_def *d = &o->maps[k];

		assert_int_equal(d->type, want[i].type);
		assert_int_equal(d->key_bytes, want[i].key);
		assert_int_equal(d->value_bytes, want[i].value);
		assert_int_equal(d->max_entries, want[i].entries);
		assert_int_equal(d->flags, want[i].flags);
	}
	assert_true(o->value_type[map_of(o, "m_ring")] > 0);
	assert_true(o->key_type[map_of(o, "m_trie")] > 0);
	assert_int_equal(o->key_type[map_of(o, "m_epoch")], 0);
	ebpf_object_finish(o);
}

static void maps_of_bpftime_become_maps_of_the_gpu(void **state)
{
	static const struct {
		const char *name;
		uint32_t type, key, value, entries, place;
	} want[] = {
		{ "m_hash", MAP_HASH, 8, 8, 64, 0 },
		{ "m_thread", MAP_WARP_ARRAY, 4, 8, 4, 0 },
		{ "m_array", MAP_ARRAY, 4, 8, 4, 0 },
		{ "m_shared", MAP_ARRAY, 4, 8, 4, 0 },
		{ "m_thread_host", MAP_WARP_ARRAY, 4, 8, 4, GBPF_F_HOST },
		{ "m_array_host", MAP_ARRAY, 4, 8, 4, GBPF_F_HOST },
		{ "m_events", MAP_SM_RING, 0, 16, 128, 0 },
	};
	struct ebpf_object *o = open_named("ok_bpftime");

	assert_int_equal(o->n_maps, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct ebpf_map_def *d = &o->maps[map_of(o, want[i].name)];

		assert_int_equal(d->type, want[i].type);
		assert_int_equal(d->key_bytes, want[i].key);
		assert_int_equal(d->value_bytes, want[i].value);
		assert_int_equal(d->max_entries, want[i].entries);
		assert_int_equal(d->flags, GBPF_F_DEVICE | want[i].place);
	}
	ebpf_object_finish(o);
}

static void members_of_structs_run_inside_kernels(void **state)
{
	struct ebpf_object *o = open_named("ok_gdev_ops");
	const struct {
		int hook;
		const char *name;
	} want[] = { { 32, "on_enter" }, { 33, "on_exit" }, { 38, "on_access" } };

	assert_string_equal(o->name, "ops");
	assert_int_equal(o->n_progs, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct ebpf_prog *p = prog_of(o, want[i].hook);

		assert_string_equal(p->name, want[i].name);
		assert_string_equal(p->kernel, "*");
		assert_string_equal(p->site, "");
		assert_int_equal(p->lane, 0);
	}
	ebpf_object_finish(o);
}

/* libbpf reads the same declarations and contents out of the same objects. (It knows no structs of
 * programs but the kernel's, and fills in what authors leave out at another time.) */
static void libbpf_sees_the_same_maps(void **state)
{
	static const char *const names[] = { "ok_callback", "ok_tails", "ok_lock", "ok_data",
					     "ok_core",	    "ok_maps",	"ok_inner" };
	unsigned compared = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct ebpf_object *o = open_named(names[i]);
		struct bpf_object *theirs = bpf_object__open_file(object(names[i]), NULL);
		const struct bpf_map *m;

		assert_non_null(theirs);
		bpf_object__for_each_map(m, theirs)
		{
			const char *name = bpf_map__name(m), *dot = strchr(name, '.');
			const struct ebpf_map_def *d;
			const void *init;
			size_t bytes;

			if (!bpf_map__is_internal(m)) {
				d = &o->maps[map_of(o, name)];
				assert_int_equal(bpf_map__type(m), d->type);
				assert_int_equal(bpf_map__max_entries(m), d->max_entries);
				assert_int_equal(bpf_map__map_flags(m), d->flags);
				if (d->type != MAP_RINGBUF && d->type != MAP_HISTOGRAM) {
					assert_int_equal(bpf_map__key_size(m), d->key_bytes);
					assert_int_equal(bpf_map__value_size(m), d->value_bytes);
				}
				compared++;
			} else if (dot && strncmp(name, dot, 1) != 0) { /* "x.rodata" is .rodata */
				init = bpf_map__initial_value((struct bpf_map *)(uintptr_t)m,
							      &bytes);
				d = &o->maps[map_of(o, dot)];
				assert_int_equal(bytes, d->value_bytes);
				assert_memory_equal(init, o->init[d - o->maps], bytes);
				compared++;
			}
		}
		bpf_object__close(theirs);
		ebpf_object_finish(o);
	}
	assert_true(compared >= 18);
}

/* ---- several objects ---- */

static int link_two(const char *a, size_t cut_a, const char *b, struct buf *out, struct report *r)
{
	struct buf x, y;
	struct ebpf_link_input in[2];
	int err;

	read_all(object(a), &x);
	read_all(object(b), &y);
	in[0] = (struct ebpf_link_input){ "a.bpf.o", x.data, cut_a ? cut_a : x.len };
	in[1] = (struct ebpf_link_input){ "b.bpf.o", y.data, y.len };
	buf_init(out);
	report_init(r);
	err = ebpf_link_objects(in, 2, out, r);
	buf_finish(&x);
	buf_finish(&y);
	return err;
}

static void two_objects_are_one_policy(void **state)
{
	struct submit_ctx submit = { .est_ns = 12, .class_id = 1 };
	struct retire_ctx retire = { .count = 3 };
	struct report r;
	struct buf out;
	static struct stage s;

	if (link_two("link_a", 0, "link_b", &out, &r)) {
		fail_msg("%s", buf_text(&r.message));
	}
	start(&s, out.data, out.len);
	assert_int_equal(s.built.object.n_progs, 2);
	expect(&s, HOOK_submit, &submit, sizeof(submit), GBPF_GO); /* 7 + 5 */
	submit.est_ns = 13;
	expect(&s, HOOK_submit, &submit, sizeof(submit), GBPF_HOLD);
	expect(&s, HOOK_retire, &retire, sizeof(retire), 0);
	stop(&s);
	buf_finish(&out);
	report_finish(&r);
}

/* Structs of programs, arrays of maps, CO-RE, tail calls and locks survive linking. */
static void every_construct_can_be_linked(void **state)
{
	static const struct {
		const char *a, *b;
		uint32_t progs;
	} pairs[] = { { "ok_future", "ok_inner", 3 },
		      { "ok_core", "ok_tails", 2 },
		      { "ok_callback", "ok_lock", 3 },
		      { "ok_data", "ok_core_array", 2 } };

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		struct submit_ctx ctx = {
			.est_ns = 11, .blocks = 12, .weight = 13, .tenant = 14, .flags = 15
		};
		static struct stage s;
		struct report r;
		struct buf out;

		if (link_two(pairs[i].a, 0, pairs[i].b, &out, &r)) {
			fail_msg("%s + %s: %s", pairs[i].a, pairs[i].b, buf_text(&r.message));
		}
		start(&s, out.data, out.len);
		assert_int_equal(s.built.object.n_progs, pairs[i].progs);
		expect(&s, HOOK_submit, &ctx, sizeof(ctx), i == 2 ? 3 : GBPF_HOLD);
		stop(&s);
		buf_finish(&out);
		report_finish(&r);
	}
}

static void objects_that_do_not_fit_are_refused(void **state)
{
	struct report r;
	struct buf out;

	assert_int_equal(link_two("link_a", 0, "link_a", &out, &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "cannot be linked"));
	assert_non_null(strstr(buf_text(&r.message), "go"));
	assert_int_equal(out.len, 0);
	report_finish(&r);
	assert_int_equal(link_two("link_a", 0, "ok_sections", &out, &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "license"));
	assert_non_null(strstr(buf_text(&r.hint), "licence"));
	report_finish(&r);
	assert_int_equal(link_two("link_a", 700, "link_b", &out, &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "truncated"));
	assert_non_null(strstr(buf_text(&r.place), "a.bpf.o"));
	report_finish(&r);
}

/* libbpf's linker trusts what it reads: whatever it does, we live. */
static void damaged_objects_do_not_harm_who_links_them(void **state)
{
	struct rng rng = { 11 };
	struct buf x, y;

	read_all(object("link_a"), &x);
	read_all(object("link_b"), &y);
	for (int i = 0; i < 60; i++) {
		char *copy = malloc(x.len);
		struct ebpf_link_input in[2] = { { "a", copy, x.len }, { "b", y.data, y.len } };
		struct report r;
		struct buf out;
		int err;

		assert_non_null(copy);
		memcpy(copy, x.data, x.len);
		for (unsigned n = 1 + rng_below(&rng, 6); n-- > 0;) {
			size_t at = rng_below(&rng, 2) ? x.len - 1 - rng_below(&rng, 2000)
						       : rng_below(&rng, (uint32_t)x.len);

			copy[at] = (char)rng_next(&rng);
		}
		buf_init(&out);
		report_init(&r);
		err = ebpf_link_objects(in, 2, &out, &r);
		if (err == 0) {
			decide(out.data, out.len, 1, &r);
		} else {
			assert_true(r.message.len > 0);
		}
		report_finish(&r);
		buf_finish(&out);
		free(copy);
	}
	buf_finish(&x);
	buf_finish(&y);
}

/* ---- malformed objects ---- */

static void every_prefix_is_refused(void **state)
{
	static const char *const names[] = { "ok_inner", "ok_ops", "ok_core" };

	for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
		struct buf elf;

		read_all(object(names[k]), &elf);
		for (size_t n = 0; n < elf.len; n += n < 200 || n + 200 > elf.len ? 1 : 37) {
			struct report r;
			char *copy = malloc(n + 1); /* so that a sanitizer sees reads behind it */

			assert_non_null(copy);
			memcpy(copy, elf.data, n);
			report_init(&r);
			assert_int_equal(decide(copy, n, 0, &r), -EINVAL);
			assert_true(r.message.len > 0 && r.place.len > 0);
			report_finish(&r);
			free(copy);
		}
		buf_finish(&elf);
	}
}

/* Returns the header of a section, or NULL. */
static Elf64_Shdr *header(struct buf *elf, const char *name)
{
	Elf64_Ehdr *h = (Elf64_Ehdr *)(void *)elf->data;
	Elf64_Shdr *s = (Elf64_Shdr *)(void *)(elf->data + h->e_shoff);

	for (unsigned i = 1; i < h->e_shnum; i++) {
		if (strcmp(elf->data + s[h->e_shstrndx].sh_offset + s[i].sh_name, name) == 0) {
			return &s[i];
		}
	}
	return NULL;
}

/* Bytes of a section, or NULL. */
static char *section(struct buf *elf, const char *name, size_t *ret_bytes)
{
	const Elf64_Shdr *s = header(elf, name);

	*ret_bytes = s ? s->sh_size : *ret_bytes;
	return s ? elf->data + s->sh_offset : NULL;
}

/* Any bytes where they matter: never a crash, and a refusal always says why. */
static void damaged_objects_do_no_harm(void **state)
{
	static const char *const where[] = {
		".BTF",	     ".BTF.ext",	".symtab",	 ".struct_ops", ".maps",
		".rel.maps", ".rel.struct_ops", "struct_ops/go", "gbpf/submit", ".relgbpf/submit"
	};
	struct rng rng = { 13 };

	for (int i = 0; i < n_objects; i++) {
		struct buf elf;
		char *copy;

		if (!strstr(objects[i], "_ok_")) {
			continue;
		}
		read_all(objects[i], &elf);
		copy = malloc(elf.len);
		assert_non_null(copy);
		memcpy(copy, elf.data, elf.len);
		for (int k = 0; k < 400; k++) {
			struct report r;
			size_t bytes = elf.len;
			char *at =
				rng_below(&rng, 4) == 0
					? elf.data
					: section(&elf, where[rng_below(&rng, ARRAY_SIZE(where))],
						  &bytes);

			for (unsigned n = 1 + rng_below(&rng, 3); at && bytes && n-- > 0;) {
				at[rng_below(&rng, (uint32_t)bytes)] =
					rng_below(&rng, 2) ? (char)rng_next(&rng)
							   : (char)rng_below(&rng, 16);
			}
			report_init(&r);
			if (decide(elf.data, elf.len, 1, &r)) {
				assert_true(r.message.len > 0);
			}
			report_finish(&r);
			memcpy(elf.data, copy, elf.len);
		}
		free(copy);
		buf_finish(&elf);
	}
}

static void thread_local_data_is_named(void **state)
{
	struct buf elf;
	struct report r;

	read_all(object("ok_sections"), &elf);
	header(&elf, ".data")->sh_flags |= SHF_TLS;
	report_init(&r);
	assert_int_equal(decide(elf.data, elf.len, 0, &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "thread-local"));
	assert_non_null(strstr(buf_text(&r.hint), "GBPF_MAP_THREAD_ARRAY"));
	report_finish(&r);
	buf_finish(&elf);
}

static void a_license_without_data_is_none(void **state)
{
	struct buf elf;
	struct report r;

	read_all(object("ok_sections"), &elf);
	header(&elf, "license")->sh_type = SHT_NOBITS;
	report_init(&r);
	assert_int_equal(decide(elf.data, elf.len, 0, &r),
			 0); /* as in objects without that section */
	report_finish(&r);
	buf_finish(&elf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_license_without_data_is_none),
		cmocka_unit_test(objects_are_decided_as_written),
		cmocka_unit_test(a_callback_is_a_function_of_each_program_that_names_it),
		cmocka_unit_test(tails_are_functions_of_the_program_in_order),
		cmocka_unit_test(an_image_with_wrong_tails_is_refused),
		cmocka_unit_test(arrays_of_maps_begin_as_written),
		cmocka_unit_test(a_lock_is_found_in_its_value),
		cmocka_unit_test(helpers_are_found_by_name),
		cmocka_unit_test(a_struct_of_programs_is_a_policy),
		cmocka_unit_test(the_tables_names_are_hooks),
		cmocka_unit_test(fields_are_found_where_they_are),
		cmocka_unit_test(data_of_every_kind_begins_as_written),
		cmocka_unit_test(maps_of_every_kind_have_their_numbers),
		cmocka_unit_test(maps_of_bpftime_become_maps_of_the_gpu),
		cmocka_unit_test(members_of_structs_run_inside_kernels),
		cmocka_unit_test(libbpf_sees_the_same_maps),
		cmocka_unit_test(two_objects_are_one_policy),
		cmocka_unit_test(every_construct_can_be_linked),
		cmocka_unit_test(objects_that_do_not_fit_are_refused),
		cmocka_unit_test(damaged_objects_do_not_harm_who_links_them),
		cmocka_unit_test(every_prefix_is_refused),
		cmocka_unit_test(damaged_objects_do_no_harm),
		cmocka_unit_test(thread_local_data_is_named),
	};

	variant = argv[1];
	sources = argv[2];
	objects = argv + 3;
	n_objects = argc - 3;
	if (n_objects == 0) {
		printf("skipped: no compiler for %s is installed\n", variant);
		return 77;
	}
	return cmocka_run_group_tests_name(variant, tests, NULL, NULL);
}
