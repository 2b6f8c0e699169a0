/* Kills a process in the middle of an operation on a shared map: at each named point of the code,
 * and at random moments. Afterwards the map must contain every element whose insertion had
 * completed and none twice, every walk must end, and all elements must be usable again. */
#include "map_env.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/point.h"
#include "bpf/run/map/ring.h"

#define ENTRIES 24u
#define KEYS 40u

/* ---- points ---- */

static const char *armed;
static int passes;

void point_reached(const char *name)
{
	if (armed && strcmp(name, armed) == 0 && --passes == 0) {
		(void)raise(SIGKILL);
	}
}

/* ---- time: lost elements are given up after a minute ---- */

static uint64_t fake_now = 1000000000000u;

static uint64_t fake_clock(void)
{
	return fake_now;
}

/* ---- contents: a value follows from its key, so that mixed ones are seen ---- */

struct shared {
	uint64_t pushed;  /* last number whose push, or output, returned */
	uint64_t pushing; /* ... was begun */
	uint64_t read;	  /* ring: the last that came out */
};

static void value_of(uint64_t key, uint64_t value[4])
{
	for (uint64_t i = 0; i < 4; i++) {
		value[i] = (key + 1) * UINT64_C(0x9e3779b97f4a7c15) + i;
	}
}

static void lpm_key(uint64_t k, uint64_t key[4])
{
	uint32_t bits = 8 + (uint32_t)(k % 25);

	memset(key, 0, 32);
	memcpy(key, &bits, 4);
	((uint8_t *)key)[4] = (uint8_t)k;
}

static void key_of(const struct ebpf_map *m, uint64_t k, uint64_t key[4])
{
	memset(key, 0, 32);
	if (m->type == GBPF_MAP_LPM_TRIE) {
		lpm_key(k, key);
		return;
	}
	key[0] = k;
	key[1] = m->key_bytes > 8 ? ~k : 0;
}

/* ---- work of the victims ---- */

static void work(const struct ebpf_map *m, struct shared *s, uint64_t seed)
{
	for (;;) {
		uint64_t k = test_random(&seed) % KEYS, key[4], value[4], got[4];
		uint64_t what = test_random(&seed) % 4;

		key_of(m, k, key);
		value_of(k, value);
		switch (m->type) {
		case GBPF_MAP_QUEUE:
		case GBPF_MAP_STACK:
			if (what < 2) {
				value_of(s->pushed + 1, value);
				value[3] = s->pushed + 1;
				s->pushing = s->pushed + 1;
				if (ebpf_map_push(m, value,
						  m->type == GBPF_MAP_QUEUE && what ? 2 : 0) == 0) {
					s->pushed++;
				}
			} else {
				(void)ebpf_map_pop(m, got);
			}
			break;
		case GBPF_MAP_RINGBUF:
			value_of(s->pushed + 1, value);
			value[3] = s->pushed + 1;
			s->pushing = s->pushed + 1;
			if (ebpf_ring_output(m, value, 32) == 0) {
				s->pushed++;
			}
			break;
		default:
			if (what < 2) {
				(void)ebpf_map_update(m, key, value, what);
			} else if (what == 2) {
				(void)ebpf_map_delete(m, key);
			} else {
				(void)ebpf_map_lookup(m, key);
			}
		}
	}
}

/* ---- checks after a kill ---- */

static uint64_t element_key(const struct ebpf_map *m, const uint64_t key[4])
{
	for (uint64_t k = 0; k < KEYS + ENTRIES; k++) {
		uint64_t is[4];

		key_of(m, k, is);
		if (memcmp(is, key, m->key_bytes) == 0) {
			return k;
		}
	}
	fail_msg("a key that no process inserted");
	return 0;
}

static void check_keyed(const struct ebpf_map *m)
{
	uint8_t seen[KEYS + ENTRIES] = { 0 };
	uint32_t n = 0;

	for (uint32_t s = 0; s < ebpf_map_slots(m); s++) {
		uint64_t key[4] = { 0 }, value[4] = { 0 }, want[4], k;
		int there = ebpf_map_slot(m, s, key, value);

		assert_in_range(there, 0, 1);
		if (!there) {
			continue;
		}
		k = element_key(m, key);
		value_of(k, want);
		assert_memory_equal(value, want, m->value_bytes);
		assert_false(seen[k]++);
		n++;
	}
	for (uint64_t k = 0; k < KEYS; k++) {
		uint64_t key[4], want[4];
		void *at;

		key_of(m, k, key);
		value_of(k, want);
		if (m->type == GBPF_MAP_LPM_TRIE) {
			continue; /* a lookup finds shorter ones too */
		}
		at = ebpf_map_lookup(m, key);
		assert_int_equal(at != NULL, seen[k]);
		if (at) {
			assert_memory_equal(at, want, m->value_bytes);
		}
	}
	assert_int_equal(ebpf_map_count(m), n);
	assert_true(n <= m->max_entries);
}

/* Everything can be taken out, filled to the last element, and taken out again. */
static void refill_keyed(const struct ebpf_map *m)
{
	uint32_t n = 0;

	assert_int_equal(ebpf_map_clear(m), 0);
	assert_int_equal(ebpf_map_count(m), 0);
	for (int round = 0; round < 3 && n < ENTRIES; round++) {
		for (uint64_t k = KEYS; k < KEYS + ENTRIES; k++) {
			uint64_t key[4], value[4];
			int err;

			key_of(m, k, key);
			value_of(k, value);
			err = ebpf_map_update(m, key, value, 1);
			assert_true(err == 0 || err == -EEXIST || err == -E2BIG);
			n += err == 0;
		}
		fake_now += 120000000000u;
	}
	assert_int_equal(n, ENTRIES);
	check_keyed(m);
	assert_int_equal(ebpf_map_clear(m), 0);
}

/* Numbers come in order and whole; none that was pushed before another is missing between. */
static void check_listed(const struct ebpf_map *m, struct shared *s)
{
	uint64_t last = 0, newest = 0, value[4];
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < ebpf_map_slots(m); slot++) {
		uint64_t want[4];

		if (ebpf_map_slot(m, slot, NULL, value) != 1) {
			continue;
		}
		value_of(value[3], want);
		assert_memory_equal(value, want, 24);
		if (m->type == GBPF_MAP_QUEUE) {
			assert_true(value[3] > last && value[3] <= s->pushing);
			assert_true(!n || value[3] == last + 1);
		} else {
			assert_true(!n || value[3] < last);
		}
		last = value[3];
		newest = MAX(newest, last);
		n++;
	}
	assert_true(n <= ENTRIES);
	if (m->type == GBPF_MAP_QUEUE && n) {
		assert_true(last >= s->pushed);
	}
	if (!n || newest == s->pushing) { /* else it was not put in: the number is used again */
		s->pushed = s->pushing;
	}
}

static void refill_listed(const struct ebpf_map *m)
{
	uint64_t value[4] = { 0 };
	uint32_t n = 0;

	assert_int_equal(ebpf_map_clear(m), 0);
	for (int try = 0; try < 100 && n < ENTRIES; try++) {
		while (ebpf_map_push(m, value, 0) == 0) {
			n++;
		}
		fake_now += 120000000000u;
	}
	assert_int_equal(n, ENTRIES);
	assert_int_equal(ebpf_map_count(m), ENTRIES);
	assert_int_equal(ebpf_map_clear(m), 0);
	assert_int_equal(ebpf_map_count(m), 0);
}

static void read_ring(const struct ebpf_map *m, struct ebpf_ring_reader *r, struct shared *s)
{
	uint64_t value[4], want[4];
	int got;

	while ((got = ebpf_ring_read(m, r, value, sizeof(value), fake_now, 1)) != 0) {
		assert_int_equal(got, 32);
		value_of(value[3], want);
		assert_memory_equal(value, want, 24);
		assert_true(value[3] > s->read);
		assert_true(value[3] <= s->pushing);
		s->read = value[3];
	}
	assert_true(s->read >= s->pushed);
	assert_int_equal(r->broken, 0);
	assert_int_equal(ebpf_ring_query(m, 0), 0);
}

static struct ebpf_ring_reader reader;

static void check(const struct ebpf_map *m, struct shared *s, int deep)
{
	if (m->type == GBPF_MAP_RINGBUF) {
		read_ring(m, &reader, s);
		s->pushed = s->read;
	} else if (m->key_bytes) {
		check_keyed(m);
		if (deep) {
			refill_keyed(m);
		}
	} else {
		check_listed(m, s);
		if (deep) {
			refill_listed(m);
			s->pushed = s->pushing;
		}
	}
}

/* ---- running them ---- */

static const struct ebpf_map_def defs[] = {
	{ .name = "hash",
	  .type = GBPF_MAP_HASH,
	  .key_bytes = 4,
	  .value_bytes = 8,
	  .max_entries = ENTRIES },
	{ .name = "hash16",
	  .type = GBPF_MAP_HASH,
	  .key_bytes = 16,
	  .value_bytes = 32,
	  .max_entries = ENTRIES },
	{ .name = "lru",
	  .type = GBPF_MAP_LRU_HASH,
	  .key_bytes = 8,
	  .value_bytes = 8,
	  .max_entries = ENTRIES },
	{ .name = "lpm",
	  .type = GBPF_MAP_LPM_TRIE,
	  .key_bytes = 8,
	  .value_bytes = 8,
	  .max_entries = ENTRIES },
	{ .name = "queue", .type = GBPF_MAP_QUEUE, .value_bytes = 32, .max_entries = ENTRIES },
	{ .name = "stack", .type = GBPF_MAP_STACK, .value_bytes = 32, .max_entries = ENTRIES },
	{ .name = "ring", .type = GBPF_MAP_RINGBUF, .max_entries = 4096, .flags = TENANT },
};

static struct shared *sh;

/* A victim; it is killed by the point it meets, or after some microseconds. 1: it was killed. */
static int victim(const struct ebpf_map *m, uint64_t seed, unsigned after_us)
{
	pid_t pid = fork();
	int status = 0;

	assert_true(pid >= 0);
	if (pid == 0) {
		work(m, sh, seed);
		_exit(0);
	}
	if (after_us) {
		struct timespec t = { 0, (long)after_us * 1000 };

		nanosleep(&t, NULL); /* a random moment, not a synchronization */
		kill(pid, SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void make(struct one_map *o, const struct ebpf_map_def *d)
{
	map_make(o, *d);
	memset(sh, 0, sizeof(*sh));
	memset(&reader, 0, sizeof(reader));
}

static void killed_at_random_moments(void **state)
{
	uint64_t seed = 0x5deece66d;

	for (size_t d = 0; d < ARRAY_SIZE(defs); d++) {
		struct one_map o;

		print_message("%s\n", defs[d].name);
		make(&o, &defs[d]);
		for (int round = 0; round < 200; round++) {
			assert_true(victim(&o.m, test_random(&seed),
					   1 + (unsigned)(test_random(&seed) % 1500)));
			check(&o.m, sh, round % 10 == 9);
		}
		map_drop(&o);
	}
}

static void killed_at(const struct ebpf_map_def *d, const char *const points[])
{
	uint64_t seed = 0xfeed;

	for (int p = 0; points[p]; p++) {
		struct one_map o;

		print_message("%s: %s\n", d->name, points[p]);
		make(&o, d);
		for (int round = 0; round < 12; round++) {
			armed = points[p];
			passes = 1 + round * round;
			assert_true(victim(&o.m, test_random(&seed), 0));
			armed = NULL;
			check(&o.m, sh, round % 3 == 2);
		}
		map_drop(&o);
	}
}

#define HASH_POINTS                                                                                \
	"map.pool.claim.bit", "map.hash.insert.claimed", "map.hash.insert.key",                    \
		"map.hash.insert.filled", "map.hash.insert.ready", "map.hash.insert.linked",       \
		"map.hash.update.stored", "map.hash.delete.marked", "map.hash.delete.unlinked",    \
		"map.pool.free.state"

static void killed_at_each_point_of_hash_tables(void **state)
{
	const char *const points[] = { HASH_POINTS, NULL };

	killed_at(&defs[0], points);
	killed_at(&defs[1], points);
	killed_at(&defs[2], (const char *const[]){ HASH_POINTS, "map.lru.evict.marked", NULL });
	killed_at(&defs[3], (const char *const[]){ HASH_POINTS, "map.lpm.insert.length", NULL });
}

static void killed_at_each_point_of_queues_and_stacks(void **state)
{
	killed_at(&defs[4],
		  (const char *const[]){ "map.pool.claim.bit", "map.queue.push.claimed",
					 "map.queue.push.ready", "map.queue.push.placed",
					 "map.queue.pop.taken", "map.pool.free.state", NULL });
	killed_at(&defs[5],
		  (const char *const[]){ "map.pool.claim.bit", "map.stack.push.claimed",
					 "map.stack.push.ready", "map.stack.push.linked",
					 "map.stack.pop.taken", "map.pool.free.state", NULL });
}

static void killed_at_each_point_of_rings(void **state)
{
	killed_at(&defs[6],
		  (const char *const[]){ "ring.reserve.claimed", "ring.reserve.advanced",
					 "ring.output.copied", "ring.submit.before", NULL });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_at_each_point_of_hash_tables),
		cmocka_unit_test(killed_at_each_point_of_queues_and_stacks),
		cmocka_unit_test(killed_at_each_point_of_rings),
		cmocka_unit_test(killed_at_random_moments),
	};

	clock_set_source(fake_clock);
	sh = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return sh == MAP_FAILED ? 1 : cmocka_run_group_tests_name("killed", tests, NULL, NULL);
}
