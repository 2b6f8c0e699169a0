/* Addresses of variables. */
#include "soft/code/code_variables.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"

#define REGISTER "%%soft$v%" PRIu64 /* of variable number N */
#define BYTES_MAX ((uint64_t)1 << 40)

/* ---- the order ---- */

static bool is_global(const struct ptx_variable *v)
{
	return strcmp(v->linkage, ".visible") == 0 || strcmp(v->linkage, ".weak") == 0 ||
	       strcmp(v->linkage, ".common") == 0;
}

static void each(const struct ptx_module *m, bool global, soft_variable_fn *f, void *arg)
{
	ptx_each (&m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;
		uint64_t bytes;

		if (it->kind == PTX_VARIABLE && v->space == PTX_GLOBAL &&
		    strcmp(v->linkage, ".extern") != 0 && is_global(v) == global &&
		    ptx_variable_bytes(v, &bytes) == 0 && bytes < BYTES_MAX) {
			f(arg, v, bytes, global);
		}
	}
}

void soft_variables_each(const struct ptx_module *m, soft_variable_fn *f, void *arg)
{
	each(m, false, f, arg);
	each(m, true, f, arg);
}

bool soft_variables_constants(const struct ptx_module *m)
{
	ptx_each (&m->items, it) {
		if (it->kind == PTX_VARIABLE &&
		    ((const struct ptx_variable *)it)->space == PTX_CONST) {
			return true;
		}
	}
	return false;
}

/* ---- the bank ---- */

struct bank {
	const struct soft_view *v;
	Elf64_Shdr words, relocs;
};

/* Returns false without a bank. */
static bool open_bank(struct bank *b, const struct soft_view *v)
{
	uint32_t words = soft_view_find(v, SOFT_VARIABLES_BANK, NULL);
	uint32_t relocs = soft_view_find(v, SOFT_VARIABLES_RELOCS, NULL);

	*b = (struct bank){ .v = v };
	return words && soft_view_section(v, words, &b->words) &&
	       b->words.sh_type == SHT_PROGBITS && relocs &&
	       soft_view_section(v, relocs, &b->relocs) && b->relocs.sh_type == SHT_RELA;
}

static bool is_relocated(const struct bank *b, uint64_t at)
{
	for (uint64_t i = 0; i < b->relocs.sh_size / sizeof(Elf64_Rela); i++) {
		Elf64_Rela l;

		memcpy(&l, b->v->data + b->relocs.sh_offset + i * sizeof(l), sizeof(l));
		if (l.r_offset == at) {
			return true;
		}
	}
	return false;
}

/* Returns whether word i has an address. */
static bool address_at(const struct bank *b, uint64_t i, uint64_t *ret)
{
	if (i >= b->words.sh_size / sizeof(*ret) || is_relocated(b, i * sizeof(*ret))) {
		return false;
	}
	memcpy(ret, b->v->data + b->words.sh_offset + i * sizeof(*ret), sizeof(*ret));
	return true;
}

bool soft_variables_placed(const struct soft_view *v)
{
	struct bank b;

	return open_bank(&b, v) &&
	       b.words.sh_size / sizeof(uint64_t) > b.relocs.sh_size / sizeof(Elf64_Rela);
}

/* ---- functions ---- */

struct placing {
	struct ptx_module *m;
	struct bank bank;
	struct strmap names; /* of a variable, to its register's name */
	struct buf code;     /* declares and sets the registers */
	uint64_t n;	     /* variables so far */
	int err;
	bool hidden; /* a body declares a name of a variable */
};

static void add_variable(void *arg, const struct ptx_variable *v, uint64_t bytes, bool global)
{
	struct placing *p = arg;
	uint64_t address, i = p->n++;
	char name[32];
	char *reg;

	(void)bytes;
	(void)global;
	if (p->err || !address_at(&p->bank, i, &address)) {
		return;
	}
	snprintf(name, sizeof(name), REGISTER, i);
	reg = ptx_arena_text(&p->m->arena, name, strlen(name));
	p->err = reg ? strmap_add(&p->names, v->name, reg) : -ENOMEM;
	buf_printf(&p->code, "\t.reg .b64 %s;\n\tmov.b64 %s, 0x%" PRIx64 ";\n", name, name,
		   address);
}

/* Recursion is bounded by PTX_OPERAND_NESTING_MAX. */
static void rename_operand(const struct placing *p, struct ptx_operand *o)
{
	const char *reg = o->name ? strmap_get(&p->names, o->name) : NULL;

	o->name = reg ? reg : o->name;
	for (uint32_t i = 0; i < o->n_args; i++) {
		rename_operand(p, &o->args[i]);
	}
}

/* Recursion is bounded by PTX_NESTING_MAX. */
static void rename_list(struct placing *p, const struct ptx_list *list)
{
	ptx_each (list, it) {
		struct ptx_insn *i = (struct ptx_insn *)it;

		if (it->kind == PTX_SCOPE) {
			rename_list(p, &((struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_VARIABLE) {
			const char *name = ((struct ptx_variable *)it)->name;

			p->hidden = p->hidden || strmap_get(&p->names, name);
		}
		for (uint16_t k = 0; it->kind == PTX_INSN && k < i->n_operands; k++) {
			rename_operand(p, &i->operands[k]);
		}
	}
}

/* The text that sets the registers, in front of a body: printing is all that follows. */
static int prepend(struct placing *p, struct ptx_function *f)
{
	struct ptx_directive *d;

	if (!p->code.len) {
		return 0;
	}
	d = ptx_arena_alloc(&p->m->arena, sizeof(*d));
	if (!d) {
		return -ENOMEM;
	}
	d->item.kind = PTX_DIRECTIVE;
	d->text = ptx_arena_text(&p->m->arena, p->code.data, p->code.len);
	ptx_list_insert(&f->body, NULL, &d->item);
	return d->text ? 0 : -ENOMEM;
}

static int place_all(struct placing *p, struct report *r)
{
	int err = p->err ? p->err : p->code.failed;

	ptx_each (&p->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->has_body && !err) {
			rename_list(p, &f->body);
			err = prepend(p, f);
		}
	}
	return !err && p->hidden ? report_set(r, -EINVAL, "cubin",
					      "a body of the cubin's PTX hides a variable that has "
					      "an address")
				 : err;
}

int soft_variables_place(struct ptx_module *m, const struct soft_view *v, struct report *r)
{
	struct placing p = { .m = m };
	int err = 0;

	if (open_bank(&p.bank, v)) {
		strmap_init(&p.names);
		buf_init(&p.code);
		soft_variables_each(m, add_variable, &p);
		err = place_all(&p, r);
		strmap_finish(&p.names);
		buf_finish(&p.code);
	}
	return err;
}
