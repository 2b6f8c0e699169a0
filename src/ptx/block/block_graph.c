/* Propagates facts from callees to callers: reasons against a clone, and that code reads its block
 * index. Each fact reaches a caller once, so the time is linear in the number of calls. */
#include "ptx/block/block_int.h"

/* The facts. */
enum fact { WHY, KNOWS, INDIRECT };

static bool has(const struct ptx_block_function *f, enum fact fact)
{
	return fact == WHY ? f->why != PROTO_BLOCK_UNKNOWN : fact == KNOWS ? f->knows : f->indirect;
}

static void give(const struct ptx_block_function *from, struct ptx_block_function *to,
		 enum fact fact)
{
	if (fact == WHY) {
		to->why = from->why;
		to->line = from->line;
	} else if (fact == KNOWS) {
		to->knows = true;
	} else {
		to->indirect = true;
		to->indirect_line = from->indirect_line;
	}
}

static void spread(struct ptx_block_work *p, enum fact fact)
{
	struct ptx_block_function *work = NULL;

	for (uint32_t i = p->n; i-- > 0;) {
		struct ptx_block_function *f = &p->functions[i];

		if (has(f, fact)) {
			f->work = work;
			work = f;
		}
	}
	while (work) {
		struct ptx_block_function *f = work;

		work = f->work;
		for (const struct ptx_block_caller *c = f->callers; c; c = c->next) {
			if (!has(c->caller, fact)) {
				give(f, c->caller, fact);
				c->caller->work = work;
				work = c->caller;
			}
		}
	}
}

/* Returns true if all code that a pointer may lead to means the same in f and in its clone. */
static bool pointers_are_harmless(const struct ptx_block_work *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		const struct ptx_block_function *f = &p->functions[i];

		if (f->taken && !f->f->is_entry && (f->why != PROTO_BLOCK_UNKNOWN || f->knows)) {
			return false;
		}
	}
	return true;
}

int ptx_block_graph(struct ptx_block_work *p)
{
	spread(p, WHY);
	spread(p, KNOWS);
	spread(p, INDIRECT);
	if (!p->linked && pointers_are_harmless(p)) {
		return 0;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		struct ptx_block_function *f = &p->functions[i];

		if (f->indirect && f->why == PROTO_BLOCK_UNKNOWN) {
			f->why = PROTO_BLOCK_CALL;
			f->line = f->indirect_line;
		}
	}
	return 0;
}
