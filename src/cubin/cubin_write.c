/* Writes the sections of a patched kernel: code with the stub behind it, the longer constant bank,
 * attributes with one more parameter. */
#include <assert.h>
#include <string.h>

#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_plan_int.h"

#define PARAM_FORM                                                                                 \
	0x1f000u /* of KPARAM_INFO: in the constant bank; the size follows from bit 18 on */

/* Copies the stub, its operands moved to where this kernel's argument is. */
static void write_stub(uint8_t *to, const struct cubin_stub *stub, uint32_t arg_at)
{
	for (size_t at = 0; at < stub->bytes; at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(stub->code + at);
		unsigned field = stub->field[at / CUBIN_INSN_BYTES];

		if (field) {
			uint64_t moved = (i.lo >> field & 0xffff) - stub->arg_at + arg_at;

			i.lo = (i.lo & ~(0xffffull << field)) | (moved & 0xffff) << field;
		}
		cubin_insn_put(to + at, i);
	}
}

void cubin_write_text(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	size_t total = cubin_plan_text(k, stub), at = k->code_bytes;
	const uint8_t *code = cubin_elf_data(e, p->text);

	memcpy(to, code, k->code_bytes);
	cubin_insn_put(to, cubin_insn_bra(e->arch, (int64_t)k->code_bytes - CUBIN_INSN_BYTES));
	write_stub(to + at, stub, stub->base + k->arg_offset);
	at += stub->bytes;
	cubin_insn_put(to + at, cubin_insn_nop(15, 0x3f)); /* waits for all scoreboards */
	at += CUBIN_INSN_BYTES;
	cubin_insn_put(to + at, cubin_insn_displaced(cubin_insn_at(code)));
	at += CUBIN_INSN_BYTES;
	cubin_insn_put(to + at, cubin_insn_bra(e->arch, -(int64_t)at));
	for (at += CUBIN_INSN_BYTES; at < total; at += CUBIN_INSN_BYTES) {
		cubin_insn_put(to + at, cubin_insn_nop(0, 0));
	}
}

void cubin_write_bank(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	size_t old = e->sections[p->bank].sh_size;

	memcpy(to, cubin_elf_data(e, p->bank), old);
	memset(to + old, 0, cubin_plan_bank(k, stub) - old);
}

/* ---- attributes ---- */

struct output {
	uint8_t *at;
	uint32_t bank_bytes; /* of parameters, new */
	bool param;	     /* the new parameter was written */
};

static uint8_t *head(struct output *o, unsigned format, unsigned id, unsigned value)
{
	uint8_t *p = o->at;

	p[0] = (uint8_t)format;
	p[1] = (uint8_t)id;
	cubin_put16(p + 2, (uint16_t)value);
	o->at += 4;
	return p;
}

static void put32(struct output *o, uint32_t v)
{
	cubin_put32(o->at, v);
	o->at += 4;
}

/* The last parameter comes first. */
static void write_param(struct output *o, const struct cubin_kernel *k,
			const struct cubin_stub *stub)
{
	if (o->param) {
		return;
	}
	head(o, 4, CUBIN_ATTR_KPARAM_INFO, 12);
	put32(o, 0);
	put32(o, k->n_params | k->arg_offset << 16);
	put32(o, PARAM_FORM | stub->arg_bytes << 18);
	o->param = true;
}

static void write_places(struct output *o, const struct cubin_stub_list *l, uint32_t stub_at)
{
	for (unsigned i = 0; i < l->n; i++) {
		put32(o, stub_at + l->at[i]);
	}
}

static void copy_attr(struct output *o, const struct cubin_attr *a, const uint8_t *record,
		      const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	uint8_t *to = o->at;

	memcpy(to, record, a->bytes);
	o->at += a->bytes;
	switch (a->id) {
	case CUBIN_ATTR_CBANK_PARAM_SIZE:
		cubin_put16(to + 2, (uint16_t)o->bank_bytes);
		break;
	case CUBIN_ATTR_PARAM_CBANK:
		cubin_put16(to + 10, (uint16_t)o->bank_bytes);
		break;
	case CUBIN_ATTR_NUM_BARRIERS:
		to[2] = (uint8_t)MAX(a->value, stub->barriers);
		break;
	default:
		break;
	}
	for (unsigned i = 0; i < stub->n_lists; i++) {
		if (stub->lists[i].id == a->id) {
			cubin_put16(to + 2, (uint16_t)(a->len + 4 * stub->lists[i].n));
			write_places(o, &stub->lists[i], k->code_bytes);
		}
	}
}

/* Attributes that the kernel lacks. */
static void add_attrs(struct output *o, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	write_param(o, k, stub);
	if (!p->records[CUBIN_ATTR_CBANK_PARAM_SIZE]) {
		head(o, 3, CUBIN_ATTR_CBANK_PARAM_SIZE, o->bank_bytes);
	}
	if (!p->records[CUBIN_ATTR_PARAM_CBANK]) {
		head(o, 4, CUBIN_ATTR_PARAM_CBANK, 8);
		put32(o, p->bank_symbol);
		put32(o, stub->base | o->bank_bytes << 16);
	}
	if (stub->barriers && e->abi == CUBIN_ABI_NEW && !p->records[CUBIN_ATTR_NUM_BARRIERS]) {
		head(o, 2, CUBIN_ATTR_NUM_BARRIERS, stub->barriers);
	}
	if (stub->uses_ctaid_z && !p->records[CUBIN_ATTR_CTAIDZ_USED]) {
		head(o, 1, CUBIN_ATTR_CTAIDZ_USED, 0);
	}
	for (unsigned i = 0; i < stub->n_lists; i++) {
		const struct cubin_stub_list *l = &stub->lists[i];

		if (!p->records[l->id]) {
			head(o, 4, l->id, 4 * l->n);
			write_places(o, l, k->code_bytes);
		}
	}
}

void cubin_write_info(uint8_t *to, const struct cubin_elf *e, const struct cubin_parts *p,
		      const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	struct output o = { .at = to, .bank_bytes = k->arg_offset + stub->arg_bytes };
	const uint8_t *at = cubin_elf_data(e, p->info), *record = at;
	const uint8_t *end = at + e->sections[p->info].sh_size;
	struct cubin_attr a;

	while (cubin_attr_next(&at, end, &a) > 0) { /* cubin_scan_attrs saw them whole */
		if (a.id == CUBIN_ATTR_KPARAM_INFO) {
			write_param(&o, k, stub);
		}
		copy_attr(&o, &a, record, k, stub);
		record = at;
	}
	add_attrs(&o, e, p, k, stub);
	assert((size_t)(o.at - to) == cubin_plan_info(e, p, stub));
}
