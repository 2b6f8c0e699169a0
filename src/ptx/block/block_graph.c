/* What a function's callees bring: their reasons, and that they know their block. Each fact spreads
 * from callee to callers once, so this takes time in proportion to the calls. */
#include "ptx/block/block_int.h"

/* What spreads. */
enum fact { WHY, KNOWS, INDIRECT };

static bool has(const struct block_function *f, enum fact fact)
{
	return fact == WHY ? f->why != PTX_BLOCK_UNKNOWN : fact == KNOWS ? f->knows : f->indirect;
}

static void give(const struct block_function *from, struct block_function *to, enum fact fact)
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

static void spread(struct block_pass *p, enum fact fact)
{
	struct block_function *work = NULL;

	for (uint32_t i = p->n; i-- > 0;) {
		struct block_function *f = &p->functions[i];

		if (has(f, fact)) {
			f->work = work;
			work = f;
		}
	}
	while (work) {
		struct block_function *f = work;

		work = f->work;
		for (const struct block_call *c = f->callers; c; c = c->next) {
			if (!has(c->caller, fact)) {
				give(f, c->caller, fact);
				c->caller->work = work;
				work = c->caller;
			}
		}
	}
}

/* Code that a pointer may lead to must mean the same in f and in its twin. */
static bool pointers_are_harmless(const struct block_pass *p)
{
	for (uint32_t i = 0; i < p->n; i++) {
		const struct block_function *f = &p->functions[i];

		if (f->taken && !f->f->is_entry && (f->why != PTX_BLOCK_UNKNOWN || f->knows)) {
			return false;
		}
	}
	return true;
}

int block_graph(struct block_pass *p)
{
	spread(p, WHY);
	spread(p, KNOWS);
	spread(p, INDIRECT);
	if (!p->linked && pointers_are_harmless(p)) {
		return 0;
	}
	for (uint32_t i = 0; i < p->n; i++) {
		struct block_function *f = &p->functions[i];

		if (f->indirect && f->why == PTX_BLOCK_UNKNOWN) {
			f->why = PTX_BLOCK_CALL;
			f->line = f->indirect_line;
		}
	}
	return 0;
}
