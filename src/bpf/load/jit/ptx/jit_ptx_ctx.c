/* PTX back end: the context of programs inside kernels. It has no memory: each field that the
 * program reads is a parameter of its functions, and a pointer into it has the offset as value. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"

typedef uint64_t u64;
typedef int64_t s64;
typedef uint32_t u32;
typedef int32_t s32;

#define GBPF_DEVICE_HOOK(id, name, budget, doc) enum { DEVICE_##name = id };
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) enum { DEVICE_##name = -1 };
#define GBPF_CTX_BEGIN(hook) struct ctx_##hook {
#define GBPF_CTX(hook, type, name, access, doc) type name;
#define GBPF_CTX_END(hook)                                                                         \
	}                                                                                          \
	;
#include "gbpf/hooks.def"

/* The fields of all hooks; those of one are neighbours. */
static const struct {
	int hook;
	struct ebpf_ptx_field field;
} fields[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc)
#define GBPF_CTX(hook, type, name, access, doc)                                                    \
	{ DEVICE_##hook, { #name, offsetof(struct ctx_##hook, name), sizeof(type) } },
#include "gbpf/hooks.def"
};

#define GBPF_DEVICE_HOOK(id, name, budget, doc)                                                    \
	_Static_assert(sizeof(struct ctx_##name) <= 64 * 4, "a bit of the mask for each field");
#include "gbpf/hooks.def"

const struct ebpf_ptx_field *ebpf_ptx_field(int hook, unsigned i)
{
	size_t at = 0;

	while (at < ARRAY_SIZE(fields) && fields[at].hook != hook) {
		at++;
	}
	at += i;
	return hook > 0 && at < ARRAY_SIZE(fields) && fields[at].hook == hook ? &fields[at].field
									      : NULL;
}

/* Returns the field that contains the bytes, and its number, or NULL. */
static const struct ebpf_ptx_field *field_at(const struct ebpf_ptx_jit *j, int off, unsigned size,
					     unsigned *ret_i)
{
	const struct ebpf_ptx_field *f;

	for (unsigned i = 0; (f = ebpf_ptx_field(j->hook, i)); i++) {
		if (off >= f->offset && off + (int)size <= f->offset + f->bytes) {
			*ret_i = i;
			return f;
		}
	}
	return NULL;
}

/* Returns the next part of a field, from *at on, that the load may read, and sets *at to its offset
 * and *ret_i to the field's number; NULL: there is none. */
static const struct ebpf_ptx_field *next_part(const struct ebpf_ptx_jit *j,
					      const struct ebpf_insn *i, int *at, unsigned *ret_i)
{
	unsigned size = ebpf_access_bytes(i);
	const struct ebpf_ptx_field *f;

	for (; *at < 256; *at += (int)size) {
		f = ebpf_ptx_may_be_at(&ebpf_ptx_known(j)->base, *at - i->off)
			    ? field_at(j, *at, size, ret_i)
			    : NULL;
		if (f) {
			return f;
		}
	}
	return NULL;
}

/* Adds the fields that the load at j->pc may read. Returns 0 if there is none. */
static int add_fields(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	int at = 0, any = 0;
	unsigned n;

	for (; next_part(j, i, &at, &n); at += (int)ebpf_access_bytes(i)) {
		j->fields |= UINT64_C(1) << n;
		any = 1;
	}
	return any;
}

int ebpf_ptx_find_fields(struct ebpf_ptx_jit *j)
{
	int all = 0;

	if (j->flow.misuse != UINT32_MAX) {
		j->pc = j->flow.misuse;
		return ebpf_ptx_refuse(j, "this use of the context: it is not in memory");
	}
	for (j->pc = 0; j->pc < j->plan->n; j->pc++) {
		const struct ebpf_insn *i = &j->plan->insns[j->pc];

		if (EBPF_CLASS(i->code) == EBPF_LDX && ebpf_ptx_known(j)->base.kind == PTX_CTX &&
		    !add_fields(j, i)) {
			return ebpf_ptx_refuse(j, "a load of no single field");
		}
		if (i->code == (EBPF_JMP | EBPF_CALL) && i->src == EBPF_CALL_HELPER) {
			int slot = ebpf_helper_slot(i->imm);

			if (ebpf_ptx_reads_arg(slot) && ebpf_ptx_need_arg(j, slot) < 0) {
				return -ENOTSUP;
			}
			all |= ebpf_ptx_reads_arg(slot) || ebpf_ptx_helper_fields(j, slot);
		}
		j->pc += i->code == EBPF_LD_IMM64;
	}
	if (j->plan->options->device_control) {
		ebpf_ptx_need_field(j, "block");
		if (j->plan->options->device_lane) {
			ebpf_ptx_need_field(j, "active");
		}
		j->flow.takes_ctx[0] = 1;
	}
	if (all) { /* a helper reads them in any function */
		memset(j->flow.takes_ctx, 1, sizeof(j->flow.takes_ctx));
	}
	return 0;
}

void ebpf_ptx_need_field(struct ebpf_ptx_jit *j, const char *name)
{
	const struct ebpf_ptx_field *f;

	for (unsigned i = 0; (f = ebpf_ptx_field(j->hook, i)); i++) {
		if (strcmp(f->name, name) == 0) {
			j->fields |= UINT64_C(1) << i;
		}
	}
}

int ebpf_ptx_reads_field(const struct ebpf_ptx_jit *j, const char *name)
{
	const struct ebpf_ptx_field *f;

	for (unsigned i = 0; (f = ebpf_ptx_field(j->hook, i)); i++) {
		if (strcmp(f->name, name) == 0) {
			return j->fields >> i & 1;
		}
	}
	return 0;
}

const struct ebpf_ptx_field *ebpf_ptx_next_field(const struct ebpf_ptx_jit *j, unsigned *i)
{
	const struct ebpf_ptx_field *f = NULL;

	while (*i < 64 && !(j->fields >> *i & 1)) {
		++*i;
	}
	if (*i < 64) {
		f = ebpf_ptx_field(j->hook, *i);
	} else if (*i - 64 < j->n_args) {
		f = &j->args[*i - 64].field;
	}
	*i += f != NULL;
	return f;
}

void ebpf_ptx_field_params(struct ebpf_ptx_jit *j)
{
	const struct ebpf_ptx_field *f;

	for (unsigned i = 0; (f = ebpf_ptx_next_field(j, &i));) {
		buf_printf(&j->out, ", .param .b%u %s", 8 * f->bytes, f->name);
	}
}

void ebpf_ptx_take_fields(struct ebpf_ptx_jit *j)
{
	const struct ebpf_ptx_field *f;

	for (unsigned i = 0; (f = ebpf_ptx_next_field(j, &i));) {
		ebpf_ptx_op(j, ".reg .b%u %%c_%s", 8 * f->bytes, f->name);
		ebpf_ptx_op(j, "ld.param.b%u %%c_%s, [%s]", 8 * f->bytes, f->name, f->name);
	}
}

/* Loads the part of f at offset at of the context into a register of 64 bits. */
static void load_part(struct ebpf_ptx_jit *j, const struct ebpf_insn *i,
		      const struct ebpf_ptx_field *f, int at, const char *dst)
{
	char type = EBPF_MODE(i->code) == EBPF_MEMSX ? 's' : 'u';
	unsigned size = ebpf_access_bytes(i);

	if (size == f->bytes && size == 8) {
		ebpf_ptx_op(j, "mov.b64 %s, %%c_%s", dst, f->name);
	} else if (size == f->bytes) {
		ebpf_ptx_op(j, "cvt.%c64.%c32 %s, %%c_%s", type, type, dst, f->name);
	} else {
		ebpf_ptx_op(j, f->bytes == 8 ? "mov.b64 %%t0, %%c_%s" : "cvt.u64.u32 %%t0, %%c_%s",
			    f->name);
		ebpf_ptx_op(j, "bfe.%c64 %s, %%t0, %u, %u", type, dst,
			    8 * (unsigned)(at - f->offset), 8 * size);
	}
}

/* The register of a pointer into the context holds its offset, which selects one of the parts that
 * the load may read. */
void ebpf_ptx_load_field(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	int at = 0, more, size = (int)ebpf_access_bytes(i);
	const struct ebpf_ptx_field *f;
	unsigned n;
	char dst[8];

	snprintf(dst, sizeof(dst), "%%r%u", i->dst);
	f = next_part(j, i, &at, &n);
	more = at + size;
	if (next_part(j, i, &more, &n)) { /* the load may overwrite its base */
		ebpf_ptx_op(j, "mov.b64 %%t1, %%r%u", i->src);
	}
	load_part(j, i, f, at, dst);
	for (at += size; (f = next_part(j, i, &at, &n)); at += size) {
		load_part(j, i, f, at, "%t2");
		ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%t1, %d", at - i->off);
		ebpf_ptx_op(j, "selp.b64 %s, %%t2, %s, %%p0", dst, dst);
	}
}
