/* Which opcode is decoded by what. An opcode that is not here is refused when the module is loaded.
 */
#include "soft/server/exec/decode.h"

#include <stdlib.h>
#include <string.h>

/* Sorted by name. */
static const struct dec_opcode opcodes[] = {
	{ "abs", dec_arith, ALU_ABS, 1 },
	{ "activemask", dec_activemask, 0, 0 },
	{ "add", dec_arith, ALU_ADD, 2 },
	{ "addc", dec_carry, CARRY_ADD, 2 },
	{ "and", dec_logic, ALU_AND, 2 },
	{ "atom", dec_atom, 1, 0 },
	{ "bar", dec_bar, 0, 0 },
	{ "barrier", dec_bar, 0, 0 },
	{ "bfe", dec_bfe, ALU_BFE, 0 },
	{ "bfi", dec_bfe, ALU_BFI, 0 },
	{ "bfind", dec_bfind, 0, 0 },
	{ "bra", dec_bra, 0, 0 },
	{ "brev", dec_bits, ALU_BREV, 0 },
	{ "brx", dec_brx, 0, 0 },
	{ "call", dec_call, 0, 0 },
	{ "clz", dec_bits, ALU_CLZ, 0 },
	{ "cnot", dec_logic, ALU_CNOT, 1 },
	{ "copysign", dec_arith, ALU_COPYSIGN, 2 },
	{ "cos", dec_float_op, ALU_COS, 1 },
	{ "cvt", dec_cvt, 0, 0 },
	{ "cvta", dec_cvta, 0, 0 },
	{ "div", dec_div, 0, 0 },
	{ "dp4a", dec_dp4a, 0, 0 },
	{ "ex2", dec_float_op, ALU_EX2, 1 },
	{ "exit", dec_plain, 0, 0 },
	{ "fence", dec_fence, 0, 0 },
	{ "fma", dec_fma, 0, 0 },
	{ "isspacep", dec_isspacep, 0, 0 },
	{ "ld", dec_load, 0, 0 },
	{ "ldu", dec_load, 0, 0 },
	{ "lg2", dec_float_op, ALU_LG2, 1 },
	{ "lop3", dec_lop3, 0, 0 },
	{ "mad", dec_mul, ALU_MAD, 3 },
	{ "mad24", dec_mul24, ALU_MAD24, 3 },
	{ "madc", dec_carry, CARRY_MAD_LO, 3 },
	{ "match", dec_match, 0, 0 },
	{ "max", dec_arith, ALU_MAX, 2 },
	{ "membar", dec_fence, 0, 0 },
	{ "min", dec_arith, ALU_MIN, 2 },
	{ "mov", dec_mov, 0, 0 },
	{ "mul", dec_mul, ALU_MUL, 2 },
	{ "mul24", dec_mul24, ALU_MUL24, 2 },
	{ "nanosleep", dec_plain, 3, 1 },
	{ "neg", dec_arith, ALU_NEG, 1 },
	{ "not", dec_logic, ALU_NOT, 1 },
	{ "or", dec_logic, ALU_OR, 2 },
	{ "popc", dec_bits, ALU_POPC, 0 },
	{ "prefetch", dec_prefetch, 0, 0 },
	{ "prefetchu", dec_prefetch, 0, 0 },
	{ "prmt", dec_prmt, 0, 0 },
	{ "rcp", dec_float_op, ALU_RCP, 1 },
	{ "red", dec_atom, 0, 0 },
	{ "redux", dec_redux, 0, 0 },
	{ "rem", dec_arith, ALU_REM, 2 },
	{ "ret", dec_plain, 1, 0 },
	{ "rsqrt", dec_float_op, ALU_RSQRT, 1 },
	{ "sad", dec_arith, ALU_SAD, 3 },
	{ "selp", dec_selp, 0, 0 },
	{ "set", dec_set, 0, 0 },
	{ "setp", dec_setp, 0, 0 },
	{ "shf", dec_shf, 0, 0 },
	{ "shfl", dec_shfl, 0, 0 },
	{ "shl", dec_shift, ALU_SHL, 0 },
	{ "shr", dec_shift, ALU_SHR, 0 },
	{ "sin", dec_float_op, ALU_SIN, 1 },
	{ "slct", dec_slct, 0, 0 },
	{ "sqrt", dec_float_op, ALU_SQRT, 1 },
	{ "st", dec_store, 0, 0 },
	{ "sub", dec_arith, ALU_SUB, 2 },
	{ "subc", dec_carry, CARRY_SUB, 2 },
	{ "tanh", dec_arith, ALU_TANH, 1 },
	{ "testp", dec_testp, 0, 0 },
	{ "trap", dec_plain, 2, 0 },
	{ "vote", dec_vote, 0, 0 },
	{ "xor", dec_logic, ALU_XOR, 2 },
};

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct dec_opcode *)entry)->name);
}

const struct dec_opcode *dec_opcode_find(const char *name)
{
	return bsearch(name, opcodes, ARRAY_SIZE(opcodes), sizeof(opcodes[0]), by_name);
}
