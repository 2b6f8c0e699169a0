/* Reads of registers that nothing has written. ptxas may give each instruction that reads one
 * another value, also behind moves, so what was computed from two reads does not fit together. Here
 * such a read is one of a constant that depends on the line, so that code which relies on one value
 * fails as on a GPU. A register counts as written from the first instruction on that writes it, in
 * the order of the text, and everywhere within loops, so a read that may find a value does. The
 * bases of addresses are left as they are. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <string.h>

#define CONSTANTS 61u /* that stand for undefined values */

struct loop {
	uint32_t first, last; /* lines; once all are known, first is the least of this and the
				 following loops */
};

static size_t index_of(uint32_t ref)
{
	return ref / ((ref & REF_MASK) == REF_R64 ? EXEC_SLOT64 : EXEC_SLOT32);
}

static struct buf *written(struct exec_decoder *d, uint32_t ref)
{
	return &d->undefined.written[(ref & REF_MASK) == REF_R64];
}

void exec_dec_undefined_begin(struct exec_decoder *d)
{
	struct exec_undefined *u = &d->undefined;

	buf_clear(&u->written[0]);
	buf_clear(&u->written[1]);
	buf_clear(&u->loops);
	u->n_moved = 0;
	u->next = 0;
	u->found = u->tables = false;
}

void exec_dec_undefined_finish(struct exec_decoder *d)
{
	buf_finish(&d->undefined.written[0]);
	buf_finish(&d->undefined.written[1]);
	buf_finish(&d->undefined.loops);
}

void exec_dec_undefined_label(struct exec_decoder *d)
{
	d->undefined.n_moved = 0;
}

int exec_dec_written(struct exec_decoder *d, uint32_t ref)
{
	static const char none[64];
	struct exec_undefined *u = &d->undefined;
	struct buf *w = written(d, ref);
	size_t at = index_of(ref);

	while (w->len <= at) {
		if (buf_add(w, none, sizeof(none)) < 0) {
			return exec_dec_no_memory(d);
		}
	}
	w->data[at] = 1;
	for (uint32_t i = 0; i < u->n_moved; i++) {
		if (u->moved[i] == ref) {
			u->moved[i--] = u->moved[--u->n_moved];
		}
	}
	return 0;
}

void exec_dec_moved(struct exec_decoder *d, uint32_t ref)
{
	struct exec_undefined *u = &d->undefined;

	if (u->n_moved < ARRAY_SIZE(u->moved) && !d->insn->guard) {
		u->moved[u->n_moved++] = ref;
	}
}

/* ---- loops ---- */

/* Adds the loop that a branch ends, if its label was before it. A name may mean several labels: the
 * first one makes the longest loop. */
static int add_loop(struct exec_decoder *d, const struct strmap *labels,
		    const struct ptx_insn *insn)
{
	const char *name = insn->n_operands && insn->operands[0].kind == PTX_NAME
				   ? insn->operands[0].name
				   : NULL;
	uintptr_t line = name ? (uintptr_t)strmap_get(labels, name) : 0;
	const struct loop l = { (uint32_t)line, insn->item.line };

	return line && buf_add(&d->undefined.loops, &l, sizeof(l)) < 0 ? exec_dec_no_memory(d) : 0;
}

/* Recursion is bounded by the parser's limit on nested scopes. */
static int find_in(struct exec_decoder *d, struct strmap *labels, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; err == 0 && it; it = it->next) {
		if (it->kind == PTX_SCOPE) {
			err = find_in(d, labels, &((const struct ptx_scope *)it)->body);
		} else if (it->kind == PTX_LABEL) {
			if (strmap_add(labels, ((const struct ptx_label *)it)->name,
				       (void *)(uintptr_t)it->line) == -ENOMEM) {
				err = exec_dec_no_memory(d);
			}
		} else if (it->kind == PTX_TARGETS) {
			d->undefined.tables = true;
		} else if (it->kind == PTX_INSN &&
			   strcmp(((const struct ptx_insn *)it)->opcode, "bra") == 0) {
			err = add_loop(d, labels, (const struct ptx_insn *)it);
		}
	}
	return err;
}

static int find_loops(struct exec_decoder *d)
{
	struct exec_undefined *u = &d->undefined;
	struct strmap labels;
	struct loop *all;
	int err;

	strmap_init(&labels);
	err = find_in(d, &labels, &d->shapes[d->current].f->body);
	strmap_finish(&labels);
	all = (struct loop *)u->loops.data;
	for (size_t i = u->loops.len / sizeof(*all); i-- > 1;) {
		all[i - 1].first = MIN(all[i - 1].first, all[i].first);
	}
	u->found = true;
	return err;
}

/* Returns 1 if the line that is decoded may run again. Lines are decoded in their order, and loops
 * are in the order of their last lines. */
static int in_loop(struct exec_decoder *d)
{
	struct exec_undefined *u = &d->undefined;
	int err = u->found ? 0 : find_loops(d);
	const struct loop *all = (const struct loop *)u->loops.data;
	size_t n = u->loops.len / sizeof(*all);

	while (u->next < n && all[u->next].last < d->line) {
		u->next++;
	}
	return err < 0 ? err : u->tables || (u->next < n && all[u->next].first <= d->line);
}

/* ---- reads ---- */

int exec_dec_read(struct exec_decoder *d, uint32_t *ref, bool wide)
{
	struct exec_undefined *u = &d->undefined;
	const struct buf *w = written(d, *ref);
	size_t at = index_of(*ref);
	bool moved = false;
	int loop;

	u->read = false;
	for (uint32_t i = 0; i < u->n_moved; i++) {
		moved = moved || u->moved[i] == *ref;
	}
	if (!moved) {
		if (at < w->len && w->data[at]) {
			return 0;
		}
		loop = in_loop(d);
		if (loop != 0) {
			return MIN(loop, 0);
		}
	}
	u->read = true;
	return exec_dec_constant(d, ((d->line + at) % CONSTANTS + 1) * UINT64_C(0x9e3779b97f4a7c15),
				 wide, ref);
}
