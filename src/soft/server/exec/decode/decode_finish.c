/* What follows the decoding of a kernel's functions: the sizes of its stack, patched calls, and the
 * hand-over of the code to the module. */
#include "base/compiler.h"
#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Computes the needs of the deepest call chain below a function. Recursion is bounded by
 * DECODE_FUNCTIONS_MAX. */
static bool chain(struct exec_decoder *d, uint32_t index)
{
	struct exec_function_shape *s = &d->shapes[index];

	if (s->mark) {
		return s->mark == 2;
	}
	s->mark = 1;
	for (uint32_t i = 0; i < s->n_calls_out; i++) {
		struct exec_function_shape *c = &d->shapes[s->callees[i]];

		if (!chain(d, s->callees[i])) {
			return false;
		}
		s->chain32 = MAX(s->chain32, c->chain32);
		s->chain64 = MAX(s->chain64, c->chain64);
		s->chain_pred = MAX(s->chain_pred, c->chain_pred);
		s->chain_local = MAX(s->chain_local, c->chain_local);
		s->chain_depth = MAX(s->chain_depth, c->chain_depth + 1);
	}
	s->chain32 += s->n32;
	s->chain64 += s->n64;
	s->chain_pred += s->n_pred;
	s->chain_local += ROUND_UP(s->local_bytes, 16u);
	s->mark = 2;
	return true;
}

/* Recursive functions get as many frames of the largest size as fit into EXEC_CALL_BYTES. first:
 * the kernel. */
static void chain_recursive(struct exec_decoder *d, struct exec_function_shape *first)
{
	uint64_t n32 = 0, n64 = 0, n_pred = 0, local = 0, frame, depth;

	for (uint32_t i = 0; i < d->n_shapes; i++) {
		const struct exec_function_shape *s = &d->shapes[i];

		if (s->f->is_entry && s != first) {
			continue;
		}
		n32 = MAX(n32, s->n32);
		n64 = MAX(n64, s->n64);
		n_pred = MAX(n_pred, s->n_pred);
		local = MAX(local, ROUND_UP(s->local_bytes, 16u));
	}
	frame = n32 * EXEC_SLOT32 + n64 * EXEC_SLOT64 + n_pred * sizeof(uint32_t) +
		local * EXEC_LANES + 1;
	depth = MAX(MIN(EXEC_CALL_BYTES / frame, EXEC_CALL_DEPTH_MAX), EXEC_CALL_DEPTH);
	first->chain32 = (uint32_t)(n32 * (depth + 1));
	first->chain64 = (uint32_t)(n64 * (depth + 1));
	first->chain_pred = (uint32_t)(n_pred * (depth + 1));
	first->chain_local = (uint32_t)MIN(local * (depth + 1), (uint64_t)UINT32_MAX);
	first->chain_depth = (uint32_t)depth;
}

void exec_dec_patch_calls(struct exec_decoder *d)
{
	struct exec_call *calls = (struct exec_call *)d->calls.data;

	for (size_t i = 0; i < d->calls.len / sizeof(*calls); i++) {
		const struct exec_function_shape *caller = &d->shapes[calls[i].caller];

		calls[i].target = calls[i].layout ? 0 : d->shapes[calls[i].callee].start;
		calls[i].step32 = caller->n32 * EXEC_SLOT32;
		calls[i].step64 = caller->n64 * EXEC_SLOT64;
		calls[i].step_pred = caller->n_pred;
		calls[i].step_local = ROUND_UP(caller->local_bytes, 16u);
	}
	for (uint32_t i = 0; i < d->n_callees; i++) {
		if (d->callees[i].layout) {
			d->callees[i].target = d->shapes[d->callees[i].shape].start;
		}
	}
}

int exec_dec_sizes(struct exec_decoder *d, uint32_t kernel, struct exec_function *out)
{
	struct exec_function_shape *s = &d->shapes[kernel];
	uint32_t n[3];

	if (!chain(d, kernel)) {
		chain_recursive(d, s);
	}
	out->start = s->start;
	if (s->chain32 > (1u << 21) || s->chain64 > (1u << 20) || s->chain_pred > (1u << 22) ||
	    s->chain_local > DECODE_LOCAL_MAX) {
		return exec_dec_fail(
			d, "the functions of %s need too many registers or too much local memory",
			out->info.name);
	}
	out->bytes32 = s->chain32 * EXEC_SLOT32;
	out->bytes64 = s->chain64 * EXEC_SLOT64;
	out->preds = s->chain_pred;
	out->stack_bytes = d->uses_stack ? EXEC_STACK_BYTES : 0;
	out->local_stride = ROUND_UP(s->chain_local, 16u) + out->stack_bytes;
	out->depth = s->chain_depth;
	out->shared_static = d->shared_bytes;
	out->shared_align = d->shared_align;
	out->info.shared_bytes = d->shared_bytes;
	out->info.local_bytes = s->local_bytes;
	out->info.const_bytes = (uint32_t)MIN(d->module->const_bytes, (uint64_t)UINT32_MAX);
	out->info.registers = MIN(s->n32 + 2 * s->n64, 255u);
	out->info.max_threads = EXEC_THREADS_MAX;
	if (ptx_function_tuning(s->f, ".maxntid", n, 3) > 0 ||
	    ptx_function_tuning(s->f, ".reqntid", n, 3) > 0) {
		uint64_t threads =
			(uint64_t)MIN(n[0], 65535u) * MIN(n[1], 65535u) * MIN(n[2], 65535u);

		out->info.max_threads = (uint32_t)MAX(1u, MIN(threads, (uint64_t)EXEC_THREADS_MAX));
	}
	return 0;
}

/* Dynamic shared memory follows the static part, whose size is known only now. */
void exec_dec_patch_dynamic_shared(struct exec_decoder *d)
{
	const struct exec_reloc *relocs = (const struct exec_reloc *)d->relocs.data;
	uint64_t start = ROUND_UP(d->shared_bytes, MAX(d->shared_align, 16u));

	for (size_t i = 0; i < d->relocs.len / sizeof(*relocs); i++) {
		uint8_t *slot = (uint8_t *)d->constants.data + relocs[i].offset;
		uint64_t v = start + (uint64_t)relocs[i].addend;

		for (unsigned k = 0; k < EXEC_LANES && relocs[i].kind == RELOC_DYNAMIC_SHARED;
		     k++) {
			memcpy(slot + (size_t)k * (relocs[i].wide ? 8 : 4), &v,
			       relocs[i].wide ? 8 : 4);
		}
	}
}

static void *steal(struct buf *b, size_t one, uint32_t *n)
{
	*n = (uint32_t)(b->len / one);
	return buf_steal(b);
}

int exec_dec_hand_over(struct exec_decoder *d)
{
	struct exec_function *out = d->out;

	out->constant_bytes = (uint32_t)d->constants.len;
	out->constants = aligned_alloc(64, ROUND_UP(MAX(d->constants.len, (size_t)1), (size_t)64));
	out->code = aligned_alloc(64, d->code.len);
	out->found = exec_checking()
			     ? calloc(d->code.len / sizeof(struct exec_op), sizeof(uint32_t))
			     : NULL;
	if (!out->constants || !out->code || (exec_checking() && !out->found)) {
		return exec_dec_no_memory(d);
	}
	if (d->constants.len) {
		memcpy(out->constants, d->constants.data, d->constants.len);
	}
	memcpy(out->code, d->code.data, d->code.len);
	out->n_code = (uint32_t)(d->code.len / sizeof(struct exec_op));
	exec_runs_mark(out->code, out->n_code);
	out->relocs = steal(&d->relocs, sizeof(struct exec_reloc), &out->n_relocs);
	return 0;
}

void exec_dec_finish(struct exec_decoder *d)
{
	struct exec_function *out = d->out;
	struct exec_symbol *next;

	/* Calls and tables own memory: the function owns them from the start, also after an error.
	 */
	out->calls = steal(&d->calls, sizeof(struct exec_call), &out->n_calls);
	out->tables = steal(&d->tables, sizeof(struct exec_table), &out->n_tables);
	out->callees = d->callees;
	out->n_callees = d->n_callees;
	strmap_finish(&d->layouts);
	while (d->scope) {
		exec_dec_scope_close(d);
	}
	for (struct exec_symbol *s = d->owned; s; s = next) {
		next = s->next_owned;
		free(s->slots);
		free(s);
	}
	for (uint32_t i = 0; i < d->n_shapes; i++) {
		free(d->shapes[i].callees);
	}
	free(d->shapes);
	buf_finish(&d->code);
	buf_finish(&d->relocs);
	buf_finish(&d->constants);
	buf_finish(&d->labels);
	buf_finish(&d->label_uses);
	exec_dec_undefined_finish(d);
	strmap_finish(&d->constant_index);
	strmap_finish(&d->components);
	ptx_arena_finish(&d->arena);
	buf_finish(&d->operands);
}
