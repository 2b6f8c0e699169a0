/* Emission of the check operation before an access, while --check is enabled. */
#include <string.h>

#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"

static bool is_strong(const struct ptx_insn *insn)
{
	static const char *const words[] = { ".volatile", ".relaxed", ".acquire",
					     ".release",  ".acq_rel", ".mmio" };

	for (unsigned i = 0; i < insn->n_modifiers; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(words); k++) {
			if (strcmp(insn->modifiers[i], words[k]) == 0) {
				return true;
			}
		}
	}
	return false;
}

int exec_dec_check(struct exec_decoder *d, const struct exec_op *access, unsigned bytes,
		   unsigned how)
{
	struct exec_op op = *access;

	if (!exec_checking()) {
		return 0;
	}
	op.fn = exec_op_check;
	op.e = bytes;
	op.sub = (uint8_t)(how | (is_strong(d->insn) ? CHECK_STRONG : 0));
	return exec_dec_emit(d, &op);
}
