/* Reads a kernel's instructions once: facts, a hash, and branches back to the first instruction. */
#include <string.h>

#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_scan_int.h"

enum { /* operations with the target of BRA, and indirect ones */
       OP_CALL_RELATIVE = 0x944,
       OP_BRX = 0x949,
       OP_BRXU = 0x958,
       OP_JMX = 0x94c,
       OP_CALL_REGISTER = 0x343,
       OP_CALL_RELATIVE_REGISTER = 0x344,
       OP_CALL_UNIFORM = 0xd44,
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 32;
}

static void note(unsigned arch, struct cubin_kernel *k, struct cubin_insn i, size_t at)
{
	switch (cubin_insn_op(i)) {
	case CUBIN_OP_BRA:
	case CUBIN_OP_BRA_UNIFORM:
	case OP_CALL_RELATIVE:
		if (cubin_insn_target(arch, i, at) < CUBIN_INSN_BYTES && k->why == CUBIN_OK) {
			k->why = CUBIN_LOOPS_TO_ENTRY;
		}
		break;
	case CUBIN_OP_SETMAXREG:
		k->sets_registers = true;
		break;
	case CUBIN_OP_ACQBULK:
		k->waits_for_launch = true;
		break;
	case CUBIN_OP_PREEXIT:
		k->triggers_launch = true;
		break;
	case OP_BRX:
	case OP_BRXU:
	case OP_JMX:
	case OP_CALL_REGISTER:
	case OP_CALL_RELATIVE_REGISTER:
	case OP_CALL_UNIFORM:
		k->indirect = true;
		break;
	default:
		break;
	}
}

void cubin_scan_code(const struct cubin_elf *e, const struct cubin_parts *p, struct cubin_kernel *k)
{
	const uint8_t *code = cubin_elf_data(e, p->text);
	size_t bytes = k->code_bytes;
	uint64_t h = hash_bytes(k->name, strlen(k->name)), g = bytes;

	if (bytes % CUBIN_INSN_BYTES || bytes < 2 * CUBIN_INSN_BYTES) {
		k->why = k->why ? k->why : CUBIN_CODE_FORM;
		return;
	}
	for (size_t at = 0; at < bytes; at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(code + at);

		h = mix(h, i.lo);
		g = mix(g, i.hi);
		if (at) {
			note(e->arch, k, i, at);
		}
	}
	k->code_hash = mix(h, g);
}
