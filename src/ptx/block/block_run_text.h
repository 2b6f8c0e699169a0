/* The parts of the protocol of resumable runs that all blocks share, whether their kernel is a
 * preemptible clone or has an entry stub: reading the leases and the progress word, testing them,
 * publishing the end of a launch. ~ stands for the stem. The parameter ~arg begins as struct
 * ptx_block_arg and struct ptx_gate_arg do. Registers: %~p predicate; %~a - %~d lease words, %~n
 * their groups, %~t, %~v 32 bits; %~l, %~m 64 bits. */
#ifndef GBPF_PTX_BLOCK_BLOCK_RUN_TEXT_H
#define GBPF_PTX_BLOCK_BLOCK_RUN_TEXT_H

#include <stddef.h>

#include "base/buf.h"
#include "ptx/block.h"

/* Loads bypass the first-level cache, which stores of other processors do not update. The counter
 * itself is not loaded: the load would wait for the additions of all other blocks. Sets %~l to the
 * second field of the parameter, from where the progress word is at the offset READY, %~v to that
 * word, and %~n to the groups. */
#define PTX_BLOCK_LOAD_TEXT(READY)                                                                 \
	"ld.param.u64 %~l, [~arg+8];\n"                                                            \
	"ld.volatile.global.u32 %~v, [%~l" READY "];\n"                                            \
	"ld.param.u64 %~m, [~arg];\n"                                                              \
	"ld.param.u32 %~n, [~arg+36];\n"

/* Loads the first group of leases, if %~n is not 0. */
#define PTX_BLOCK_LOAD_LEASES_TEXT                                                                 \
	"mov.u32 %~a, 0;\n"                                                                        \
	"mov.u32 %~b, 0;\n"                                                                        \
	"mov.u32 %~c, 0;\n"                                                                        \
	"mov.u32 %~d, 0;\n"                                                                        \
	"setp.ne.u32 %~p, %~n, 0;\n"                                                               \
	"@%~p ld.volatile.global.v4.u32 {%~a, %~b, %~c, %~d}, [%~m];\n"

/* Jumps to $~look if a lease may be in force. */
#define PTX_BLOCK_TEST_TEXT                                                                        \
	"setp.gt.u32 %~p, %~n, 1;\n"                                                               \
	"or.b32 %~t, %~a, %~b;\n"                                                                  \
	"or.b32 %~t, %~t, %~c;\n"                                                                  \
	"or.b32 %~t, %~t, %~d;\n"                                                                  \
	"setp.ne.or.u32 %~p, %~t, 0, %~p;\n"                                                       \
	"@%~p bra $~look;\n"

/* Compares all leases with the time. Continues at $~leased if one is in force, else at $~draw. */
#define PTX_BLOCK_LEASE_TEXT                                                                       \
	"$~look:\n"                                                                                \
	"{\n"                                                                                      \
	".reg .pred %~q;\n"                                                                        \
	".reg .b64 %~k;\n"                                                                         \
	"mov.u64 %~k, %globaltimer;\n"                                                             \
	"shr.u64 %~k, %~k, 16;\n"                                                                  \
	"cvt.u32.u64 %~t, %~k;\n"                                                                  \
	"$~group:\n"                                                                               \
	"setp.ne.u32 %~q, %~a, 0;\n"                                                               \
	"sub.u32 %~a, %~a, %~t;\n"                                                                 \
	"setp.gt.and.s32 %~p, %~a, 0, %~q;\n"                                                      \
	"setp.ne.u32 %~q, %~b, 0;\n"                                                               \
	"sub.u32 %~b, %~b, %~t;\n"                                                                 \
	"setp.gt.and.s32 %~q, %~b, 0, %~q;\n"                                                      \
	"or.pred %~p, %~p, %~q;\n"                                                                 \
	"setp.ne.u32 %~q, %~c, 0;\n"                                                               \
	"sub.u32 %~c, %~c, %~t;\n"                                                                 \
	"setp.gt.and.s32 %~q, %~c, 0, %~q;\n"                                                      \
	"or.pred %~p, %~p, %~q;\n"                                                                 \
	"setp.ne.u32 %~q, %~d, 0;\n"                                                               \
	"sub.u32 %~d, %~d, %~t;\n"                                                                 \
	"setp.gt.and.s32 %~q, %~d, 0, %~q;\n"                                                      \
	"or.pred %~p, %~p, %~q;\n"                                                                 \
	"@%~p bra $~leased;\n"                                                                     \
	"add.u32 %~n, %~n, 4294967295;\n"                                                          \
	"setp.eq.u32 %~p, %~n, 0;\n"                                                               \
	"@%~p bra $~draw;\n"                                                                       \
	"add.u64 %~m, %~m, 16;\n"                                                                  \
	"ld.volatile.global.v4.u32 {%~a, %~b, %~c, %~d}, [%~m];\n"                                 \
	"bra $~group;\n"                                                                           \
	"}\n"

/* Publishes the end of a launch, %~t: the progress word in device memory before the number in host
 * memory, since a thread that has seen the latter must not find the former old. */
#define PTX_BLOCK_PUBLISH_TEXT(READY)                                                              \
	"st.volatile.global.u32 [%~l" READY "], %~t;\n"                                            \
	"membar.sys;\n"                                                                            \
	"ld.param.u64 %~m, [~arg+16];\n"                                                           \
	"ld.param.u32 %~t, [~arg+32];\n"                                                           \
	"st.volatile.global.u32 [%~m], %~t;\n"

_Static_assert(offsetof(struct ptx_block_arg, leases) == 0 &&
		       offsetof(struct ptx_block_arg, tickets) == 8 &&
		       offsetof(struct ptx_block_arg, done) == 16 &&
		       offsetof(struct ptx_block_arg, first) == 24 &&
		       offsetof(struct ptx_block_arg, number) == 32 &&
		       offsetof(struct ptx_block_arg, groups) == 36 && PTX_LEASE_SHIFT == 16 &&
		       PTX_BLOCK_READY == 32768,
	       "the texts above say so");

/* Appends the source with the stem for each ~. */
void ptx_block_expand(struct buf *out, const char *source, const char *stem);

#endif
