/* The state of one compilation to PTX, and the emitters of its files. */
#ifndef GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_INT_H
#define GBPF_BPF_LOAD_JIT_PTX_JIT_PTX_INT_H

#include "base/buf.h"
#include "base/compiler.h"
#include "bpf/load/jit/jit_int.h"
#include "bpf/load/jit/ptx/jit_ptx.h"
#include "bpf/load/jit/ptx/jit_ptx_flow.h"

struct ebpf_ptx_jit {
	struct ebpf_jit *plan;
	struct buf out;
	const char *name; /* prefix of global names */
	int checked;
	int hook;		   /* of a program inside kernels, or 0 */
	uint64_t fields;	   /* of its context that it reads: bit i for the i-th */
	uint64_t maps;		   /* whose addresses are parameters of the root */
	uint64_t uses;		   /* maps that the root uses, as far as it has been written */
	uint32_t lost;		   /* 1 + place of a look-up in shared memory outside of the root */
	struct ebpf_ptx_flow flow; /* not of checked programs */
	struct ebpf_ptx_arg {
		char name[24];		/* of a parameter, behind those of fields */
		int slot;		/* of the helper that reads it */
		uint32_t offset, bytes; /* of a parameter its number, and 0 */
		struct ebpf_ptx_field field;
	} args[EBPF_PTX_ARGS_MAX]; /* arguments of the kernel that it reads */
	unsigned n_args;
	const struct ebpf_jit_func *func;
	uint32_t pc;	 /* instruction that is being translated */
	unsigned slots;	 /* words of the function's stack that are registers; 0: it is memory */
	unsigned labels; /* number of local labels so far */
	uint32_t joined; /* instruction that the one before it includes */
	uint32_t spent;	 /* checked: instructions since the last update of the fuel */
};

#define PTX_ENV(member) ((unsigned)offsetof(struct ebpf_ptx_env, member))

/* Appends one instruction: a tab, the text, a semicolon. Scratch registers of a function: %t0-%t3
 * (64 bits), %w0-%w3 (32 bits), %p0-%p1. None is live from one eBPF instruction to the next. */
void ebpf_ptx_op(struct ebpf_ptx_jit *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Appends a local label, as made by ++labels. */
void ebpf_ptx_label(struct ebpf_ptx_jit *j, unsigned label);
/* Reports why the program cannot be compiled. Returns -ENOTSUP. */
int ebpf_ptx_refuse(struct ebpf_ptx_jit *j, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Returns what is known before the instruction. */
const struct ebpf_ptx_fact *ebpf_ptx_known(const struct ebpf_ptx_jit *j);
/* Returns the threads that may use the memory at the same time: ".cta" for values of maps in shared
 * memory, ".gpu" for those of maps in memory of the GPU, else ".sys". */
const char *ebpf_ptx_scope(const struct ebpf_ptx_jit *j, const struct ebpf_ptx_value *at);

/* The context of a program inside kernels (jit_ptx_ctx.c). Finds the fields that it reads; returns
 * 0 or -ENOTSUP. */
int ebpf_ptx_find_fields(struct ebpf_ptx_jit *j);
/* Adds a field, which all hooks inside kernels have, to those that the program reads. */
void ebpf_ptx_need_field(struct ebpf_ptx_jit *j, const char *name);
/* Returns whether the hook has a field of that name and the program reads it. */
int ebpf_ptx_reads_field(const struct ebpf_ptx_jit *j, const char *name);
/* Returns whether a helper reads arguments of the kernel. */
int ebpf_ptx_reads_arg(int slot);
/* Adds the argument of the kernel that the call at j->pc, of such a helper, reads. Returns its
 * number, or -ENOTSUP. */
int ebpf_ptx_need_arg(struct ebpf_ptx_jit *j, int slot);
/* Returns the next field that the program reads, from number *i on, and increments *i; behind the
 * fields, the next argument; NULL: none. */
const struct ebpf_ptx_field *ebpf_ptx_next_field(const struct ebpf_ptx_jit *j, unsigned *i);
/* Appends a parameter for each field, each after a comma. */
void ebpf_ptx_field_params(struct ebpf_ptx_jit *j);
/* Loads the fields from the parameters into registers. */
void ebpf_ptx_take_fields(struct ebpf_ptx_jit *j);
/* Translates a load whose base is the context. */
void ebpf_ptx_load_field(struct ebpf_ptx_jit *j, const struct ebpf_insn *i);

/* The emitters return nothing where they cannot fail; running out of memory is kept in out. */
void ebpf_ptx_arithmetic(struct ebpf_ptx_jit *j, const struct ebpf_insn *i);
void ebpf_ptx_memory(struct ebpf_ptx_jit *j, const struct ebpf_insn *i);
/* Sets %p0 to the condition of a jump. */
void ebpf_ptx_condition(struct ebpf_ptx_jit *j, const struct ebpf_insn *i);
/* Returns 0 or -ENOTSUP. */
int ebpf_ptx_call(struct ebpf_ptx_jit *j, const struct ebpf_insn *i,
		  const struct ebpf_jit_note *note);

/* Stores the low bytes of %t1 at %t0, which may be unaligned unless `aligned`; changes %t0-%t3, %w0
 * and %p0. */
void ebpf_ptx_store(struct ebpf_ptx_jit *j, unsigned size, int aligned);
/* Loads size bytes at %t0, which may be unaligned unless `aligned`, into dst; changes %t0-%t3, %w0
 * and %p0. */
void ebpf_ptx_load(struct ebpf_ptx_jit *j, const char *dst, unsigned size, int sign, int aligned);

/* Returns 1 and the offset from r10 if the access is one of the function's own frame at an aligned
 * known place, else 0. */
int ebpf_ptx_in_frame(const struct ebpf_ptx_jit *j, int off, unsigned size, int *ret_off);
/* Returns the size of the function's frame: its stack, and its records below that. */
unsigned ebpf_ptx_frame_bytes(const struct ebpf_ptx_jit *j);
/* Loads from the function's own frame into a register of 64 bits. */
void ebpf_ptx_frame_load(struct ebpf_ptx_jit *j, int off, unsigned size, int sign, const char *dst);
/* Stores the low bytes of a register of 64 bits likewise. */
void ebpf_ptx_frame_store(struct ebpf_ptx_jit *j, int off, unsigned size, const char *src);
/* Computes the address of an access into %t0. */
void ebpf_ptx_address(struct ebpf_ptx_jit *j, unsigned base, int off);
/* Ends a checked program unless the bytes at %t0 lie in its memory or one of its frames and, for an
 * atomic, are aligned. */
void ebpf_ptx_check(struct ebpf_ptx_jit *j, unsigned bytes, int aligned);
void ebpf_ptx_atomic(struct ebpf_ptx_jit *j, const struct ebpf_insn *i);
/* Returns the space of the map of a value, ".global" or ".shared"; "": not known. */
const char *ebpf_ptx_space(const struct ebpf_ptx_jit *j, const struct ebpf_ptx_value *at);

/* Returns whether addresses of maps are parameters of the function that is being translated. */
int ebpf_ptx_has_map_params(const struct ebpf_ptx_jit *j);
/* Returns the beginning of the name of the map's parameter; its number follows. */
const char *ebpf_ptx_map_param(const struct ebpf_ptx_jit *j, unsigned map);
/* Loads the address of the data of a map into a register. */
void ebpf_ptx_map_data(struct ebpf_ptx_jit *j, const char *to, unsigned map);

/* Adds the offset of the instance of this place to %t0; changes %w1 and %w2. A thread may be moved
 * to another place meanwhile, so another one may use the instance at the same time. */
void ebpf_ptx_instance(struct ebpf_ptx_jit *j, const struct ebpf_map *m);

/* Counts a helper error; changes %t0 and %t1. */
void ebpf_ptx_count_error(struct ebpf_ptx_jit *j);

/* Helpers on maps (jit_ptx_map.c), for the table of helpers. */
int ebpf_ptx_map_lookup(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_map_update(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);

/* Returns the type of the map of the call if it has a value for each block or thread, else 0. */
uint32_t ebpf_ptx_own_map(const struct ebpf_ptx_jit *j);

/* Copies the value at r3 to r1, a generic address, in whole words where it consists of them;
 * changes r1, r3, r5, %t0, %t1 and %p0. */
void ebpf_ptx_copy_value(struct ebpf_ptx_jit *j, unsigned bytes);

/* Hash tables in memory of the GPU (jit_ptx_hash.c). Returns whether r1 of the call is one. */
int ebpf_ptx_is_hash(const struct ebpf_ptx_jit *j);
int ebpf_ptx_hash_lookup(struct ebpf_ptx_jit *j);
int ebpf_ptx_hash_update(struct ebpf_ptx_jit *j);
int ebpf_ptx_hash_delete(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_key_add(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);

/* A push to a ring: take a number, which leaves the slot in %r5 and the sum in %r3; then each word
 * from %t1; then commit, which sets r0 to 0. The first and the last change %t0-%t3 and %w0-%w2. */
void ebpf_ptx_ring_take(struct ebpf_ptx_jit *j, const struct ebpf_map *m);
void ebpf_ptx_ring_word(struct ebpf_ptx_jit *j, const struct ebpf_map *m, unsigned k);
void ebpf_ptx_ring_commit(struct ebpf_ptx_jit *j, const struct ebpf_map *m);
/* bpf_puts, bpf_trace_printk and bpf_trace_vprintk (jit_ptx_print.c). */
int ebpf_ptx_puts(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_print_registers(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_print(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
/* As in jit_ptx_flow_int.h. */
int ebpf_ptx_number_before(const struct ebpf_jit *plan, uint32_t pc, unsigned reg, uint32_t *ret);

int ebpf_ptx_map_push(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_ring_output(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_event_output(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_ring_reserve(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_ring_submit(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_ring_discard(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_hist_add(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);
int ebpf_ptx_atomic_add(struct ebpf_ptx_jit *j, const struct ebpf_jit_note *note);

/* Helpers of programs inside kernels (jit_ptx_device.c). Returns 0 or -ENOTSUP. */
int ebpf_ptx_device_helper(struct ebpf_ptx_jit *j, int slot, int32_t id);
/* Adds the context fields that the helper reads to those of the program; returns whether there are
 * any. */
int ebpf_ptx_helper_fields(struct ebpf_ptx_jit *j, int slot);
/* Returns from the root of the program in blocks that the control word leaves out. */
void ebpf_ptx_control(struct ebpf_ptx_jit *j);
/* Leaves a random number of 32 bits in r0. */
void ebpf_ptx_device_random(struct ebpf_ptx_jit *j);

/* Checked programs: brings the fuel up to date and, with test, ends the program if none is left. */
void ebpf_ptx_spend(struct ebpf_ptx_jit *j, int test);

#endif
