/* Small allocations in packs (mem/pack.h). Room is listed by its exact size, and bits say of which
 * sizes there is any, so that the smallest that fits is found by three words. Parts of a pack that
 * touch each other find each other by the grains between them. */
#include "mem/pack.h"

#include <stdlib.h>

#include "base/compiler.h"

_Static_assert(MEM_PACK_WORDS == 64, "one word has a bit for each word of sizes");

static uint32_t grains_of(uint64_t bytes)
{
	return (uint32_t)((bytes + MEM_PACK_GRAIN - 1) / MEM_PACK_GRAIN);
}

/* Notes where a part is. */
static void place(struct mem_pack_part *part)
{
	struct mem_pack *p = part->pack;

	p->at[part->first] = p->at[part->first + part->grains - 1] = part;
	p->begins[part->first / 64] |= UINT64_C(1) << part->first % 64;
}

/* Notes that a part does not begin there any more. */
static void unplace(const struct mem_pack_part *part)
{
	part->pack->begins[part->first / 64] &= ~(UINT64_C(1) << part->first % 64);
}

/* Lists a part as room. */
static void list(struct mem_pack_part *part)
{
	struct mem_pack_set *s = part->pack->set;
	uint32_t size = part->grains - 1;

	part->bytes = 0;
	part->prev = NULL;
	part->next = s->room[size];
	if (part->next) {
		part->next->prev = part;
	}
	s->room[size] = part;
	s->sizes[size / 64] |= UINT64_C(1) << size % 64;
	s->words |= UINT64_C(1) << size / 64;
}

static void unlist(struct mem_pack_part *part)
{
	struct mem_pack_set *s = part->pack->set;
	uint32_t size = part->grains - 1;

	*(part->prev ? &part->prev->next : &s->room[size]) = part->next;
	if (part->next) {
		part->next->prev = part->prev;
	}
	if (!s->room[size]) {
		s->sizes[size / 64] &= ~(UINT64_C(1) << size % 64);
		s->words &= ~((uint64_t)!s->sizes[size / 64] << size / 64);
	}
}

/* Returns the smallest room of so many grains or more, or NULL. */
static struct mem_pack_part *smallest(const struct mem_pack_set *s, uint32_t grains)
{
	uint32_t word = (grains - 1) / 64;
	uint64_t sizes = s->sizes[word] & UINT64_MAX << (grains - 1) % 64;

	if (!sizes) {
		uint64_t words = word == 63 ? 0 : s->words & UINT64_MAX << (word + 1);

		if (!words) {
			return NULL;
		}
		word = (uint32_t)__builtin_ctzll(words);
		sizes = s->sizes[word];
	}
	return s->room[word * 64 + (uint32_t)__builtin_ctzll(sizes)];
}

/* Makes an allocation of a part that is not listed, and room of what it does not need; without host
 * memory for that the allocation has it. */
static void allocate(struct mem_pack_part *part, uint64_t bytes)
{
	uint32_t grains = grains_of(bytes);
	struct mem_pack_part *rest = part->grains > grains ? calloc(1, sizeof(*rest)) : NULL;

	if (rest) {
		rest->pack = part->pack;
		rest->first = part->first + grains;
		rest->grains = part->grains - grains;
		part->grains = grains;
		place(rest);
		list(rest);
	}
	part->bytes = (uint32_t)bytes;
	part->awaited = 0;
	part->id = 0;
	part->freed = false;
	place(part);
	part->pack->n++;
}

struct mem_pack_part *mem_pack_add(struct mem_pack_set *s, uint64_t base, uint64_t bytes)
{
	struct mem_pack *p = calloc(1, sizeof(*p));
	struct mem_pack_part *part = calloc(1, sizeof(*part));

	if (!p || !part) {
		free(p);
		free(part);
		return NULL;
	}
	p->set = s;
	p->base = base;
	part->pack = p;
	part->grains = MEM_PACK_GRAINS;
	s->n++;
	allocate(part, bytes);
	return part;
}

void mem_pack_remove(struct mem_pack *p)
{
	for (uint32_t i = 0; i < MEM_PACK_GRAINS;) {
		struct mem_pack_part *part = p->at[i];

		i += part->grains;
		if (!part->bytes) {
			unlist(part);
		}
		free(part);
	}
	p->set->n--;
	free(p);
}

struct mem_pack_part *mem_pack_take(struct mem_pack_set *s, uint64_t bytes)
{
	struct mem_pack_part *part = smallest(s, grains_of(bytes));

	if (part) {
		unlist(part);
		allocate(part, bytes);
	}
	return part;
}

/* Adds a room that ends where a part begins, or begins where it ends, to the part. */
static void join(struct mem_pack_part *part, struct mem_pack_part *other)
{
	unlist(other);
	unplace(other);
	part->first = part->first < other->first ? part->first : other->first;
	part->grains += other->grains;
	free(other);
}

void mem_pack_give(struct mem_pack_part *part)
{
	struct mem_pack *p = part->pack;
	uint32_t end = part->first + part->grains;
	struct mem_pack_part *before = part->first ? p->at[part->first - 1] : NULL;
	struct mem_pack_part *after = end < MEM_PACK_GRAINS ? p->at[end] : NULL;

	unplace(part);
	if (before && !before->bytes) {
		join(part, before);
	}
	if (after && !after->bytes) {
		join(part, after);
	}
	place(part);
	list(part);
	p->n--;
}

struct mem_pack_part *mem_pack_find(const struct mem_pack *p, uint64_t address)
{
	uint32_t grain = (uint32_t)((address - p->base) / MEM_PACK_GRAIN), word = grain / 64;
	uint64_t begins = p->begins[word] & UINT64_MAX >> (63 - grain % 64);
	struct mem_pack_part *part;

	while (!begins) { /* a part begins with the first grain */
		begins = p->begins[--word];
	}
	part = p->at[word * 64 + 63 - (uint32_t)__builtin_clzll(begins)];
	return address - mem_pack_address(part) < part->bytes ? part : NULL;
}
