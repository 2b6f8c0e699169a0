/* Well-formed objects (tests/data/verify, .bpf.c, compiled by clang), and truncated and damaged
 * ones. Arguments: source and object in turn. The source's first line states the expected result:
 * accept: ... or refuse: text that the message begins with or contains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify.h"
#include "random.h"

static char **pairs;
static int n_pairs;

static void read_all(const char *path, struct buf *out)
{
	buf_init(out);
	if (buf_read_file(out, path, 1u << 24)) {
		fail_msg("cannot read %s", path);
	}
}

/* Opens and verifies; the first refusal counts. */
static int check_bytes(const void *elf, size_t bytes, const char *name, struct report *r)
{
	static struct ebpf_object o;
	int err = ebpf_object_open(&o, elf, bytes, name, r);

	if (err) {
		return err;
	}
	for (uint32_t i = 0; err == 0 && i < o.n_progs; i++) {
		struct ebpf_verify_stats stats;

		err = ebpf_verify(&o.progs[i], o.maps, o.n_maps, 0, &stats, r);
	}
	ebpf_object_finish(&o);
	return err;
}

static void check_pair(const char *source, const char *object)
{
	struct buf text, elf, all;
	struct report r;
	char *end;
	int err;

	read_all(source, &text);
	read_all(object, &elf);
	report_init(&r);
	buf_init(&all);
	err = check_bytes(elf.data, elf.len, object, &r);
	report_text(&r, &all);
	if (strncmp(buf_text(&text), "/* accept", 9) == 0) {
		if (err) {
			fail_msg("%s: %s", source, buf_text(&all));
		}
	} else {
		const char *want = buf_text(&text) + strlen("/* refuse: ");

		end = strstr(want, " */");
		assert_non_null(end);
		*end = 0;
		if (!err || !strstr(buf_text(&r.message), want)) {
			fail_msg("%s: wanted '%s', got: %s", source, want,
				 err ? buf_text(&all) : "accepted");
		}
		assert_true(r.place.len > 0);
		assert_true(r.code[0] != 0);
	}
	buf_finish(&all);
	buf_finish(&text);
	buf_finish(&elf);
	report_finish(&r);
}

static void objects_are_decided_as_written(void **state)
{
	assert_true(n_pairs >= 20);
	for (int i = 0; i < n_pairs; i++) {
		check_pair(pairs[2 * i], pairs[2 * i + 1]);
	}
}

static const char *object_named(const char *part)
{
	for (int i = 0; i < n_pairs; i++) {
		if (strstr(pairs[2 * i + 1], part)) {
			return pairs[2 * i + 1];
		}
	}
	fail_msg("no object %s", part);
	return NULL;
}

static void an_object_is_read_completely(void **state)
{
	static struct ebpf_object o;
	const struct ebpf_prog *p;
	struct report r;
	struct buf elf;
	int seen = 0;

	report_init(&r);
	read_all(object_named("ok_tables"), &elf);
	assert_int_equal(ebpf_object_open(&o, elf.data, elf.len, "a/b/tables.bpf.o", &r), 0);
	assert_string_equal(o.name, "tables");
	assert_string_equal(o.license, "Apache-2.0");
	assert_int_equal(o.n_progs, 1);
	p = &o.progs[0];
	assert_string_equal(p->name, "tables");
	assert_int_equal(p->hook, 3);
	assert_int_equal(p->n_subprogs, 3);
	assert_int_equal(p->subprog[0], 0);
	assert_true(p->n_lines > 10);
	for (uint32_t i = 1; i < p->n_lines; i++) {
		assert_true(p->lines[i].insn >= p->lines[i - 1].insn);
		assert_true(p->lines[i].line < 100);
	}
	for (uint32_t i = 0; i < o.n_maps; i++) {
		const struct ebpf_map_def *d = &o.maps[i];

		assert_true(d->is_data);
		assert_non_null(o.init[i]);
		if (strncmp(d->name, ".rodata", 7) == 0) {
			assert_int_equal(d->flags, 0x40000);
			assert_int_equal(((const uint32_t *)o.init[i])[3], 8);
			seen |= 1;
		} else if (strcmp(d->name, ".bss.tenant") == 0) {
			assert_int_equal(d->flags, 0x10000);
			assert_int_equal(d->value_bytes, 16 * 8 + 8);
			seen |= 2;
		} else if (strcmp(d->name, ".bss") == 0) {
			assert_int_equal(d->flags, 0);
			seen |= 4;
		}
	}
	assert_int_equal(seen, 7);
	ebpf_object_finish(&o);
	ebpf_object_finish(&o); /* harmless twice */
	buf_finish(&elf);
	report_finish(&r);
}

static void a_refusal_shows_place_source_and_path(void **state)
{
	static struct ebpf_object o;
	struct report r;
	struct buf elf;

	report_init(&r);
	read_all(object_named("no_null"), &elf);
	assert_int_equal(ebpf_object_open(&o, elf.data, elf.len, "null.bpf.o", &r), 0);
	assert_int_equal(ebpf_verify(&o.progs[0], o.maps, o.n_maps, EBPF_VERIFY_EXPLAIN, NULL, &r),
			 -EACCES);
	assert_string_equal(r.code, "verify");
	assert_int_equal(strncmp(buf_text(&r.place), "submit insn ", 12), 0);
	assert_non_null(strstr(buf_text(&r.place), "no_null.bpf.c:17)"));
	assert_non_null(strstr(buf_text(&r.hint), "if (!p)"));
	assert_non_null(strstr(buf_text(&r.detail), "17 | *count += 1;\n"));
	assert_non_null(strstr(buf_text(&r.detail), " ^\n"));
	assert_non_null(strstr(buf_text(&r.detail), "call bpf_map_lookup_elem (1) ;"));
	assert_true(buf_text(&r.detail)[r.detail.len - 1] != '\n');
	ebpf_object_finish(&o);
	buf_finish(&elf);
	report_finish(&r);
}

static void truncated_objects_are_refused(void **state)
{
	struct buf elf;

	read_all(object_named("ok_tokens"), &elf);
	for (size_t n = 0; n < elf.len; n += n < 128 ? 1 : 61) {
		struct report r;
		char *copy = malloc(n + 1); /* so that a sanitizer sees reads behind the end */

		assert_non_null(copy);
		memcpy(copy, elf.data, n);
		report_init(&r);
		assert_int_equal(check_bytes(copy, n, "cut.bpf.o", &r), -EINVAL);
		assert_string_equal(r.code, "elf");
		assert_true(r.message.len > 0 && r.place.len > 0);
		report_finish(&r);
		free(copy);
	}
	buf_finish(&elf);
}

/* Any bytes: never a crash, and a refusal always says why. */
static void damaged_objects_do_no_harm(void **state)
{
	static const char *const names[] = { "ok_rank", "ok_tables", "no_null" };
	struct rng rng = { 7 };

	for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
		struct buf elf;
		char *copy;

		read_all(object_named(names[k]), &elf);
		copy = malloc(elf.len);
		assert_non_null(copy);
		for (int i = 0; i < 1500; i++) {
			struct report r;

			memcpy(copy, elf.data, elf.len);
			for (unsigned n = 1 + rng_below(&rng, 4); n-- > 0;) {
				size_t at = rng_below(&rng, (uint32_t)elf.len);

				/* headers and tables at the end deserve more than their share */
				at = rng_below(&rng, 3)	  ? at
				     : rng_below(&rng, 2) ? at % 64
							  : elf.len - 1 - at % 2300;
				copy[at] = rng_below(&rng, 2) ? (char)rng_next(&rng)
							      : (char)(copy[at] + 1);
			}
			report_init(&r);
			if (check_bytes(copy, elf.len, "damaged.bpf.o", &r)) {
				assert_true(r.message.len > 0);
			}
			report_finish(&r);
		}
		free(copy);
		buf_finish(&elf);
	}
}

static void wrong_machines_are_named(void **state)
{
	struct buf elf;
	struct report r;

	read_all(object_named("ok_tokens"), &elf);
	((Elf64_Ehdr *)elf.data)->e_machine = EM_X86_64;
	report_init(&r);
	assert_int_equal(check_bytes(elf.data, elf.len, "x.bpf.o", &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "machine 62"));
	assert_non_null(strstr(buf_text(&r.hint), "-target bpf"));
	report_finish(&r);
	report_init(&r);
	assert_int_equal(check_bytes("hello", 5, "x.bpf.o", &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.hint), "clang"));
	report_finish(&r);
	buf_finish(&elf);
}

static char *no_debug;

static void an_object_without_types_is_refused(void **state)
{
	struct buf elf;
	struct report r;

	read_all(no_debug, &elf);
	report_init(&r);
	assert_int_equal(check_bytes(elf.data, elf.len, "x.bpf.o", &r), -EINVAL);
	assert_non_null(strstr(buf_text(&r.message), "BTF"));
	assert_non_null(strstr(buf_text(&r.hint), "-g"));
	report_finish(&r);
	buf_finish(&elf);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_are_decided_as_written),
		cmocka_unit_test(an_object_is_read_completely),
		cmocka_unit_test(a_refusal_shows_place_source_and_path),
		cmocka_unit_test(truncated_objects_are_refused),
		cmocka_unit_test(damaged_objects_do_no_harm),
		cmocka_unit_test(wrong_machines_are_named),
		cmocka_unit_test(an_object_without_types_is_refused),
	};

	no_debug = argv[1];
	pairs = argv + 2;
	n_pairs = (argc - 2) / 2;
	return cmocka_run_group_tests_name("objects", tests, NULL, NULL);
}
