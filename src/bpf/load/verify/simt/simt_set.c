/* Sets of registers and bytes of a frame, and the levels of their members. */
#include <string.h>

#include "bpf/load/verify/simt/simt_int.h"

/* Returns bits low..high - 1 of word i of a frame's bytes. */
static uint64_t bits_of(int low, int high, int i)
{
	int from = MAX(low - i * 64, 0), to = MIN(high - i * 64, 64);

	return from >= to ? 0
			  : (to - from == 64 ? UINT64_MAX : ((1ull << (to - from)) - 1) << from);
}

/* The bytes of a frame that an access of some bytes at p may reach. */
void ebpf_simt_reach(const struct ebpf_simt_place *p, unsigned bytes, struct ebpf_simt_set *ret)
{
	int low = p->low + (int)EBPF_STACK_BYTES;
	int high = MIN(p->high + (int)bytes, 0) + (int)EBPF_STACK_BYTES;

	ret->regs = 0;
	for (int i = 0; i < (int)SIMT_WORDS; i++) {
		ret->bytes[i] = bits_of(low, high, i);
	}
}

static int overlap(const struct ebpf_simt_set *a, const struct ebpf_simt_set *b)
{
	uint64_t both = a->regs & b->regs;

	for (unsigned i = 0; i < SIMT_WORDS; i++) {
		both |= a->bytes[i] & b->bytes[i];
	}
	return both != 0;
}

/* Returns the highest level of the members of a set. */
uint8_t ebpf_simt_level(const struct ebpf_simt_state *st, const struct ebpf_simt_set *set)
{
	for (unsigned level = LEVEL_LANE; level > 0; level--) {
		if (overlap(&st->above[level - 1], set)) {
			return (uint8_t)level;
		}
	}
	return LEVEL_BLOCK;
}

uint8_t ebpf_simt_reg(const struct ebpf_simt_state *st, unsigned reg)
{
	return (uint8_t)((st->above[0].regs >> reg & 1) + (st->above[1].regs >> reg & 1));
}

void ebpf_simt_set_reg(struct ebpf_simt_state *st, unsigned reg, uint8_t level)
{
	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		st->above[i].regs &= (uint16_t) ~(1u << reg);
		st->above[i].regs |= (uint16_t)((unsigned)(level > i) << reg);
	}
}

/* Raises the members of a set to a level. */
void ebpf_simt_raise_set(struct ebpf_simt_state *st, const struct ebpf_simt_set *set, uint8_t level)
{
	for (unsigned i = 0; i < level; i++) {
		ebpf_simt_unite(&st->above[i], set);
	}
}

void ebpf_simt_drop(struct ebpf_simt_state *st, const struct ebpf_simt_set *set)
{
	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		for (unsigned k = 0; k < SIMT_WORDS; k++) {
			st->above[i].bytes[k] &= ~set->bytes[k];
		}
	}
}

/* Adds one state to another. Returns whether that changed it. */
int ebpf_simt_join(struct ebpf_simt_state *to, const struct ebpf_simt_state *from)
{
	struct ebpf_simt_state before = *to;

	for (unsigned i = 0; i < LEVEL_LANE; i++) {
		ebpf_simt_unite(&to->above[i], &from->above[i]);
	}
	return memcmp(&before, to, sizeof(before)) != 0;
}
