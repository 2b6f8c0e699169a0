/* Reads the code of a kernel. A patched one begins with a branch to the end of the original code.
 * There follow the stub, a NOP that waits for all of the stub's accesses, the displaced first
 * instruction, a branch back, and NOPs. Nothing else of the original code may differ. */
#include "soft/code/code_patch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "soft/code/code_file.h"
#include "soft/code/code_insn.h"

struct patch_reader {
	struct soft_patch *p;
	const struct soft_entry *e;
	const uint8_t *code;
	uint64_t bytes, at; /* the next instruction */
	struct report *report;
};

static int refuse(const struct soft_entry *e, struct report *r, const char *why)
{
	return report_set(r, -EINVAL, "cubin", "kernel %s of the cubin: %s", e->name, why);
}

static int refuse_here(const struct patch_reader *x, const char *why)
{
	return report_set(x->report, -EINVAL, "cubin", "kernel %s of the cubin, code at 0x%llx: %s",
			  x->e->name, (unsigned long long)x->at, why);
}

static bool has(const struct patch_reader *x, enum soft_insn_kind kind)
{
	return x->at < x->bytes && soft_insn_kind(soft_insn_read(x->code + x->at)) == kind;
}

/* ---- the argument ---- */

/* Finds the parameter that the file has and the entry has not. */
static int find_argument(struct patch_reader *x, const struct soft_view *v)
{
	struct soft_view_attribute a;
	uint64_t at = 0;
	Elf64_Shdr s;
	int more;

	if (!soft_view_section(v, x->p->info, &s)) {
		return refuse(x->e, x->report, "no .nv.info section");
	}
	while ((more = soft_view_attribute(v, &s, &at, &a)) == 1) {
		uint32_t place = soft_view_word(&a, 1), size = soft_view_word(&a, 2);

		if (a.number == SOFT_ATTR_KPARAM_INFO && a.bytes == 12 &&
		    (place & UINT16_MAX) == x->e->n_params) {
			x->p->argument.offset = place >> 16;
			x->p->argument.bytes = size >> SOFT_KPARAM_BYTES;
		}
	}
	if (more < 0 || !x->p->argument.bytes ||
	    x->p->argument.offset != ROUND_UP(x->e->param_bytes, 8u)) {
		return refuse(
			x->e, x->report,
			"its first instruction is replaced, but no parameter was added behind "
			"its own, 8-byte aligned");
	}
	return 0;
}

/* ---- the stub ---- */

static bool add_mention(struct patch_reader *x, const struct soft_entry_param *p, const char *name,
			uint32_t place)
{
	uint32_t begin = SOFT_INSN_PARAM_BASE + p->offset;

	if (place < begin || place >= begin + p->bytes) {
		return false;
	}
	buf_printf(&x->p->stub, "%s+%u", name, place - begin);
	return true;
}

/* Of its argument, or of a parameter of the kernel. */
static bool mention(struct patch_reader *x, uint32_t place)
{
	bool is = add_mention(x, &x->p->argument, SOFT_PATCH_ARGUMENT, place);

	for (uint32_t i = 0; i < x->e->n_params && !is; i++) {
		is = add_mention(x, &x->e->params[i], x->e->params[i].name, place);
	}
	return is;
}

static int add_carrier(struct patch_reader *x)
{
	struct soft_carrier c;

	if (!soft_insn_carried(soft_insn_read(x->code + x->at), SOFT_INSN_TEXT, &c) ||
	    memchr(c.text, 0, c.bytes)) {
		return refuse_here(x, "not an instruction of the soft GPU");
	}
	if (c.refers && !mention(x, c.offset)) {
		return refuse_here(x, "the stub mentions something other than parameters");
	}
	return buf_add(&x->p->stub, c.text, c.bytes);
}

/* Its own first instruction may be replaced by a NOP, since the displaced one does the same. */
static int read_stub(struct patch_reader *x)
{
	int err = 0;

	x->at += has(x, SOFT_INSN_FIRST) || has(x, SOFT_INSN_NOP) ? SOFT_INSN_BYTES : 0;
	while (err == 0 && (has(x, SOFT_INSN_TEXT) || has(x, SOFT_INSN_EXIT))) {
		err = has(x, SOFT_INSN_TEXT) ? add_carrier(x) : 0;
		x->at += err ? 0 : SOFT_INSN_BYTES;
	}
	return err;
}

static int read_return(struct patch_reader *x)
{
	if (!has(x, SOFT_INSN_NOP) || !soft_insn_waits(soft_insn_read(x->code + x->at))) {
		return refuse_here(x,
				   "the stub does not end with a NOP that waits for its accesses");
	}
	x->at += SOFT_INSN_BYTES;
	if (!has(x, SOFT_INSN_FIRST)) {
		return refuse_here(x, "the displaced first instruction is expected");
	}
	x->at += SOFT_INSN_BYTES;
	if (!has(x, SOFT_INSN_BRANCH) ||
	    (int64_t)x->at + soft_insn_distance(soft_insn_read(x->code + x->at)) != 0) {
		return refuse_here(x, "a branch to the second instruction is expected");
	}
	x->at += SOFT_INSN_BYTES;
	while (has(x, SOFT_INSN_NOP)) {
		x->at += SOFT_INSN_BYTES;
	}
	return x->at == x->bytes ? 0 : refuse_here(x, "NOPs are expected up to the end");
}

static int read_patched(struct patch_reader *x)
{
	const struct buf *own = &x->e->code;
	int err;

	if (x->bytes % SOFT_INSN_ALIGN || x->bytes <= own->len || !has(x, SOFT_INSN_BRANCH) ||
	    soft_insn_distance(soft_insn_read(x->code)) != (int64_t)(own->len - SOFT_INSN_BYTES) ||
	    memcmp(x->code + SOFT_INSN_BYTES, own->data + SOFT_INSN_BYTES,
		   own->len - SOFT_INSN_BYTES) != 0) {
		return refuse(x->e, x->report, "its code is not that of its PTX");
	}
	x->at = own->len;
	err = read_stub(x);
	return err ? err : read_return(x);
}

int soft_patch_open(struct soft_patch *p, const struct soft_view *v, const struct soft_entry *e,
		    struct report *r)
{
	struct patch_reader x = { .p = p, .e = e, .report = r };
	Elf64_Shdr s;
	int err;

	*p = (struct soft_patch){ .text = soft_view_find(v, ".text", e->name),
				  .info = soft_view_find(v, ".nv.info", e->name),
				  .constants = soft_view_find(v, ".nv.constant0", e->name) };
	buf_init(&p->stub);
	if (!soft_view_section(v, p->text, &s) || s.sh_type != SHT_PROGBITS) {
		return refuse(e, r, "no code");
	}
	v->code[p->text].claimed = true;
	x.code = v->data + s.sh_offset;
	x.bytes = s.sh_size;
	if (x.bytes == e->code.len && memcmp(x.code, e->code.data, e->code.len) == 0) {
		return 0;
	}
	p->patched = true;
	err = find_argument(&x, v);
	err = err ? err : read_patched(&x);
	return err ? err : p->stub.failed;
}

void soft_patch_finish(struct soft_patch *p)
{
	buf_finish(&p->stub);
}
