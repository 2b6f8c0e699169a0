/* Regions of memory that can leave the device against a model: which region an address is in, the
 * order in which chunks came to their places, what uses of them need, and which ones leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/swap_map.h"

#define UNIT MEM_SWAP_UNIT
#define MOST (4 * UNIT)
#define LIVE_MAX 200u
#define SPACE 4000u /* units of addresses */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

static bool no_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

static uint64_t seed = 88172645463325252u;

static unsigned random_below(unsigned n)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (unsigned)(seed % n);
}

/* ---- the model ---- */

static struct mem_swap_region *taken[SPACE]; /* by unit of addresses */
static struct mem_swap_region *live[LIVE_MAX];
static unsigned n_live;
static struct mem_swap_chunk *order[2][MEM_SWAP_PLACES][SPACE];
static unsigned n_order[2][MEM_SWAP_PLACES];

static void model_place(struct mem_swap_chunk *c, enum mem_swap_place place)
{
	int row = c->region->row;
	unsigned n = n_order[row][c->place], i = 0;

	if (c->place) {
		while (order[row][c->place][i] != c) {
			i++;
		}
		memmove(&order[row][c->place][i], &order[row][c->place][i + 1],
			(n - i - 1) * sizeof(order[0][0][0]));
		n_order[row][c->place]--;
	}
	if (place) {
		order[row][place][n_order[row][place]++] = c;
	}
}

static void check(const struct mem_swap_map *m)
{
	assert_int_equal(m->n, n_live);
	for (unsigned u = 0; u < SPACE; u++) {
		uint64_t address = (u + 1) * UNIT + random_below((unsigned)UNIT);
		struct mem_swap_region *r = taken[u];

		r = r && address - r->base < r->bytes ? r : NULL;
		assert_ptr_equal(mem_swap_find(m, address), r);
	}
	for (unsigned row = 0; row < 2; row++) {
		for (unsigned place = MEM_SWAP_DEVICE; place < MEM_SWAP_PLACES; place++) {
			const struct mem_swap_list *l = &m->at[row][place];
			const struct mem_swap_chunk *c = l->first, *last = NULL;
			uint64_t bytes = 0;

			for (unsigned i = 0; i < n_order[row][place]; i++, c = c->next) {
				assert_ptr_equal(c, order[row][place][i]);
				assert_ptr_equal(c->prev, last);
				assert_int_equal(c->place, place);
				bytes += c->bytes;
				last = c;
			}
			assert_null(c);
			assert_ptr_equal(l->last, last);
			assert_int_equal(l->bytes, bytes);
		}
	}
}

static void add(struct mem_swap_map *m)
{
	uint64_t bytes = 1 + random_below(20 * (unsigned)UNIT), at;
	uint64_t large = MOST + random_below(5) * UNIT;
	struct mem_swap_region *r =
		mem_swap_region_create(bytes, large, MOST, (int)random_below(2));
	uint64_t sum = 0;
	unsigned units, u;

	assert_non_null(r);
	assert_int_equal(r->reserved, ROUND_UP(bytes, UNIT));
	units = (unsigned)(r->reserved / UNIT);
	u = random_below(SPACE - units);
	for (unsigned i = 0; i < units; i++) {
		if (taken[u + i]) {
			free(r);
			return;
		}
	}
	at = (u + 1) * UNIT;
	assert_int_equal(mem_swap_add(m, r, at), 0);
	for (uint32_t i = 0; i < r->n; i++) {
		uint64_t rest = r->reserved - sum;

		assert_int_equal(r->chunk[i].address, at + sum);
		assert_int_equal(r->chunk[i].bytes, rest >= large ? large : MIN(rest, MOST));
		sum += r->chunk[i].bytes;
	}
	assert_int_equal(sum, r->reserved);
	for (unsigned i = 0; i < units; i++) {
		taken[u + i] = r;
	}
	r->owner = random_below(3);
	r->epoch = random_below(3);
	live[n_live++] = r;
}

static void drop(struct mem_swap_map *m, unsigned i)
{
	struct mem_swap_region *r = live[i];

	for (uint32_t k = 0; k < r->n; k++) {
		model_place(&r->chunk[k], MEM_SWAP_NOWHERE);
		mem_swap_place(m, &r->chunk[k], MEM_SWAP_NOWHERE);
	}
	for (unsigned u = 0; u < SPACE; u++) {
		taken[u] = taken[u] == r ? NULL : taken[u];
	}
	live[i] = live[--n_live];
	mem_swap_remove(m, r);
	free(r);
}

static void move(struct mem_swap_map *m)
{
	struct mem_swap_region *r = live[random_below(n_live)];
	struct mem_swap_chunk *c = &r->chunk[random_below(r->n)];
	enum mem_swap_place place = (enum mem_swap_place)random_below(MEM_SWAP_PLACES);

	model_place(c, place);
	mem_swap_place(m, c, place);
}

/* Returns whether a live region has that owner, and an epoch up to the given one. */
static bool has_owner(uint64_t owner, uint64_t epoch)
{
	for (unsigned i = 0; i < n_live; i++) {
		if (live[i]->owner == owner && live[i]->epoch <= epoch) {
			return true;
		}
	}
	return false;
}

static void regions_and_places_are_those_of_the_model(void **state)
{
	struct mem_swap_map m = { 0 };

	for (unsigned step = 0; step < 20000; step++) {
		unsigned what = random_below(10);

		if (what < 3 && n_live < LIVE_MAX) {
			add(&m);
		} else if (what < 4 && n_live) {
			drop(&m, random_below(n_live));
		} else if (n_live) {
			move(&m);
		}
		if (step % 50 == 0) {
			uint64_t owner = random_below(3), epoch = random_below(3);
			struct mem_swap_region *r = mem_swap_of_owner(&m, owner, epoch);

			check(&m);
			assert_int_equal(r != NULL, has_owner(owner, epoch));
			assert_true(!r || (r->owner == owner && r->epoch <= epoch));
		}
	}
	while (n_live) {
		drop(&m, 0);
	}
	check(&m);
	free(m.region);
}

static void sizes_beyond_all_addresses_are_refused(void **state)
{
	assert_null(mem_swap_region_create(UINT64_MAX, MOST, MOST, 0));
	assert_null(mem_swap_region_create(UINT64_MAX - UNIT, UNIT, UNIT, 0));
}

static void without_memory_nothing_is_added(void **state)
{
	struct mem_swap_map m = { 0 };
	struct mem_swap_region *r = mem_swap_region_create(1, MOST, MOST, 0);

	no_memory = true;
	assert_null(mem_swap_region_create(1, MOST, MOST, 0));
	assert_int_equal(mem_swap_add(&m, r, UNIT), -ENOMEM);
	no_memory = false;
	assert_null(mem_swap_find(&m, UNIT));
	assert_int_equal(mem_swap_add(&m, r, UNIT), 0);
	assert_ptr_equal(mem_swap_find(&m, UNIT), r);
	assert_null(mem_swap_find(&m, UNIT + 1));
	mem_swap_remove(&m, r);
	free(r);
	free(m.region);
}

/* ---- uses ---- */

#define COST_MAX 100u
#define SCALE_USES (512ull * 16384) /* after which what chunks are worth is scaled */

/* What the model knows about each chunk, by its number: what its uses were worth when they were
 * made, a half-life of 16384 uses, and what they have cost since it is on the host. */
static struct known {
	double worth; /* at `used` */
	uint64_t used, lost;
	uint32_t gap[MEM_SWAP_GAPS]; /* between uses, the latest first */
} known[SPACE];
static struct mem_swap_map used_map;

static unsigned number_of(const struct mem_swap_chunk *c)
{
	return (unsigned)(c->address / UNIT) - 1;
}

/* Linear within a half-life, as the map's scale is. */
static double scale_at(uint64_t use)
{
	return ldexp(1.0 + (double)(use % 16384) / 16384, (int)(use / 16384));
}

/* Adds a region behind the others, on the device. */
static struct mem_swap_region *add_sized(uint64_t bytes, uint64_t large, uint64_t most, int row)
{
	static uint64_t next;
	struct mem_swap_region *r = mem_swap_region_create(bytes, large, most, row);

	assert_non_null(r);
	next = used_map.n ? next : UNIT;
	assert_int_equal(mem_swap_add(&used_map, r, next), 0);
	next += r->reserved;
	assert_true(next <= SPACE * UNIT);
	for (uint32_t i = 0; i < r->n; i++) {
		known[number_of(&r->chunk[i])] = (struct known){ .used = used_map.uses };
		mem_swap_place(&used_map, &r->chunk[i], MEM_SWAP_DEVICE);
	}
	return r;
}

/* The same, of chunks of at most that many bytes. */
static struct mem_swap_region *add_used(uint64_t bytes, uint64_t most, int row)
{
	return add_sized(bytes, most, most, row);
}

static void move_used(struct mem_swap_chunk *c, enum mem_swap_place place)
{
	struct known *k = &known[number_of(c)];

	if (c->place == MEM_SWAP_NOWHERE) {
		k->used = used_map.uses;
		memset(k->gap, 0, sizeof(k->gap));
	}
	k->lost = place == c->place ? k->lost : 0;
	mem_swap_place(&used_map, c, place);
}

static void drop_one(struct mem_swap_region *r)
{
	for (uint32_t i = 0; i < r->n; i++) {
		mem_swap_place(&used_map, &r->chunk[i], MEM_SWAP_NOWHERE);
	}
	mem_swap_remove(&used_map, r);
	free(r);
}

static int drop_used(void **state)
{
	while (used_map.n) {
		drop_one(used_map.region[0]);
	}
	free(used_map.region);
	used_map = (struct mem_swap_map){ 0 };
	return 0;
}

static int no_uses(void **state)
{
	memset(known, 0, sizeof(known));
	return 0;
}

static bool is_close(double a, double b)
{
	return isfinite(a) && fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b));
}

/* Makes the same use in the map and in the model, and compares what they need. */
static void use_both(struct mem_swap_region *r, uint64_t address, uint64_t most, uint32_t cost,
		     struct mem_swap_need *need, struct mem_swap_need *want)
{
	const struct mem_swap_chunk *last[MEM_SWAP_PLACES] = { NULL };
	uint64_t seen = 0;

	mem_swap_use(&used_map, r, address, most, cost, need);
	for (uint32_t i = 0; i < r->n; i++) {
		struct mem_swap_chunk *c = &r->chunk[i];
		struct known *k = &known[number_of(c)];
		uint64_t units = c->bytes / UNIT;

		if (c->address + c->bytes <= address || seen >= most) {
			continue;
		}
		seen += c->bytes;
		if (c->place == MEM_SWAP_NOWHERE || k->used == used_map.uses) {
			continue;
		}
		k->worth += cost * scale_at(used_map.uses);
		memmove(k->gap + 1, k->gap, sizeof(k->gap) - sizeof(k->gap[0]));
		k->gap[0] = (uint32_t)(used_map.uses - k->used);
		k->used = used_map.uses;
		want->bytes += c->bytes;
		if (c->place == MEM_SWAP_HOST) {
			k->lost += cost;
			want->missing += c->bytes;
			want->lost += k->lost * units;
			want->worth += k->worth * (double)units;
		}
		last[c->place] = c;
	}
	for (unsigned place = MEM_SWAP_DEVICE; place < MEM_SWAP_PLACES; place++) {
		assert_true(!last[place] || used_map.at[r->row][place].last == last[place]);
	}
	assert_int_equal(need->bytes, want->bytes);
	assert_int_equal(need->missing, want->missing);
	assert_int_equal(need->lost, want->lost);
	assert_true(is_close(need->worth, want->worth));
	for (uint32_t i = 0; i < r->n; i++) {
		const struct known *k = &known[number_of(&r->chunk[i])];

		assert_int_equal(r->chunk[i].used, k->used);
		assert_int_equal(r->chunk[i].lost, k->lost);
		assert_true(is_close(r->chunk[i].worth, k->worth));
	}
}

/* Returns what a chunk is worth, by how much sooner it is used than on average. */
static double urgency(const struct mem_swap_chunk *c)
{
	const struct known *k = &known[number_of(c)];
	double sum = 0, n = 0, next = 0;

	for (int i = MEM_SWAP_GAPS - 1; i >= 0; i--) {
		sum += k->gap[i];
		n += k->gap[i] != 0;
		if (i && k->gap[i] && abs((int)k->gap[i] - (int)k->gap[0]) * 8 <= (int)k->gap[0]) {
			next = (double)k->used + k->gap[i - 1];
		}
	}
	next -= (double)used_map.uses;
	return k->worth * (next > 0 ? sum / n / next : 1);
}

/* The chunks that may leave, in order: the least urgent, of equals the ones that were not used for
 * longest. Returns how many. */
static unsigned sort_candidates(int row, uint64_t since, struct mem_swap_chunk *list[SPACE])
{
	struct mem_swap_chunk *c = used_map.at[row][MEM_SWAP_DEVICE].first;
	unsigned n = 0;

	for (unsigned k = 0; c && c->used < since && k < 1024; c = c->next, k++) {
		unsigned i = n++;

		for (; i && urgency(list[i - 1]) > urgency(c); i--) {
			list[i] = list[i - 1];
		}
		list[i] = c;
	}
	return n;
}

static void compare_pick(int row, uint64_t since, uint64_t bytes, unsigned limit)
{
	static struct mem_swap_chunk *sorted[SPACE], *list[SPACE];
	unsigned n = sort_candidates(row, since, sorted), i = 0, got;
	double worth = -1, sum = 0;
	uint64_t have = 0;

	list[limit] = (void *)&worth; /* no more are written */
	got = mem_swap_pick(&used_map, row, since, bytes, UINT64_MAX, list, limit, &worth);
	for (; i < n && i < limit && have < bytes; i++) {
		assert_true(i < got);
		assert_ptr_equal(list[i], sorted[i]);
		have += sorted[i]->bytes;
		sum += sorted[i]->worth * (double)(sorted[i]->bytes / UNIT);
	}
	assert_int_equal(got, i);
	assert_true(is_close(worth, sum));
	assert_ptr_equal(list[limit], (void *)&worth);
}

static void uses_and_choices_are_those_of_the_model(void **state)
{
	struct mem_swap_region *all[60];
	unsigned n = 0;

	for (; n < 60; n++) {
		all[n] = add_used((1 + random_below(12)) * UNIT, MOST, (int)random_below(2));
	}
	for (unsigned step = 0; step < 20000; step++) {
		struct mem_swap_need need = { 0 }, want = { 0 };
		uint64_t most = (1 + random_below(30)) * UNIT, since;
		uint32_t cost = random_below(3) ? 20 : random_below(COST_MAX);

		mem_swap_begin_use(&used_map);
		for (unsigned k = random_below(4); k; k--) {
			struct mem_swap_region *r = all[random_below(n)];

			use_both(r, r->base + random_below((unsigned)r->bytes), most, cost, &need,
				 &want);
		}
		for (unsigned k = random_below(4); k; k--) {
			struct mem_swap_region *r = all[random_below(n)];
			struct mem_swap_chunk *c = &r->chunk[random_below(r->n)];

			move_used(c, (enum mem_swap_place)random_below(MEM_SWAP_PLACES));
		}
		since = random_below(4) ? used_map.uses - random_below(40) : UINT64_MAX;
		compare_pick((int)random_below(2), since, random_below(40) * UNIT,
			     1 + random_below(random_below(2) ? 64 : 4));
	}
}

/* A word of the launch may point to each byte: the chunk of the first and of the last one. */
static void a_use_begins_in_the_chunk_of_its_address(void **state)
{
	struct mem_swap_region *r = add_sized(5 * MOST + UNIT, 2 * MOST, MOST, 0);
	static const struct {
		uint64_t from, bytes;
	} cases[] = {
		{ 0, 5 * MOST + UNIT },
		{ 2 * MOST - 1, 5 * MOST + UNIT },
		{ 2 * MOST, 3 * MOST + UNIT },
		{ 4 * MOST - 1, 3 * MOST + UNIT },
		{ 4 * MOST, MOST + UNIT },
		{ 5 * MOST - 1, MOST + UNIT },
		{ 5 * MOST, UNIT },
		{ 5 * MOST + UNIT - 1, UNIT },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mem_swap_need need = { 0 };

		mem_swap_begin_use(&used_map);
		mem_swap_use(&used_map, r, r->base + cases[i].from, UINT64_MAX, 1, &need);
		assert_int_equal(need.bytes, cases[i].bytes);
		mem_swap_use(&used_map, r, r->base, UINT64_MAX, 1, &need); /* each of them once */
		assert_int_equal(need.bytes, r->bytes);
		assert_int_equal(need.missing, 0);
	}
}

/* Memory that the program maps: what it has put there ends where the next named address is, in this
 * region or in one that begins at its end, unless that was named long ago. */
static void a_use_of_mapped_memory_ends_at_the_next_address_that_is_named(void **state)
{
	struct mem_swap_region *a = add_used(4 * MOST, MOST, 0), *b = add_used(2 * MOST, MOST, 0),
			       *other = add_used(MOST, MOST, 0);
	const struct {
		uint64_t from, bytes;
		bool late; /* when the names before are forgotten */
	} cases[] = {
		{ 0, 6 * MOST, false },
		{ 2 * MOST, 4 * MOST, false },
		{ 0, 2 * MOST, false },
		{ 3 * MOST + 1, 3 * MOST, false }, /* in the middle of a chunk */
		{ 2 * MOST, 2 * MOST, false },	   /* up to which another one may reach */
		{ 5 * MOST, MOST, false },
		{ 3 * MOST + 2, 2 * MOST, false },
		{ 1, 2 * MOST, false },
		{ 0, 6 * MOST, true },
	};

	a->by_handle = b->by_handle = true;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mem_swap_need need = { 0 };

		mem_swap_begin_use(&used_map);
		used_map.uses += cases[i].late ? MEM_SWAP_HALF_LIFE : 0;
		mem_swap_use(&used_map, cases[i].from < 4 * MOST ? a : b, a->base + cases[i].from,
			     UINT64_MAX, 1, &need);
		assert_int_equal(need.bytes, cases[i].bytes);
	}
	assert_int_equal(other->chunk[0].worth, 0);
	assert_int_equal(other->chunk[0].used, 0);
}

static void a_use_of_mapped_memory_ends_where_no_mapping_follows(void **state)
{
	struct mem_swap_region *a = add_used(MOST, MOST, 0), *gap = add_used(UNIT, MOST, 0),
			       *elsewhere = add_used(MOST, MOST, 0);
	struct mem_swap_need need = { 0 };

	drop_one(gap);
	a->by_handle = elsewhere->by_handle = true;
	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, a, a->base, UINT64_MAX, 1, &need);
	assert_int_equal(need.bytes, MOST);
	assert_int_equal(elsewhere->chunk[0].used, 0);
}

/* Each address names that many bytes from its chunk on, also those that were noted before. */
static void a_use_ends_once_it_has_that_many_bytes(void **state)
{
	struct mem_swap_region *r = add_used(4 * MOST, MOST, 0), *o = add_used(2 * MOST, MOST, 0);
	struct mem_swap_need need = { 0 };

	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, r, r->base, MOST, 1, &need);
	assert_int_equal(need.bytes, MOST);
	mem_swap_use(&used_map, r, r->base, MOST, 1, &need);
	assert_int_equal(need.bytes, MOST);
	mem_swap_use(&used_map, r, r->base, MOST + 1, 1, &need);
	assert_int_equal(need.bytes, 2 * MOST);
	assert_int_equal(r->chunk[2].used, 0);
	mem_swap_use(&used_map, o, o->base, MOST, 1, &need);
	assert_int_equal(need.bytes, 3 * MOST);
}

/* What is lost counts since the chunk is on the host. */
static void what_chunks_have_lost_ends_when_they_return(void **state)
{
	struct mem_swap_region *r = add_used(MOST, MOST, 0);
	struct mem_swap_need need = { 0 };

	mem_swap_place(&used_map, &r->chunk[0], MEM_SWAP_HOST);
	for (unsigned i = 0; i < 3; i++) {
		need = (struct mem_swap_need){ 0 };
		mem_swap_begin_use(&used_map);
		mem_swap_use(&used_map, r, r->base, MOST, 5, &need);
	}
	assert_int_equal(need.lost, 3 * 5 * 4);
	mem_swap_place(&used_map, &r->chunk[0], MEM_SWAP_DEVICE);
	mem_swap_place(&used_map, &r->chunk[0], MEM_SWAP_HOST);
	need = (struct mem_swap_need){ 0 };
	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, r, r->base, MOST, 5, &need);
	assert_int_equal(need.lost, 5 * 4);
}

/* Chunks that were never used, and such that are worth as much as others. */
static void of_equals_the_one_that_was_not_used_for_longest_leaves(void **state)
{
	struct mem_swap_region *r = add_used(4 * MOST, MOST, 0);
	struct mem_swap_chunk *list[4];
	double worth;

	mem_swap_place(&used_map, &r->chunk[1], MEM_SWAP_DEVICE); /* the last one now */
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 4 * MOST, UINT64_MAX, list, 4, &worth), 4);
	assert_ptr_equal(list[0], &r->chunk[0]);
	assert_ptr_equal(list[1], &r->chunk[2]);
	assert_ptr_equal(list[2], &r->chunk[3]);
	assert_ptr_equal(list[3], &r->chunk[1]);
	assert_true(worth == 0);
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, MOST + 1, UINT64_MAX, list, 4, &worth), 2);
	assert_ptr_equal(list[1], &r->chunk[2]);
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 4 * MOST, UINT64_MAX, list, 1, &worth), 1);
	assert_ptr_equal(list[0], &r->chunk[0]);
	assert_int_equal(mem_swap_pick(&used_map, 0, UINT64_MAX, 0, UINT64_MAX, list, 4, &worth),
			 0);
	assert_int_equal(mem_swap_pick(&used_map, 1, UINT64_MAX, MOST, UINT64_MAX, list, 4, &worth),
			 0);
}

/* Smaller chunks that are worth less replace a large one only if they suffice without it. */
static void no_chunk_leaves_without_which_the_others_suffice(void **state)
{
	struct mem_swap_region *large = add_used(MOST, MOST, 0), *small = add_used(UNIT, MOST, 0),
			       *middle = add_used(3 * UNIT, MOST, 0);
	struct mem_swap_need need = { 0 };
	struct mem_swap_chunk *list[4];
	double worth;

	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, large, large->base, MOST, 10, &need);
	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, small, small->base, SPACE * UNIT, 2, &need);
	mem_swap_use(&used_map, middle, middle->base, SPACE * UNIT, 3, &need);
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 4 * UNIT, UINT64_MAX, list, 4, &worth), 2);
	assert_ptr_equal(list[0], &small->chunk[0]);
	assert_ptr_equal(list[1], &middle->chunk[0]);
	assert_true(is_close(worth, (2 + 3 * 3) * scale_at(2)));
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 5 * UNIT, UINT64_MAX, list, 4, &worth), 3);
	assert_ptr_equal(list[2], &large->chunk[0]);
	assert_int_equal(mem_swap_pick(&used_map, 0, UINT64_MAX, UNIT, UINT64_MAX, list, 4, &worth),
			 1);
	assert_ptr_equal(list[0], &small->chunk[0]);
}

static void no_chunk_leaves_that_was_used_since_or_has_left(void **state)
{
	struct mem_swap_region *r = add_used(4 * MOST, MOST, 0);
	struct mem_swap_need need = { 0 };
	struct mem_swap_chunk *list[4];
	double worth;

	mem_swap_place(&used_map, &r->chunk[0], MEM_SWAP_HOST);
	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, r, r->chunk[3].address, MOST, 1, &need);
	mem_swap_begin_use(&used_map);
	need = (struct mem_swap_need){ 0 };
	mem_swap_use(&used_map, r, r->chunk[2].address, MOST, 1, &need);
	assert_int_equal(mem_swap_pick(&used_map, 0, 0, 9 * MOST, UINT64_MAX, list, 4, &worth), 0);
	assert_int_equal(mem_swap_pick(&used_map, 0, 1, 9 * MOST, UINT64_MAX, list, 4, &worth), 1);
	assert_ptr_equal(list[0], &r->chunk[1]);
	assert_int_equal(mem_swap_pick(&used_map, 0, 2, 9 * MOST, UINT64_MAX, list, 4, &worth), 2);
	assert_ptr_equal(list[1], &r->chunk[3]);
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 9 * MOST, UINT64_MAX, list, 4, &worth), 3);
	assert_ptr_equal(list[2], &r->chunk[2]);
}

static void chunks_beyond_the_first_1024_are_not_looked_at(void **state)
{
	struct mem_swap_region *r = add_used(1025 * UNIT, UNIT, 0);
	struct mem_swap_chunk *list[2];
	struct mem_swap_need need = { 0 };
	double worth;

	mem_swap_begin_use(&used_map);
	mem_swap_use(&used_map, r, r->base, SPACE * UNIT, 1, &need);
	r->chunk[1024].worth = r->chunk[1023].worth = 0;
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, list, 2, &worth), 2);
	assert_ptr_equal(list[0], &r->chunk[1023]);
	assert_ptr_equal(list[1], &r->chunk[0]);
	mem_swap_place(&used_map, &r->chunk[0], MEM_SWAP_HOST);
	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, 2 * UNIT, UINT64_MAX, list, 2, &worth), 2);
	assert_ptr_equal(list[0], &r->chunk[1023]);
	assert_ptr_equal(list[1], &r->chunk[1024]);
}

static void chunks_that_are_too_large_are_not_chosen(void **state)
{
	struct mem_swap_region *r = add_used(MOST + UNIT, MOST, 0);
	struct mem_swap_chunk *list[4];
	double worth;

	assert_int_equal(
		mem_swap_pick(&used_map, 0, UINT64_MAX, MOST, MOST - UNIT, list, 4, &worth), 1);
	assert_ptr_equal(list[0], &r->chunk[1]);
	assert_int_equal(mem_swap_pick(&used_map, 0, UINT64_MAX, MOST, MOST, list, 4, &worth), 1);
	assert_ptr_equal(list[0], &r->chunk[0]);
}

static void use_until(uint64_t use)
{
	while (used_map.uses < use) {
		mem_swap_begin_use(&used_map);
	}
}

static void a_use_counts_half_as_much_after_16384_others(void **state)
{
	struct mem_swap_region *old = add_used(MOST, MOST, 0), *new = add_used(MOST, MOST, 0);
	struct mem_swap_need need = { 0 };

	use_until(5000);
	mem_swap_use(&used_map, old, old->base, MOST, 8, &need);
	use_until(5000 + 16384);
	mem_swap_use(&used_map, new, new->base, SPACE * UNIT, 4, &need);
	assert_true(is_close(old->chunk[0].worth, new->chunk[0].worth));
	use_until(5000 + 3 * 16384);
	need = (struct mem_swap_need){ 0 };
	mem_swap_use(&used_map, new, new->base, MOST, 1, &need);
	assert_true(is_close(2 * old->chunk[0].worth, new->chunk[0].worth));
}

/* Numbers do not grow beyond what a double holds; what chunks are worth keeps its relation, to each
 * other and to later uses, on the device and on the host. */
static void worth_is_scaled_before_it_overflows(void **state)
{
	struct mem_swap_region *r = add_used(3 * UNIT, UNIT, 0), *o = add_used(UNIT, UNIT, 1);
	struct mem_swap_need need = { 0 };

	for (unsigned round = 1; round <= 3; round++) {
		uint64_t last = round * SCALE_USES - 1;
		double before[2];

		use_until(last);
		need = (struct mem_swap_need){ 0 };
		mem_swap_use(&used_map, r, r->chunk[2].address, UNIT, UINT32_MAX, &need);
		mem_swap_use(&used_map, o, o->base, 2 * UNIT, UINT32_MAX, &need);
		mem_swap_place(&used_map, &o->chunk[0], MEM_SWAP_HOST);
		before[0] = r->chunk[2].worth;
		before[1] = o->chunk[0].worth;
		assert_true(before[0] > 0x1p500 && isfinite(before[0]));
		mem_swap_begin_use(&used_map);
		assert_int_equal(used_map.uses, last + 1);
		assert_true(is_close(ldexp(r->chunk[2].worth, 512), before[0]));
		assert_true(is_close(ldexp(o->chunk[0].worth, 512), before[1]));
		need = (struct mem_swap_need){ 0 };
		mem_swap_use(&used_map, r, r->base, UNIT, UINT32_MAX, &need);
		assert_true(r->chunk[0].worth >= UINT32_MAX); /* not less than it was before */
		assert_true(is_close(r->chunk[0].worth - ldexp(r->chunk[0].worth, -512),
				     r->chunk[0].worth));
		mem_swap_place(&used_map, &o->chunk[0], MEM_SWAP_DEVICE);
	}
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, no_uses, drop_used)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(regions_and_places_are_those_of_the_model),
		cmocka_unit_test(sizes_beyond_all_addresses_are_refused),
		cmocka_unit_test(without_memory_nothing_is_added),
		TEST(uses_and_choices_are_those_of_the_model),
		TEST(a_use_begins_in_the_chunk_of_its_address),
		TEST(a_use_of_mapped_memory_ends_at_the_next_address_that_is_named),
		TEST(a_use_of_mapped_memory_ends_where_no_mapping_follows),
		TEST(a_use_ends_once_it_has_that_many_bytes),
		TEST(what_chunks_have_lost_ends_when_they_return),
		TEST(of_equals_the_one_that_was_not_used_for_longest_leaves),
		TEST(no_chunk_leaves_without_which_the_others_suffice),
		TEST(no_chunk_leaves_that_was_used_since_or_has_left),
		TEST(chunks_beyond_the_first_1024_are_not_looked_at),
		TEST(chunks_that_are_too_large_are_not_chosen),
		TEST(a_use_counts_half_as_much_after_16384_others),
		TEST(worth_is_scaled_before_it_overflows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
