/* An entry stub is read from its two compilations, and each rule that it must keep is enforced: a
 * case is one change of an accepted compilation. */
#include "cubin_files.h"

#include <errno.h>

#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_stub_int.h"

struct compilations {
	struct changed a, b;
};

static struct compilations open_both(unsigned arch)
{
	struct compilations c;
	struct buf name;

	buf_init(&name);
	buf_printf(&name, "gate_64.sm_%u", arch);
	c.a = open_changed(buf_text(&name));
	buf_clear(&name);
	buf_printf(&name, "gate_1024.sm_%u", arch);
	c.b = open_changed(buf_text(&name));
	buf_finish(&name);
	return c;
}

/* Opens the stub and closes the compilations; the message must have this text. */
static void expect(struct compilations *c, int err, const char *text)
{
	struct cubin_stub *s = NULL;
	struct report r;

	report_init(&r);
	assert_int_equal(cubin_stub_open(&s, c->a.image.data, c->a.image.len, 64, c->b.image.data,
					 c->b.image.len, 1024, "gbpf_stub", 64, &r),
			 err);
	if (!strstr(buf_text(&r.message), text)) {
		fail_msg("'%s' is not in '%s'", text, buf_text(&r.message));
	}
	assert_true((s == NULL) == (err < 0));
	cubin_stub_close(s);
	report_finish(&r);
	close_changed(&c->a);
	close_changed(&c->b);
}

/* Returns the offset of the only PMTRIG. */
static size_t marker(struct changed *c)
{
	uint8_t *code = content(c, ".text.gbpf_stub");
	size_t at = 0;

	while (cubin_insn_op(cubin_insn_at(code + at)) != CUBIN_OP_PMTRIG) {
		at += 16;
	}
	return at;
}

static void reads_each_architecture(void **state)
{
	static const struct {
		unsigned arch, registers;
		uint32_t base;
	} cases[] = {
		{ 75, 20, 0x160 }, { 80, 19, 0x160 },  { 86, 19, 0x160 },  { 89, 19, 0x160 },
		{ 90, 22, 0x210 }, { 100, 22, 0x380 }, { 103, 22, 0x380 }, { 120, 20, 0x380 }
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct compilations c = open_both(cases[i].arch);
		struct cubin_stub *s = open_stub(cases[i].arch);
		unsigned fields = 0, uniform = 0;

		assert_int_equal(s->registers, cases[i].registers);
		assert_int_equal(s->barriers, 1);
		assert_int_equal(s->base, cases[i].base);
		assert_int_equal(s->arg_at, cases[i].base + 64);
		assert_int_equal(s->bytes, marker(&c.a));
		assert_int_equal(s->uses_ctaid_z, cases[i].arch < 90);
		assert_int_equal(s->lists[0].n, 2); /* ran before; leaves */
		for (size_t at = 0; at < s->bytes; at += 16) {
			unsigned field = s->field[at / 16];

			fields += field != 0;
			uniform += field == 37; /* LDCU, from sm_100 on */
		}
		assert_int_equal(uniform > 0, cases[i].arch >= 100);
		assert_in_range(fields, 11, 20); /* words of the argument */
		cubin_stub_close(s);
		close_changed(&c.a);
		close_changed(&c.b);
	}
}

/* Only the first instruction and the scoreboards of stores differ from the compiled code. */
static void keeps_the_compiled_code(void **state)
{
	static const unsigned archs[] = { 75, 80, 90, 120 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		struct compilations c = open_both(archs[i]);
		struct cubin_stub *s = open_stub(archs[i]);
		const uint8_t *code = content(&c.a, ".text.gbpf_stub");
		unsigned stores = 0;

		assert_int_equal(cubin_insn_op(cubin_insn_at(s->code)), CUBIN_OP_NOP);
		for (size_t at = 16; at < s->bytes; at += 16) {
			struct cubin_insn was = cubin_insn_at(code + at),
					  is = cubin_insn_at(s->code + at);
			unsigned signals = cubin_insn_bits(is, CUBIN_READ_BARRIER, 3);

			assert_true(was.lo == is.lo);
			if (cubin_insn_stores(is)) {
				stores++;
				assert_int_not_equal(signals, CUBIN_NO_BARRIER);
				is = cubin_insn_set(is, CUBIN_READ_BARRIER, 3,
						    cubin_insn_bits(was, CUBIN_READ_BARRIER, 3));
			}
			assert_true(was.hi == is.hi);
		}
		assert_in_range(stores, 2, 4); /* progress word and *done */
		cubin_stub_close(s);
		close_changed(&c.a);
		close_changed(&c.b);
	}
}

/* A store without a scoreboard gets one; one that has a scoreboard keeps it. */
static void gives_stores_a_scoreboard(void **state)
{
	struct compilations c = open_both(90);
	struct cubin_stub *s = NULL;
	size_t at = 0;

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct changed *one = i ? &c.b : &c.a;
		uint8_t *code = content(one, ".text.gbpf_stub");

		for (at = 0; !cubin_insn_stores(cubin_insn_at(code + at)); at += 16) {
		}
		cubin_insn_put(code + at, cubin_insn_set(cubin_insn_at(code + at),
							 CUBIN_READ_BARRIER, 3, CUBIN_NO_BARRIER));
	}
	assert_int_equal(cubin_stub_open(&s, c.a.image.data, c.a.image.len, 64, c.b.image.data,
					 c.b.image.len, 1024, "gbpf_stub", 64, NULL),
			 0);
	assert_int_equal(cubin_insn_bits(cubin_insn_at(s->code + at), CUBIN_READ_BARRIER, 3), 5);
	cubin_stub_close(s);
	close_changed(&c.a);
	close_changed(&c.b);
}

static void refuses_other_parameters(void **state)
{
	struct compilations c;
	struct cubin_stub *s = NULL;

	(void)state;
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_KPARAM_INFO)[10] = 56; /* offset */
	expect(&c, -EINVAL, "the padding and the argument");
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_KPARAM_INFO)[8] = 2; /* ordinal */
	expect(&c, -EINVAL, "two parameters");
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_PARAM_CBANK)[10]++;
	expect(&c, -EINVAL, "the padding and the argument");
	c = open_both(90);
	assert_int_equal(cubin_stub_open(&s, c.a.image.data, c.a.image.len, 64, c.b.image.data,
					 c.b.image.len, 1024, "gbpf_stub", 56, NULL),
			 -EINVAL);
	assert_int_equal(cubin_stub_open(&s, c.a.image.data, c.a.image.len, 64, c.a.image.data,
					 c.a.image.len, 64, "gbpf_stub", 64, NULL),
			 -EINVAL);
	assert_int_equal(cubin_stub_open(&s, c.a.image.data, c.a.image.len, 64, c.b.image.data,
					 c.b.image.len, 1024, "other", 64, NULL),
			 -EINVAL);
	close_changed(&c.a);
	close_changed(&c.b);
}

static void refuses_code_that_differs(void **state)
{
	struct compilations c;
	uint8_t *code;

	(void)state;
	c = open_both(90);
	content(&c.b, ".text.gbpf_stub")[32 + 14] ^= 1; /* issue control */
	expect(&c, -EINVAL, "differ in an unknown operand");
	c = open_both(90);
	code = content(&c.b, ".text.gbpf_stub");
	cubin_insn_put(code + 48, cubin_insn_nop(1, 0));
	expect(&c, -EINVAL, "differ in an unknown operand");
	/* an operand behind the argument: both compilations agree, so only its value tells */
	c = open_both(90);
	for (unsigned i = 0; i < 2; i++) {
		struct changed *one = i ? &c.b : &c.a;
		struct cubin_insn first = cubin_insn_at(content(one, ".text.gbpf_stub"));
		uint64_t at = 0x210 + (i ? 1024 : 64) + 64;

		first.lo = (first.lo & ~(0xffffull << 38)) | at << 38;
		cubin_insn_put(content(one, ".text.gbpf_stub"), first);
	}
	expect(&c, -EINVAL, "differ in an unknown operand");
	c = open_both(90);
	content(&c.b, ".nv.info")[8]++; /* registers */
	expect(&c, -EINVAL, "differ in more");
}

static void refuses_other_ends(void **state)
{
	struct compilations c;

	(void)state;
	c = open_both(90);
	content(&c.a, ".text.gbpf_stub")[marker(&c.a)] = 2; /* no PMTRIG */
	expect(&c, -EINVAL, "pmevent and ret");
	c = open_both(90);
	content(&c.a, ".text.gbpf_stub")[marker(&c.a) + 17] = 0x09; /* the exit is predicated */
	expect(&c, -EINVAL, "pmevent and ret");
	c = open_both(90);
	memcpy(content(&c.a, ".text.gbpf_stub") + 64,
	       content(&c.a, ".text.gbpf_stub") + marker(&c.a), 32);
	expect(&c, -EINVAL, "pmevent and ret"); /* two of them */
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_EXITS)[4] += 16;
	expect(&c, -EINVAL, "exits");
}

static void refuses_more_than_code(void **state)
{
	struct compilations c;

	(void)state;
	c = open_both(90);
	cubin_put32(content(&c.a, ".nv.info") + 12 + 8, 16); /* frame size */
	expect(&c, -EINVAL, "stack");
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_CRS_STACK)[4] = 1;
	expect(&c, -EINVAL, "call stack");
	c = open_both(90);
	attribute(&c.a, ".nv.info.gbpf_stub", CUBIN_ATTR_MAXREG_COUNT)[1] = CUBIN_ATTR_EXTERNS;
	expect(&c, -EINVAL, "attribute 0x0f");
	c = open_both(90);
	content(&c.a, ".nv.info")[8] = 65; /* registers */
	expect(&c, -EINVAL, "register or barrier count");
	c = open_both(90);
	cubin_put32(header(&c.a, ".rela.debug_frame") + 44,
		    section_named(&c.a.elf, ".text.gbpf_stub"));
	expect(&c, -EINVAL, "relocations");
	c = open_both(90);
	memcpy(unqual(cubin_elf_name(&c.a.elf, section_named(&c.a.elf, ".note.nv.tkinfo"))),
	       ".nv.constant2.x", 15);
	expect(&c, -EINVAL, "constant or global data");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_each_architecture),
		cmocka_unit_test(keeps_the_compiled_code),
		cmocka_unit_test(gives_stores_a_scoreboard),
		cmocka_unit_test(refuses_other_parameters),
		cmocka_unit_test(refuses_code_that_differs),
		cmocka_unit_test(refuses_other_ends),
		cmocka_unit_test(refuses_more_than_code),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
