/* Shared by the files of this folder: element words, copying of values, and operations that several
 * types have in common. */
#ifndef GBPF_BPF_RUN_MAP_MAP_INT_H
#define GBPF_BPF_RUN_MAP_MAP_INT_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/map/map.h"

#define GBPF_MAP_TYPE(id, name, ops, doc) enum { GBPF_MAP_##name = id };
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum { UPDATE_ANY = 0, UPDATE_NOEXIST = 1, UPDATE_EXIST = 2 };

/* The first word of an element, and the head of a list of elements: 3 bits of state, 20 bits for 1
 * + the index of the next element (0: none), 41 bits that grow with every change, so that a
 * compare-and-exchange with an old word fails. */
enum ebpf_elem_state { ELEM_FREE, ELEM_CLAIMED, ELEM_READY, ELEM_LINKED, ELEM_DEAD };

#define LINK_STATE(w) ((uint32_t)(w)&7u)
#define LINK_NEXT(w) ((uint32_t)((w) >> 3) & 0xfffffu)
#define LINK_TAG(w) ((w) >> 23)
#define LINK_MAX_ELEMS 0xffffeu

static inline uint64_t ebpf_link_word(uint64_t old, uint32_t state, uint32_t next)
{
	return (uint64_t)state | (uint64_t)next << 3 | (LINK_TAG(old) + 1) << 23;
}

static inline int ebpf_cas_word(uint64_t *p, uint64_t old, uint64_t word)
{
	return __atomic_compare_exchange_n(p, &old, word, 0, __ATOMIC_SEQ_CST, __ATOMIC_ACQUIRE);
}

static inline uint8_t *ebpf_elem_at(const struct ebpf_map *m, uint32_t i)
{
	return m->data + m->elem_off + (size_t)i * m->stride;
}

static inline uint64_t *ebpf_elem_link(const struct ebpf_map *m, uint32_t i)
{
	return (uint64_t *)(void *)ebpf_elem_at(m, i);
}

static inline int ebpf_map_writable(const struct ebpf_map *m)
{
	return m->data && !(m->flags & GBPF_F_RDONLY);
}

/* ---- map.c ---- */

/* Elements are aligned to 8, so each of the small sizes is one store. */
void ebpf_value_store(void *slot, const void *value, uint32_t bytes);
/* Like ebpf_value_store(), for an element that other threads may see: preserves the lock in the
 * value. */
void ebpf_value_update(const struct ebpf_map *m, void *slot, const void *value);
void ebpf_value_load(void *value, const void *slot, uint32_t bytes);

/* ---- map_hash.c: HASH, LRU_HASH, and LPM_TRIE on top of it ---- */

void *ebpf_hash_lookup(const struct ebpf_map *m, const void *key);
int ebpf_hash_update(const struct ebpf_map *m, const void *key, const void *value, uint64_t flags);
int ebpf_hash_delete(const struct ebpf_map *m, const void *key);
int ebpf_hash_slot(const struct ebpf_map *m, uint32_t i, void *key, void *value);
int hash_present(const struct ebpf_map *m, uint32_t i);

/* ---- map_lpm.c ---- */

void *lpm_lookup(const struct ebpf_map *m, const void *key);
int lpm_update(const struct ebpf_map *m, const void *key, const void *value, uint64_t flags);
int lpm_delete(const struct ebpf_map *m, const void *key);

/* ---- map_queue.c ---- */

uint64_t queue_head_bytes(uint32_t n_places);
int queue_push(const struct ebpf_map *m, const void *value, uint64_t flags);
int queue_take(const struct ebpf_map *m, void *value, int remove);
uint32_t queue_count(const struct ebpf_map *m);
int queue_slot(const struct ebpf_map *m, uint32_t slot, void *value);

/* ---- map_stack.c ---- */

int stack_push(const struct ebpf_map *m, const void *value, uint64_t flags);
/* Clears by popping; at most twice max_entries times. */
int stack_take(const struct ebpf_map *m, void *value, int remove);
int stack_slot(const struct ebpf_map *m, uint32_t slot, void *value);
uint32_t stack_count(const struct ebpf_map *m);
/* Elements from the top on, at most max_entries; their number. */
uint32_t stack_order(const struct ebpf_map *m, uint32_t *order);

/* ---- map_thread.c ---- */

/* Returns the number of the calling thread among the threads of its process that use thread arrays;
 * the last number is shared by all threads that found none free. */
uint32_t ebpf_thread_slot(void);
void *ebpf_thread_lookup(const struct ebpf_map *m, const void *key);
/* Over all threads: of one u64 of an element, or of each of them. */
uint64_t ebpf_thread_sum(const struct ebpf_map *m, uint32_t index, uint32_t word);
/* Sums each u64 of an element over all threads. */
void ebpf_thread_read(const struct ebpf_map *m, uint32_t index, void *value);

/* ---- map_epoch.c ---- */

void *ebpf_epoch_lookup(const struct ebpf_map *m, uint32_t index);
const uint8_t *
ebpf_epoch_published(const struct ebpf_map *m); /* first element of the published copy */
int ebpf_epoch_update(const struct ebpf_map *m, uint32_t index, const void *value);

#endif
