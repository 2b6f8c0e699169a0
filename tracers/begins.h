/* The times at which blocks began, for programs of the end of a block. A begin is stored in the
 * first free one of four slots, which a key that the tool chooses and the index of the block name;
 * a slot holds the time, and a tag of key, block and multiprocessor. Far more slots exist than a
 * GPU has resident blocks, so a begin is lost only where many are never taken: blocks of kernels
 * without such a program, for example. Include gbpf.bpf.h before it. */
#ifndef GBPF_TRACERS_BEGINS_H
#define GBPF_TRACERS_BEGINS_H

#define BEGINS 65536
#define BEGIN_TIME_BITS 48 /* of the time; the other bits are the tag */
#define BEGIN_TIME_MASK ((1ULL << BEGIN_TIME_BITS) - 1)

struct {
	__uint(type, GBPF_MAP_ARRAY);
	__uint(map_flags, GBPF_F_DEVICE);
	__uint(max_entries, BEGINS);
	__type(key, u32);
	__type(value, u64);
} begins SEC(".maps");

static __always_inline u64 *begin_slot(u64 key, u64 block, u32 n)
{
	u32 k = ((u32)(key + block) + n * 0x4f1b) % BEGINS;

	return bpf_map_lookup_elem(&begins, &k);
}

/* Never 0, which is an empty slot. */
static __always_inline u64 begin_tag(u64 key, u64 block, u32 sm)
{
	u64 n = (key >> 16 ^ block) * 0x9e3779b97f4a7c15ULL;

	return ((n >> BEGIN_TIME_BITS ^ sm * 0x9e36) | 1) << BEGIN_TIME_BITS;
}

static __always_inline int begin_put(u64 *slot, u64 value)
{
	return slot && __sync_val_compare_and_swap(slot, 0, value) == 0;
}

/* If no slot is free, takes one from another block. */
static __always_inline void begin_store(u64 key, u64 block, u32 sm, u64 time_ns)
{
	u64 value = begin_tag(key, block, sm) | (time_ns & BEGIN_TIME_MASK), *s;

	if (begin_put(begin_slot(key, block, 0), value) ||
	    begin_put(begin_slot(key, block, 1), value) ||
	    begin_put(begin_slot(key, block, 2), value) ||
	    begin_put(begin_slot(key, block, 3), value)) {
		return;
	}
	s = begin_slot(key, block, 0);
	if (s) {
		__sync_lock_test_and_set(s, value);
	}
}

/* Reads by an atomic operation: a multiprocessor may keep an old value of what it has loaded. */
static __always_inline int begin_get(u64 *slot, u64 tag, u64 *ret)
{
	u64 value = slot ? __sync_fetch_and_add(slot, 0) : 0;

	*ret = value;
	return (value & ~BEGIN_TIME_MASK) == tag &&
	       __sync_val_compare_and_swap(slot, value, 0) == value;
}

/* Empties the slot of a block that has ended. Returns false if its begin is not known; else *ret_ns
 * is the duration. Of blocks of one key and index on one multiprocessor, as launches of one kernel
 * at the same time may have, one may get the begin of another; the sum is the same. */
static __always_inline int begin_take(u64 key, u64 block, u32 sm, u64 end_ns, u64 *ret_ns)
{
	u64 tag = begin_tag(key, block, sm), was;

	if (!begin_get(begin_slot(key, block, 0), tag, &was) &&
	    !begin_get(begin_slot(key, block, 1), tag, &was) &&
	    !begin_get(begin_slot(key, block, 2), tag, &was) &&
	    !begin_get(begin_slot(key, block, 3), tag, &was)) {
		return 0;
	}
	*ret_ns = (end_ns - was) & BEGIN_TIME_MASK;
	if (*ret_ns >> (BEGIN_TIME_BITS - 1)) {
		*ret_ns = 0; /* the clock was set back */
	}
	return 1;
}

#endif
