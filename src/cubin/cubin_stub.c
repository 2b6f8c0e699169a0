/* Reads an entry stub from two compilations of its text. The instructions that differ are those
 * that refer to the argument; no operand has to be decoded, and an unknown form shows as a
 * difference that is none of the expected ones. */
#include "cubin/cubin_stub_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin.h"
#include "cubin/cubin_elf_int.h"
#include "cubin/cubin_insn_int.h"

#define STUB_REGISTERS_MAX 64u /* with which a block of 1024 threads can be launched */
#define STUB_BYTES_MAX 262144u
#define FIELD_LDC 38u  /* first bit of the offset in a constant operand */
#define FIELD_LDCU 37u /* the same in LDCU */

/* One compilation. */
struct compiled {
	struct cubin_elf elf;
	uint32_t text, info;
	uint32_t symbol;
	unsigned registers, barriers;
	uint32_t base, bank_bytes;
	uint32_t param_at[2], param_bytes[2];
	unsigned n_params;
	struct cubin_stub_list lists[CUBIN_STUB_LISTS_MAX]; /* [0]: exits */
	unsigned n_lists;
	bool uses_ctaid_z;
};

static int broken(struct report *r, const char *what)
{
	return report_set(r, -EINVAL, "cubin", "invalid entry stub: %s", what);
}

static int read_param(struct compiled *c, const struct cubin_attr *a, struct report *r)
{
	unsigned ordinal;

	if (a->len != 12 || c->n_params == 2) {
		return broken(r, "it must have two parameters");
	}
	ordinal = cubin_u16(a->data + 4);
	if (ordinal > 1 || c->param_bytes[ordinal]) {
		return broken(r, "it must have two parameters");
	}
	c->param_at[ordinal] = cubin_u16(a->data + 6);
	c->param_bytes[ordinal] = cubin_u32(a->data + 8) >> 18;
	c->n_params++;
	return 0;
}

/* A list of places in the code. */
static int read_list(struct compiled *c, const struct cubin_attr *a, struct report *r)
{
	struct cubin_stub_list *l = &c->lists[0];

	if (a->id != CUBIN_ATTR_EXITS) {
		if (c->n_lists == CUBIN_STUB_LISTS_MAX) {
			return broken(r, "too many attributes");
		}
		l = &c->lists[c->n_lists++];
	}
	if (a->format != 4 || a->len % 4 || a->len / 4 > CUBIN_STUB_PLACES_MAX || l->n) {
		return broken(r, "too many exits, or a list of them in an unknown form");
	}
	l->id = a->id;
	l->n = a->len / 4;
	for (unsigned i = 0; i < l->n; i++) {
		l->at[i] = cubin_u32(a->data + (size_t)4 * i);
	}
	return 0;
}

static int read_own_attr(struct compiled *c, const struct cubin_attr *a, struct report *r)
{
	switch (a->id) {
	case CUBIN_ATTR_KPARAM_INFO:
		return read_param(c, a, r);
	case CUBIN_ATTR_PARAM_CBANK:
		if (a->len != 8) {
			return broken(r, "unknown form of its parameters' place");
		}
		c->base = cubin_u16(a->data + 4);
		c->bank_bytes = cubin_u16(a->data + 6);
		return 0;
	case CUBIN_ATTR_NUM_BARRIERS:
		c->barriers = MAX(c->barriers, a->value);
		return 0;
	case CUBIN_ATTR_CTAIDZ_USED:
		c->uses_ctaid_z = true;
		return 0;
	case CUBIN_ATTR_EXITS:
	case CUBIN_ATTR_S2RCTAID:
	case CUBIN_ATTR_ATOM_SYS:
	case CUBIN_ATTR_WARP_WIDE:
	case CUBIN_ATTR_MEMBAR_SYS_WAR:
		return read_list(c, a, r);
	case CUBIN_ATTR_CRS_STACK:
		return a->len == 4 && !cubin_u32(a->data) ? 0 : broken(r, "it uses a call stack");
	case CUBIN_ATTR_VRC_CTA_INIT:
	case CUBIN_ATTR_SPARSE_MMA_MASK:
		return a->value ? broken(r, "it uses matrix instructions") : 0;
	case CUBIN_ATTR_CBANK_PARAM_SIZE:
	case CUBIN_ATTR_MAXREG_COUNT:
	case CUBIN_ATTR_MAX_THREADS:
	case CUBIN_ATTR_SW2861232_WAR:
	case CUBIN_ATTR_SW_WAR:
	case CUBIN_ATTR_API_VERSION:
	case CUBIN_ATTR_MERCURY_ISA:
		return 0;
	default:
		return report_set(r, -EINVAL, "cubin", "invalid entry stub: attribute 0x%02x",
				  a->id);
	}
}

/* Attributes of the image that name a symbol: registers and stack. */
static int read_symbol_attr(struct compiled *c, const struct cubin_attr *a, struct report *r)
{
	if (a->format != 4 || a->len != 8 || cubin_u32(a->data) != c->symbol) {
		return 0;
	}
	if (a->id == CUBIN_ATTR_REGCOUNT) {
		c->registers = cubin_u32(a->data + 4);
	}
	if ((a->id == CUBIN_ATTR_FRAME_SIZE || a->id == CUBIN_ATTR_MIN_STACK) &&
	    cubin_u32(a->data + 4)) {
		return broken(r, "it uses a stack");
	}
	return 0;
}

static int read_attrs(struct compiled *c, uint32_t section, struct report *r,
		      int (*each)(struct compiled *, const struct cubin_attr *, struct report *))
{
	const uint8_t *at = cubin_elf_data(&c->elf, section);
	const uint8_t *end = at + c->elf.sections[section].sh_size;
	struct cubin_attr a;
	int err;

	while ((err = cubin_attr_next(&at, end, &a)) > 0) {
		err = each(c, &a, r);
		if (err < 0) {
			return err;
		}
	}
	return err < 0 ? cubin_refuse(r, "entry stub: broken attributes") : 0;
}

/* Finds the entry's sections; refuses those whose presence means that code alone is not enough. */
static int find_sections(struct compiled *c, const char *entry, struct report *r)
{
	const struct cubin_elf *e = &c->elf;

	for (uint32_t i = 1; i < e->n_sections; i++) {
		const Elf64_Shdr *s = &e->sections[i];
		const char *own = cubin_elf_suffix(e, i, ".text."), *bank;

		if (own && !strcmp(own, entry) && s->sh_type == SHT_PROGBITS) {
			c->text = i;
		} else if (own) {
			return broken(r, "it has more than one function");
		}
		own = cubin_elf_suffix(e, i, ".nv.info.");
		if (own && !strcmp(own, entry) && s->sh_type == CUBIN_TYPE_INFO) {
			c->info = i;
		}
		bank = cubin_elf_suffix(e, i, ".nv.constant");
		if ((bank && strncmp(bank, "0.", 2) != 0) ||
		    !strncmp(cubin_elf_name(e, i), ".nv.global", 10)) {
			return broken(r, "it uses constant or global data");
		}
	}
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_is_reloc(e, i) && e->sections[i].sh_info == c->text &&
		    e->sections[i].sh_size) {
			return broken(r, "its code has relocations");
		}
	}
	return c->text && c->info ? 0 : cubin_refuse(r, "entry stub: no entry '%s'", entry);
}

static int find_symbol(struct compiled *c, const char *entry, struct report *r)
{
	for (uint32_t i = 1; i < c->elf.n_symbols; i++) {
		Elf64_Sym s = cubin_elf_symbol(&c->elf, i);

		if (s.st_shndx == c->text && ELF64_ST_TYPE(s.st_info) == STT_FUNC &&
		    s.st_other & CUBIN_SYMBOL_ENTRY &&
		    !strcmp(cubin_elf_symbol_name(&c->elf, &s), entry)) {
			c->symbol = i;
			return 0;
		}
	}
	return cubin_refuse(r, "entry stub: no symbol '%s'", entry);
}

static int read_compiled(struct compiled *c, const char *entry, struct report *r)
{
	const Elf64_Shdr *text;
	int err = find_sections(c, entry, r);

	if (!err) {
		err = find_symbol(c, entry, r);
	}
	if (!err) {
		err = read_attrs(c, c->info, r, read_own_attr);
	}
	for (uint32_t i = 1; !err && i < c->elf.n_sections; i++) {
		if (c->elf.sections[i].sh_type == CUBIN_TYPE_INFO &&
		    !strcmp(cubin_elf_name(&c->elf, i), ".nv.info")) {
			err = read_attrs(c, i, r, read_symbol_attr);
		}
	}
	if (err < 0) {
		return err;
	}
	text = &c->elf.sections[c->text];
	if (!c->registers) {
		c->registers = text->sh_info >> 24;
	}
	if (c->elf.abi == CUBIN_ABI_OLD) {
		c->barriers = MAX(c->barriers, (unsigned)(text->sh_flags >> 20) & 0x7f);
	}
	if (!c->registers || c->registers > STUB_REGISTERS_MAX || c->barriers > 16) {
		return broken(r, "register or barrier count");
	}
	if (text->sh_size % CUBIN_INSN_BYTES || text->sh_size > STUB_BYTES_MAX) {
		return broken(r, "size of its code");
	}
	return 0;
}

/* Checks the parameters: padding of `pad` bytes, then the argument. */
static int check_params(const struct compiled *c, uint32_t pad, uint32_t arg_bytes,
			struct report *r)
{
	if (c->n_params != 2 || c->param_at[0] || c->param_bytes[0] != pad ||
	    c->param_at[1] != pad || c->param_bytes[1] != arg_bytes || !c->base ||
	    c->bank_bytes != pad + arg_bytes) {
		return broken(r, "its parameters are not the padding and the argument");
	}
	return 0;
}

/* Returns the offset of the marker, the pmevent in front of the last ret, or 0. */
static size_t find_marker(const uint8_t *code, size_t bytes)
{
	size_t found = 0;

	for (size_t at = 0; at + CUBIN_INSN_BYTES < bytes; at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(code + at);
		struct cubin_insn next = cubin_insn_at(code + at + CUBIN_INSN_BYTES);

		if (cubin_insn_op(i) != CUBIN_OP_PMTRIG) {
			continue;
		}
		if (found || cubin_insn_op(next) != CUBIN_OP_EXIT ||
		    cubin_insn_predicate(i) != CUBIN_ALWAYS ||
		    cubin_insn_predicate(next) != CUBIN_ALWAYS) {
			return 0;
		}
		found = at;
	}
	return found;
}

/* Finds the field by which instruction x of the one compilation differs from y of the other. */
static int find_field(const struct cubin_stub *s, struct cubin_insn x, struct cubin_insn y,
		      uint32_t moved, uint8_t *ret)
{
	unsigned at = cubin_insn_op(x) == CUBIN_OP_LDCU ? FIELD_LDCU : FIELD_LDC;
	uint64_t mask = 0xffffull << at;
	uint32_t a = (uint32_t)(x.lo >> at & 0xffff), b = (uint32_t)(y.lo >> at & 0xffff);

	*ret = 0;
	if (x.lo == y.lo && x.hi == y.hi) {
		return 0;
	}
	if (x.hi != y.hi || (x.lo & ~mask) != (y.lo & ~mask) || b - a != moved || a < s->arg_at ||
	    a >= s->arg_at + s->arg_bytes) {
		return -EINVAL;
	}
	*ret = (uint8_t)at;
	return 0;
}

static int note_insn(struct cubin_stub *s, size_t at, struct report *r)
{
	struct cubin_insn i = cubin_insn_at(s->code + at);

	if (cubin_insn_op(i) == CUBIN_OP_EXIT) {
		struct cubin_stub_list *exits = &s->lists[0];

		if (exits->n == CUBIN_STUB_PLACES_MAX) {
			return broken(r, "too many exits");
		}
		exits->at[exits->n++] = (uint32_t)at;
	}
	if (cubin_insn_stores(i) && cubin_insn_bits(i, CUBIN_READ_BARRIER, 3) == CUBIN_NO_BARRIER &&
	    cubin_insn_bits(i, CUBIN_WRITE_BARRIER, 3) == CUBIN_NO_BARRIER) {
		/* The compiler knows that the stub never writes its registers again; the kernel
		 * does. */
		cubin_insn_put(s->code + at,
			       cubin_insn_set(i, CUBIN_READ_BARRIER, 3, CUBIN_STORE_BARRIER));
	}
	if (at == 0 && cubin_insn_loads_stack(i)) {
		cubin_insn_put(s->code,
			       cubin_insn_nop(1, 0)); /* the displaced instruction does it */
	}
	return 0;
}

/* Takes over the lists of places as far as they lie in front of the marker. */
static int take_lists(struct cubin_stub *s, const struct compiled *a, struct report *r)
{
	const struct cubin_stub_list *exits = &s->lists[0];

	for (unsigned i = 0; i < exits->n; i++) {
		if (i >= a->lists[0].n || a->lists[0].at[i] != exits->at[i]) {
			return broken(r, "its exits are not those of its attributes");
		}
	}
	s->n_lists = 1;
	for (unsigned i = 1; i < a->n_lists; i++) {
		struct cubin_stub_list *to = &s->lists[s->n_lists];

		to->id = a->lists[i].id;
		for (unsigned j = 0; j < a->lists[i].n; j++) {
			if (a->lists[i].at[j] < s->bytes) {
				to->at[to->n++] = a->lists[i].at[j];
			}
		}
		s->n_lists += to->n > 0;
	}
	s->lists[0].id = CUBIN_ATTR_EXITS;
	return 0;
}

static int join(struct cubin_stub *s, const struct compiled *a, const struct compiled *b,
		uint32_t moved, struct report *r)
{
	size_t bytes = a->elf.sections[a->text].sh_size;
	const uint8_t *x = cubin_elf_data(&a->elf, a->text), *y = cubin_elf_data(&b->elf, b->text);
	int err = 0;

	if (bytes != b->elf.sections[b->text].sh_size || a->registers != b->registers ||
	    a->barriers != b->barriers || a->base != b->base || a->elf.arch != b->elf.arch) {
		return broken(r, "its compilations differ in more than the argument's place");
	}
	s->bytes = find_marker(x, bytes);
	if (!s->bytes || find_marker(y, bytes) != s->bytes) {
		return broken(r, "it does not end with pmevent and ret");
	}
	s->code = malloc(s->bytes);
	s->field = calloc(s->bytes / CUBIN_INSN_BYTES, 1);
	if (!s->code || !s->field) {
		return -ENOMEM;
	}
	memcpy(s->code, x, s->bytes);
	for (size_t at = 0; at < s->bytes && !err; at += CUBIN_INSN_BYTES) {
		if (find_field(s, cubin_insn_at(x + at), cubin_insn_at(y + at), moved,
			       &s->field[at / CUBIN_INSN_BYTES]) < 0) {
			return broken(r, "its compilations differ in an unknown operand");
		}
		err = note_insn(s, at, r);
	}
	return err ? err : take_lists(s, a, r);
}

int cubin_stub_open(struct cubin_stub **ret, const void *a, size_t a_bytes, uint32_t pad_a,
		    const void *b, size_t b_bytes, uint32_t pad_b, const char *entry,
		    uint32_t arg_bytes, struct report *r)
{
	struct compiled x = { .n_lists = 1 }, y = { .n_lists = 1 };
	struct cubin_stub *s;
	int err;

	if (!arg_bytes || arg_bytes % 8 || arg_bytes > 4096 || pad_a % 8 || pad_b % 8 ||
	    pad_a >= pad_b || pad_b > 4096) {
		return broken(r, "sizes of padding and argument");
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		return -ENOMEM;
	}
	err = cubin_elf_open(&x.elf, a, a_bytes, r);
	if (!err) {
		err = cubin_elf_open(&y.elf, b, b_bytes, r);
	}
	if (!err) {
		err = read_compiled(&x, entry, r);
	}
	if (!err) {
		err = read_compiled(&y, entry, r);
	}
	if (!err) {
		err = check_params(&x, pad_a, arg_bytes, r);
	}
	if (!err) {
		err = check_params(&y, pad_b, arg_bytes, r);
	}
	if (!err) {
		s->arch = x.elf.arch;
		s->base = x.base;
		s->arg_at = x.base + pad_a;
		s->arg_bytes = arg_bytes;
		s->registers = x.registers;
		s->barriers = x.barriers;
		s->uses_ctaid_z = x.uses_ctaid_z;
		err = join(s, &x, &y, pad_b - pad_a, r);
	}
	cubin_elf_finish(&x.elf);
	cubin_elf_finish(&y.elf);
	if (err < 0) {
		cubin_stub_close(s);
		return err;
	}
	*ret = s;
	return 0;
}

void cubin_stub_close(struct cubin_stub *s)
{
	if (!s) {
		return;
	}
	free(s->code);
	free(s->field);
	free(s);
}
