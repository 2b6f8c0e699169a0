/* What the programs in a stub must not do, read from the compiled code behind the gate: wait, call,
 * use memory that a stub does not have, or act for other lanes. At the end the lanes of each warp
 * must be together again, as the kernel expects. */
#include <errno.h>

#include "cubin/cubin.h"
#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_stub_int.h"

static int broken(struct report *r, const char *what, size_t at)
{
	report_place(r, "entry stub, code at 0x%zx", at);
	return report_set(r, -ENOTSUP, "cubin", "the compiled programs %s", what);
}

/* Returns why an instruction of a program is refused, or NULL. */
static const char *why_not(struct cubin_insn i)
{
	switch (cubin_insn_base(i)) {
	case CUBIN_BASE_VOTE:
	case CUBIN_BASE_VOTEU:
	case CUBIN_BASE_SHFL:
	case CUBIN_BASE_MATCH:
	case CUBIN_BASE_REDUX:
	case CUBIN_BASE_ELECT:
		return "have an instruction of a whole warp";
	case CUBIN_BASE_CALL_ABS:
	case CUBIN_BASE_CALL_REL:
	case CUBIN_BASE_RET:
	case CUBIN_BASE_BRX:
	case CUBIN_BASE_JMX:
		return "have a call or a jump through a table";
	case CUBIN_BASE_LDL:
	case CUBIN_BASE_STL:
		return "have a stack in memory";
	case CUBIN_BASE_LDS: /* in front of fences the driver's compiler has loads that never run */
		return cubin_insn_predicate(i) == CUBIN_NEVER ? NULL : "use shared memory";
	case CUBIN_BASE_STS:
	case CUBIN_BASE_ATOMS:
		return "use shared memory";
	case CUBIN_BASE_BAR:
	case CUBIN_BASE_BPT:
		return "wait or trap";
	default:
		return NULL;
	}
}

/* The gate's last exit is that of blocks that leave; programs have none, as ptx/probe checks. */
static size_t behind_gate(const struct cubin_stub *s)
{
	const struct cubin_stub_list *exits = &s->lists[0];

	return exits->n ? exits->at[exits->n - 1] + CUBIN_INSN_BYTES : 0;
}

/* What the compiler has placed behind the marker is not part of the stub. */
static int check_branches(const struct cubin_stub *s, struct report *r)
{
	for (size_t at = 0; at < s->bytes; at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(s->code + at);
		int64_t to = cubin_insn_base(i) == CUBIN_BASE_BRA
				     ? cubin_insn_target(s->arch, i, at)
				     : 0;

		if (to < 0 || to > (int64_t)s->bytes) {
			return broken(r, "branch to code behind the stub", at);
		}
	}
	return 0;
}

int cubin_stub_check_programs(const struct cubin_stub *s, struct report *r)
{
	size_t from = behind_gate(s);
	unsigned depth = 0; /* of code that only some lanes may run */

	if (!from) {
		return broken(r, "do not follow a gate", 0);
	}
	for (size_t at = from; at < s->bytes; at += CUBIN_INSN_BYTES) {
		struct cubin_insn i = cubin_insn_at(s->code + at);
		const char *why = why_not(i);

		if (why) {
			return broken(r, why, at);
		}
		switch (cubin_insn_base(i)) {
		case CUBIN_BASE_BSSY:
			depth++;
			break;
		case CUBIN_BASE_BSYNC:
			if (!depth-- || cubin_insn_predicate(i) != CUBIN_ALWAYS) {
				return broken(r, "join lanes in an unknown form", at);
			}
			break;
		case CUBIN_BASE_BRA:
			if (!depth) {
				return broken(r, "part lanes that do not join again", at);
			}
			break;
		default:
			break;
		}
	}
	return depth ? broken(r, "part lanes that do not join again", s->bytes)
		     : check_branches(s, r);
}
