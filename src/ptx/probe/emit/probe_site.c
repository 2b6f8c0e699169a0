/* Finds the sites of each hook as the text is printed, and numbers them in its order. Sites of
 * hooks without a program are not counted: no program reads their numbers. */
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

static struct ptx_probe_site site(struct ptx_probe_work *p, uint32_t hook,
				  const struct ptx_insn *insn)
{
	return (struct ptx_probe_site){
		.hook = hook,
		.in = p->at.in,
		.number = p->at.n_sites[hook - PTX_PROBE_HOOK_FIRST]++,
		.file = p->at.loc_file,
		.line = p->at.loc,
		.insn = insn,
		.guard = insn ? insn->guard : NULL,
		.guard_not = insn && insn->guard_not,
	};
}

static void insert(struct ptx_probe_work *p, uint32_t hook, const struct ptx_insn *insn)
{
	struct ptx_probe_site s;

	if (ptx_probe_has_hook(p->read, hook)) {
		s = site(p, hook, insn);
		ptx_probe_insert(p, &s);
	}
}

/* ---- functions ---- */

/* Lanes leave the kernel. */
static void leave(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	insert(p, PTX_PROBE_gdev_exit, insn);
	if (ptx_probe_has_hook(p->read, PTX_PROBE_gdev_block_exit)) {
		struct ptx_probe_site s = site(p, PTX_PROBE_gdev_block_exit, insn);

		ptx_probe_leave_block(p, &s);
	}
	ptx_probe_defer_leave(p, insn);
}

void ptx_probe_begin(struct ptx_probe_work *p)
{
	if (!p->at.in->is_entry) {
		insert(p, PTX_PROBE_gdev_probe, NULL);
		return;
	}
	ptx_probe_defer_open(p);
	if (p->read->warp_bytes) {
		ptx_probe_scratch_clear(p);
	}
	if (ptx_probe_has_hook(p->read, PTX_PROBE_gdev_block_exit)) {
		ptx_probe_count_all(p);
	}
	p->at.entry_place = ptx_probe_entry_place(p->read, p->at.in);
	if (!p->at.entry_place) {
		ptx_probe_enter_entry(p);
	}
}

/* The line is that of the beginning, wherever the programs are. */
void ptx_probe_enter_entry(struct ptx_probe_work *p)
{
	uint32_t loc = p->at.loc, file = p->at.loc_file;

	p->at.loc = p->at.first_loc;
	p->at.loc_file = p->at.first_file;
	insert(p, PTX_PROBE_gdev_block_enter, NULL);
	insert(p, PTX_PROBE_gdev_enter, NULL);
	if (p->read->warp_bytes) {
		ptx_probe_scratch_entered(p);
	}
	p->at.loc = loc;
	p->at.loc_file = file;
	p->at.entry_place = NULL;
}

void ptx_probe_end(struct ptx_probe_work *p)
{
	if (p->at.in->is_entry) {
		leave(p, NULL);
	} else {
		insert(p, PTX_PROBE_gdev_retprobe, NULL);
	}
}

static void end_here(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	bool returns = strcmp(insn->opcode, "ret") == 0;

	if (strcmp(insn->opcode, "exit") == 0 || (returns && p->at.in->is_entry)) {
		leave(p, insn);
	} else if (returns) {
		insert(p, PTX_PROBE_gdev_retprobe, insn);
	}
}

/* ---- fences and barriers ---- */

static uint32_t scope_of(const struct ptx_insn *insn)
{
	static const struct {
		const char *modifier;
		uint32_t scope;
	} scopes[] = {
		{ ".cta", 0 }, { ".cluster", 1 }, { ".gpu", 2 }, { ".gl", 2 }, { ".sys", 3 }
	};

	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
		if (ptx_insn_has(insn, scopes[i].modifier)) {
			return scopes[i].scope;
		}
	}
	return 0;
}

static void fence(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_site s;

	if (ptx_probe_has_hook(p->read, PTX_PROBE_gdev_fence) &&
	    (strcmp(insn->opcode, "fence") == 0 || strcmp(insn->opcode, "membar") == 0)) {
		s = site(p, PTX_PROBE_gdev_fence, insn);
		s.scope = scope_of(insn);
		ptx_probe_insert(p, &s);
	}
}

/* GBPF_BARRIER_* of hooks.def. */
enum { BARRIER_BLOCK, BARRIER_MBARRIER, BARRIER_ARRIVE, BARRIER_COPIES };

static bool has_one_of(const struct ptx_insn *insn, const char *const *modifiers)
{
	for (; *modifiers; modifiers++) {
		if (ptx_insn_has(insn, *modifiers)) {
			return true;
		}
	}
	return false;
}

/* Returns whether the instruction is a site of gdev_barrier, and of which kind. */
static bool is_barrier(const struct ptx_insn *insn, uint32_t *ret)
{
	static const char *const waits[] = { ".try_wait", ".test_wait", NULL };
	static const char *const arrivals[] = { ".arrive", ".arrive_drop", NULL };
	static const char *const copies[] = { ".wait_group", ".wait_all", NULL };

	*ret = BARRIER_BLOCK;
	if (strcmp(insn->opcode, "bar") == 0) {
		return !ptx_insn_has(insn, ".warp");
	}
	if (strcmp(insn->opcode, "barrier") == 0) {
		return !ptx_insn_has(insn, ".cluster");
	}
	if (strcmp(insn->opcode, "mbarrier") == 0) {
		*ret = has_one_of(insn, waits) ? BARRIER_MBARRIER : BARRIER_ARRIVE;
		return *ret == BARRIER_MBARRIER || has_one_of(insn, arrivals);
	}
	*ret = BARRIER_COPIES;
	return strcmp(insn->opcode, "cp") == 0 && has_one_of(insn, copies);
}

/* A barrier may write its guard, so that it is kept for the programs behind it. */
static void barrier(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_site s;
	uint32_t kind;

	if (!ptx_probe_has_hook(p->read, PTX_PROBE_gdev_barrier) || !is_barrier(insn, &kind)) {
		return;
	}
	s = site(p, PTX_PROBE_gdev_barrier, insn);
	s.kind = kind;
	if (insn->guard) {
		ptx_probe_text(p, "\t.reg .pred %%~g%u;\n\tmov.pred %%~g%u, %s;\n", s.number,
			       s.number, insn->guard);
	}
	ptx_probe_insert(p, &s);
}

/* An arrival does not wait, so there is no site behind it. */
static void behind_barrier(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_site s;
	char guard[64];
	uint32_t kind;

	if (!ptx_probe_has_hook(p->read, PTX_PROBE_gdev_barrier) || !is_barrier(insn, &kind) ||
	    kind == BARRIER_ARRIVE || ptx_insn_has(insn, ".arrive")) {
		return;
	}
	p->at.n_sites[PTX_PROBE_gdev_barrier - PTX_PROBE_HOOK_FIRST]--; /* the same site */
	s = site(p, PTX_PROBE_gdev_barrier, insn);
	s.after = 1;
	s.kind = kind;
	if (insn->guard) {
		snprintf(guard, sizeof(guard), "%%~g%u", s.number);
		s.guard = guard;
	}
	ptx_probe_insert(p, &s);
}

/* ---- the rest ---- */

static void branch(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_site s;

	if (ptx_probe_has_hook(p->read, PTX_PROBE_gdev_branch) && insn->guard &&
	    strcmp(insn->opcode, "bra") == 0) {
		s = site(p, PTX_PROBE_gdev_branch, insn);
		s.guard = NULL; /* lanes that do not take it are at the site, too */
		ptx_probe_insert(p, &s);
	}
}

static void access(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	struct ptx_probe_site s, found = { 0 };

	if (!ptx_probe_has_hook(p->read, PTX_PROBE_gdev_access)) {
		return;
	}
	if (!ptx_probe_access(insn, &found) ||
	    !ptx_probe_has_address(&p->scopes, p->slice, found.address) ||
	    !ptx_probe_wmma_known(&p->scopes, &found)) {
		if (ptx_probe_accesses(insn) && p->ret->unseen++ == 0) {
			p->ret->unseen_line = insn->item.line;
		}
		return;
	}
	s = site(p, PTX_PROBE_gdev_access, insn);
	(void)ptx_probe_access(insn, &s);
	if (!ptx_probe_merge_take(p, insn)) {
		ptx_probe_insert(p, &s);
	}
}

void ptx_probe_before(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	if (!ptx_probe_is_known(insn) && p->ret->unknown++ == 0) {
		p->ret->unknown_line = insn->item.line;
	}
	end_here(p, insn);
	fence(p, insn);
	barrier(p, insn);
	branch(p, insn);
	access(p, insn);
}

void ptx_probe_after(struct ptx_probe_work *p, const struct ptx_insn *insn)
{
	behind_barrier(p, insn);
}

void ptx_probe_line(struct ptx_probe_work *p)
{
	insert(p, PTX_PROBE_gdev_line, NULL);
}
