/* Shared by the files of this folder: element words, copying of values, and operations that several
 * types have in common. */
#ifndef GBPF_BPF_RUN_MAP_MAP_INT_H
#define GBPF_BPF_RUN_MAP_MAP_INT_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/map/map_type.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

/* The tables behind ebpf_map_type_of. */
#define GBPF_MAP_TYPE(id, name, ops, doc) extern const struct ebpf_map_type ebpf_map_type_##name;
#include "gbpf/hooks.def"

#define GENERAL_HINT                                                                               \
	"GBPF_F_TENANT stands alone, GBPF_F_EPOCH is for arrays; man 7 gbpf-policy has each type"

#define MAP_ALIGN 64u /* a cache line, so that maps of different writers do not share one */

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
	return cas_seqcst(p, &old, word);
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

/* Returns the smallest power of two that is at least min. */
uint32_t ebpf_map_power_of_two(uint32_t min);
/* Lays out [head_bytes][pool][elements] from m->head_off on and returns the size in bytes. An
 * element consists of its word, `more` bytes, the key and the value; small elements lie within one
 * cache line. */
uint64_t ebpf_map_lay_elements(struct ebpf_map *m, uint64_t head_bytes, uint32_t more);

/* Copies a value to an element. Elements are aligned to 8 bytes, so a value of 1, 2, 4 or 8 bytes
 * is one store. */
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
int ebpf_hash_clear(const struct ebpf_map *m);
/* Lays out the seed and the buckets from head_off on, and elements with `more` bytes before their
 * keys. */
uint64_t ebpf_hash_layout(struct ebpf_map *m, uint32_t head_off, uint32_t more);
/* Takes a private copy of the seed in the memory of m, which the tenant may change at any time. */
void ebpf_hash_attach(struct ebpf_map *m);
/* Stores the seed in the memory of an empty map. */
void ebpf_hash_seed(const struct ebpf_map *m, const uint64_t seed[2]);

/* ---- map_tools.c: operations that several types have in common ---- */

/* Counts the slots that hold an element. */
uint32_t ebpf_map_count_present(const struct ebpf_map *m);
/* Clears by popping; at most twice max_entries times. */
int ebpf_map_clear_pops(const struct ebpf_map *m);
int ebpf_map_copy_each(const struct ebpf_map *to, const struct ebpf_map *from);

/* ---- map_thread.c ---- */

/* Returns the number of the calling thread among the threads of its process that use thread arrays;
 * the last number is shared by all threads that found none free. */
uint32_t ebpf_thread_slot(void);
void *ebpf_thread_lookup(const struct ebpf_map *m, const void *key);
/* Sums each u64 of an element over all threads. */
void ebpf_thread_read(const struct ebpf_map *m, uint32_t index, void *value);

/* ---- map_epoch.c ---- */

void *ebpf_epoch_lookup(const struct ebpf_map *m, uint32_t index);
const uint8_t *
ebpf_epoch_published(const struct ebpf_map *m); /* first element of the published copy */
int ebpf_epoch_update(const struct ebpf_map *m, uint32_t index, const void *value);

#endif
