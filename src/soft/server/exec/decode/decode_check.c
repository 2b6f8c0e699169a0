/* Emission of operations before an access: the check of --check, and the count of
 * --link-bandwidth. */
#include <string.h>

#include "soft/server/exec/access_check.h"
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/link_count.h"

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

int exec_dec_link(struct exec_decoder *d, const struct exec_op *access, unsigned bytes,
		  unsigned how)
{
	struct exec_op op = *access;

	if (!exec_link_counted() || (op.space != SP_GLOBAL && op.space != SP_GENERIC)) {
		return 0;
	}
	op.fn = exec_op_link;
	op.e = bytes;
	op.sub = (uint8_t)how;
	return exec_dec_emit(d, &op);
}

int exec_dec_check(struct exec_decoder *d, const struct exec_op *access, unsigned bytes,
		   unsigned how)
{
	struct exec_op op = *access;
	int err = exec_dec_link(d, access, bytes, how);

	if (err < 0 || !exec_checking()) {
		return err < 0 ? err : 0;
	}
	op.fn = exec_op_check;
	op.e = bytes;
	op.sub = (uint8_t)(how | (is_strong(d->insn) ? CHECK_STRONG : 0));
	return exec_dec_emit(d, &op);
}
