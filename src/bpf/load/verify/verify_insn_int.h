/* One instruction: arithmetic, branches, and accesses to memory and the stack. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_INSN_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_INSN_INT_H

#include <stdint.h>

#include "bpf/load/verify/verify_int.h"

/* verify_alu.c */
int ebpf_verify_alu(struct ebpf_verifier *v, const struct ebpf_insn *in);

/* verify_branch.c: returns 1 if the path continues at v->pc, 0 if no side is possible. */
int ebpf_verify_branch(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_branch_outcome(struct ebpf_verifier *v, int outcome);
/* Applies the outcome of an instruction that was left with ebpf_verify_push(). */
int ebpf_verify_outcome(struct ebpf_verifier *v, int outcome);

/* verify_mem.c */
enum ebpf_access { ACCESS_READ = 1, ACCESS_WRITE = 2 };
int ebpf_verify_load(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_store(struct ebpf_verifier *v, const struct ebpf_insn *in);
int ebpf_verify_atomic(struct ebpf_verifier *v, const struct ebpf_insn *in);
/* Checks an access to bytes at ptr + off. what: name of the access in messages. */
int ebpf_verify_range(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
		      uint64_t bytes, int access, const char *what);
int ebpf_verify_map_write(struct ebpf_verifier *v, unsigned map, const char *what);

/* verify_ctx.c */
/* Checks a load of bytes at ptr + off, a place or one of a few places of the context, and sets *out
 * to its result. */
int ebpf_verify_ctx_load(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			 unsigned bytes, int sign_extend, struct ebpf_scalar *out);
/* Checks a store likewise: each of the places must be writable. */
int ebpf_verify_ctx_store(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			  unsigned bytes);
/* Inside a kernel the fields of the context are parameters, not memory: an instruction reads one of
 * them on every path or on none. Refuses a load through ptr that breaks this rule. */
int ebpf_verify_one_source(struct ebpf_verifier *v, const struct ebpf_reg *ptr);

/* verify_stack.c */
int ebpf_verify_stack_read(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			   uint64_t bytes, struct ebpf_reg *out);
int ebpf_verify_stack_write(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			    uint64_t bytes, const struct ebpf_reg *value);
/* Copies the first cap - 1 characters of the text at ptr, a known place, whose terminator is one of
 * the next bytes. Returns 0; -EDOM if a character is not known, and *ret_at is its place; or
 * -E2BIG without a terminator. */
int ebpf_verify_stack_text(struct ebpf_verifier *v, const struct ebpf_reg *ptr, uint64_t bytes,
			   char *text, size_t cap, int64_t *ret_at);

#endif
