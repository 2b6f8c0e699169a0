/* PTX back end: control and functions. It translates instruction by instruction, so that between
 * instructions there is no state other than the interpreter's. Registers of PTX have a width and no
 * type: those of eBPF are ten of 64 bits, and 32-bit operations use narrow temporaries. ptxas keeps
 * local memory in memory even if all places are constant, so a stack whose address is not used
 * becomes registers here. */
#include "bpf/load/jit/ptx/jit_ptx.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"

void ebpf_ptx_op(struct ebpf_ptx_jit *j, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	buf_puts(&j->out, "\t");
	buf_vprintf(&j->out, fmt, ap);
	buf_puts(&j->out, ";\n");
	va_end(ap);
}

void ebpf_ptx_label(struct ebpf_ptx_jit *j, unsigned label)
{
	buf_printf(&j->out, "$M%u:\n", label);
}

int ebpf_ptx_refuse(struct ebpf_ptx_jit *j, const char *fmt, ...)
{
	struct report *r = j->plan->options->report;
	struct buf text = { 0 };
	va_list ap;

	if (r) {
		va_start(ap, fmt);
		buf_vprintf(&text, fmt, ap);
		va_end(ap);
		report_place(r, "insn %u", j->pc);
		report_set(r, -ENOTSUP, "ptx", "no PTX for %s", buf_text(&text));
		buf_finish(&text);
	}
	return -ENOTSUP;
}

/* ---- fuel ---- */

void ebpf_ptx_spend(struct ebpf_ptx_jit *j, int test)
{
	if (!j->checked) {
		return;
	}
	if (j->spent) {
		ebpf_ptx_op(j, "sub.s64 %%fuel, %%fuel, %u", j->spent);
		j->spent = 0;
	}
	if (test) {
		ebpf_ptx_op(j, "setp.lt.s64 %%p1, %%fuel, 0");
		ebpf_ptx_op(j, "mov.b32 %%place, %u", j->pc);
		ebpf_ptx_op(j, "@%%p1 bra $TIME");
	}
}

/* ---- labels that nothing jumps to ---- */

/* Names come from the object, which may have any. */
static int is_identifier(const char *name)
{
	static const char known[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";

	return name && name[0] && !name[strspn(name, known)];
}

static int has_labels(const struct ebpf_ptx_jit *j)
{
	return j->hook && is_identifier(j->plan->options->label);
}

/* Returns whether an instruction accesses memory other than a stack in registers, or calls. */
static int may_fault(const struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	unsigned class = EBPF_CLASS(i->code);
	uint8_t kind = ebpf_ptx_known(j)->base.kind;

	if (i->code == (EBPF_JMP | EBPF_CALL)) {
		return 1;
	}
	return (class == EBPF_LDX || class == EBPF_ST || class == EBPF_STX) && kind != PTX_CTX &&
	       !(kind == PTX_FRAME && j->slots);
}

static void label_insn(struct ebpf_ptx_jit *j, const struct ebpf_insn *i, unsigned flags)
{
	if ((flags & JIT_TARGET) ||
	    (has_labels(j) && !(flags & JIT_SKIP) && j->joined != j->pc && may_fault(j, i))) {
		buf_printf(&j->out, "$L%u:\n", j->pc);
	}
}

/* ---- functions ---- */

static int is_root(const struct ebpf_jit_func *f)
{
	return !f->first;
}

int ebpf_ptx_has_map_params(const struct ebpf_ptx_jit *j)
{
	return j->hook && j->plan->options->maps && is_root(j->func);
}

static int takes_fields(const struct ebpf_ptx_jit *j, const struct ebpf_jit_func *f)
{
	return j->hook && j->flow.takes_ctx[f - j->plan->funcs];
}

static void signature(struct ebpf_ptx_jit *j, const struct ebpf_jit_func *f)
{
	unsigned n = (unsigned)(f - j->plan->funcs), n_args = is_root(f) ? !j->hook : 5;

	if (j->checked) {
		buf_printf(&j->out, ".func %s_f%u (.param .b64 env)\n", j->name, n);
		return;
	}
	buf_puts(&j->out, j->hook && is_root(f) ? ".func" : ".func (.param .b64 result)");
	buf_printf(&j->out, " %s_f%u (", j->name, n);
	for (unsigned k = 1; k <= n_args; k++) {
		buf_printf(&j->out, ".param .b64 a%u, ", k);
	}
	buf_puts(&j->out, ".param .b64 env");
	if (j->hook && is_root(f) && j->plan->options->device_control) {
		buf_puts(&j->out, ", .param .b64 control");
	}
	for (unsigned k = 0; k < EBPF_MAX_MAPS && is_root(f); k++) {
		if (j->maps >> k & 1) {
			buf_printf(&j->out, ", .param .b64 %s%u", ebpf_ptx_map_param(j, k), k);
		}
	}
	if (takes_fields(j, f)) {
		ebpf_ptx_field_params(j);
	}
	buf_puts(&j->out, ")\n");
}

static int has_frame(const struct ebpf_ptx_jit *j)
{
	return (j->func->used >> 10 & 1) || j->flow.record_bytes[j->func - j->plan->funcs];
}

static void declarations(struct ebpf_ptx_jit *j)
{
	buf_puts(&j->out, "{\n\t.reg .b64 %r<11>;\n\t.reg .b64 %t<4>;\n\t.reg .b32 %w<4>;\n"
			  "\t.reg .pred %p<2>;\n\t.reg .b64 %env;\n");
	if (j->hook) {
		buf_puts(&j->out, "\t.reg .b64 %genv;\n");
	}
	if (has_labels(j)) {
		buf_printf(&j->out, EBPF_PTX_LABEL "%s:\n", j->plan->options->label);
	}
	if (j->checked) {
		buf_puts(&j->out, "\t.reg .b64 %mem, %size, %frames, %end, %fuel;\n"
				  "\t.reg .b32 %place, %frame;\n");
	} else if (j->slots) {
		buf_printf(&j->out, "\t.reg .b64 %%s<%u>;\n\t.reg .b32 %%h<2>;\n", j->slots);
	} else if (has_frame(j)) {
		buf_printf(&j->out, "\t.local .align 16 .b8 stack[%u];\n", ebpf_ptx_frame_bytes(j));
	}
}

static void checked_prologue(struct ebpf_ptx_jit *j)
{
	static const struct {
		const char *reg;
		unsigned offset;
	} kept[] = { { "%mem", PTX_ENV(mem) },
		     { "%size", PTX_ENV(mem_bytes) },
		     { "%frames", PTX_ENV(frames) },
		     { "%fuel", PTX_ENV(fuel) } };

	for (unsigned k = 0; k < ARRAY_SIZE(kept); k++) {
		ebpf_ptx_op(j, "ld.u64 %s, [%%env+%u]", kept[k].reg, kept[k].offset);
	}
	for (unsigned r = 0; r < 10; r++) {
		ebpf_ptx_op(j, "ld.u64 %%r%u, [%%env+%u]", r, PTX_ENV(regs) + 8 * r);
	}
	ebpf_ptx_op(j, "ld.u32 %%frame, [%%env+%u]", PTX_ENV(frame));
	ebpf_ptx_op(j, "mad.wide.u32 %%end, %%frame, %u, %u", EBPF_STACK_BYTES, EBPF_STACK_BYTES);
	ebpf_ptx_op(j, "add.s64 %%r10, %%frames, %%end");
}

/* Gives r3 to r5 a value where functions call bpf_trace_printk, which stores them all and sums them
 * up: of a register that nothing has written ptxas may read a different value at each use, and then
 * the sum is wrong and the line is never shown. Functions get what the root has left in them. */
static void define_printed(struct ebpf_ptx_jit *j)
{
	const struct ebpf_jit *plan = j->plan;
	bool prints = false;

	for (uint32_t pc = 0; pc < plan->n && !prints; pc++) {
		const struct ebpf_insn *i = &plan->insns[pc];

		prints = i->code == (EBPF_JMP | EBPF_CALL) && i->src == EBPF_CALL_HELPER &&
			 ebpf_helper_slot(i->imm) == EBPF_SLOT_bpf_trace_printk;
	}
	for (unsigned r = 3; r <= 5 && prints; r++) {
		ebpf_ptx_op(j, "mov.b64 %%r%u, 0", r);
	}
}

static void prologue(struct ebpf_ptx_jit *j)
{
	unsigned n_args = is_root(j->func) ? !j->hook : 5;

	signature(j, j->func);
	declarations(j);
	ebpf_ptx_op(j, "ld.param.u64 %%env, [env]");
	if (j->checked) {
		checked_prologue(j);
		return;
	}
	if (j->hook) {
		ebpf_ptx_op(j, "cvta.to.global.u64 %%genv, %%env");
	}
	for (unsigned k = 1; k <= n_args; k++) {
		if (j->func->used >> k & 1) {
			ebpf_ptx_op(j, "ld.param.u64 %%r%u, [a%u]", k, k);
		}
	}
	if (takes_fields(j, j->func)) {
		ebpf_ptx_take_fields(j);
	}
	if (j->hook && is_root(j->func)) {
		ebpf_ptx_op(j, "mov.b64 %%r1, 0");
		define_printed(j);
		if (j->plan->options->device_control) {
			ebpf_ptx_control(j);
		}
	}
	if (has_frame(j) && !j->slots) {
		ebpf_ptx_op(j, "mov.u64 %%t0, stack");
		ebpf_ptx_op(j, "cvta.local.u64 %%r10, %%t0");
		ebpf_ptx_op(j, "add.s64 %%r10, %%r10, %u", ebpf_ptx_frame_bytes(j));
	} else if (has_frame(j)) { /* addresses are only compared with NULL */
		ebpf_ptx_op(j, "mov.b64 %%r10, %u", 2 * ebpf_ptx_frame_bytes(j) - EBPF_STACK_BYTES);
	}
}

/* The places where checked programs end early. */
static void epilogue(struct ebpf_ptx_jit *j)
{
	static const struct {
		const char *label;
		int error;
	} ends[] = { { "$FAULT", EFAULT }, { "$TIME", ETIME }, { "$FRAMES", ELOOP } };

	for (unsigned k = 0; j->checked && k < ARRAY_SIZE(ends); k++) {
		buf_printf(&j->out, "%s:\n", ends[k].label);
		ebpf_ptx_op(j, "mov.b32 %%w0, %d", ends[k].error);
		ebpf_ptx_op(j, "st.u32 [%%env+%u], %%w0", PTX_ENV(error));
		ebpf_ptx_op(j, "st.u32 [%%env+%u], %%place", PTX_ENV(pc));
		ebpf_ptx_op(j, "exit");
	}
	buf_puts(&j->out, "}\n");
}

static void leave(struct ebpf_ptx_jit *j)
{
	ebpf_ptx_spend(j, 1);
	if (j->checked) {
		for (unsigned r = 0; r < 6; r++) {
			ebpf_ptx_op(j, "st.u64 [%%env+%u], %%r%u", PTX_ENV(regs) + 8 * r, r);
		}
		ebpf_ptx_op(j, "st.u64 [%%env+%u], %%fuel", PTX_ENV(fuel));
	} else if (!j->hook || !is_root(j->func)) {
		ebpf_ptx_op(j, "st.param.b64 [result], %%r0");
	}
	ebpf_ptx_op(j, "ret");
}

/* ---- instructions ---- */

static void jump(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	uint32_t target = ebpf_jit_jump_target(i, j->pc);

	ebpf_ptx_spend(j, target <= j->pc);
	if (EBPF_OP(i->code) == EBPF_JA) {
		ebpf_ptx_op(j, "bra $L%u", target);
	} else {
		ebpf_ptx_condition(j, i);
		ebpf_ptx_op(j, "@%%p0 bra $L%u", target);
	}
}

static int ld_imm64(struct ebpf_ptx_jit *j, const struct ebpf_insn *i)
{
	uint64_t v = (uint32_t)i->imm | (uint64_t)(uint32_t)i[1].imm << 32;
	char dst[8];

	switch (i->src) {
	case EBPF_PSEUDO_CONST:
		ebpf_ptx_op(j, "mov.b64 %%r%u, 0x%llx", i->dst, (unsigned long long)v);
		return 0;
	case EBPF_PSEUDO_MAP_VALUE:
		snprintf(dst, sizeof(dst), "%%r%u", i->dst);
		ebpf_ptx_map_data(j, dst, (unsigned)i->imm);
		ebpf_ptx_op(j, "add.s64 %%r%u, %%r%u, %u", i->dst, i->dst, (uint32_t)i[1].imm);
		return 0;
	case EBPF_PSEUDO_MAP:
		ebpf_ptx_op(j, "add.s64 %%r%u, %%env, %u", i->dst,
			    PTX_ENV(maps) + 8 * (unsigned)i->imm);
		return 0;
	default:
		return ebpf_ptx_refuse(j, "the address of a function, except for bpf_loop");
	}
}

static int translate(struct ebpf_ptx_jit *j, const struct ebpf_insn *i,
		     const struct ebpf_jit_note *note)
{
	if ((note->flags & JIT_SKIP) || j->joined == j->pc) {
		return 0;
	}
	switch (EBPF_CLASS(i->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		ebpf_ptx_arithmetic(j, i);
		return 0;
	case EBPF_JMP:
	case EBPF_JMP32:
		if (EBPF_OP(i->code) == EBPF_CALL) {
			return ebpf_ptx_call(j, i, note);
		}
		if (EBPF_OP(i->code) == EBPF_EXIT) {
			leave(j);
		} else {
			jump(j, i);
		}
		return 0;
	case EBPF_LD:
		return ld_imm64(j, i);
	default:
		ebpf_ptx_memory(j, i);
		return 0;
	}
}

static int functions(struct ebpf_ptx_jit *j)
{
	const struct ebpf_jit *plan = j->plan;
	int err = 0;

	for (unsigned k = 0; k < plan->n_funcs; k++) {
		signature(j, &plan->funcs[k]);
		buf_puts(&j->out, ";\n");
	}
	for (j->pc = 0; j->pc < plan->n && !err; j->pc++) {
		const struct ebpf_jit_note *note = &plan->notes[j->pc];
		const struct ebpf_insn *i = &plan->insns[j->pc];

		if (note->flags & JIT_FUNC) {
			if (j->func) {
				epilogue(j);
			}
			j->func = &plan->funcs[note->func];
			j->slots = j->flow.slots[note->func];
			prologue(j);
		}
		if (note->flags & JIT_TARGET) {
			ebpf_ptx_spend(j, 0);
		}
		label_insn(j, i, note->flags);
		j->spent++;
		err = translate(j, i, note);
		j->pc += i->code == EBPF_LD_IMM64;
	}
	epilogue(j);
	if (!err && j->lost) {
		j->pc = j->lost - 1;
		err = ebpf_ptx_refuse(j, "a look-up in shared memory in a function of the program, "
					 "which only the program itself can make (inline the "
					 "function)");
	}
	return err ? err : j->out.failed;
}

/* Which maps the root uses is known once it has been written: if any, it is written again with
 * parameters for them. */
static int all_functions(struct ebpf_ptx_jit *j)
{
	int err = functions(j);

	if (!err && j->uses) {
		buf_clear(&j->out);
		j->maps = j->uses;
		j->func = NULL;
		j->labels = 0;
		j->joined = UINT32_MAX;
		err = functions(j);
	}
	if (!err && j->plan->options->maps) {
		*j->plan->options->maps = j->maps;
	}
	return err;
}

const struct ebpf_ptx_fact *ebpf_ptx_known(const struct ebpf_ptx_jit *j)
{
	static const struct ebpf_ptx_fact unknown = { .base = { .kind = PTX_ANY,
								.map = JIT_NO_MAP } };

	return j->flow.facts ? &j->flow.facts[j->pc] : &unknown;
}

/* What must be known of the program before its first function is written. */
static int analyse(struct ebpf_ptx_jit *j)
{
	const struct ebpf_jit_options *o = j->plan->options;
	int err;

	if (j->checked) {
		return j->hook ? -EINVAL : 0;
	}
	if (j->hook) {
		ebpf_jit_find_live(j->plan);
	}
	err = ebpf_ptx_flow_init(&j->flow, j->plan, j->hook != 0);
	if (!err && j->hook) {
		err = ebpf_ptx_find_fields(j);
	}
	if (!err && o->fields) {
		*o->fields = j->fields;
	}
	return err;
}

static int64_t emit(struct ebpf_jit *plan, uint8_t *out, size_t cap)
{
	const struct ebpf_jit_options *o = plan->options;
	struct ebpf_ptx_jit j = { .plan = plan,
				  .name = o->name ? o->name : "gbpf",
				  .checked = o->checked,
				  .hook = o->device_hook,
				  .joined = UINT32_MAX };
	int64_t bytes = analyse(&j);

	if (!bytes) {
		bytes = all_functions(&j);
	}
	if (!bytes) {
		bytes = !out || j.out.len > cap ? -ENOSPC : (int64_t)j.out.len;
	}
	if (bytes > 0) {
		memcpy(out, j.out.data, (size_t)bytes);
	}
	buf_finish(&j.out);
	ebpf_ptx_flow_finish(&j.flow);
	return bytes;
}

const struct ebpf_target ebpf_target_ptx = {
	.name = "PTX",
	.entry_align = 1,
	.filler = ' ',
	.emit = emit,
};
