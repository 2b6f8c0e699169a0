/* What a call instruction and an exit do: arguments of helpers, references, iterators, callbacks,
 * tail calls. */
#ifndef GBPF_BPF_LOAD_VERIFY_CALL_VERIFY_CALL_INT_H
#define GBPF_BPF_LOAD_VERIFY_CALL_VERIFY_CALL_INT_H

#include <stdint.h>

#include "bpf/load/verify/verify_int.h"

/* verify_args.c */
struct ebpf_helper_call {
	const struct ebpf_verify_helper *helper;
	const struct ebpf_map_def *map;
	unsigned map_index;
	uint32_t map_id;   /* id of an inner map */
	uint32_t constant; /* CONST_SIZE */
	uint32_t cost;
	const char *what; /* name of the helper */
};
/* Checks argument i (register i + 1) against the signature of the helper. */
int ebpf_verify_arg(struct ebpf_verifier *v, struct ebpf_helper_call *c, unsigned i);

/* verify_print.c */
/* Checks bpf_trace_printk: the format, and that registers hold the numbers that it takes. */
int ebpf_verify_print_registers(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Checks the text of bpf_puts. */
int ebpf_verify_puts(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Checks the format and the size of the arguments of bpf_printk inside a kernel. */
int ebpf_verify_print(struct ebpf_verifier *v, const struct ebpf_helper_call *c);

/* verify_ref.c */
const struct ebpf_ref *ebpf_verify_ref(const struct ebpf_verifier *v, uint32_t id);
int ebpf_verify_acquire(struct ebpf_verifier *v, enum ebpf_ref_kind kind, uint32_t id,
			struct ebpf_ref **ret);
/* Releases the reference and invalidates everything that refers to it. */
void ebpf_verify_release(struct ebpf_verifier *v, uint32_t id);
/* Refuses the program because r is held. where completes the message "... is still held". */
int ebpf_verify_held(struct ebpf_verifier *v, const struct ebpf_ref *r, const char *where);
/* Refuses the program if any reference is held. */
int ebpf_verify_no_refs(struct ebpf_verifier *v, const char *where);
/* Refuses a program inside kernels if the running function holds a record: where as above. */
int ebpf_verify_no_record(struct ebpf_verifier *v, const char *where);
/* Refuses the program if a lock is held: no nested locks and no calls under a lock. */
int ebpf_verify_no_lock(struct ebpf_verifier *v, const char *what);
int ebpf_verify_lock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_unlock(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Refuses a callback that uses a reference of its caller. */
int ebpf_verify_own(struct ebpf_verifier *v, const struct ebpf_helper_call *c, uint32_t id);

/* verify_call.c */
int ebpf_verify_load_imm64(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Checks that programs of this side may use the map at all. */
int ebpf_verify_map_use(struct ebpf_verifier *v, const struct ebpf_map_def *m);
int ebpf_verify_call(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Returns 1 after a return to a caller, 0 if the program ended. */
int ebpf_verify_exit(struct ebpf_verifier *v);
void ebpf_verify_clobber(struct ebpf_verifier *v);
int ebpf_verify_enter(struct ebpf_verifier *v);
/* Invalidates everything that refers to the reference. */
void ebpf_verify_forget(struct ebpf_verifier *v, uint32_t id);
void ebpf_verify_charge(struct ebpf_verifier *v, uint32_t cost);

/* verify_iter.c */
/* Returns the iterator at a pointer, or NULL if the pointer is refused. */
struct ebpf_stack_slot *ebpf_verify_iterator(struct ebpf_verifier *v,
					     const struct ebpf_helper_call *c,
					     const struct ebpf_reg *ptr, int *err);
int ebpf_verify_iter_new(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_next(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_destroy(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_iter_outcome(struct ebpf_verifier *v, int outcome);
/* Refuses the end of a frame that contains an iterator. */
int ebpf_verify_no_iterators(struct ebpf_verifier *v);

/* verify_callback.c */
int ebpf_verify_calls(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
int ebpf_verify_calls_outcome(struct ebpf_verifier *v, int outcome);
/* Returns whether the running frame is that of a callback. */
int ebpf_verify_is_callback(const struct ebpf_verifier *v);
int ebpf_verify_callback_exit(struct ebpf_verifier *v);

/* verify_tail.c */
int ebpf_verify_tail_call(struct ebpf_verifier *v, const struct ebpf_helper_call *c);
/* Returns the targets of all tail calls walked so far and the program itself, as bits. */
uint64_t ebpf_verify_tail_targets(const struct ebpf_verifier *v);
/* Computes the cost of the most expensive chain. own: the cost of each function by itself. */
int ebpf_verify_chain_cost(struct ebpf_verifier *v, const uint64_t own[64], uint64_t *ret);

#endif
