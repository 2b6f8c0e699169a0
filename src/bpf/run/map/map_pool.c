/* The element pool: three levels of bits over the elements; a bit is set if everything below it is
 * taken. The bits are hints and may be wrong in any way; the compare-and-exchange of the element's
 * own word decides. */
#include "bpf/run/map/map_pool.h"

#include "base/clock.h"
#include "base/point.h"

#define TRIES 16u
#define SCAN_STEPS 256u
#define TOP_WORDS 4u

struct pool {
	uint32_t scan, hand, failures, time;
	uint64_t top[TOP_WORDS];
	uint64_t pad[2];
	uint64_t bits[]; /* second level, then one bit per element */
};

static uint32_t words(uint32_t n)
{
	return (n + 63) / 64;
}

uint32_t ebpf_pool_bytes(uint32_t n)
{
	return (uint32_t)sizeof(struct pool) + 8 * (words(n) + words(words(n)));
}

static struct pool *pool_of(const struct ebpf_map *m)
{
	return (void *)(m->data + m->pool_off);
}

/* Returns the clear bits of word w that belong to a level of n bits. */
static uint64_t clear_bits(const uint64_t *level, uint32_t w, uint32_t n)
{
	uint32_t here = n - w * 64;

	return ~load_seqcst(&level[w]) & (here < 64 ? (UINT64_C(1) << here) - 1 : ~UINT64_C(0));
}

static void set_bit(uint64_t *level, uint32_t i)
{
	(void)or_seqcst(&level[i / 64], UINT64_C(1) << i % 64);
}

static void clear_bit(uint64_t *level, uint32_t i)
{
	if (load_seqcst(&level[i / 64]) >> i % 64 & 1) {
		(void)and_seqcst(&level[i / 64], ~(UINT64_C(1) << i % 64));
	}
}

/* Marks a full lower word in the word above it unless the lower word has changed since. A thread
 * that clears a bit then clears the words above it, so one of the two threads sees the store of the
 * other. */
static void mark_full(uint64_t *upper, const uint64_t *lower, uint32_t w, uint32_t n_lower)
{
	set_bit(upper, w);
	if (clear_bits(lower, w, n_lower)) {
		clear_bit(upper, w);
	}
}

/* Orders the claim before the new owner's stores: a reader that sees those stores and then rereads
 * the word that led it to the element before it was freed sees that word changed. */
int ebpf_pool_claim_quick(const struct ebpf_map *m, uint64_t *ret_link)
{
	struct pool *p = pool_of(m);
	uint32_t n = m->max_entries, n1 = words(n), n2 = words(n1), n3 = words(n2);
	uint64_t *two = p->bits, *one = p->bits + n2;

	for (uint32_t try = 0; try < TRIES; try++) {
		uint32_t t = 0, w, b, i;
		uint64_t free_bits, link;

		while (t < n3 && !clear_bits(p->top, t, n2)) {
			t++;
		}
		if (t == n3) {
			return -1;
		}
		free_bits = clear_bits(p->top, t, n2);
		w = t * 64 + (uint32_t)__builtin_ctzll(free_bits | UINT64_C(1) << 63);
		free_bits = w < n2 ? clear_bits(two, w, n1) : 0;
		if (!free_bits) {
			mark_full(p->top, two, w < n2 ? w : 0, n1);
			continue;
		}
		b = w * 64 + (uint32_t)__builtin_ctzll(free_bits);
		free_bits = clear_bits(one, b, n);
		if (!free_bits) {
			mark_full(two, one, b, n);
			continue;
		}
		i = b * 64 + (uint32_t)__builtin_ctzll(free_bits);
		set_bit(one, i);
		POINT("map.pool.claim.bit");
		link = load_acquire(ebpf_elem_link(m, i));
		if (LINK_STATE(link) == ELEM_FREE) {
			*ret_link = ebpf_link_word(link, ELEM_CLAIMED, 0);
			if (ebpf_cas_word(ebpf_elem_link(m, i), link, *ret_link)) {
				fence_release();
				return (int)i;
			}
		}
	}
	return -1;
}

/* Returns whether a claimed element counts as lost. Its word does not tell whether its owner is
 * busy for some nanoseconds or dead. The first thread that meets it stores the time in the word,
 * which the owner tolerates; a thread that meets it a minute later takes it. */
static int outwaited(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	uint32_t now = (uint32_t)(clock_now_ns() / 1000000000u) % 0xffffeu + 1;
	uint32_t since = LINK_NEXT(link);

	if (!since) {
		ebpf_cas_word(ebpf_elem_link(m, i), link, link | (uint64_t)now << 3);
		return 0;
	}
	return (now + 0xffffeu - since) % 0xffffeu > POOL_LOST_SECONDS;
}

int ebpf_pool_take(const struct ebpf_map *m, uint32_t i, ebpf_pool_lost_fn lost, uint64_t *ret_link)
{
	struct pool *p = pool_of(m);
	uint64_t link = load_acquire(ebpf_elem_link(m, i));
	int ours;

	switch (LINK_STATE(link)) {
	case ELEM_FREE:
		set_bit(p->bits + words(words(m->max_entries)), i);
		ours = 1;
		break;
	case ELEM_CLAIMED:
		ours = outwaited(m, i, link);
		break;
	default:
		ours = lost(m, i, link);
	}
	if (!ours) {
		return 0;
	}
	*ret_link = ebpf_link_word(link, ELEM_CLAIMED, 0);
	if (!ebpf_cas_word(ebpf_elem_link(m, i), link, *ret_link)) {
		return 0;
	}
	fence_release();
	return 1;
}

int ebpf_pool_claim(const struct ebpf_map *m, ebpf_pool_lost_fn lost, uint64_t *ret_link)
{
	uint32_t steps = MIN(m->max_entries, SCAN_STEPS), at;
	int i = ebpf_pool_claim_quick(m, ret_link);

	if (likely(i >= 0)) {
		return i;
	}
	at = add_relaxed(&pool_of(m)->scan, steps) % m->max_entries;
	for (uint32_t k = 0; k < steps; k++, at++) {
		at = at >= m->max_entries ? 0 : at;
		if (ebpf_pool_take(m, at, lost, ret_link)) {
			return (int)at;
		}
	}
	return -1;
}

int ebpf_pool_change(const struct ebpf_map *m, uint32_t i, uint64_t *link, uint32_t state,
		     uint32_t next)
{
	uint64_t *at = ebpf_elem_link(m, i), now = *link, to = ebpf_link_word(now, state, next);

	if (!ebpf_cas_word(at, now, to)) {
		now = load_acquire(at); /* another thread may have stored the time once */
		if (LINK_STATE(now) != ELEM_CLAIMED || LINK_STATE(*link) != ELEM_CLAIMED ||
		    LINK_TAG(now) != LINK_TAG(*link) || !ebpf_cas_word(at, now, to)) {
			return 0;
		}
	}
	*link = to;
	return 1;
}

void ebpf_pool_free(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	struct pool *p = pool_of(m);
	uint32_t n1 = words(m->max_entries), n2 = words(n1);

	if (!ebpf_pool_change(m, i, &link, ELEM_FREE, 0)) {
		return;
	}
	POINT("map.pool.free.state");
	clear_bit(p->bits + n2, i);
	clear_bit(p->bits, i / 64);
	clear_bit(p->top, i / 64 / 64);
}

uint32_t ebpf_pool_sample(const struct ebpf_map *m)
{
	uint32_t n = add_relaxed(&pool_of(m)->hand, 1u);

	return (uint32_t)((uint64_t)(n * 2654435761u) * m->max_entries >> 32);
}

uint32_t ebpf_pool_time(const struct ebpf_map *m)
{
	return load_relaxed(&pool_of(m)->time);
}

void ebpf_pool_tick(const struct ebpf_map *m)
{
	(void)add_relaxed(&pool_of(m)->time, 1u);
}

uint32_t ebpf_pool_failures(const struct ebpf_map *m)
{
	return add_relaxed(&pool_of(m)->failures, 1u);
}
