/* A family: kernels of a module that call the same functions. These are decoded once, ahead of the
 * kernels, and all kernels of the family share one array of code. GCC's OpenMP programs have
 * hundreds of kernels, each of which reaches all of libgomp. */
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CALLEES_MAX 64u /* called by name in a kernel of a family */

struct callees {
	const struct ptx_function *list[CALLEES_MAX];
	uint32_t n;
	bool pointers; /* some call goes through a pointer */
	bool failed;   /* too many */
};

static void add_callee(struct callees *c, const struct ptx_function *f)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->list[i] == f) {
			return;
		}
	}
	if (c->n == CALLEES_MAX) {
		c->failed = true;
		return;
	}
	c->list[c->n++] = f;
}

/* Finds the callees in a kernel's own text. Recursion is bounded by the parser's limit on nested
 * scopes. */
static void scan(const struct strmap *functions, const struct ptx_list *list, struct callees *c)
{
	ptx_each (list, it) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;
		const struct ptx_function *f;
		unsigned i = 0;

		if (it->kind == PTX_SCOPE) {
			scan(functions, &((const struct ptx_scope *)it)->body, c);
		}
		if (it->kind != PTX_INSN || strcmp(insn->opcode, "call") != 0) {
			continue;
		}
		i += insn->n_operands && insn->operands[0].kind == PTX_TUPLE;
		if (i >= insn->n_operands || insn->operands[i].kind != PTX_NAME) {
			continue;
		}
		f = strmap_get(functions, insn->operands[i].name);
		if (!f) {
			c->pointers = true;
		} else if (f->has_body && !f->is_entry) {
			add_callee(c, f);
		}
	}
}

static int by_address(const void *a, const void *b)
{
	const struct ptx_function *const *x = a, *const *y = b;

	return (*x > *y) - (*x < *y);
}

int exec_dec_family_key(const struct strmap *functions, const struct ptx_function *entry,
			struct buf *key)
{
	struct callees c = { .n = 0 };

	scan(functions, &entry->body, &c);
	if (c.failed || (c.n == 0 && !c.pointers)) {
		return 0;
	}
	qsort(c.list, c.n, sizeof(c.list[0]), by_address);
	buf_add(key, &c.pointers, sizeof(c.pointers));
	buf_add(key, c.list, c.n * sizeof(c.list[0]));
	return key->failed ? -ENOMEM : 1;
}

/* What a kernel adds to the state that it has in common with its family. */
struct common {
	struct exec_scope *root;
	uint32_t shared_bytes, shared_align, ranges;
	bool uses_stack;
};

/* Decodes the functions that the first kernel calls, and those that they call. */
static int functions_first(struct exec_decoder *d, const struct callees *c)
{
	uint32_t index;
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < c->n; i++) {
		err = exec_dec_shape(d, c->list[i]->name, &index);
	}
	if (err == 0 && c->pointers) {
		err = exec_dec_reach_pointers(d);
	}
	for (uint32_t i = 0; err == 0 && i < d->n_shapes; i++) {
		err = exec_dec_function(d, i);
	}
	return err;
}

/* Returns whether a decoded kernel calls each of them: a name may have meant something else. */
static bool calls_all(const struct exec_decoder *d, const struct exec_function_shape *kernel,
		      const struct callees *c)
{
	for (uint32_t i = 0; i < c->n; i++) {
		bool found = false;

		for (uint32_t k = 0; k < kernel->n_calls_out; k++) {
			found = found || d->shapes[kernel->callees[k]].f == c->list[i];
		}
		if (!found) {
			return false;
		}
	}
	return true;
}

static int decode_member(struct exec_decoder *d, const struct ptx_function *entry,
			 const struct callees *c, const struct common *before,
			 struct exec_function *out)
{
	uint32_t index, n = d->n_shapes;
	int err = exec_dec_scope_open(d);

	d->root = d->scope;
	d->out = out;
	out->module = d->module;
	if (err == 0) {
		err = exec_dec_shape(d, entry->name, &index);
	}
	if (err == 0) {
		err = exec_dec_function(d, index);
	}
	if (err == 0 && (d->n_shapes != n + 1 || !calls_all(d, &d->shapes[index], c))) {
		err = -EAGAIN;
	}
	if (err == 0) {
		err = exec_dec_sizes(d, index, out);
	}
	if (err == 0) {
		exec_dec_scope_close(d);
	}
	d->root = before->root;
	d->shared_bytes = before->shared_bytes;
	d->shared_align = before->shared_align;
	d->ranges = before->ranges;
	d->uses_stack = before->uses_stack;
	return err;
}

/* The first function owns what all have in common. */
static void share(struct exec_function **outs, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		outs[i]->borrows = true;
		outs[i]->code = outs[0]->code;
		outs[i]->n_code = outs[0]->n_code;
		outs[i]->constants = outs[0]->constants;
		outs[i]->constant_bytes = outs[0]->constant_bytes;
		outs[i]->calls = outs[0]->calls;
		outs[i]->n_calls = outs[0]->n_calls;
		outs[i]->callees = outs[0]->callees;
		outs[i]->n_callees = outs[0]->n_callees;
		outs[i]->tables = outs[0]->tables;
		outs[i]->n_tables = outs[0]->n_tables;
		outs[i]->found = outs[0]->found;
	}
}

int exec_dec_family(struct exec_decoder *d, const struct ptx_function *const *entries,
		    struct exec_function **outs, uint32_t n)
{
	struct exec_module *m = d->module;
	const uint64_t operations = m->operations, constants = m->constant_bytes;
	struct callees c = { .n = 0 };
	struct common before;
	int err;

	d->out = outs[0];
	d->in_family = true;
	d->line = entries[0]->item.line;
	scan(d->functions, &entries[0]->body, &c);
	err = exec_dec_scope_open(d);
	d->root = d->scope;
	if (err == 0) {
		err = functions_first(d, &c);
	}
	before = (struct common){ d->root, d->shared_bytes, d->shared_align, d->ranges,
				  d->uses_stack };
	for (uint32_t i = 0; err == 0 && i < n; i++) {
		err = decode_member(d, entries[i], &c, &before, outs[i]);
	}
	d->out = outs[0];
	if (err == 0) {
		exec_dec_patch_calls(d);
		err = exec_dec_hand_over(d);
	}
	exec_dec_finish(d);
	if (err == 0) {
		share(outs, n);
	}
	if (err == -EAGAIN) {
		m->operations = operations;
		m->constant_bytes = constants;
	}
	return err;
}
