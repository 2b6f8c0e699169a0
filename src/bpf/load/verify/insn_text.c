/* Formats instructions in the notation of llvm-objdump. */
#include "bpf/load/verify/insn_text.h"

#include <stdio.h>

#include "bpf/load/verify/verify_int.h"

static const char *const alu_ops[] = { "+=",  "-=", "*=", "/=", "|=",	"&=",  "<<=", ">>=",
				       "neg", "%=", "^=", "=",	"s>>=", "end", "?",   "?" };
static const char *const jump_ops[] = { "goto", "==",	">", ">=", "&",	 "!=",	"s>", "s>=",
					"call", "exit", "<", "<=", "s<", "s<=", "?",  "?" };

static const char *size_name(const struct ebpf_insn *in)
{
	switch (EBPF_SIZE(in->code)) {
	case EBPF_B:
		return "8";
	case EBPF_H:
		return "16";
	case EBPF_W:
		return "32";
	default:
		return "64";
	}
}

static void alu_text(const struct ebpf_insn *in, struct buf *out)
{
	char w = EBPF_CLASS(in->code) == EBPF_ALU64 ? 'r' : 'w';
	unsigned op = EBPF_OP(in->code);
	const char *sign = (op == EBPF_DIV || op == EBPF_MOD) && in->off ? "s" : "";

	if (op == EBPF_NEG) {
		buf_printf(out, "%c%u = -%c%u", w, in->dst, w, in->dst);
	} else if (op == EBPF_END) {
		buf_printf(out, "r%u = %s%d r%u", in->dst,
			   w == 'r'		? "bswap"
			   : EBPF_SRC(in->code) ? "be"
						: "le",
			   in->imm, in->dst);
	} else if (op == EBPF_MOV && in->off) {
		buf_printf(out, "%c%u = (s%d)%c%u", w, in->dst, in->off, w, in->src);
	} else if (EBPF_SRC(in->code)) {
		buf_printf(out, "%c%u %s%s %c%u", w, in->dst, sign, alu_ops[op >> 4], w, in->src);
	} else {
		buf_printf(out, "%c%u %s%s %d", w, in->dst, sign, alu_ops[op >> 4], in->imm);
	}
}

static void jump_text(const struct ebpf_insn *in, uint32_t pc, struct buf *out)
{
	char w = EBPF_CLASS(in->code) == EBPF_JMP ? 'r' : 'w';
	unsigned op = EBPF_OP(in->code);

	if (op == EBPF_EXIT) {
		buf_puts(out, "exit");
	} else if (op == EBPF_CALL) {
		const struct ebpf_verify_helper *h = ebpf_verify_helper(in->imm);

		if (in->src == EBPF_CALL_LOCAL) {
			buf_printf(out, "call insn %u", ebpf_verify_target(in, pc));
		} else {
			buf_printf(out, "call %s (%d)", h ? h->name : "?", in->imm);
		}
	} else if (op == EBPF_JA) {
		buf_printf(out, "goto %u", ebpf_verify_target(in, pc));
	} else if (EBPF_SRC(in->code)) {
		buf_printf(out, "if %c%u %s %c%u goto %u", w, in->dst, jump_ops[op >> 4], w,
			   in->src, ebpf_verify_target(in, pc));
	} else {
		buf_printf(out, "if %c%u %s %d goto %u", w, in->dst, jump_ops[op >> 4], in->imm,
			   ebpf_verify_target(in, pc));
	}
}

void ebpf_insn_text(const struct ebpf_insn *insns, uint32_t n, uint32_t pc, struct buf *out)
{
	const struct ebpf_insn *in = &insns[pc];
	const char *s = EBPF_MODE(in->code) == EBPF_MEMSX ? "s" : "u";

	switch (EBPF_CLASS(in->code)) {
	case EBPF_ALU:
	case EBPF_ALU64:
		alu_text(in, out);
		break;
	case EBPF_JMP:
	case EBPF_JMP32:
		jump_text(in, pc, out);
		break;
	case EBPF_LDX:
		buf_printf(out, "r%u = *(%s%s *)(r%u %+d)", in->dst, s, size_name(in), in->src,
			   in->off);
		break;
	case EBPF_ST:
		buf_printf(out, "*(u%s *)(r%u %+d) = %d", size_name(in), in->dst, in->off, in->imm);
		break;
	case EBPF_STX:
		if (EBPF_MODE(in->code) == EBPF_ATOMIC) {
			buf_printf(out, "atomic 0x%x *(u%s *)(r%u %+d) r%u", in->imm, size_name(in),
				   in->dst, in->off, in->src);
		} else {
			buf_printf(out, "*(u%s *)(r%u %+d) = r%u", size_name(in), in->dst, in->off,
				   in->src);
		}
		break;
	default:
		if (in->code == EBPF_LD_IMM64 && pc + 1 >= n) {
			buf_printf(out, "r%u = half of a 64-bit load", in->dst);
		} else if (in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_CONST) {
			buf_printf(out, "r%u = 0x%llx ll", in->dst,
				   (unsigned long long)((uint32_t)in[0].imm |
							(uint64_t)(uint32_t)in[1].imm << 32));
		} else if (in->code == EBPF_LD_IMM64 && in->src == EBPF_PSEUDO_FUNC) {
			buf_printf(out, "r%u = function at insn %lld", in->dst,
				   (long long)pc + 1 + in->imm);
		} else if (in->code == EBPF_LD_IMM64) {
			buf_printf(out, "r%u = map %d%s", in->dst, in->imm,
				   in->src == EBPF_PSEUDO_MAP_VALUE ? " value" : "");
		} else {
			buf_printf(out, "opcode 0x%02x", in->code);
		}
	}
}
