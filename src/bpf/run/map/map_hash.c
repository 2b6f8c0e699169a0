/* Lock-free hash tables: one list per bucket, over preallocated elements.
 *
 * Elements are added only at the head of their list, and every change of a list changes the tag of
 * the changed word. So if a compare-and-exchange of the head succeeds with the value from before a
 * walk that did not find the key, no thread has added the key since. Deletion first marks the
 * element's own word, which removes it for all lookups; the next walk past it unlinks and frees it.
 * Other processes can continue from every state in which a process can be killed (docs/MAPS.md). */
#include "base/compiler.h"
#include "bpf/run/map/map_int.h"

#include <errno.h>

#include "base/point.h"
#include "bpf/run/map/map_bucket.h"
#include "bpf/run/map/map_pool.h"
#include "bpf/run/map/map_seed.h"

#define RESTARTS 32u
#define RETRIES 64u
#define SLOT_TRIES 4u
#define LONGEST 128u   /* maximum elements of one bucket; 2 on average, 10 at most in practice */
#define LRU_SAMPLE 16u /* sampled elements, of which the least recently used one is evicted */
#define LRU_ROUNDS 8u
#define SEED_BYTES 64u /* the seed, in a cache line of its own before the heads */

#define HASH_HINT                                                                                  \
	GENERAL_HINT "; with GBPF_F_DEVICE keys have at most 64 bytes and values at most 512"

struct key {
	uint64_t w[EBPF_MAX_KEY_BYTES / 8];
};

struct place {
	uint64_t *head, h; /* the bucket's word at the start of the walk */
	uint32_t i;	   /* the element if found */
	uint64_t link;	   /* word of the element */
};

static inline uint32_t key_words(const struct ebpf_map *m)
{
	return (m->key_bytes + 7) / 8;
}

/* Copies the key. Its memory may be written by other processes, so it is read once. */
static inline void key_take(const struct ebpf_map *m, struct key *k, const void *key)
{
	if (m->key_bytes ==
	    4) { /* as one number: loading a word that was stored in parts is slow */
		k->w[0] = ebpf_map_index(key);
		return;
	}
	k->w[(m->key_bytes - 1) / 8] = 0;
	memcpy(k->w, key, m->key_bytes);
	compiler_barrier();
}

static inline uint64_t *bucket(const struct ebpf_map *m, uint64_t h)
{
	return (uint64_t *)(void *)(m->data + m->head_off) + (h & (m->n_slots - 1));
}

/* Returns the head of the bucket of a key of n words. */
static ALWAYS_INLINE uint64_t *head_of_words(const struct ebpf_map *m, const uint64_t *k,
					     uint32_t n)
{
	return bucket(m, m->flags & GBPF_F_DAEMON ? ebpf_sip(&m->seed, k, n)
						  : ebpf_mix(&m->seed, k, n));
}

static uint64_t *head_of(const struct ebpf_map *m, const uint64_t *k)
{
	return head_of_words(m, k, key_words(m));
}

static inline const uint64_t *elem_key(const struct ebpf_map *m, uint32_t i)
{
	return (const void *)(ebpf_elem_at(m, i) + m->key_off);
}

static inline void *elem_value(const struct ebpf_map *m, uint32_t i)
{
	return ebpf_elem_at(m, i) + m->value_off;
}

static inline int key_is(const struct ebpf_map *m, uint32_t i, const uint64_t *k)
{
	const uint64_t *at = elem_key(m, i);

	for (uint32_t w = 0, n = key_words(m); w < n; w++) {
		if (load_relaxed(&at[w]) != k[w]) {
			return 0;
		}
	}
	return 1;
}

/* Returns the time of the last use of an LRU_HASH element, in insertions. */
static inline uint32_t *elem_used(const struct ebpf_map *m, uint32_t i)
{
	return (uint32_t *)(void *)(ebpf_elem_at(m, i) + 8);
}

static inline void touch(const struct ebpf_map *m, uint32_t i)
{
	uint32_t now;

	if (m->type != GBPF_MAP_LRU_HASH || (m->flags & GBPF_F_RDONLY)) {
		return;
	}
	now = ebpf_pool_time(m);
	if (load_relaxed(elem_used(m, i)) != now) {
		store_relaxed(elem_used(m, i), now);
	}
}

/* Walks a list without changes and skips marked elements. prev is the last word of an unmarked
 * element; while it is unchanged, everything reached through it was in the list when its key was
 * read. */
static ALWAYS_INLINE int64_t walk(const struct ebpf_map *m, uint64_t *head, const uint64_t *k,
				  int small)
{
	for (uint32_t restart = 0; restart < RESTARTS; restart++) {
		uint64_t *prev = head, from = load_acquire(head), w = from;

		for (uint32_t step = 0; step < LONGEST; step++) {
			uint32_t i = LINK_NEXT(w);
			uint64_t link;
			int same;

			if (!i || i > m->max_entries) {
				return -1;
			}
			i--;
			link = load_acquire(ebpf_elem_link(m, i));
			same = small ? load_relaxed(elem_key(m, i)) == *k : key_is(m, i, k);
			POINT("map.hash.lookup.read");
			fence_acquire();
			if (unlikely(load_relaxed(prev) != from)) {
				break; /* restart from the head */
			}
			if (LINK_STATE(link) == ELEM_LINKED || LINK_STATE(link) == ELEM_READY) {
				if (same) {
					return i;
				}
				prev = ebpf_elem_link(m, i);
				from = link;
			} else if (LINK_STATE(link) != ELEM_DEAD) {
				break;
			}
			w = link;
		}
	}
	return -1;
}

static int64_t lookup(const struct ebpf_map *m, const uint64_t *k)
{
	return m->key_bytes <= 8 ? walk(m, head_of_words(m, k, 1), k, 1)
				 : walk(m, head_of(m, k), k, 0);
}

static NOINLINE int64_t lookup_long(const struct ebpf_map *m, const void *key)
{
	struct key k;

	key_take(m, &k, key);
	return lookup(m, k.w);
}

void *ebpf_hash_lookup(const struct ebpf_map *m, const void *key)
{
	uint64_t small;
	int64_t i;

	if (unlikely(!m->data)) {
		return NULL;
	}
	if (m->key_bytes == 4 || m->key_bytes == 8) {
		if (m->key_bytes == 4) {
			small = ebpf_map_index(key);
		} else {
			memcpy(&small, key, 8);
			__asm__ volatile("" : "+r"(small));
		}
		i = walk(m, head_of_words(m, &small, 1), &small, 1);
	} else {
		i = lookup_long(m, key);
	}
	if (i < 0) {
		return NULL;
	}
	touch(m, (uint32_t)i);
	return elem_value(m, (uint32_t)i);
}

/* Unlinks a marked element, to which the word at prev points, and frees it. */
static int unlink_dead(const struct ebpf_map *m, uint64_t *prev, uint64_t *from, uint32_t i,
		       uint64_t link)
{
	uint64_t to = ebpf_link_word(*from, LINK_STATE(*from), LINK_NEXT(link));

	if (!ebpf_cas_word(prev, *from, to)) {
		return 0;
	}
	POINT("map.hash.delete.unlinked");
	*from = to;
	ebpf_pool_free(m, i, link);
	return 1;
}

/* Finds an element to change it. Returns 1 if found (by key, or as element `index` if k is NULL), 0
 * if absent, -EBUSY, or -E2BIG (the list is too long). Unlinks deleted elements on the way. */
static int find(const struct ebpf_map *m, uint64_t *head, const uint64_t *k, uint32_t index,
		struct place *ret)
{
	ret->head = head;
	for (uint32_t restart = 0; restart < RESTARTS; restart++) {
		uint64_t *prev = head, from = load_acquire(head);
		uint32_t step = 0;

		ret->h = from;
		for (; step < LONGEST; step++) {
			uint32_t i = LINK_NEXT(from);
			uint64_t link;
			int same;

			if (!i) {
				return 0;
			}
			if (i-- > m->max_entries) {
				return -EBUSY;
			}
			link = load_acquire(ebpf_elem_link(m, i));
			same = k ? key_is(m, i, k) : i == index;
			POINT("map.hash.find.read");
			fence_acquire();
			if (load_relaxed(prev) != from) {
				break;
			}
			if (LINK_STATE(link) == ELEM_DEAD) {
				if (!unlink_dead(m, prev, &from, i, link)) {
					break;
				}
				ret->h = prev == head ? from : ret->h;
				continue;
			}
			if (LINK_STATE(link) != ELEM_LINKED && LINK_STATE(link) != ELEM_READY) {
				break;
			}
			if (same) {
				ret->i = i;
				ret->link = link;
				return 1;
			}
			prev = ebpf_elem_link(m, i);
			from = link;
		}
		if (step == LONGEST) {
			return -E2BIG;
		}
	}
	return -EBUSY;
}

/* Copies the key that element i had while its word was link. Returns 0 if the word has changed. */
static int key_of(const struct ebpf_map *m, uint32_t i, uint64_t link, struct key *k)
{
	const uint64_t *at = elem_key(m, i);

	for (uint32_t w = 0, n = key_words(m); w < n; w++) {
		k->w[w] = load_relaxed(&at[w]);
	}
	fence_acquire();
	return load_relaxed(ebpf_elem_link(m, i)) == link;
}

/* Returns whether an element is lost. READY: its owner may be about to link it by an exchange of a
 * head that it read before it made the element READY; changing the tag of the head makes that
 * exchange fail. DEAD: if it is still in its list, find() frees it; otherwise it can never be
 * linked again. */
static int hash_lost(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	struct place at;
	struct key k;
	int found;

	if ((LINK_STATE(link) != ELEM_READY && LINK_STATE(link) != ELEM_DEAD) ||
	    !key_of(m, i, link, &k)) {
		return 0;
	}
	found = find(m, head_of(m, k.w), NULL, i, &at);
	if (found == 1 && at.link == link) {
		ebpf_cas_word(ebpf_elem_link(m, i), link,
			      ebpf_link_word(link, ELEM_LINKED, LINK_NEXT(link)));
	}
	return found == 0 && ebpf_cas_word(at.head, at.h, ebpf_link_word(at.h, 0, LINK_NEXT(at.h)));
}

static void evict(const struct ebpf_map *m, uint32_t i, uint64_t link)
{
	struct place at;
	struct key k;

	if (key_of(m, i, link, &k) &&
	    ebpf_cas_word(ebpf_elem_link(m, i), link,
			  ebpf_link_word(link, ELEM_DEAD, LINK_NEXT(link)))) {
		POINT("map.lru.evict.marked");
		(void)find(m, head_of(m, k.w), NULL, i, &at);
	}
}

/* Evicts the least recently used of some sampled elements of a full table. Takes lost elements
 * found on the way instead. */
static int lru_claim(const struct ebpf_map *m, uint64_t *ret_link)
{
	int i = ebpf_pool_claim_quick(m, ret_link);

	ebpf_pool_tick(m);
	for (uint32_t round = 0; i < 0 && round < LRU_ROUNDS; round++) {
		uint32_t victim = 0, oldest = 0, now = ebpf_pool_time(m);
		uint64_t victim_link = 0;

		for (uint32_t k = 0; k < LRU_SAMPLE; k++) {
			uint32_t at = ebpf_pool_sample(m),
				 age = now - load_relaxed(elem_used(m, at));
			uint64_t link = load_acquire(ebpf_elem_link(m, at));

			if (LINK_STATE(link) != ELEM_LINKED) {
				if (ebpf_pool_take(m, at, hash_lost, ret_link)) {
					return (int)at;
				}
			} else if (!victim_link || age > oldest) {
				victim = at;
				victim_link = link;
				oldest = age;
			}
		}
		if (victim_link) {
			evict(m, victim, victim_link);
		}
		i = ebpf_pool_claim_quick(m, ret_link);
	}
	return i;
}

static int new_element(const struct ebpf_map *m, const uint64_t *k, const void *value,
		       uint64_t *ret_link)
{
	int lru = m->type == GBPF_MAP_LRU_HASH;
	int i = lru ? lru_claim(m, ret_link) : ebpf_pool_claim(m, hash_lost, ret_link);
	uint64_t *at;

	if (i < 0) {
		return -E2BIG;
	}
	POINT("map.hash.insert.claimed");
	at = unqual(elem_key(m, (uint32_t)i));
	for (uint32_t w = 0, n = key_words(m); w < n; w++) {
		store_relaxed(&at[w], k[w]);
	}
	POINT("map.hash.insert.key");
	ebpf_value_store(elem_value(m, (uint32_t)i), value, m->value_bytes);
	if (m->lock_1) {
		memset((uint8_t *)elem_value(m, (uint32_t)i) + m->lock_1 - 1, 0, 4);
	}
	if (lru) {
		store_relaxed(elem_used(m, (uint32_t)i), ebpf_pool_time(m));
	}
	POINT("map.hash.insert.filled");
	return i;
}

/* Links element i, whose word is *link, at the head that was read before. Returns 1, or 0 to try
 * again; 0 in *link: another thread took the element. */
static int link_element(const struct ebpf_map *m, const struct place *at, uint32_t i,
			uint64_t *link)
{
	if (!ebpf_pool_change(m, i, link, ELEM_READY, LINK_NEXT(at->h))) {
		*link = 0;
		return 0;
	}
	POINT("map.hash.insert.ready");
	if (!ebpf_cas_word(at->head, at->h, ebpf_link_word(at->h, 0, i + 1))) {
		return 0;
	}
	POINT("map.hash.insert.linked");
	ebpf_cas_word(ebpf_elem_link(m, i), *link,
		      ebpf_link_word(*link, ELEM_LINKED, LINK_NEXT(*link)));
	return 1;
}

static int update_found(const struct ebpf_map *m, uint32_t i, const void *value)
{
	ebpf_value_update(m, elem_value(m, i), value);
	POINT("map.hash.update.stored");
	touch(m, i);
	return 0;
}

static int update_key(const struct ebpf_map *m, const uint64_t *k, const void *value,
		      uint64_t flags)
{
	uint64_t *head = head_of(m, k), link = 0;
	struct place at;
	int mine = -1, err = -EBUSY;

	for (uint32_t try = 0; try < RETRIES; try++) {
		int found = find(m, head, k, 0, &at);

		if (found < 0 || (found && flags == UPDATE_NOEXIST) ||
		    (!found && flags == UPDATE_EXIST)) {
			err = found < 0 ? found : found ? -EEXIST : -ENOENT;
			break;
		}
		if (found) {
			err = update_found(m, at.i, value);
			break;
		}
		if (mine < 0) {
			mine = new_element(m, k, value, &link);
			if (mine < 0) {
				return mine;
			}
		}
		if (link_element(m, &at, (uint32_t)mine, &link)) {
			return 0;
		}
		mine = link ? mine : -1;
	}
	if (mine >= 0) {
		ebpf_pool_free(m, (uint32_t)mine, link);
	}
	return err;
}

int ebpf_hash_update(const struct ebpf_map *m, const void *key, const void *value, uint64_t flags)
{
	struct key k;
	int64_t i;

	if (flags > UPDATE_EXIST) {
		return -EINVAL;
	}
	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	key_take(m, &k, key);
	i = lookup(m, k.w); /* in the common case, the same work as a lookup */
	if (i >= 0) {
		return flags == UPDATE_NOEXIST ? -EEXIST : update_found(m, (uint32_t)i, value);
	}
	return update_key(m, k.w, value, flags);
}

int ebpf_hash_delete(const struct ebpf_map *m, const void *key)
{
	struct place at;
	struct key k;
	uint64_t *head;

	if (!ebpf_map_writable(m)) {
		return -EPERM;
	}
	key_take(m, &k, key);
	head = head_of(m, k.w);
	for (uint32_t try = 0; try < RETRIES; try++) {
		int found = find(m, head, k.w, 0, &at);

		if (found != 1) {
			return found ? found : -ENOENT;
		}
		if (ebpf_cas_word(ebpf_elem_link(m, at.i), at.link,
				  ebpf_link_word(at.link, ELEM_DEAD, LINK_NEXT(at.link)))) {
			POINT("map.hash.delete.marked");
			(void)find(m, head, NULL, at.i, &at);
			return 0;
		}
	}
	return -EBUSY;
}

/* Returns whether an element is present. A READY element is present if it is in its list: its owner
 * was killed or is about to mark it LINKED. */
static int present(const struct ebpf_map *m, uint32_t i)
{
	uint64_t link = load_acquire(ebpf_elem_link(m, i));
	struct key k;

	if (LINK_STATE(link) == ELEM_READY) {
		return key_of(m, i, link, &k) && walk(m, head_of(m, k.w), k.w, 0) == i;
	}
	return LINK_STATE(link) == ELEM_LINKED;
}

int ebpf_hash_slot(const struct ebpf_map *m, uint32_t i, void *key, void *value)
{
	for (uint32_t try = 0; try < SLOT_TRIES; try++) {
		uint64_t link = load_acquire(ebpf_elem_link(m, i));
		struct key k;

		if (LINK_STATE(link) > ELEM_DEAD) {
			return -EIO;
		}
		if (!present(m, i)) {
			return 0;
		}
		if (!key_of(m, i, link, &k)) {
			continue;
		}
		if (value) {
			ebpf_value_load(value, elem_value(m, i), m->value_bytes);
		}
		fence_acquire();
		if (load_relaxed(ebpf_elem_link(m, i)) == link) {
			if (key) {
				memcpy(key, k.w, m->key_bytes);
			}
			return 1;
		}
	}
	return 0;
}

int ebpf_map_element(const struct ebpf_map *m, uint32_t i, void **ret_key, void **ret_value)
{
	uint8_t *e = ebpf_elem_at(m, i);

	if (!present(m, i)) {
		return 0;
	}
	*ret_key = e + m->key_off;
	*ret_value = e + m->value_off;
	return 1;
}

int ebpf_hash_clear(const struct ebpf_map *m)
{
	uint8_t key[EBPF_MAX_KEY_BYTES];

	for (uint32_t s = 0; s < m->max_entries; s++) {
		if (ebpf_hash_slot(m, s, key, NULL) == 1) {
			(void)ebpf_map_delete(m, key); /* another thread may have deleted it */
		}
	}
	return 0;
}

static int hash_check(const struct ebpf_map_def *d)
{
	return d->key_bytes && d->value_bytes && !(d->flags & GBPF_F_RDONLY) &&
	       (!(d->flags & (uint32_t)GBPF_F_DEVICE) || ebpf_bucket_check(d));
}

static uint64_t *seed_at(const struct ebpf_map *m)
{
	return (uint64_t *)(void *)(m->data + m->head_off - SEED_BYTES);
}

void ebpf_hash_attach(struct ebpf_map *m)
{
	const uint64_t seed[2] = { load_relaxed(&seed_at(m)[0]), load_relaxed(&seed_at(m)[1]) };

	m->seed = ebpf_seed_of(seed);
}

void ebpf_hash_seed(const struct ebpf_map *m, const uint64_t seed[2])
{
	store_relaxed(&seed_at(m)[0], seed[0]);
	store_relaxed(&seed_at(m)[1], seed[1]);
}

uint64_t ebpf_hash_layout(struct ebpf_map *m, uint32_t head_off, uint32_t more)
{
	m->head_off = head_off + SEED_BYTES;
	m->n_slots = ebpf_map_power_of_two(m->max_entries + m->max_entries / 2);
	return ebpf_map_lay_elements(m, (uint64_t)m->n_slots * 8, more);
}

static uint64_t hash_layout(struct ebpf_map *m)
{
	return m->flags & (uint32_t)GBPF_F_DEVICE ? ebpf_bucket_layout(m)
						  : ebpf_hash_layout(m, 0, 0);
}

/* The 8 additional bytes hold the time of the last use. */
static uint64_t lru_layout(struct ebpf_map *m)
{
	return m->flags & (uint32_t)GBPF_F_DEVICE ? ebpf_bucket_layout(m)
						  : ebpf_hash_layout(m, 0, 8);
}

const struct ebpf_map_type ebpf_map_type_HASH = {
	.traits = EBPF_MAP_HASHED | EBPF_MAP_IN_PLACE | EBPF_MAP_ON_DEVICE,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = HASH_HINT,
	.check = hash_check,
	.layout = hash_layout,
	.lookup = ebpf_hash_lookup,
	.update = ebpf_hash_update,
	.delete = ebpf_hash_delete,
	.slot = ebpf_hash_slot,
	.count = ebpf_map_count_present,
	.clear = ebpf_hash_clear,
	.copy = ebpf_map_copy_each,
};

const struct ebpf_map_type ebpf_map_type_LRU_HASH = {
	.traits = EBPF_MAP_HASHED | EBPF_MAP_IN_PLACE | EBPF_MAP_ON_DEVICE,
	.max_entries = EBPF_MAX_ENTRIES,
	.hint = HASH_HINT,
	.check = hash_check,
	.layout = lru_layout,
	.lookup = ebpf_hash_lookup,
	.update = ebpf_hash_update,
	.delete = ebpf_hash_delete,
	.slot = ebpf_hash_slot,
	.count = ebpf_map_count_present,
	.clear = ebpf_hash_clear,
	.copy = ebpf_map_copy_each,
};
