/* Builds programs from functions: the entry of a hook, followed by every function that it calls,
 * passes to a helper or enters by a tail call. Resolves relocations and adjusts calls to the new
 * positions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"

/* State of one program that is being built. */
struct build {
	struct ebpf_obj_parse *p;
	struct ebpf_prog *prog;
	const struct ebpf_obj_func *funcs[ARRAY_SIZE(((struct ebpf_prog *)0)->subprog)];
	uint64_t arrays; /* program arrays whose targets have been added, by map */
	uint32_t cap_insns, cap_poisons;
};

_Static_assert(EBPF_MAX_MAPS <= 64, "a bit for each map");

/* The loader's current position: an instruction of a function and its place in the program. */
struct spot {
	const struct ebpf_obj_func *f;
	const struct ebpf_obj_section *s;
	uint64_t off;	  /* byte offset in the section */
	uint32_t at;	  /* index in the program */
	uint32_t left;	  /* remaining instructions of the function */
	const char *name; /* name of the section */
};

static int grow(struct build *b, uint32_t more)
{
	struct ebpf_prog *prog = b->prog;
	uint32_t cap = MAX(b->cap_insns * 2, prog->n_insns + more);
	struct ebpf_insn *insns;

	if (prog->n_insns + more <= b->cap_insns) {
		return 0;
	}
	insns = realloc(prog->insns, (size_t)cap * sizeof(*insns));
	if (!insns) {
		return -ENOMEM;
	}
	prog->insns = insns;
	b->cap_insns = cap;
	return 0;
}

static int append(struct build *b, struct ebpf_obj_func *f, uint32_t *ret_k)
{
	struct ebpf_obj_parse *p = b->p;
	struct ebpf_prog *prog = b->prog;
	uint32_t k = prog->n_subprogs, at = prog->n_insns;

	if (k == ARRAY_SIZE(prog->subprog)) {
		return ebpf_obj_refuse(p, -E2BIG, p->secs[f->section].name, f->start * 8ull,
				       "program %s calls more than %zu functions", prog->name,
				       ARRAY_SIZE(prog->subprog) - 1);
	}
	if (f->n > EBPF_MAX_INSNS - at) {
		return ebpf_obj_refuse(p, -E2BIG, p->secs[f->section].name, f->start * 8ull,
				       "program %s has more than %u instructions", prog->name,
				       EBPF_MAX_INSNS);
	}
	if (grow(b, f->n) < 0) {
		return -ENOMEM;
	}
	memcpy(prog->insns + at, p->secs[f->section].data + (size_t)f->start * 8, (size_t)f->n * 8);
	f->used = 1;
	b->funcs[k] = f;
	prog->subprog[k] = at;
	snprintf(prog->subprog_name[k], sizeof(prog->subprog_name[k]), "%s", f->name);
	prog->n_subprogs++;
	prog->n_insns += f->n;
	*ret_k = k;
	return ebpf_obj_add_lines(p, prog, f, at);
}

/* Adds a function to the program unless it is there, and sets *ret_k to its number. */
static int take(struct build *b, struct ebpf_obj_func *f, uint32_t *ret_k)
{
	for (uint32_t k = 0; k < b->prog->n_subprogs; k++) {
		if (b->funcs[k] == f) {
			*ret_k = k;
			return 0;
		}
	}
	return append(b, f, ret_k);
}

/* Replaces an instruction that cannot be resolved by a harmless one. The verifier refuses programs
 * that reach it. */
static int poison(struct build *b, const struct spot *x, uint32_t slots, const char *why)
{
	struct ebpf_prog *prog = b->prog;
	struct ebpf_insn *in = &prog->insns[x->at];
	int wide = slots == 2;

	if (!why) {
		return ebpf_obj_refuse(b->p, -E2BIG, x->name, x->off,
				       "more than %u instructions that this gBPF cannot relocate",
				       OBJ_MAX_POISONS);
	}
	if (prog->n_poisons == b->cap_poisons) {
		uint32_t cap = b->cap_poisons ? b->cap_poisons * 2 : 8;
		struct ebpf_poison *poisons = realloc(prog->poisons, cap * sizeof(*poisons));

		if (!poisons) {
			return -ENOMEM;
		}
		prog->poisons = poisons;
		b->cap_poisons = cap;
	}
	prog->poisons[prog->n_poisons++] = (struct ebpf_poison){ x->at, why };
	*in = wide ? (struct ebpf_insn){ .code = EBPF_LD_IMM64, .dst = in->dst }
		   : (struct ebpf_insn){ .code = EBPF_ALU64 | EBPF_MOV | EBPF_K };
	if (wide) {
		in[1] = (struct ebpf_insn){ 0 };
	}
	return 0;
}

/* Adds the targets of a program array that the program can reach. */
static int take_targets(struct build *b, const struct spot *x, uint32_t map)
{
	struct ebpf_obj_parse *p = b->p;
	struct ebpf_prog *prog = b->prog;

	b->arrays |= 1ull << map;
	for (uint32_t i = 0; i < p->n_tails; i++) {
		const struct ebpf_obj_tail *t = &p->tails[i];
		struct ebpf_tail *tails;
		uint32_t k = 0;
		int err;

		if (t->map != map) {
			continue;
		}
		if (p->secs[t->func->section].hook != prog->hook) {
			return ebpf_obj_refuse(
				p, -EINVAL, x->name, x->off,
				"map %s: %s is a program of the hook %s, which cannot "
				"be entered from %s (%s)",
				p->o->maps[map].name, t->func->name,
				ebpf_obj_hook_name(p->secs[t->func->section].hook), prog->name,
				ebpf_obj_hook_name(prog->hook));
		}
		if (++p->all_tails > OBJ_MAX_TAILS) {
			return ebpf_obj_refuse(p, -E2BIG, x->name, x->off,
					       "the programs' tail calls have more than %u targets",
					       OBJ_MAX_TAILS);
		}
		err = ebpf_obj_check_context(p, t->func, prog->hook);
		err = err ? err : take(b, t->func, &k);
		tails = err ? NULL : realloc(prog->tails, (prog->n_tails + 1u) * sizeof(*tails));
		if (!tails) {
			return err ? err : -ENOMEM;
		}
		prog->tails = tails;
		tails[prog->n_tails++] = (struct ebpf_tail){ map, t->index, k };
	}
	return 0;
}

static int map_reference(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	struct ebpf_obj_parse *p = b->p;
	struct ebpf_insn *in = &b->prog->insns[x->at];
	const struct ebpf_obj_map_at *at =
		ebpf_obj_map_at(p, sym->st_value + (uint64_t)(int64_t)in[0].imm);

	if (!at) {
		return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
				       "reference to %s, which is not the start of a map",
				       ebpf_obj_symbol_name(p, sym));
	}
	in[0].src = EBPF_PSEUDO_MAP;
	in[0].imm = (int32_t)at->map;
	in[1].imm = 0;
	if (ebpf_map_type_has(p->o->maps[at->map].type, EBPF_MAP_PROGRAMS) &&
	    !(b->arrays >> at->map & 1)) {
		return take_targets(b, x, at->map);
	}
	return 0;
}

static int data_reference(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	struct ebpf_obj_parse *p = b->p;
	struct ebpf_insn *in = &b->prog->insns[x->at];
	const struct ebpf_obj_section *s = &p->secs[sym->st_shndx];
	int64_t where = (int64_t)sym->st_value + in[0].imm;

	if (s->map < 0 || where < 0 || where >= p->o->maps[s->map].value_bytes) {
		return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
				       "reference to byte %lld of %s, which has %zu bytes",
				       (long long)where, s->name, s->size);
	}
	in[0].src = EBPF_PSEUDO_MAP_VALUE;
	in[0].imm = s->map;
	in[1].imm = (int32_t)where;
	return 0;
}

/* Resolves the address of a function that the program passes to a helper. */
static int func_reference(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	struct ebpf_obj_parse *p = b->p;
	int64_t where = (int64_t)sym->st_value + b->prog->insns[x->at].imm;
	struct ebpf_obj_func *f = where >= 0 && where % 8 == 0
					  ? ebpf_obj_func_at(p, sym->st_shndx, (uint64_t)where / 8)
					  : NULL;
	struct ebpf_insn *in;
	uint32_t k = 0;
	int err;

	if (!f) {
		return ebpf_obj_refuse(
			p, -EINVAL, x->name, x->off,
			"the address of byte %lld of section %s, where no function begins",
			(long long)where, p->secs[sym->st_shndx].name);
	}
	err = take(b, f, &k);
	if (err) {
		return err;
	}
	in = &b->prog->insns[x->at]; /* take() may have moved the array */
	in[0].src = EBPF_PSEUDO_FUNC;
	in[0].imm = (int32_t)b->prog->subprog[k] - (int32_t)x->at - 1;
	in[1].imm = 0;
	return 0;
}

/* Resolves the address of an extern, which programs may only compare with 0. */
static int extern_reference(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	const struct ebpf_obj_extern *e = ebpf_obj_extern_of(b->p, x->name, x->off, sym);
	struct ebpf_insn *in = &b->prog->insns[x->at];

	if (!e) {
		return -EINVAL;
	}
	in[0].imm = e->kind == OBJ_EXTERN_HELPER ? e->helper : 0;
	in[1].imm = 0;
	return 0;
}

static int refuse_symbol(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	struct ebpf_obj_parse *p = b->p;
	const char *name = ebpf_obj_symbol_name(p, sym);

	if (sym->st_shndx == SHN_COMMON) {
		report_hint(p->r, "compile with -fno-common");
		return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
				       "%s is a common symbol, which is not supported", name);
	}
	if (ELF64_ST_TYPE(sym->st_info) == STT_TLS) {
		report_hint(p->r, "GBPF_MAP_THREAD_ARRAY has an instance for each thread");
		return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
				       "thread-local variable %s is not supported", name);
	}
	return ebpf_obj_refuse(
		p, -EINVAL, x->name, x->off,
		"reference to %s in section %s, which is neither map nor data nor code", name,
		sym->st_shndx < SHN_LORESERVE ? p->secs[sym->st_shndx].name : "(special)");
}

static int relocate_load(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	const struct ebpf_insn *in = &b->prog->insns[x->at];

	if (in->code != EBPF_LD_IMM64 || x->left < 2 || in->src != 0) {
		return ebpf_obj_refuse(b->p, -EINVAL, x->name, x->off,
				       "an address relocation on something that is no 64-bit load");
	}
	if (sym->st_shndx == SHN_UNDEF) {
		return extern_reference(b, x, sym);
	}
	if (!ebpf_obj_symbol_defined(sym)) {
		return refuse_symbol(b, x, sym);
	}
	switch (b->p->secs[sym->st_shndx].role) {
	case OBJ_MAPS:
		return map_reference(b, x, sym);
	case OBJ_DATA:
		return data_reference(b, x, sym);
	case OBJ_CODE:
		return func_reference(b, x, sym);
	default:
		return refuse_symbol(b, x, sym);
	}
}

static int extern_call(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	const struct ebpf_obj_extern *e = ebpf_obj_extern_of(b->p, x->name, x->off, sym);
	struct ebpf_insn *in = &b->prog->insns[x->at];

	if (!e) {
		return -EINVAL;
	}
	if (e->kind == OBJ_EXTERN_ABSENT) {
		return poison(
			b, x, 1,
			ebpf_obj_keep_text(b->p,
					   "call of %s, which is weak and which this gBPF does not "
					   "have: ask if (%s) before",
					   e->name, e->name));
	}
	*in = (struct ebpf_insn){ .code = EBPF_JMP | EBPF_CALL, .imm = e->helper };
	return 0;
}

/* Resolves a call: adds the called function to the program if it is new and makes the call relative
 * to the new positions. */
static int relocate_call(struct build *b, const struct spot *x, const Elf64_Sym *sym)
{
	struct ebpf_obj_parse *p = b->p;
	const struct ebpf_insn *in = &b->prog->insns[x->at];
	uint32_t section = x->f->section, k = 0;
	int64_t start = (int64_t)(x->off / 8) + in->imm + 1;
	struct ebpf_obj_func *callee;
	int err;

	if (sym && sym->st_shndx == SHN_UNDEF) {
		return extern_call(b, x, sym);
	}
	if (sym) {
		if (!ebpf_obj_symbol_defined(sym)) {
			return refuse_symbol(b, x, sym);
		}
		section = sym->st_shndx;
		start = (int64_t)(sym->st_value / 8) + in->imm + 1;
	}
	callee = start < 0 ? NULL : ebpf_obj_func_at(p, section, (uint64_t)start);
	if (!callee) {
		return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
				       "call to byte %lld of section %s, where no function begins",
				       (long long)start * 8, p->secs[section].name);
	}
	err = take(b, callee, &k);
	if (err == 0) {
		b->prog->insns[x->at].imm = (int32_t)b->prog->subprog[k] - (int32_t)x->at - 1;
	}
	return err;
}

static int relocate_insn(struct build *b, const struct spot *x, const Elf64_Rel *rel)
{
	struct ebpf_obj_parse *p = b->p;
	const struct ebpf_insn *in = &b->prog->insns[x->at];
	const Elf64_Sym *sym = rel ? &p->syms[ELF64_R_SYM(rel->r_info)] : NULL;
	uint32_t type = rel ? (uint32_t)ELF64_R_TYPE(rel->r_info) : 0;
	int local_call = in->code == (EBPF_JMP | EBPF_CALL) && in->src == EBPF_CALL_LOCAL;

	if (local_call && (!rel || type == OBJ_R_64_32)) {
		return relocate_call(b, x, sym);
	}
	if (!rel) {
		if (in->code == EBPF_LD_IMM64 && in->src != 0) {
			return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
					       "a 64-bit load of kind %u without relocation",
					       in->src);
		}
		return 0;
	}
	if (type == OBJ_R_64_64) {
		return relocate_load(b, x, sym);
	}
	return ebpf_obj_refuse(p, -EINVAL, x->name, x->off,
			       "relocation type %u does not fit the instruction (symbol %s)", type,
			       ebpf_obj_symbol_name(p, sym));
}

static uint32_t core_from(const struct ebpf_obj_section *s, uint32_t off)
{
	uint32_t lo = 0, hi = s->n_core;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->core[mid].off < off) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

static int relocate_core(struct build *b, const struct spot *x, struct ebpf_obj_core *c)
{
	const char *why = NULL;
	struct ebpf_insn *in = &b->prog->insns[x->at];
	int err = ebpf_obj_core_apply(b->p, c, x->name, in, x->left, &why);

	if (err || !c->poisoned) {
		return err;
	}
	return poison(b, x, in->code == EBPF_LD_IMM64 && x->left > 1 ? 2 : 1, why);
}

/* Relocates the instructions of one function; its relocations are sorted by offset. */
static int relocate_func(struct build *b, uint32_t k)
{
	struct ebpf_obj_parse *p = b->p;
	const struct ebpf_obj_func *f = b->funcs[k];
	struct ebpf_obj_section *s = &p->secs[f->section];
	uint32_t rel = ebpf_obj_reloc_from(s, f->start * 8ull), core = core_from(s, f->start * 8);
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < f->n; i++) {
		struct spot x = { f,	    s,	    (f->start + i) * 8ull, b->prog->subprog[k] + i,
				  f->n - i, s->name };
		int wide = b->prog->insns[x.at].code == EBPF_LD_IMM64;
		const Elf64_Rel *r = NULL;

		if (rel < s->n_rels && s->rels[rel].r_offset < x.off + 8) {
			r = &s->rels[rel++];
		}
		if (r && r->r_offset != x.off) {
			return ebpf_obj_refuse(p, -EINVAL, x.name, r->r_offset,
					       "a relocation in the middle of an instruction");
		}
		err = relocate_insn(b, &x, r);
		for (; err == 0 && core < s->n_core && s->core[core].off < x.off + 8; core++) {
			if (s->core[core].off != x.off || r) {
				return ebpf_obj_refuse(
					p, -EINVAL, x.name, x.off,
					"a CO-RE relocation that fits no instruction");
			}
			err = relocate_core(b, &x, &s->core[core]);
		}
		i += (uint32_t)wide;
		/* A relocation in a second half belongs to no instruction. */
		if (wide &&
		    ((rel < s->n_rels && s->rels[rel].r_offset < x.off + 16) ||
		     (core < s->n_core && s->core[core].off < x.off + 16)) &&
		    err == 0 && x.left > 1) {
			return ebpf_obj_refuse(p, -EINVAL, x.name, x.off + 8,
					       "a relocation in the middle of an instruction");
		}
	}
	return err;
}

static int tail_order(const void *a, const void *b)
{
	const struct ebpf_tail *x = a, *y = b;

	if (x->map != y->map) {
		return x->map < y->map ? -1 : 1;
	}
	return x->index < y->index ? -1 : x->index > y->index;
}

/* prog->n_subprogs grows during the loop: callees are appended. */
static int link_program(struct build *b, struct ebpf_obj_func *entry)
{
	uint32_t k = 0;
	int err = append(b, entry, &k);

	for (k = 0; err == 0 && k < b->prog->n_subprogs; k++) {
		err = relocate_func(b, k);
	}
	if (b->prog->n_tails > 1) {
		qsort(b->prog->tails, b->prog->n_tails, sizeof(*b->prog->tails), tail_order);
	}
	return err;
}

static int add_program(struct ebpf_obj_parse *p, struct ebpf_obj_func *f, int hook)
{
	const struct ebpf_obj_section *s = &p->secs[f->section];
	struct build b = { .p = p };
	struct ebpf_object *o = p->o;
	int err = ebpf_obj_check_context(p, f, hook);

	for (uint32_t i = 0; i < o->n_progs && err == 0; i++) {
		if (o->progs[i].hook == hook && hook < (int)EBPF_FIRST_DEVICE_HOOK) {
			report_hint(p->r,
				    "a policy has one program a hook; make the second a "
				    "static function, or write SEC(\"?gbpf/%s\")",
				    ebpf_obj_hook_name(hook));
			err = ebpf_obj_refuse(p, -EINVAL, s->name, f->start * 8ull,
					      "%s and %s are both programs for the hook %s",
					      o->progs[i].name, f->name, ebpf_obj_hook_name(hook));
		}
	}
	if (err) {
		return err;
	}
	if (o->n_progs == ARRAY_SIZE(o->progs)) {
		return ebpf_obj_refuse(p, -E2BIG, s->name, 0, "more than %zu programs",
				       ARRAY_SIZE(o->progs));
	}
	b.prog = &o->progs[o->n_progs++];
	memset(b.prog, 0, sizeof(*b.prog));
	snprintf(b.prog->name, sizeof(b.prog->name), "%s", f->name);
	b.prog->hook = hook;
	b.prog->lane = s->lane;
	memcpy(b.prog->kernel, s->kernel, sizeof(b.prog->kernel));
	if (hook >= (int)EBPF_FIRST_DEVICE_HOOK && s->code != OBJ_DEVICE) {
		snprintf(b.prog->kernel, sizeof(b.prog->kernel), "*"); /* a member of a struct */
	}
	memcpy(b.prog->site, s->site, sizeof(b.prog->site));
	return link_program(&b, f);
}

/* Refuses unused functions in sections whose names have a meaning for other loaders. */
static int refuse_unused(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 0; i < p->n_funcs; i++) {
		const struct ebpf_obj_func *f = &p->funcs[i];
		const struct ebpf_obj_section *s = &p->secs[f->section];

		if (f->used || !f->global) {
			continue;
		}
		if (s->code == OBJ_FOREIGN && s->name[0] != '?') {
			return ebpf_obj_refuse_foreign(p, f);
		}
		if (s->code == OBJ_MEMBER && s->name[0] != '?') {
			report_hint(p->r, "name it in a struct gbpf_ops in SEC(\".struct_ops\")");
			return ebpf_obj_refuse(p, -EINVAL, s->name, f->start * 8ull,
					       "%s belongs to no struct of programs", f->name);
		}
	}
	return 0;
}

int ebpf_obj_read_programs(struct ebpf_obj_parse *p)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < p->n_funcs; i++) {
		const struct ebpf_obj_section *s = &p->secs[p->funcs[i].section];

		if (p->funcs[i].global && (s->code == OBJ_HOOK || s->code == OBJ_DEVICE)) {
			err = add_program(p, &p->funcs[i], s->hook);
		}
	}
	for (int hook = 0; err == 0 && hook < (int)EBPF_MAX_HOOKS; hook++) {
		if (p->slots[hook].func) {
			err = add_program(p, p->slots[hook].func, hook);
		}
	}
	err = err ? err : refuse_unused(p);
	if (err == 0 && p->o->n_progs == 0) {
		report_hint(p->r,
			    "write SEC(\"gbpf/submit\") before a function that is not static");
		err = ebpf_obj_refuse(p, -EINVAL, NULL, 0, "no program for any hook");
	}
	return err;
}
