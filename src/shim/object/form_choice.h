/* In which form a kernel runs: a function of what was decided and of what the kernel has. What
 * makes the forms, counts launches of them or publishes them belongs to their parts. */
#ifndef GBPF_SHIM_OBJECT_FORM_CHOICE_H
#define GBPF_SHIM_OBJECT_FORM_CHOICE_H

#include <stdbool.h>

/* What a kernel has: of its own code, and of that with the tools' programs. */
#define SHIM_HAS_STUB 1u  /* the code has an entry stub: each launch passes its argument */
#define SHIM_HAS_CLONE 2u /* it can be stopped between blocks: by the stub, else by f$gbpf */
#define SHIM_HAS_PROBED 4u
#define SHIM_HAS_PROBED_STUB 8u
#define SHIM_HAS_PROBED_CLONE 16u
#define SHIM_HAS_BRACKETS 32u /* programs that run in front of it and behind it */

enum shim_stub_arg {
	SHIM_STUB_NONE,	 /* no entry stub */
	SHIM_STUB_ZERO,	 /* run as the original */
	SHIM_STUB_GATE,	 /* the blocks enter the gate */
	SHIM_STUB_TOOLS, /* the launch's number, and the table of its blocks */
};

struct shim_form_choice {
	bool probed; /* the probed form runs, else the program's kernel */
	bool stops;  /* at block level: its clone, or itself with SHIM_STUB_GATE */
	enum shim_stub_arg arg;
};

/* at_blocks: the policy has it run at block level; what has no clone, or brackets, cannot. tools:
 * their share includes the launch. has: SHIM_HAS_*. */
static inline struct shim_form_choice shim_form_choose(bool at_blocks, bool tools, unsigned has)
{
	bool brackets = tools && has & SHIM_HAS_BRACKETS;
	bool probed = tools && has & SHIM_HAS_PROBED;
	bool stub = has & (probed ? SHIM_HAS_PROBED_STUB : SHIM_HAS_STUB);
	bool clone = has & (probed ? SHIM_HAS_PROBED_CLONE : SHIM_HAS_CLONE);
	bool stops = at_blocks && clone && !brackets;
	enum shim_stub_arg whole = probed ? SHIM_STUB_TOOLS : SHIM_STUB_ZERO;

	return (struct shim_form_choice){ probed, stops,
					  !stub	  ? SHIM_STUB_NONE
					  : stops ? SHIM_STUB_GATE
						  : whole };
}

#endif
