/* Wraps a checked program in an entry kernel, and interprets what it leaves behind. */
#include "bpf/load/exec_ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/exec_raw.h"
#include "bpf/load/jit/jit.h"

#define MAX_TEXT ((size_t)16 << 20) /* bytes of PTX */

static const char header[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

/* The frames are the entry's, so that a pointer into one is valid in all functions that it calls.
 * They begin as zeros: local memory may hold another program's data. */
static const char entry[] = ".visible .entry " EBPF_EXEC_PTX_ENTRY "(.param .u64 env)\n{\n"
			    "\t.reg .b64 %%env, %%frames, %%at, %%end, %%zero;\n\t.reg .b32 "
			    "%%one;\n\t.reg .pred %%more;\n"
			    "\t.local .align 16 .b8 frames[%u];\n"
			    "\tld.param.u64 %%env, [env];\n"
			    "\tmov.u64 %%frames, frames;\n"
			    "\tcvta.local.u64 %%frames, %%frames;\n"
			    "\tst.u64 [%%env+%zu], %%frames;\n"
			    "\tmov.u64 %%at, %%frames;\n"
			    "\tmov.u64 %%zero, 0;\n"
			    "\tadd.u64 %%end, %%frames, %u;\n"
			    "$CLEAR:\n"
			    "\tst.u64 [%%at], %%zero;\n"
			    "\tadd.u64 %%at, %%at, 8;\n"
			    "\tsetp.lt.u64 %%more, %%at, %%end;\n"
			    "\t@%%more bra $CLEAR;\n"
			    "\t{\n\t.param .b64 q;\n\tst.param.b64 [q], %%env;\n"
			    "\tcall gbpf_f0, (q);\n\t}\n"
			    "\tmov.b32 %%one, 1;\n\tst.u32 [%%env+%zu], %%one;\n\tret;\n}\n";

static int add_entry(struct buf *out)
{
	const unsigned bytes = EBPF_MAX_FRAMES * EBPF_STACK_BYTES;

	return buf_printf(out, entry, bytes, offsetof(struct ebpf_ptx_env, frames), bytes,
			  offsetof(struct ebpf_ptx_env, done));
}

static int compile(const struct ebpf_insn *insns, uint32_t n, struct buf *ret, struct report *r)
{
	const struct ebpf_jit_options options = { .checked = 1, .report = r };
	const struct ebpf_code prog = { insns, n, NULL, 0 };
	uint8_t *text = malloc(MAX_TEXT);
	size_t len = 0;
	int err = text ? ebpf_jit_compile_with(&ebpf_target_ptx, &options, &prog, NULL, 0, text,
					       MAX_TEXT, &len)
		       : -ENOMEM;

	if (err >= 0) {
		buf_puts(ret, header);
		buf_add(ret, text, len);
		add_entry(ret);
		err = ret->failed;
	}
	free(text);
	if (err == -ENOSPC) {
		return report_set(r, err, "ptx", "the PTX of the program exceeds %zu MiB",
				  MAX_TEXT >> 20);
	}
	return err ? report_set(r, err, "ptx", "the program cannot be compiled: %s", strerror(-err))
		   : 0;
}

int ebpf_exec_ptx_module(const void *insns, size_t insn_bytes, size_t mem_bytes, struct buf *ret,
			 struct report *r)
{
	struct ebpf_insn *copy = malloc(insn_bytes + 1);
	int err;

	if (!copy) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	if (insn_bytes) {
		memcpy(copy, insns, insn_bytes);
	}
	err = ebpf_exec_raw_check(copy, insn_bytes, mem_bytes, r);
	if (!err) {
		err = compile(copy, (uint32_t)(insn_bytes / sizeof(*copy)), ret, r);
	}
	free(copy);
	return err;
}

void ebpf_exec_ptx_begin(struct ebpf_ptx_env *env, uint64_t mem, size_t mem_bytes)
{
	*env = (struct ebpf_ptx_env){
		.random_state = 1, .mem = mem, .mem_bytes = mem_bytes, .fuel = EBPF_RAW_FUEL
	};
	env->regs[1] = mem_bytes ? mem : 0;
	env->regs[2] = mem_bytes;
}

int ebpf_exec_ptx_end(const struct ebpf_ptx_env *env, uint64_t *ret_r0, struct report *r)
{
	switch (env->error) {
	case EFAULT:
	case ETIME:
	case ELOOP:
		return ebpf_exec_raw_failed(r, -(int)env->error, NULL, 0, env->pc);
	default:
		break;
	}
	if (env->error || !env->done) {
		return report_set(r, -EFAULT, "fault", "the kernel ended before the program");
	}
	*ret_r0 = env->regs[0];
	return 0;
}
