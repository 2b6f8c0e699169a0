/* Decoding of calls: by name, through a pointer with a prototype, and of functions that the device
 * provides. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/server/exec/decode/decode_kernel.h"

/* Binds one actual argument or result to its formal; to_callee gives the direction. */
static int bind_one(struct exec_decoder *d, const struct ptx_operand *o,
		    const struct exec_formal *f, bool to_callee, struct exec_copy *ret)
{
	const struct exec_symbol *s =
		o->kind == PTX_NAME && !o->offset ? exec_dec_find(d, o->name) : NULL;
	uint32_t here;
	int err;

	*ret = (struct exec_copy){ .bytes = f->bytes };
	if (s && s->kind == SYM_PARAM && s->in_frame) {
		if (f->in_register) {
			return exec_dec_fail(
				d, "%s is a .param variable, the function wants a register",
				o->name);
		}
		if (s->bytes < f->bytes) {
			return exec_dec_fail(d, "%s is smaller than the function's parameter",
					     o->name);
		}
		ret->kind = COPY_BYTES;
		here = s->ref;
	} else {
		enum exec_type t = f->type;

		if (t == TY_COUNT || f->bytes > 8 || f->bytes != exec_dec_type_bytes(t)) {
			return exec_dec_fail(d, "a .param variable is expected");
		}
		err = to_callee ? exec_dec_source(d, o, t, &here) : exec_dec_dest(d, o, t, &here);
		if (err < 0) {
			return err;
		}
		ret->kind = !f->in_register ? (to_callee ? COPY_REG_TO_BYTES : COPY_BYTES_TO_REG)
			    : exec_dec_is_wide(t) ? COPY_REG64
						  : COPY_REG32;
	}
	ret->src = to_callee ? here : f->offset;
	ret->dst = to_callee ? f->offset : here;
	return 0;
}

static int bind_all(struct exec_decoder *d, const struct ptx_operand *tuple,
		    const struct exec_formal *formals, uint32_t n, bool to_callee,
		    struct exec_copy **ret)
{
	struct exec_copy *list;

	if ((tuple ? tuple->n_args : 0) != n) {
		return exec_dec_fail(d, "%u %s expected, found %u", n,
				     to_callee ? "arguments" : "results",
				     tuple ? tuple->n_args : 0);
	}
	if (exec_dec_module_takes(d, (uint64_t)n * sizeof(*list)) < 0) {
		return -EINVAL;
	}
	list = calloc(MAX(n, 1u), sizeof(*list));
	if (!list) {
		return exec_dec_no_memory(d);
	}
	*ret = list; /* freed with the call, also after an error */
	for (uint32_t i = 0; i < n; i++) {
		int err = bind_one(d, &tuple->args[i], &formals[i], to_callee, &list[i]);

		if (err < 0) {
			return err;
		}
	}
	return 0;
}

static int note_callee(struct exec_decoder *d, uint32_t callee)
{
	struct exec_function_shape *s = &d->shapes[d->current];
	uint32_t *more;

	for (uint32_t i = 0; i < s->n_calls_out; i++) {
		if (s->callees[i] == callee) {
			return 0;
		}
	}
	more = realloc(s->callees, (s->n_calls_out + 1) * sizeof(*more));
	if (!more) {
		return exec_dec_no_memory(d);
	}
	s->callees = more;
	s->callees[s->n_calls_out++] = callee;
	return 0;
}

/* Returns the number of a parameter layout, equal for functions callable in one way; 0: none. */
static int layout_of(struct exec_decoder *d, const struct ptx_function *f, uint32_t *ret)
{
	uint32_t n = f->n_returns + f->n_params, frame = 0, n32 = 0, n64 = 0, n_pred = 0;
	struct exec_formal *formals = calloc((size_t)n + 1, sizeof(*formals));
	uintptr_t known;
	struct buf key;
	int err = formals ? exec_dec_formals(d, f, formals, &frame, &n32, &n64, &n_pred)
			  : exec_dec_no_memory(d);

	buf_init(&key);
	buf_add(&key, &f->n_returns, sizeof(f->n_returns));
	for (uint32_t i = 0; err == 0 && i < n; i++) {
		const uint32_t words[3] = { formals[i].in_register, formals[i].offset,
					    formals[i].bytes };

		buf_add(&key, words, sizeof(words));
	}
	free(formals);
	if (err == 0 && key.failed) {
		err = exec_dec_no_memory(d);
	}
	if (err == 0) {
		known = (uintptr_t)strmap_get_n(&d->layouts, (const char *)key.data, key.len);
		*ret = known ? (uint32_t)known : ++d->n_layouts;
		if (!known && strmap_add_n(&d->layouts, (const char *)key.data, key.len,
					   (void *)(uintptr_t)*ret) < 0) {
			err = exec_dec_no_memory(d);
		}
	}
	buf_finish(&key);
	return err;
}

int exec_dec_reach_pointers(struct exec_decoder *d)
{
	const struct ptx_function *const *taken = d->taken->list;

	if (d->callees) {
		return 0;
	}
	d->callees = calloc(MAX(d->taken->n, 1u), sizeof(*d->callees));
	if (!d->callees) {
		return exec_dec_no_memory(d);
	}
	d->n_callees = d->taken->n;
	for (uint32_t i = 0; i < d->n_callees; i++) {
		int err;

		if (taken[i]->is_entry || !taken[i]->has_body) {
			continue;
		}
		err = layout_of(d, taken[i], &d->callees[i].layout);
		if (err == 0) {
			err = exec_dec_shape(d, taken[i]->name, &d->callees[i].shape);
		}
		if (err < 0) {
			return err;
		}
	}
	return 0;
}

static int emit_call(struct exec_decoder *d, const struct exec_call *call, uint32_t pointer)
{
	struct exec_op op = exec_dec_op(d, call->layout ? exec_op_call_pointer : exec_op_call);
	struct exec_op out = exec_dec_op(d, exec_op_call_out);
	uint32_t index = (uint32_t)(d->calls.len / sizeof(*call));
	int err;

	if (buf_add(&d->calls, call, sizeof(*call)) < 0) {
		free(call->in);
		free(call->out);
		return exec_dec_no_memory(d);
	}
	op.e = out.e = index;
	op.a = pointer;
	/* The same guard: if no lane calls, there is no callee frame to read from. */
	err = exec_dec_emit(d, &op);
	return err < 0 ? err : exec_dec_emit(d, &out);
}

/* f: the callee, or the prototype if pointer names the register. */
static int bind_call(struct exec_decoder *d, const struct ptx_function *f,
		     const struct ptx_operand *results, const struct ptx_operand *args,
		     struct exec_call *call, uint32_t pointer)
{
	struct exec_formal *formals =
		calloc((size_t)f->n_returns + f->n_params + 1, sizeof(*formals));
	uint32_t frame = 0, n32 = 0, n64 = 0, n_pred = 0;
	int err = formals ? exec_dec_formals(d, f, formals, &frame, &n32, &n64, &n_pred)
			  : exec_dec_no_memory(d);

	if (err == 0) {
		err = bind_all(d, results, formals, f->n_returns, false, &call->out);
	}
	if (err == 0) {
		err = bind_all(d, args, formals + f->n_returns, f->n_params, true, &call->in);
	}
	call->n_in = f->n_params;
	call->n_out = f->n_returns;
	if (err == 0) {
		err = emit_call(d, call, pointer);
	} else {
		free(call->in);
		free(call->out);
	}
	free(formals);
	return err;
}

/* Functions of the device, without a body in any module. */
static const struct device_function {
	const char *name;
	exec_op_fn fn;
	uint8_t n_params, result;
	uint8_t params[5]; /* sizes in bytes */
} device_functions[] = {
	{ "vprintf", exec_op_vprintf, 2, 4, { 8, 8 } },
	{ "__assertfail", exec_op_assertfail, 5, 0, { 8, 8, 4, 8, 8 } },
	{ "malloc", exec_op_malloc, 1, 8, { 8 } },
	{ "free", exec_op_heap_free, 1, 0, { 8 } },
};

static const struct device_function *device_function_find(const struct ptx_function *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(device_functions); i++) {
		if (!f->has_body && strcmp(device_functions[i].name, f->name) == 0) {
			return &device_functions[i];
		}
	}
	return NULL;
}

/* Returns a .param variable of the frame, or NULL. */
static const struct exec_symbol *frame_variable(struct exec_decoder *d, const struct ptx_operand *o)
{
	const struct exec_symbol *s =
		o->kind == PTX_NAME && !o->offset ? exec_dec_find(d, o->name) : NULL;

	return s && s->kind == SYM_PARAM && s->in_frame ? s : NULL;
}

static int move_frame(struct exec_decoder *d, const struct exec_symbol *s, unsigned bytes,
		      uint32_t ref, bool load)
{
	struct exec_op op = exec_dec_op(d, load ? d->h->load[SP_LOCAL] : d->h->store[SP_LOCAL]);

	if (s->bytes < bytes) {
		return exec_dec_fail(d, "a .param variable of %u bytes is expected", bytes);
	}
	op.a = REF_SLOT32(WARP_FRAME, REF_WARP);
	op.imm = s->ref;
	op.wide = WIDE_A;
	op.d = ref;
	op.size = (uint8_t)bytes;
	op.flags = bytes == 8;
	op.space = SP_LOCAL;
	op.type = bytes == 8 ? TY_U64 : TY_U32;
	return exec_dec_emit(d, &op);
}

static int device_argument(struct exec_decoder *d, const struct ptx_operand *o, unsigned bytes,
			   uint32_t *ret)
{
	const struct exec_symbol *s = frame_variable(d, o);
	enum exec_type t = bytes == 8 ? TY_U64 : TY_U32;
	int err;

	if (!s) {
		return exec_dec_source(d, o, t, ret);
	}
	err = exec_dec_new_register(d, t, ret);
	return err < 0 ? err : move_frame(d, s, bytes, *ret, true);
}

static int call_device(struct exec_decoder *d, const struct device_function *f,
		       const struct ptx_operand *results, const struct ptx_operand *args)
{
	struct exec_op op = exec_dec_op(d, f->fn);
	uint32_t *refs[5] = { &op.a, &op.b, &op.c, &op.e, NULL };
	const struct exec_symbol *to = NULL;
	enum exec_type t = f->result == 8 ? TY_U64 : TY_U32;
	int err = 0;

	if ((args ? args->n_args : 0) != f->n_params ||
	    (results ? results->n_args : 0) != (f->result != 0)) {
		return exec_dec_fail(d, "%s has %u arguments and %s result", f->name, f->n_params,
				     f->result ? "one" : "no");
	}
	for (unsigned i = 0; err == 0 && i < f->n_params; i++) {
		if (refs[i]) {
			err = device_argument(d, &args->args[i], f->params[i], refs[i]);
		}
	}
	if (err == 0 && f->result) {
		to = frame_variable(d, &results->args[0]);
		err = to ? exec_dec_new_register(d, t, &op.d)
			 : exec_dec_dest(d, &results->args[0], t, &op.d);
	}
	if (err == 0) {
		err = exec_dec_emit(d, &op);
	}
	return err < 0 || !to ? err : move_frame(d, to, f->result, op.d, false);
}

static int call_function(struct exec_decoder *d, const struct ptx_operand *results,
			 const char *name, const struct ptx_operand *args)
{
	const struct ptx_function *f = strmap_get(d->functions, name);
	const struct device_function *device = f ? device_function_find(f) : NULL;
	struct exec_call call = { .caller = d->current };
	int err;

	if (device) {
		return call_device(d, device, results, args);
	}
	if (!f || !f->has_body || f->is_entry) {
		return exec_dec_fail(
			d,
			!f	      ? "%s is not declared"
			: f->is_entry ? "%s is a kernel"
				      : "%s has no body in this module, and nothing links it",
			name);
	}
	err = exec_dec_shape(d, name, &call.callee);
	if (err == 0) {
		err = note_callee(d, call.callee);
	}
	return err < 0 ? err : bind_call(d, f, results, args, &call, 0);
}

/* Through a register: prototype is named by the label of .callprototype, or is one of the functions
 * of .calltargets. */
static int call_pointer(struct exec_decoder *d, const struct ptx_operand *results,
			const struct ptx_operand *pointer, const struct ptx_operand *args,
			const struct ptx_function *prototype)
{
	struct exec_call call = { .caller = d->current };
	uint32_t ref;
	int err = exec_dec_source(d, pointer, TY_U64, &ref);

	if (err == 0) {
		err = exec_dec_reach_pointers(d);
	}
	if (err == 0) {
		err = layout_of(d, prototype, &call.layout);
	}
	for (uint32_t i = 0; err == 0 && i < d->n_callees; i++) {
		if (d->callees[i].layout == call.layout) {
			err = note_callee(d, d->callees[i].shape);
		}
	}
	return err < 0 ? err : bind_call(d, prototype, results, args, &call, ref);
}

/* Returns what the last operand of a call through a register names. */
static const struct ptx_function *prototype_of(struct exec_decoder *d, const struct ptx_operand *o)
{
	const struct exec_symbol *s =
		o->kind == PTX_NAME && !o->offset ? exec_dec_find(d, o->name) : NULL;
	const struct ptx_function *f;

	if (s && s->kind == SYM_PROTOTYPE) {
		return &((const struct ptx_prototype *)s->item)->function;
	}
	if (s && s->kind == SYM_CALL_TARGETS) {
		const struct ptx_targets *t = (const struct ptx_targets *)s->item;

		f = t->n ? strmap_get(d->functions, t->names[0]) : NULL;
		return f;
	}
	f = s ? NULL : strmap_get(d->functions, o->kind == PTX_NAME ? o->name : "");
	return f;
}

int exec_dec_call(struct exec_decoder *d, int a, int b)
{
	const struct ptx_operand *in = d->insn->operands, *results = NULL, *args = NULL, *callee;
	const struct ptx_function *prototype;
	unsigned n = d->insn->n_operands, i = 0;
	enum exec_type have;
	uint32_t ref;
	int err;

	exec_dec_has(d, ".uni");
	err = exec_dec_modifiers_done(d);
	if (err < 0) {
		return err;
	}
	if (i < n && in[i].kind == PTX_TUPLE) {
		results = &in[i++];
	}
	if (i == n || in[i].kind != PTX_NAME || in[i].offset) {
		return exec_dec_fail(d, "a function's name is expected");
	}
	callee = &in[i++];
	if (i < n && in[i].kind == PTX_TUPLE) {
		args = &in[i++];
	}
	err = exec_dec_register(d, callee->name, &ref, &have);
	if (err < 0) {
		return err;
	}
	if (err > 0) {
		return i == n ? call_function(d, results, callee->name, args)
			      : exec_dec_fail(d, "the call has an operand too many");
	}
	prototype = i + 1 == n ? prototype_of(d, &in[i]) : NULL;
	if (!prototype) {
		return exec_dec_fail(
			d, "a call through a register needs the label of a .callprototype "
			   "or .calltargets");
	}
	return call_pointer(d, results, callee, args, prototype);
}
