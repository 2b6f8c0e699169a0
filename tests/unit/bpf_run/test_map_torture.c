/* Threads and processes use one map concurrently. The results must be linearizable: a thread finds
 * the keys that it alone inserts, insertions and deletions of a contended key alternate, and each
 * pushed element is popped once. */
#include "map_env.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "bpf/run/map/ring.h"

#ifndef ROUNDS
#define ROUNDS 200000 /* more by hand */
#endif
enum { WORKERS = 4, KEYS = 96 };

struct tally {
	uint64_t inserted[KEYS], deleted[KEYS];
	uint64_t pushed, popped, sum_in, sum_out;
	uint64_t done, wrong, busy;
};

static struct one_map map;
static struct tally *tally; /* shared with children */

static void *worker_arg(int i)
{
	return (void *)(intptr_t)i;
}

/* Runs fn(0..WORKERS-1) in threads, or in processes. */
static void run_all(void *(*fn)(void *), int processes)
{
	pthread_t t[WORKERS];
	pid_t pid[WORKERS];

	for (int i = 0; i < WORKERS; i++) {
		if (!processes) {
			assert_int_equal(pthread_create(&t[i], NULL, fn, worker_arg(i)), 0);
			continue;
		}
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0) {
			fn(worker_arg(i));
			_exit(0);
		}
	}
	for (int i = 0; i < WORKERS; i++) {
		int status = 0;

		if (processes) {
			assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
			assert_int_equal(status, 0);
		} else {
			pthread_join(t[i], NULL);
		}
	}
	assert_int_equal(tally->wrong, 0);
}

static void start(struct ebpf_map_def d)
{
	map_make(&map, d);
	memset(tally, 0, sizeof(*tally));
}

static void wrong(void)
{
	(void)add_relaxed(&tally->wrong, 1);
}

/* ---- keys with an owner ---- */

/* Values wider than a word are written in two stores, so only the owner's are compared whole. */
static void *own_keys(void *arg)
{
	uint64_t me = (uint64_t)(intptr_t)arg, seed = 1000003 * (me + 1), last[KEYS] = { 0 };

	for (uint64_t round = 1; round < ROUNDS; round++) {
		uint64_t k = test_random(&seed) % KEYS, value[4] = { k << 32 | round, k, k, round };
		uint64_t *at;

		if (k % WORKERS != me) {
			at = ebpf_map_lookup(&map.m, &k);
			if (at && load_relaxed(at) >> 32 >= KEYS) {
				wrong();
			}
			continue;
		}
		switch (test_random(&seed) % 3) {
		case 0:
			if (ebpf_map_update(&map.m, &k, value, last[k] ? 2 : 1) != 0) {
				wrong();
			}
			last[k] = value[0];
			break;
		case 1:
			if (ebpf_map_delete(&map.m, &k) != (last[k] ? 0 : -ENOENT)) {
				wrong();
			}
			last[k] = 0;
			break;
		default:
			at = ebpf_map_lookup(&map.m, &k);
			if (!!at != !!last[k] || (at && load_relaxed(at) != last[k])) {
				wrong();
			}
		}
	}
	return NULL;
}

static void owners_see_their_keys(void **state)
{
	for (int processes = 0; processes < 2; processes++) {
		start(map_def(GBPF_MAP_HASH, 8, 8, KEYS, TENANT));
		run_all(own_keys, processes);
		map_drop(&map);
		start(map_def(GBPF_MAP_HASH, 8, 32, KEYS + 100, TENANT));
		run_all(own_keys, processes);
		map_drop(&map);
		/* few buckets, long lists: the elements of two meet all the time */
		start(map_def(GBPF_MAP_HASH, 8, 8, KEYS, TENANT));
		map.m.n_slots = 2;
		run_all(own_keys, processes);
		map_drop(&map);
	}
}

/* ---- keys that all fight for ---- */

static void *fight(void *arg)
{
	uint64_t seed = 77777 * ((uint64_t)(intptr_t)arg + 1);

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t k = test_random(&seed) % 8, value = k << 32;
		int insert = (int)(test_random(&seed) % 2);
		int err = insert ? ebpf_map_update(&map.m, &k, &value, 1)
				 : ebpf_map_delete(&map.m, &k);

		if (err == 0) {
			(void)add_relaxed(insert ? &tally->inserted[k] : &tally->deleted[k], 1);
		} else if (err != (insert ? -EEXIST : -ENOENT)) {
			(void)add_relaxed(err == -EBUSY ? &tally->busy : &tally->wrong, 1);
		}
	}
	return NULL;
}

static void inserts_and_deletes_take_turns(void **state)
{
	for (int c = 0; c < 4; c++) {
		start(map_def(GBPF_MAP_HASH, 8, 8, 16, TENANT));
		map.m.n_slots = c / 2 ? 1 : map.m.n_slots;
		run_all(fight, c % 2);
		assert_int_equal(tally->busy, 0);
		for (uint64_t k = 0; k < 8; k++) {
			uint64_t there = tally->inserted[k] - tally->deleted[k];

			assert_in_range(there, 0, 1);
			assert_int_equal(ebpf_map_lookup(&map.m, &k) != NULL, there);
		}
		for (uint64_t k = 0, value = 0; k < 8; k++) {
			(void)ebpf_map_update(&map.m, &k, &value, 0);
		}
		for (uint64_t k = 100, value = 0; k < 108; k++) { /* nothing was lost */
			assert_int_equal(ebpf_map_update(&map.m, &k, &value, 0), 0);
		}
		assert_int_equal(ebpf_map_count(&map.m), 16);
		map_drop(&map);
	}
}

static void *churn(void *arg)
{
	uint64_t me = (uint64_t)(intptr_t)arg, seed = 99991 * (me + 1);

	for (int round = 0; round < ROUNDS / 2; round++) {
		uint64_t k = test_random(&seed) % 1000, value = k;

		if (ebpf_map_update(&map.m, &k, &value, 0) != 0) {
			(void)add_relaxed(&tally->busy, 1);
		}
		(void)ebpf_map_lookup(&map.m, &k);
	}
	return NULL;
}

static void a_full_lru_table_takes_what_comes(void **state)
{
	uint8_t seen[1000] = { 0 };

	start(map_def(GBPF_MAP_LRU_HASH, 8, 8, 100, TENANT));
	run_all(churn, 0);
	assert_true(tally->busy < ROUNDS / 1000);
	assert_true(ebpf_map_count(&map.m) <= 100);
	for (uint32_t s = 0; s < ebpf_map_slots(&map.m); s++) {
		uint64_t key, value;

		if (ebpf_map_slot(&map.m, s, &key, &value) == 1) {
			assert_true(key < 1000);
			assert_false(seen[key]++);
		}
	}
	map_drop(&map);
}

/* ---- queues and stacks ---- */

static void *push_and_pop(void *arg)
{
	uint64_t me = (uint64_t)(intptr_t)arg, last[WORKERS] = { 0 }, seed = 31 * (me + 1);

	for (uint64_t round = 1; round < ROUNDS; round++) {
		uint64_t value[3] = { me << 32 | round, ~(me << 32 | round), round };

		if (test_random(&seed) % 2) {
			if (ebpf_map_push(&map.m, value, 0) == 0) {
				(void)add_relaxed(&tally->pushed, 1);
				(void)add_relaxed(&tally->sum_in, value[0]);
			}
		} else if (ebpf_map_pop(&map.m, value) == 0) {
			uint64_t from = value[0] >> 32;

			if (value[0] != ~value[1] || value[2] != (uint32_t)value[0] ||
			    from >= WORKERS ||
			    (map.m.type == GBPF_MAP_QUEUE && value[2] <= last[from])) {
				wrong();
			}
			last[from % WORKERS] = value[2];
			(void)add_relaxed(&tally->popped, 1);
			(void)add_relaxed(&tally->sum_out, value[0]);
		}
	}
	return NULL;
}

static void what_is_pushed_is_popped_once(void **state)
{
	const uint32_t sizes[] = { 1, 3, 64 };

	for (int c = 0; c < 12; c++) {
		uint64_t value[3];

		start(map_def(c & 1 ? GBPF_MAP_STACK : GBPF_MAP_QUEUE, 0, 24, sizes[c / 4],
			      TENANT));
		run_all(push_and_pop, c >> 1 & 1);
		while (ebpf_map_pop(&map.m, value) == 0) {
			assert_int_equal(value[0], ~value[1]);
			tally->popped++;
			tally->sum_out += value[0];
		}
		assert_int_equal(tally->pushed, tally->popped);
		assert_int_equal(tally->sum_in, tally->sum_out);
		assert_true(tally->pushed > 100);
		for (uint32_t n = 0; n < sizes[c / 4]; n++) { /* no element was lost */
			assert_int_equal(ebpf_map_push(&map.m, value, 0), 0);
		}
		map_drop(&map);
	}
}

/* ---- rings ---- */

struct record {
	uint64_t from, number, sum, words[12];
};

static void *write_records(void *arg)
{
	uint64_t me = (uint64_t)(intptr_t)arg, seed = 17 * (me + 1), number = 1;
	static __thread struct record r;

	while (number <= ROUNDS / 4) {
		uint64_t n = test_random(&seed) % 13;
		struct record *at = ebpf_ring_reserve(&map.m, 24 + n * 8);

		if (!at) {
			sched_yield();
			continue;
		}
		if (test_random(&seed) % 8 == 0) {
			(void)ebpf_ring_finish(&map.m, at, 1);
			continue;
		}
		r.from = me;
		r.number = number;
		r.sum = n;
		for (uint64_t w = 0; w < n; w++) {
			r.words[w] = number * w;
			r.sum += r.words[w];
		}
		memcpy(at, &r, 24 + n * 8);
		if (ebpf_ring_finish(&map.m, at, 0) != 0) {
			wrong();
		}
		number++;
	}
	(void)add_acqrel(&tally->done, 1);
	return NULL;
}

static void *read_records(void *arg)
{
	struct ebpf_ring_reader reader;
	uint64_t last[WORKERS] = { 0 };
	struct record r;

	ebpf_ring_open(&reader, &map.m);
	for (;;) {
		uint64_t done = load_acquire(&tally->done), sum;
		int got = ebpf_ring_read(&map.m, &reader, &r, sizeof(r), 1, 0);

		if (got == 0) {
			if (done == WORKERS) {
				break;
			}
			sched_yield();
			continue;
		}
		sum = ((uint64_t)got - 24) / 8;
		for (int w = 0; w < (got - 24) / 8; w++) {
			sum += r.words[w];
		}
		if (got < 24 || r.from >= WORKERS || r.number != last[r.from] + 1 || r.sum != sum) {
			wrong();
			break;
		}
		last[r.from] = r.number;
		tally->popped++;
	}
	if (reader.lost || reader.broken) {
		wrong();
	}
	return arg;
}

static void records_of_many_writers_come_out_whole(void **state)
{
	for (int processes = 0; processes < 2; processes++) {
		pthread_t t;

		start(map_def(GBPF_MAP_RINGBUF, 0, 0, 4096, TENANT));
		assert_int_equal(pthread_create(&t, NULL, read_records, NULL), 0);
		run_all(write_records, processes);
		pthread_join(t, NULL);
		assert_int_equal(tally->wrong, 0);
		assert_int_equal(tally->popped, WORKERS * (ROUNDS / 4));
		map_drop(&map);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(owners_see_their_keys),
		cmocka_unit_test(inserts_and_deletes_take_turns),
		cmocka_unit_test(a_full_lru_table_takes_what_comes),
		cmocka_unit_test(what_is_pushed_is_popped_once),
		cmocka_unit_test(records_of_many_writers_come_out_whole),
	};

	tally = mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	return tally == MAP_FAILED ? 1 : cmocka_run_group_tests_name("torture", tests, NULL, NULL);
}
