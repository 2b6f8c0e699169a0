/* Versions: a call sees one, with its code and maps; dropped versions are unmapped; boards are
 * removed while threads read them. */
#include "fake.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"
#include "sched/sched_int.h"

#define THREADS 4

/* The code of each version holds its number, and so does its global map. A call that saw the code
 * of one and the map of another answers a verdict out of range, which is counted. It reads two
 * words of the map, at its beginning and its end. */
static void version_program(struct ebpf_insn out[16], uint32_t *n, int32_t number)
{
	const struct ebpf_insn code[] = {
		I_VALUE(2, 0, 0),
		I_LDX(EBPF_DW, 3, 2, 0),
		I_LDX(EBPF_DW, 4, 2, 8),
		I_MOV(0, 77),
		I_J(EBPF_JNE, 3, number, 2),
		I_J(EBPF_JNE, 4, number, 1),
		I_MOV(0, GBPF_GO),
		I_EXIT,
	};

	memcpy(out, code, sizeof(code));
	*n = sizeof(code) / sizeof(code[0]);
}

struct hammer {
	struct rig *r;
	struct sched_queue *q;
	struct fake_queue fq;
	uint32_t *stop;
	uint64_t calls, unknown_versions, back;
};

static void *hammer(void *arg)
{
	struct hammer *t = arg;
	uint64_t last = 0;

	while (!load_acquire(t->stop)) {
		struct sched_launch l = kernel_launch(NULL);

		(void)ticket_begin(t->q, &l);
		ticket_end(true);
		t->unknown_versions += l.version == 0;
		t->back += l.version < last;
		last = l.version;
		(void)add_relaxed(&t->calls, 1u);
	}
	return NULL;
}

static bool mapped(const char *what)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	bool found = false;

	while (fgets(line, sizeof(line), f)) {
		found |= strstr(line, what) != NULL;
	}
	fclose(f);
	return found;
}

static void swaps_under_load_mix_nothing(void **state)
{
	static struct hammer t[THREADS];
	struct regions m[2];
	pthread_t th[THREADS];
	uint32_t stop = 0;
	struct rig r;

	memset(t, 0, sizeof(t));
	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	for (uint64_t v = 1; v <= 100; v++) {
		struct ebpf_insn code[16];
		struct regions *now = &m[v % 2];
		struct prog p = { .hook = POLICY_HOOK_submit, .insns = code };

		version_program(code, &p.n, (int32_t)v);
		regions_make(now);
		now->global[0] = now->global[1] = v;
		assert_int_equal(rig_policy_prepare(&r, v, &p, 1, now), 0);
		store_release(&r.dir.version[0], v);
		for (int i = 0; v == 1 && i < THREADS; i++) {
			t[i].r = &r;
			t[i].stop = &stop;
			t[i].fq.eager = 1;
			t[i].q = sched_queue_open(r.s, &t[i].fq, 0, 0);
			pthread_create(&th[i], NULL, hammer, &t[i]);
		}
		if (v > 1) {
			uint64_t before = load_relaxed(&t[0].calls);

			sched_policy_drop(r.s, v - 1, UINT32_MAX);
			regions_free(&m[(v - 1) % 2]);
			while (load_relaxed(&t[0].calls) == before) {
				sched_yield();
			}
		}
	}
	store_release(&stop, 1u);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(th[i], NULL);
		assert_int_equal(t[i].unknown_versions, 0);
		assert_int_equal(t[i].back, 0);
	}
	assert_int_equal(r.stats.verdict_errors, 0);
	assert_int_equal(r.stats.version_in_use, 100);
	sched_policy_drop(r.s, 100, UINT32_MAX);
	assert_false(mapped("gbpf-image"));
	regions_free(&m[0]);
	rig_finish(&r);
}

static const struct ebpf_insn always_go[] = { I_MOV(0, GBPF_GO), I_EXIT };

static void an_unprepared_version_leaves_the_one_in_use(void **state)
{
	struct fake_queue fq = { 0 };
	struct sched_queue *q;
	struct sched_launch l;
	struct prog p = PROG(submit, always_go);
	struct rig r;

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	l = kernel_launch(NULL);
	assert_int_equal(rig_policy_prepare(&r, 5, &p, 1, NULL), 0);
	go(q, &fq, &l);
	assert_int_equal(l.version, 0); /* a prepared version is not active */
	r.dir.version[0] = 4;
	go(q, &fq, &l);
	assert_int_equal(l.version, 0); /* and no version was in use */
	r.dir.version[0] = 5;
	go(q, &fq, &l);
	assert_int_equal(l.version, 5);
	r.dir.version[0] = 6;
	go(q, &fq, &l);
	assert_int_equal(l.version, 5);
	sched_policy_drop(r.s, 5, UINT32_MAX);
	assert_int_equal(rig_policy_prepare(&r, 7, &p, 1, NULL), 0);
	go(q, &fq, &l);
	assert_int_equal(l.version, 0);
	r.dir.version[0] = 0;
	go(q, &fq, &l);
	assert_int_equal(l.version, 0);
	rig_finish(&r);
}

static void preparing_is_bounded_and_checked(void **state)
{
	struct prog p = PROG(submit, always_go);
	static const int none[EBPF_REGIONS] = EBPF_NO_REGIONS;
	struct rig r;

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	assert_true(sched_idle(r.s));
	assert_true(sched_policy_prepare(r.s, 1, UINT32_MAX, -1, none) < 0);
	assert_true(sched_idle(r.s));
	for (uint64_t v = 1; v <= POLICY_MAX_PREPARED; v++) {
		assert_int_equal(rig_policy_prepare(&r, v, &p, 1, NULL), 0);
	}
	assert_false(sched_idle(r.s));
	assert_true(rig_policy_prepare(&r, POLICY_MAX_PREPARED + 1, &p, 1, NULL) < 0);
	for (uint64_t v = 1; v <= POLICY_MAX_PREPARED; v++) {
		sched_policy_drop(r.s, v, UINT32_MAX);
	}
	assert_true(sched_idle(r.s));
	rig_finish(&r);
}

static void boards_leave_under_readers(void **state)
{
	static const struct ebpf_insn go_anyway[] = { I_LDX(EBPF_W, 2, 1, SUBMIT(lc_open)),
						      I_MOV(0, GBPF_GO), I_EXIT };
	static struct hammer t[THREADS];
	pthread_t th[THREADS];
	uint32_t stop = 0;
	struct rig r;

	memset(t, 0, sizeof(t));
	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	POLICY_USE(&r, 1, go_anyway);
	for (int i = 0; i < THREADS; i++) {
		t[i].r = &r;
		t[i].stop = &stop;
		t[i].fq.eager = 1;
		t[i].q = sched_queue_open(r.s, &t[i].fq, 0, 0);
		pthread_create(&th[i], NULL, hammer, &t[i]);
	}
	for (uint32_t i = 0; i < 500; i++) {
		/* a page that faults after it is unmapped */
		struct proto_board *b = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		b->gpu[0].open = i & 1;
		assert_int_equal(sched_board_add(r.s, SCHED_BOARD_LATENCY,
						 i % PROTO_MAX_LC == 3 ? 4 : i % PROTO_MAX_LC, 9,
						 b),
				 0);
		sched_board_remove(r.s, SCHED_BOARD_LATENCY,
				   i % PROTO_MAX_LC == 3 ? 4 : i % PROTO_MAX_LC);
		munmap(b, 4096);
	}
	store_release(&stop, 1u);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(th[i], NULL);
	}
	rig_finish(&r);
}

static unsigned images(void)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;

	while (fgets(line, sizeof(line), f)) {
		n += strstr(line, "gbpf-image") && strstr(line, "r--p");
	}
	fclose(f);
	return n;
}

/* gbpfd exited between PREPARE of version 6 and its activation; the next one knows only version 5.
 */
static void versions_of_a_lost_gbpfd_are_swept(void **state)
{
	static const uint32_t gpus[PROTO_MAX_GPUS] = { 0, PROTO_MAX_GPUS, PROTO_MAX_GPUS };
	struct proto_directory again = { .magic = PROTO_DIRECTORY_MAGIC, .generation = 2 };
	struct prog p = PROG(submit, always_go);
	struct fake_queue fq = { .eager = 1 };
	struct sched_queue *q;
	struct sched_launch l;
	struct rig r;
	unsigned one;

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	l = kernel_launch(NULL);
	POLICY_USE(&r, 5, always_go);
	go(q, &fq, &l);
	one = images();
	assert_int_equal(rig_policy_prepare(&r, 6, &p, 1, NULL), 0);
	sched_set_pages(r.s, NULL, &r.own, &r.stats, gpus);
	assert_false(sched_policy_sweep(r.s)); /* there is no gbpfd that knows better */
	go(q, &fq, &l);
	assert_int_equal(l.version, 5);
	again.version[0] = 5;
	sched_set_pages(r.s, &again, &r.own, &r.stats, gpus);
	assert_false(sched_policy_sweep(r.s)); /* the new gbpfd has not prepared version 5 yet */
	assert_true(sched_policy_is_prepared(r.s, 6, UINT32_MAX));
	go(q, &fq, &l);
	assert_int_equal(l.version, 5);
	assert_int_equal(rig_policy_prepare(&r, 5, &p, 1, NULL), 0);
	assert_true(sched_policy_sweep(r.s));
	assert_false(sched_policy_is_prepared(r.s, 6, UINT32_MAX));
	assert_true(sched_policy_is_prepared(r.s, 5, UINT32_MAX));
	assert_int_equal(images(), one);
	go(q, &fq, &l);
	assert_int_equal(l.version, 5);
	rig_finish(&r);
}

/* gbpf_note(3, 5) */
static const struct ebpf_insn noting[] = {
	I_MOV(1, 3),	   I_MOV(2, 5), { .code = EBPF_JMP | EBPF_CALL, .imm = 1003 },
	I_MOV(0, GBPF_GO), I_EXIT,
};

static void the_page_shows_the_notes_of_the_version_in_use(void **state)
{
	struct fake_queue fq = { .eager = 1 };
	struct sched_launch l = kernel_launch(NULL);
	struct prog p = PROG(submit, noting);
	struct sched_queue *q;
	struct rig r;

	rig_init(&r, GBPF_CLASS_NORMAL, 0, 0);
	q = sched_queue_open(r.s, &fq, 0, 0);
	POLICY_USE(&r, 5, noting);
	go(q, &fq, &l);
	go(q, &fq, &l);
	sched_stats_publish(r.s, clock_now_ns());
	assert_int_equal(r.stats.notes_version, 5);
	assert_int_equal(r.stats.notes[3], 10);
	assert_int_equal(r.stats.notes[2], 0);

	assert_int_equal(rig_policy_prepare(&r, 6, &p, 1, NULL), 0);
	r.dir.version[0] = 6;
	go(q, &fq, &l);
	sched_stats_publish(r.s, clock_now_ns());
	assert_int_equal(r.stats.notes_version, 6);
	assert_int_equal(r.stats.notes[3], 5); /* another version begins at 0 */

	sched_policy_drop(r.s, 6, UINT32_MAX);
	sched_stats_publish(r.s, clock_now_ns());
	assert_int_equal(r.stats.notes_version, 0); /* of no version */
	rig_finish(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(swaps_under_load_mix_nothing),
		cmocka_unit_test(an_unprepared_version_leaves_the_one_in_use),
		cmocka_unit_test(preparing_is_bounded_and_checked),
		cmocka_unit_test(boards_leave_under_readers),
		cmocka_unit_test(versions_of_a_lost_gbpfd_are_swept),
		cmocka_unit_test(the_page_shows_the_notes_of_the_version_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
