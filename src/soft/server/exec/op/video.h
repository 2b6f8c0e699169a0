/* Video instructions: operand encoding shared by decoder and handler. sub: enum exec_video_op; n:
 * 1, 2 or 4 parts; type: enum exec_cmp of vset, enum exec_video_negated of vmad; type2: enum
 * exec_video_second; size: destination part of a scalar result (enum exec_video_part), or the write
 * mask of a vector's; flags: VIDEO_*; imm: selectors of a (low half) and of b. A scalar's selector
 * is an enum exec_video_part, a vector's has four bits per part. */
#ifndef GBPF_SOFT_SERVER_EXEC_OP_VIDEO_H
#define GBPF_SOFT_SERVER_EXEC_OP_VIDEO_H

#include "soft/server/exec/op.h"

enum exec_video_op {
	VIDEO_ADD,
	VIDEO_SUB,
	VIDEO_ABSDIFF,
	VIDEO_MIN,
	VIDEO_MAX,
	VIDEO_AVRG,
	VIDEO_SET,
	VIDEO_SHL,
	VIDEO_SHR,
	VIDEO_MAD,
};
enum exec_video_part { PART_ALL, PART_B0, PART_B1, PART_B2, PART_B3, PART_H0, PART_H1, PART_COUNT };
/* Of vmad; c is signed then. */
enum exec_video_negated { NEGATED_NONE, NEGATED_PRODUCT, NEGATED_C };
enum exec_video_second { SECOND_NONE, SECOND_ADD, SECOND_MIN, SECOND_MAX, SECOND_MERGE };
enum {
	VIDEO_A_SIGNED = 1,
	VIDEO_B_SIGNED = 2,
	VIDEO_D_SIGNED = 4,
	VIDEO_SAT = 8,
	VIDEO_CLAMP = 16,    /* of shifts */
	VIDEO_PLUS_ONE = 32, /* of vmad */
	VIDEO_SHR7 = 64,
	VIDEO_SHR15 = 128,
};

int exec_op_video(struct exec_warp *w, const struct exec_op *o, uint32_t m);

#endif
