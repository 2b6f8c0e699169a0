/* Functions become programs: each hook's entry, behind it every function that it calls, with
 * relocations resolved and calls rewritten to the new places. */
#include "bpf/load/object_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { R_BPF_64_64_ = 1, R_BPF_64_32_ = 10 };

static int func_order(const void *a, const void *b)
{
	const struct obj_func *x = a, *y = b;

	if (x->section != y->section) {
		return x->section < y->section ? -1 : 1;
	}
	return x->start < y->start ? -1 : x->start > y->start;
}

static int add_func(struct obj_parse *p, const Elf64_Sym *sym)
{
	const struct obj_section *s = &p->secs[sym->st_shndx];
	const char *name = obj_symbol_name(p, sym);

	if (s->role != OBJ_CODE) {
		return obj_refuse(p, -EINVAL, s->name, sym->st_value,
				  "function %s is not in a code section", name);
	}
	if (!obj_name_ok(name, sizeof(p->o->progs[0].name))) {
		return obj_refuse(p, -EINVAL, s->name, sym->st_value,
				  "function name '%.64s': 1 to %zu letters, digits, underscores "
				  "and dots are allowed",
				  name, sizeof(p->o->progs[0].name) - 1);
	}
	if (sym->st_value % 8 || sym->st_size % 8 || sym->st_size == 0) {
		return obj_refuse(p, -EINVAL, s->name, sym->st_value,
				  "function %s (%llu bytes) is not made of whole instructions",
				  name, (unsigned long long)sym->st_size);
	}
	if (p->n_funcs == OBJ_MAX_FUNCS) {
		return obj_refuse(p, -E2BIG, s->name, 0, "more than %u functions", OBJ_MAX_FUNCS);
	}
	p->funcs[p->n_funcs++] = (struct obj_func){
		.name = name,
		.section = sym->st_shndx,
		.start = (uint32_t)(sym->st_value / 8),
		.n = (uint32_t)(sym->st_size / 8),
		.global = ELF64_ST_BIND(sym->st_info) != STB_LOCAL,
	};
	return 0;
}

static int read_funcs(struct obj_parse *p)
{
	p->funcs = calloc(OBJ_MAX_FUNCS, sizeof(*p->funcs));
	if (!p->funcs) {
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < p->n_syms; i++) {
		const Elf64_Sym *sym = &p->syms[i];

		if (ELF64_ST_TYPE(sym->st_info) == STT_FUNC && sym->st_shndx != SHN_UNDEF &&
		    sym->st_shndx < SHN_LORESERVE) {
			int err = add_func(p, sym);

			if (err) {
				return err;
			}
		}
	}
	qsort(p->funcs, p->n_funcs, sizeof(*p->funcs), func_order);
	for (uint32_t i = 1; i < p->n_funcs; i++) {
		const struct obj_func *a = &p->funcs[i - 1], *b = &p->funcs[i];

		if (a->section == b->section && a->start + a->n > b->start) {
			return obj_refuse(p, -EINVAL, p->secs[b->section].name, b->start * 8ull,
					  "functions %s and %s overlap", a->name, b->name);
		}
	}
	return 0;
}

static const struct obj_func *func_at(const struct obj_parse *p, uint32_t section, uint64_t start)
{
	struct obj_func key = { .section = section, .start = (uint32_t)start };

	if (start > UINT32_MAX) {
		return NULL;
	}
	return bsearch(&key, p->funcs, p->n_funcs, sizeof(key), func_order);
}

/* What is being put together for one program. */
struct build {
	struct obj_parse *p;
	struct ebpf_prog *prog;
	const struct obj_func *funcs[ARRAY_SIZE(((struct ebpf_prog *)0)->subprog)];
};

static int append(struct build *b, const struct obj_func *f, uint32_t *ret_at)
{
	struct obj_parse *p = b->p;
	struct ebpf_prog *prog = b->prog;
	struct ebpf_insn *insns;
	uint32_t k = prog->n_subprogs;

	if (k == ARRAY_SIZE(prog->subprog)) {
		return obj_refuse(p, -E2BIG, p->secs[f->section].name, f->start * 8ull,
				  "program %s calls more than %zu functions", prog->name,
				  ARRAY_SIZE(prog->subprog) - 1);
	}
	if (f->n > EBPF_MAX_INSNS - prog->n_insns) {
		return obj_refuse(p, -E2BIG, p->secs[f->section].name, f->start * 8ull,
				  "program %s has more than %u instructions", prog->name,
				  EBPF_MAX_INSNS);
	}
	insns = realloc(prog->insns, ((size_t)prog->n_insns + f->n) * sizeof(*insns));
	if (!insns) {
		return -ENOMEM;
	}
	prog->insns = insns;
	memcpy(insns + prog->n_insns, p->secs[f->section].data + (size_t)f->start * 8,
	       (size_t)f->n * 8);
	b->funcs[k] = f;
	prog->subprog[k] = *ret_at = prog->n_insns;
	snprintf(prog->subprog_name[k], sizeof(prog->subprog_name[k]), "%s", f->name);
	prog->n_subprogs++;
	prog->n_insns += f->n;
	return obj_add_lines(p, prog, f, *ret_at);
}

static int map_reference(struct build *b, const struct obj_func *f, uint64_t off,
			 struct ebpf_insn *in, const Elf64_Sym *sym)
{
	struct obj_parse *p = b->p;
	const struct obj_section *at = &p->secs[f->section];
	uint64_t where = sym->st_value + (uint64_t)(int64_t)in[0].imm;

	for (uint32_t i = 0; i < p->n_map_at; i++) {
		if (p->map_at[i].offset == where) {
			in[0].src = EBPF_PSEUDO_MAP;
			in[0].imm = (int32_t)p->map_at[i].map;
			in[1].imm = 0;
			return 0;
		}
	}
	return obj_refuse(p, -EINVAL, at->name, off,
			  "reference to %s, which is not the start of a map",
			  obj_symbol_name(p, sym));
}

static int data_reference(struct build *b, const struct obj_func *f, uint64_t off,
			  struct ebpf_insn *in, const Elf64_Sym *sym)
{
	struct obj_parse *p = b->p;
	const struct obj_section *at = &p->secs[f->section], *s = &p->secs[sym->st_shndx];
	int64_t where = (int64_t)sym->st_value + in[0].imm;

	if (s->map < 0 || where < 0 || where >= p->o->maps[s->map].value_bytes) {
		return obj_refuse(p, -EINVAL, at->name, off,
				  "reference to byte %lld of %s, which has %zu bytes",
				  (long long)where, s->name, s->size);
	}
	in[0].src = EBPF_PSEUDO_MAP_VALUE;
	in[0].imm = s->map;
	in[1].imm = (int32_t)where;
	return 0;
}

static int refuse_symbol(struct build *b, const struct obj_func *f, uint64_t off,
			 const Elf64_Sym *sym)
{
	struct obj_parse *p = b->p;
	const char *at = p->secs[f->section].name, *name = obj_symbol_name(p, sym);

	if (sym->st_shndx == SHN_UNDEF) {
		report_hint(p->r,
			    "define %s in this file (a policy is one object; there is no libc)",
			    name);
		return obj_refuse(p, -EINVAL, at, off,
				  "%s is extern, which is not supported by this version", name);
	}
	if (sym->st_shndx < SHN_LORESERVE && p->secs[sym->st_shndx].role == OBJ_CODE) {
		return obj_refuse(p, -EINVAL, at, off,
				  "the address of a function (callback) in %s is not supported by "
				  "this version",
				  p->secs[sym->st_shndx].name);
	}
	return obj_refuse(
		p, -EINVAL, at, off, "reference to %s in section %s, which is neither map nor data",
		name, sym->st_shndx < SHN_LORESERVE ? p->secs[sym->st_shndx].name : "(special)");
}

static int relocate_load(struct build *b, const struct obj_func *f, uint64_t off,
			 struct ebpf_insn *in, uint32_t left, const Elf64_Sym *sym)
{
	if (in->code != EBPF_LD_IMM64 || left < 2 || in->src != 0) {
		return obj_refuse(b->p, -EINVAL, b->p->secs[f->section].name, off,
				  "an address relocation on something that is no 64-bit load");
	}
	if (sym->st_shndx == SHN_UNDEF || sym->st_shndx >= SHN_LORESERVE) {
		return refuse_symbol(b, f, off, sym);
	}
	switch (b->p->secs[sym->st_shndx].role) {
	case OBJ_MAPS:
		return map_reference(b, f, off, in, sym);
	case OBJ_DATA:
		return data_reference(b, f, off, in, sym);
	default:
		return refuse_symbol(b, f, off, sym);
	}
}

/* Finds the called function, appends it when it is new, and makes the call relative to the new
 * places. */
static int relocate_call(struct build *b, const struct obj_func *f, uint64_t off, uint32_t at,
			 const Elf64_Sym *sym)
{
	struct obj_parse *p = b->p;
	const struct ebpf_insn *in = &b->prog->insns[at];
	uint32_t section = f->section, to = 0;
	int64_t start = (int64_t)(off / 8) + in->imm + 1;
	const struct obj_func *callee;
	uint32_t k;
	int err;

	if (sym) {
		if (sym->st_shndx == SHN_UNDEF || sym->st_shndx >= SHN_LORESERVE) {
			return refuse_symbol(b, f, off, sym);
		}
		section = sym->st_shndx;
		start = (int64_t)(sym->st_value / 8) + in->imm + 1;
	}
	callee = start < 0 ? NULL : func_at(p, section, (uint64_t)start);
	if (!callee) {
		return obj_refuse(p, -EINVAL, p->secs[f->section].name, off,
				  "call to byte %lld of section %s, where no function begins",
				  (long long)start * 8, p->secs[section].name);
	}
	for (k = 0; k < b->prog->n_subprogs && b->funcs[k] != callee; k++) {
	}
	if (k == b->prog->n_subprogs) {
		err = append(b, callee, &to);
		if (err) {
			return err;
		}
	}
	b->prog->insns[at].imm = (int32_t)b->prog->subprog[k] - (int32_t)at - 1;
	return 0;
}

static int relocate_insn(struct build *b, const struct obj_func *f, uint32_t at, uint32_t i)
{
	struct obj_parse *p = b->p;
	const struct obj_section *s = &p->secs[f->section];
	uint64_t off = (uint64_t)(f->start + i) * 8;
	const Elf64_Rel *rel = obj_reloc_at(s, off);
	struct ebpf_insn *in = &b->prog->insns[at + i];
	const Elf64_Sym *sym = rel ? &p->syms[ELF64_R_SYM(rel->r_info)] : NULL;
	int local_call = in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_LOCAL;

	if (local_call && (!rel || ELF64_R_TYPE(rel->r_info) == R_BPF_64_32_)) {
		return relocate_call(b, f, off, at + i, sym);
	}
	if (!rel) {
		if (in->code == EBPF_LD_IMM64 && in->src != 0) {
			return obj_refuse(p, -EINVAL, s->name, off,
					  "a 64-bit load of kind %u without relocation", in->src);
		}
		return 0;
	}
	if (ELF64_R_TYPE(rel->r_info) == R_BPF_64_64_) {
		return relocate_load(b, f, off, in, f->n - i, sym);
	}
	if (ELF64_R_TYPE(rel->r_info) == R_BPF_64_32_ && sym->st_shndx == SHN_UNDEF) {
		return refuse_symbol(b, f, off, sym);
	}
	return obj_refuse(p, -EINVAL, s->name, off,
			  "relocation type %u does not fit the instruction (symbol %s)",
			  (unsigned)ELF64_R_TYPE(rel->r_info), obj_symbol_name(p, sym));
}

/* prog->n_subprogs grows while we walk: callees are appended behind what was already there. */
static int link_program(struct build *b, const struct obj_func *entry)
{
	uint32_t at = 0;
	int err = append(b, entry, &at);

	for (uint32_t k = 0; err == 0 && k < b->prog->n_subprogs; k++) {
		const struct obj_func *f = b->funcs[k];

		for (uint32_t i = 0; err == 0 && i < f->n; i++) {
			const struct ebpf_insn *in = &b->prog->insns[b->prog->subprog[k] + i];
			int wide = in->code == EBPF_LD_IMM64;

			err = relocate_insn(b, f, b->prog->subprog[k], i);
			i += (uint32_t)wide;
		}
	}
	return err;
}

static int add_program(struct obj_parse *p, const struct obj_func *f)
{
	const struct obj_section *s = &p->secs[f->section];
	struct build b = { .p = p };
	struct ebpf_object *o = p->o;

	for (uint32_t i = 0; i < o->n_progs; i++) {
		if (o->progs[i].hook == s->hook) {
			report_hint(p->r, "an object has one program a hook; make the second a "
					  "static function");
			return obj_refuse(p, -EINVAL, s->name, f->start * 8ull,
					  "%s and %s are both programs for the hook %s",
					  o->progs[i].name, f->name, obj_hook_name(s->hook));
		}
	}
	if (o->n_progs == ARRAY_SIZE(o->progs)) {
		return obj_refuse(p, -E2BIG, s->name, 0, "more than %zu programs",
				  ARRAY_SIZE(o->progs));
	}
	b.prog = &o->progs[o->n_progs++];
	snprintf(b.prog->name, sizeof(b.prog->name), "%s", f->name);
	b.prog->hook = s->hook;
	return link_program(&b, f);
}

int obj_read_programs(struct obj_parse *p)
{
	int err = read_funcs(p);

	for (uint32_t i = 0; err == 0 && i < p->n_funcs; i++) {
		if (p->funcs[i].global && p->secs[p->funcs[i].section].hook >= 0) {
			err = add_program(p, &p->funcs[i]);
		}
	}
	if (err == 0 && p->o->n_progs == 0) {
		report_hint(p->r,
			    "write SEC(\"gbpf/submit\") before a function that is not static");
		err = obj_refuse(p, -EINVAL, NULL, 0, "no program for any hook");
	}
	return err;
}
