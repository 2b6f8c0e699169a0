/* Addresses of accesses, in a register of 64 bits. */
#include "ptx/probe/emit/probe_emit.h"

void ptx_probe_address(struct ptx_probe_work *p, const struct ptx_operand *o)
{
	const struct ptx_variable *v = o->name ? ptx_probe_declared(&p->scopes, o->name) : NULL;
	const struct ptx_probe_name *n = o->name && !v ? ptx_probe_find(p->slice, o->name) : NULL;
	long long offset = (long long)o->offset;

	if (!o->name) {
		ptx_probe_text(p, "\tmov.u64 %%~x, %lld;\n", offset);
		return;
	}
	if (v && v->space == PTX_REG && ptx_type_bytes(v->type) == 4) {
		ptx_probe_text(p, "\tadd.u32 %%~t, %s, %u;\n\tcvt.u64.u32 %%~x, %%~t;\n", o->name,
			       (unsigned)offset);
		return;
	}
	if (n && n->place != PTX_PROBE_NO_PLACE) {
		ptx_probe_text(p, "\tld.const.b64 %%~x, [" PTX_PROBE_TABLE "+%u];\n", n->place * 8);
	} else {
		ptx_probe_text(p, "\tmov.u64 %%~x, %s;\n", o->name);
	}
	if (offset) {
		ptx_probe_text(p, "\tadd.s64 %%~x, %%~x, %lld;\n", offset);
	}
}

void ptx_probe_wmma_share(struct ptx_probe_work *p, const struct ptx_probe_site *s)
{
	const struct ptx_operand *o = s->matrix.stride;

	if (o && o->kind == PTX_NAME) {
		ptx_probe_text(p, "\tcvt.u64.u32 %%~y, %s;\n", o->name);
	} else {
		ptx_probe_text(p, "\tmov.u64 %%~y, %u;\n",
			       o ? (unsigned)o->value : s->matrix.elements);
	}
	ptx_probe_text(p,
		       "\tmul.lo.s64 %%~y, %%~y, %u;\n\tshr.u64 %%~y, %%~y, 3;\n"
		       "\tmov.u32 %%~i, %%laneid;\n\tshl.b32 %%~i, %%~i, %d;\n"
		       "\tshr.u32 %%~w, %%~i, %d;\n\tand.b32 %%~i, %%~i, %u;\n",
		       s->matrix.bits, __builtin_ctz(s->bytes), __builtin_ctz(s->matrix.line),
		       s->matrix.line - 1);
	ptx_probe_text(p, "\tcvt.u64.u32 %%~z, %%~w;\n\tmul.lo.s64 %%~y, %%~y, %%~z;\n"
			  "\tadd.s64 %%~x, %%~x, %%~y;\n\tcvt.u64.u32 %%~z, %%~i;\n"
			  "\tadd.s64 %%~x, %%~x, %%~z;\n");
}
