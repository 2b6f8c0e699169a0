/* Argument and return types in GBPF_HELPER lines of hooks.def, as numbers. */
#ifndef GBPF_BPF_RUN_SIGNATURE_H
#define GBPF_BPF_RUN_SIGNATURE_H

enum ebpf_arg_type {
	ARG_NONE,
	ARG_SCALAR,
	ARG_CONST_MAP,
	ARG_MAP_KEY,
	ARG_MAP_VALUE,
	ARG_MEM,
	ARG_MEM_UNINIT,
	ARG_SIZE,
	ARG_SIZE_OR_ZERO,
	ARG_CTX,
	ARG_CONST_SIZE,
	ARG_MAP_OUT,
	ARG_FUNC,
	ARG_ANY,
	ARG_RECORD,
	ARG_ITER_NEW,
	ARG_ITER,
	ARG_ITER_END,
	ARG_LOCK,
	ARG_OUT64,  /* 8 bytes that the helper writes */
	ARG_CONST,  /* a number that is known */
	ARG_TEXT,   /* a terminated text in a constant map, or known on the stack */
	ARG_PRINTED /* a number, if the format before it takes it; else anything */
};

enum ebpf_ret_type {
	RET_SCALAR,
	RET_MAP_VALUE_OR_NULL,
	RET_VOID,
	RET_RECORD_OR_NULL,
	RET_ITER_OR_NULL
};

#endif
