/* The body of both interpreters: included inside a function, once with the checks and once without. Dispatch is threaded
 * (each instruction jumps to the next one's label through a table), arithmetic comes from alu.h.
 *
 * The function provides: insns, env, ip (next instruction), r[16], frame, saved[], stacks[][], and the macros
 *	DISPATCH()		go to the instruction at ip
 *	ACCESS(p, bytes, write)	the access is allowed, or the run ends
 *	ALIGNED_ACCESS(p, bytes) the same for an atomic one
 *	HELPER(slot), MAP(index) the call's arguments, the map index are usable, or the run ends
 *	ENTER()			there is room for a frame, or the run ends
 *	BAD()			unknown instruction: the run ends
 *	DONE()			r[0] is the result
 * No include guard: it is meant to be included twice. */

#define D r[ip->dst]
#define S r[ip->src]
#define IMM ((uint64_t)(int64_t)ip->imm)
#define NEXT()              \
	do {                \
		ip++;       \
		DISPATCH(); \
	} while (0)

#define ALU_BINARY(X) \
	X(add, EBPF_ADD) X(sub, EBPF_SUB) X(mul, EBPF_MUL) X(div, EBPF_DIV) X(or, EBPF_OR) X(and, EBPF_AND) \
	X(lsh, EBPF_LSH) X(rsh, EBPF_RSH) X(mod, EBPF_MOD) X(xor, EBPF_XOR) X(mov, EBPF_MOV) X(arsh, EBPF_ARSH)
#define CONDITIONS(X) \
	X(jeq, EBPF_JEQ) X(jne, EBPF_JNE) X(jgt, EBPF_JGT) X(jge, EBPF_JGE) X(jlt, EBPF_JLT) X(jle, EBPF_JLE) \
	X(jset, EBPF_JSET) X(jsgt, EBPF_JSGT) X(jsge, EBPF_JSGE) X(jslt, EBPF_JSLT) X(jsle, EBPF_JSLE)
#define SIZES(X) X(b, EBPF_B, uint8_t, int8_t) X(h, EBPF_H, uint16_t, int16_t) X(w, EBPF_W, uint32_t, int32_t)

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
	static const void *const labels[256] = {
		[0 ... 255] = &&bad,
#define ROW(name, op)                                                                                        \
	[EBPF_ALU64 | op | EBPF_K] = &&name##64_k, [EBPF_ALU64 | op | EBPF_X] = &&name##64_x,                 \
	[EBPF_ALU | op | EBPF_K] = &&name##32_k, [EBPF_ALU | op | EBPF_X] = &&name##32_x,
		ALU_BINARY(ROW)
#undef ROW
#define ROW(name, op)                                                                                        \
	[EBPF_JMP | op | EBPF_K] = &&name##64_k, [EBPF_JMP | op | EBPF_X] = &&name##64_x,                     \
	[EBPF_JMP32 | op | EBPF_K] = &&name##32_k, [EBPF_JMP32 | op | EBPF_X] = &&name##32_x,
		CONDITIONS(ROW)
#undef ROW
#define ROW(name, size, type, signed_type)                                                                   \
	[EBPF_LDX | EBPF_MEM | size] = &&ldx_##name, [EBPF_LDX | EBPF_MEMSX | size] = &&ldsx_##name,          \
	[EBPF_ST | EBPF_MEM | size] = &&st_##name, [EBPF_STX | EBPF_MEM | size] = &&stx_##name,
		SIZES(ROW)
#undef ROW
		[EBPF_LDX | EBPF_MEM | EBPF_DW] = &&ldx_dw,
		[EBPF_ST | EBPF_MEM | EBPF_DW] = &&st_dw,
		[EBPF_STX | EBPF_MEM | EBPF_DW] = &&stx_dw,
		[EBPF_STX | EBPF_ATOMIC | EBPF_W] = &&atomic_w,
		[EBPF_STX | EBPF_ATOMIC | EBPF_DW] = &&atomic_dw,
		[EBPF_ALU64 | EBPF_NEG] = &&neg64,
		[EBPF_ALU | EBPF_NEG] = &&neg32,
		[EBPF_ALU | EBPF_END | EBPF_K] = &&end,
		[EBPF_ALU | EBPF_END | EBPF_X] = &&end,
		[EBPF_ALU64 | EBPF_END | EBPF_K] = &&end,
		[EBPF_JMP | EBPF_JA] = &&ja,
		[EBPF_JMP32 | EBPF_JA] = &&jal,
		[EBPF_JMP | EBPF_CALL] = &&call,
		[EBPF_JMP | EBPF_EXIT] = &&leave,
		[EBPF_LD_IMM64] = &&ld_imm64,
	};
#pragma GCC diagnostic pop

	DISPATCH();

#define CODE(name, op)                                                                                       \
	name##64_k : D = ebpf_alu64(op, D, IMM, ip->off);                                                     \
	NEXT();                                                                                              \
	name##64_x : D = ebpf_alu64(op, D, S, ip->off);                                                       \
	NEXT();                                                                                              \
	name##32_k : D = ebpf_alu32(op, (uint32_t)D, (uint32_t)ip->imm, ip->off);                             \
	NEXT();                                                                                              \
	name##32_x : D = ebpf_alu32(op, (uint32_t)D, (uint32_t)S, ip->off);                                   \
	NEXT();
	ALU_BINARY(CODE)
#undef CODE
neg64:
	D = ebpf_alu64(EBPF_NEG, D, 0, 0);
	NEXT();
neg32:
	D = ebpf_alu32(EBPF_NEG, (uint32_t)D, 0, 0);
	NEXT();
end:
	D = ebpf_end(ip->code, D, ip->imm);
	NEXT();

#define CODE(name, op)                                                                                       \
	name##64_k : ip += ebpf_taken64(op, D, IMM) ? ip->off : 0;                                            \
	NEXT();                                                                                              \
	name##64_x : ip += ebpf_taken64(op, D, S) ? ip->off : 0;                                              \
	NEXT();                                                                                              \
	name##32_k : ip += ebpf_taken32(op, (uint32_t)D, (uint32_t)ip->imm) ? ip->off : 0;                    \
	NEXT();                                                                                              \
	name##32_x : ip += ebpf_taken32(op, (uint32_t)D, (uint32_t)S) ? ip->off : 0;                          \
	NEXT();
	CONDITIONS(CODE)
#undef CODE
ja:
	ip += ip->off;
	NEXT();
jal:
	ip += ip->imm;
	NEXT();

	/* Memory is reached by memcpy, since programs may access it unaligned. */
#define CODE(name, size, type, signed_type)                                                                  \
	ldx_##name : {                                                                                       \
		uint64_t p = S + (uint64_t)(int64_t)ip->off;                                                 \
		type v;                                                                                      \
		ACCESS(p, sizeof(v), 0);                                                                     \
		memcpy(&v, (const void *)(uintptr_t)p, sizeof(v));                                           \
		D = v;                                                                                       \
		NEXT();                                                                                      \
	}                                                                                                    \
	ldsx_##name : {                                                                                      \
		uint64_t p = S + (uint64_t)(int64_t)ip->off;                                                 \
		signed_type v;                                                                               \
		ACCESS(p, sizeof(v), 0);                                                                     \
		memcpy(&v, (const void *)(uintptr_t)p, sizeof(v));                                           \
		D = (uint64_t)(int64_t)v;                                                                    \
		NEXT();                                                                                      \
	}                                                                                                    \
	st_##name : {                                                                                        \
		uint64_t p = D + (uint64_t)(int64_t)ip->off;                                                 \
		type v = (type)ip->imm;                                                                      \
		ACCESS(p, sizeof(v), 1);                                                                     \
		memcpy((void *)(uintptr_t)p, &v, sizeof(v));                                                 \
		NEXT();                                                                                      \
	}                                                                                                    \
	stx_##name : {                                                                                       \
		uint64_t p = D + (uint64_t)(int64_t)ip->off;                                                 \
		type v = (type)S;                                                                            \
		ACCESS(p, sizeof(v), 1);                                                                     \
		memcpy((void *)(uintptr_t)p, &v, sizeof(v));                                                 \
		NEXT();                                                                                      \
	}
	SIZES(CODE)
#undef CODE
ldx_dw : {
	uint64_t p = S + (uint64_t)(int64_t)ip->off, v;

	ACCESS(p, sizeof(v), 0);
	memcpy(&v, (const void *)(uintptr_t)p, sizeof(v));
	D = v;
	NEXT();
}
st_dw : {
	uint64_t p = D + (uint64_t)(int64_t)ip->off, v = IMM;

	ACCESS(p, sizeof(v), 1);
	memcpy((void *)(uintptr_t)p, &v, sizeof(v));
	NEXT();
}
stx_dw : {
	uint64_t p = D + (uint64_t)(int64_t)ip->off, v = S;

	ACCESS(p, sizeof(v), 1);
	memcpy((void *)(uintptr_t)p, &v, sizeof(v));
	NEXT();
}
atomic_dw : {
	uint64_t p = D + (uint64_t)(int64_t)ip->off, old;

	ALIGNED_ACCESS(p, 8);
	old = ebpf_atomic64((uint64_t *)(uintptr_t)p, ip->imm, S, r[0]);
	if (ip->imm & EBPF_FETCH) {
		r[ip->imm == EBPF_CMPXCHG ? 0 : ip->src] = old;
	}
	NEXT();
}
atomic_w : {
	uint64_t p = D + (uint64_t)(int64_t)ip->off;
	uint32_t old;

	ALIGNED_ACCESS(p, 4);
	old = ebpf_atomic32((uint32_t *)(uintptr_t)p, ip->imm, (uint32_t)S, (uint32_t)r[0]);
	if (ip->imm & EBPF_FETCH) {
		r[ip->imm == EBPF_CMPXCHG ? 0 : ip->src] = old;
	}
	NEXT();
}
ld_imm64 : {
	uint64_t v = (uint32_t)ip->imm | (uint64_t)(uint32_t)ip[1].imm << 32;

	if (ip->src != EBPF_PSEUDO_CONST) {
		const struct ebpf_map *map;

		MAP((uint32_t)ip->imm);
		map = &env->maps[(uint32_t)ip->imm];
		v = ip->src == EBPF_PSEUDO_MAP ? (uintptr_t)map :
						 (uintptr_t)map->data + (uint32_t)ip[1].imm;
	}
	D = v;
	ip++;
	NEXT();
}
call:
	if (ip->src == EBPF_CALL_LOCAL) {
		ENTER();
		saved[frame].ret = ip;
		memcpy(saved[frame].kept, &r[6], sizeof(saved[frame].kept));
		frame++;
		r[10] = (uintptr_t)stacks[frame] + EBPF_STACK_BYTES;
		ip += ip->imm;
		NEXT();
	} else {
		int slot = ebpf_helper_slot(ip->imm);

		HELPER(slot);
		r[0] = env->helpers[slot](r[1], r[2], r[3], r[4], r[5], env);
		NEXT();
	}
leave:
	if (frame) {
		frame--;
		ip = saved[frame].ret;
		memcpy(&r[6], saved[frame].kept, sizeof(saved[frame].kept));
		NEXT();
	}
	DONE();
bad:
	BAD();

#undef D
#undef S
#undef IMM
#undef NEXT
#undef ALU_BINARY
#undef CONDITIONS
#undef SIZES
