/* Copies next to a NUMA node. A folder of the test's own takes the place of sysfs and divides the
 * CPUs of this machine among nodes; memory policies name node 0, which every machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "mem/copy_int.h"
#include "mem/numa.h"
#include "../eventually.h"
#include "../put_file.h"

#define WORDS (MEM_NUMA_NODES_MAX / (8 * sizeof(unsigned long)))
#define PLENTY ((uint64_t)1 << 30)

static char sysfs[128];

static void remove_file(const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	assert_int_equal(unlink(path), 0);
}

static void put_node(int node, const char *cpus)
{
	char name[64];

	snprintf(name, sizeof(name), "devices/system/node/node%d/cpulist", node);
	put_file(sysfs, name, cpus);
}

static cpu_set_t affinity_of(pid_t thread)
{
	cpu_set_t set;

	assert_int_equal(sched_getaffinity(thread, sizeof(set), &set), 0);
	return set;
}

static cpu_set_t only(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return set;
}

/* Returns the nth CPU of a set, -1 if it has fewer. */
static int nth(const cpu_set_t *set, int n)
{
	for (int i = 0; i < CPU_SETSIZE; i++) {
		if (CPU_ISSET((size_t)i, set) && !n--) {
			return i;
		}
	}
	return -1;
}

/* ---- sysfs ---- */

static void lists_are_parsed(void **state)
{
	cpu_set_t set;

	(void)state;
	assert_true(mem_numa_parse("0-3,8-11\n", &set));
	assert_int_equal(CPU_COUNT(&set), 8);
	assert_true(CPU_ISSET(3, &set) && !CPU_ISSET(4, &set) && CPU_ISSET(8, &set));
	assert_true(mem_numa_parse("7", &set));
	assert_int_equal(CPU_COUNT(&set), 1);
	assert_true(CPU_ISSET(7, &set));
	assert_true(mem_numa_parse("4-9,2-5,5\n", &set));
	assert_int_equal(CPU_COUNT(&set), 8);
	assert_true(CPU_ISSET(2, &set) && CPU_ISSET(9, &set));
	assert_true(mem_numa_parse("0-1023", &set));
	assert_int_equal(CPU_COUNT(&set), 1024);
}

static void other_text_is_no_list(void **state)
{
	static const char *const bad[] = {
		"",	"\n",	   "a",	     "0-",    "-3",
		"3-1",	"0,,1",	   "0,",     ",0",    " 0",
		"0 ",	"1024",	   "0-1024", "0x1",   "0-1-2",
		"+1",	"0\n\n",   "0\n1",   "0;1",   "4294967296",
		"0--1", "0-1:1/2", "0,-\n",  "1 - 2", "99999999999999999999999",
		"0-\n", "0,\n",	   "\xff",   "1.0",   "0-18446744073709551617",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		cpu_set_t set = only(5), before = set;

		if (mem_numa_parse(bad[i], &set)) {
			fail_msg("'%s' is a list", bad[i]);
		}
		assert_true(CPU_EQUAL(&set, &before));
	}
}

static void a_node_has_the_cpus_of_its_list(void **state)
{
	cpu_set_t mine = affinity_of(0), both;
	char list[64];
	struct mem_numa n;

	(void)state;
	snprintf(list, sizeof(list), "%d,1023\n", nth(&mine, 0));
	put_file(sysfs, "devices/system/node/online", "0,3\n");
	put_node(3, list);
	n = mem_numa_find(sysfs, 3);
	both = only(nth(&mine, 0));
	CPU_SET(1023, &both);
	assert_int_equal(n.node, 3);
	assert_true(CPU_EQUAL(&n.cpus, &both));
}

static void check_none(int node)
{
	assert_int_equal(mem_numa_find(sysfs, node).node, -1);
}

static void a_node_that_makes_no_difference_is_none(void **state)
{
	static const char *const no_cpus[] = { "\n", "", "garbage\n", "0-99999\n" };
	char list[64], *zeros = calloc(1, 8192);
	cpu_set_t mine = affinity_of(0);

	(void)state;
	assert_non_null(zeros);
	snprintf(list, sizeof(list), "%d\n", nth(&mine, 0));
	put_node(0, list);
	put_node(1, list);
	put_node(2, list);
	put_file(sysfs, "devices/system/node/online", "0-1\n");
	assert_int_equal(mem_numa_find(sysfs, 1).node, 1);
	check_none(2); /* not online */
	check_none(-1);
	check_none((int)MEM_NUMA_NODES_MAX);
	check_none(INT32_MAX);
	check_none(INT32_MIN);
	put_file(sysfs, "devices/system/node/online", "1\n"); /* a single node */
	check_none(1);
	put_file(sysfs, "devices/system/node/online", "x\n");
	check_none(1);
	put_file(sysfs, "devices/system/node/online", "0-1\n");
	for (unsigned i = 0; i < ARRAY_SIZE(no_cpus); i++) {
		put_node(1, no_cpus[i]);
		check_none(1);
	}
	put_node(1, memset(zeros, '0', 8191)); /* more than sysfs says */
	check_none(1);
	remove_file("devices/system/node/node1/cpulist");
	check_none(1);
	free(zeros);
}

/* Its CPUs are all outside of what the thread may use. */
static void a_node_outside_the_affinity_is_none(void **state)
{
	cpu_set_t mine = affinity_of(0);
	char list[64];

	(void)state;
	assert_true(!CPU_ISSET(1023, &mine));
	put_file(sysfs, "devices/system/node/online", "0-1\n");
	put_node(1, "1023\n");
	check_none(1);
	snprintf(list, sizeof(list), "%d-1023\n", nth(&mine, CPU_COUNT(&mine) - 1));
	put_node(1, list);
	assert_int_equal(mem_numa_find(sysfs, 1).node, 1);
}

static void the_node_of_a_pci_device(void **state)
{
	static const char *const none[] = { "-1\n", "", "\n", "x", "1x", "1,2\n", "99999999999\n" };
	const char *name = "bus/pci/devices/0001:c3:0a.0/numa_node";

	(void)state;
	assert_int_equal(mem_numa_of_pci(sysfs, 1, 0xc3, 10), -1);
	put_file(sysfs, name, "12\n");
	assert_int_equal(mem_numa_of_pci(sysfs, 1, 0xc3, 10), 12);
	assert_int_equal(mem_numa_of_pci(sysfs, 0, 0xc3, 10), -1);
	for (unsigned i = 0; i < ARRAY_SIZE(none); i++) {
		put_file(sysfs, name, none[i]);
		assert_true(mem_numa_of_pci(sysfs, 1, 0xc3, 10) < 0);
	}
}

/* ---- helpers ---- */

/* A pool with one helper, whose affinity is that of this thread, and this thread's CPUs, of which
 * node 1 has the second one. */
struct bed {
	struct mem_copy_pool pool;
	cpu_set_t mine;
	int cpu[2];
	pid_t helper, other; /* other: a sanitizer's own thread, 0: none */
};

/* Returns the only thread of this process but the calling one and that one, 0 if there is none. */
static pid_t thread_besides(pid_t that)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	pid_t found = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		pid_t tid = (pid_t)strtol(e->d_name, NULL, 10);

		if (tid && tid != gettid() && tid != that) {
			assert_int_equal(found, 0);
			found = tid;
		}
	}
	closedir(d);
	return found;
}

static void *say_number(void *ret)
{
	*(pid_t *)ret = gettid();
	return NULL;
}

/* A sanitizer may start its own thread with the first one of the program: so there is one first. */
static pid_t sanitizer_thread(void)
{
	pid_t tid = 0;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, say_number, &tid), 0);
	assert_int_equal(pthread_join(t, NULL), 0);
	eventually(tgkill(getpid(), tid, 0) != 0);
	return thread_besides(0);
}

static void bed_init(struct bed *b)
{
	b->mine = affinity_of(0);
	b->cpu[0] = nth(&b->mine, 0);
	b->cpu[1] = nth(&b->mine, 1);
	b->helper = 0;
	b->other = sanitizer_thread();
	if (b->cpu[1] < 0) {
		print_message("skipped: the test needs two CPUs\n");
		skip();
	}
	put_file(sysfs, "devices/system/node/online", "0-2\n");
	for (int i = 0; i < 2; i++) {
		char list[64];

		snprintf(list, sizeof(list), "%d\n", b->cpu[i]);
		put_node(i, list);
	}
	mem_copy_pool_init(&b->pool, 2);
}

static void bed_finish(struct bed *b)
{
	mem_copy_pool_finish(&b->pool);
	assert_int_equal(sched_setaffinity(0, sizeof(b->mine), &b->mine), 0);
	eventually(thread_besides(b->other) == 0);
}

/* Has the helper move the units of a job, none of which this thread moves. Returns the affinity
 * that the helper has then. */
static cpu_set_t helped(struct bed *b, const struct mem_numa *numa)
{
	static unsigned char program[2 * MEM_COPY_UNIT], pinned[2 * MEM_COPY_UNIT];
	struct mem_piece piece = { .host = pinned };
	struct mem_copy c = {
		.numa = numa,
		.way = MEM_COPY_UP,
		.host = program,
		.bytes = sizeof(program),
		.piece_bytes = sizeof(program),
		.piece = { &piece },
		.n_pieces = 1,
	};
	struct mem_copy_job j = { .c = &c, .units_per_piece = 2, .n_units = 2, .open = 2 };
	cpu_set_t mine = affinity_of(0), helpers, now;

	memset(program, 7, sizeof(program));
	memset(pinned, 0, sizeof(pinned));
	mem_copy_pool_add(&b->pool, &j);
	mem_copy_pool_wake(&b->pool);
	eventually(load_acquire(&j.moved[0]) == 2);
	assert_int_equal(load_acquire(&j.stop), 0);
	assert_memory_equal(program, pinned, sizeof(program));
	b->helper = thread_besides(b->other);
	assert_true(b->helper > 0);
	helpers = affinity_of(b->helper);
	mem_copy_pool_remove(&b->pool, &j);
	now = affinity_of(0);
	assert_true(CPU_EQUAL(&mine, &now));
	return helpers;
}

static void check_helper(struct bed *b, const struct mem_numa *numa, cpu_set_t wanted)
{
	cpu_set_t is = helped(b, numa);

	assert_true(CPU_EQUAL(&is, &wanted));
}

static void a_helper_goes_where_the_device_is_and_back(void **state)
{
	struct mem_numa node[2], none = MEM_NUMA_NONE;
	struct bed b;
	pid_t helper;

	(void)state;
	bed_init(&b);
	node[0] = mem_numa_find(sysfs, 0);
	node[1] = mem_numa_find(sysfs, 1);
	assert_true(node[0].node == 0 && node[1].node == 1);
	check_helper(&b, NULL, b.mine);
	helper = b.helper;
	check_helper(&b, &node[1], only(b.cpu[1]));
	check_helper(&b, &node[0], only(b.cpu[0]));
	check_helper(&b, &node[0], only(b.cpu[0]));
	check_helper(&b, NULL, b.mine);
	check_helper(&b, &node[1], only(b.cpu[1]));
	check_helper(&b, &none, b.mine);
	assert_int_equal(b.helper, helper); /* the same one all the time */
	bed_finish(&b);
}

/* The program has bound the thread that starts helpers to one CPU. */
static void a_helper_keeps_to_the_affinity_that_it_was_created_with(void **state)
{
	struct mem_numa node[2];
	cpu_set_t first;
	struct bed b;

	(void)state;
	bed_init(&b);
	node[0] = mem_numa_find(sysfs, 0);
	node[1] = mem_numa_find(sysfs, 1);
	CPU_SET((size_t)b.cpu[1], &node[0].cpus); /* one of which it may use, and one not */
	first = only(b.cpu[0]);
	assert_int_equal(sched_setaffinity(0, sizeof(first), &first), 0);
	check_helper(&b, &node[1], first);
	check_helper(&b, &node[0], first);
	check_helper(&b, &node[1], first);
	check_helper(&b, NULL, first);
	bed_finish(&b);
}

/* ---- pieces ---- */

struct policy {
	int mode;
	unsigned long nodes[WORDS];
};

/* Returns false if the system does not let the process ask. */
static bool get_policy(struct policy *ret)
{
	memset(ret, 0, sizeof(*ret));
	return syscall(SYS_get_mempolicy, &ret->mode, ret->nodes, MEM_NUMA_NODES_MAX + 1ul, NULL,
		       0ul) == 0;
}

static bool set_policy(int mode, unsigned long node_bits)
{
	unsigned long nodes[WORDS] = { node_bits };

	return syscall(SYS_set_mempolicy, mode, nodes, MEM_NUMA_NODES_MAX + 1ul) == 0;
}

struct maker {
	struct policy seen; /* while a piece was made */
	bool fail;
};

static int piece_create(void *dev, size_t bytes, struct mem_piece *ret)
{
	struct maker *m = dev;

	assert_true(get_policy(&m->seen));
	if (m->fail) {
		return 1;
	}
	ret->host = malloc(bytes);
	assert_non_null(ret->host);
	return 0;
}

static void piece_destroy(void *dev, struct mem_piece *p)
{
	(void)dev;
	free(p->host);
}

static int piece_done(void *dev, const struct mem_piece *p)
{
	(void)dev, (void)p;
	return 0;
}

static const struct mem_device_ops ops = { .piece_create = piece_create,
					   .piece_destroy = piece_destroy,
					   .piece_done = piece_done };

/* Makes a piece for a node. Checks the policy meanwhile and that it is the old one afterwards. */
static void check_made(int node, bool fail, int mode, unsigned long nodes)
{
	struct maker m = { .fail = fail };
	struct mem_pieces pieces;
	struct policy before, after;
	struct mem_piece *p;
	unsigned n;

	assert_true(get_policy(&before));
	mem_pieces_init(&pieces);
	assert_int_equal(pieces.numa.node, -1);
	pieces.numa.node = node;
	n = mem_pieces_take(&pieces, &ops, &m, PLENTY, &p, 1);
	assert_int_equal(n, fail ? 0 : 1);
	assert_int_equal(m.seen.mode, mode);
	assert_int_equal(m.seen.nodes[0], nodes);
	assert_true(get_policy(&after));
	assert_memory_equal(&before, &after, sizeof(after));
	mem_pieces_give(&pieces, &p, n);
	mem_pieces_finish(&pieces, &ops, &m);
}

static void pieces_are_allocated_on_the_node(void **state)
{
	struct policy old;

	(void)state;
	if (!get_policy(&old) || !set_policy(MPOL_BIND, 1)) {
		print_message("skipped: the system refuses memory policies\n");
		skip();
	}
	/* With a policy of the program's own, and with none. */
	for (unsigned i = 0; i < 2; i++) {
		int mode = i ? MPOL_DEFAULT : MPOL_BIND;
		unsigned long nodes = i ? 0 : 1;

		assert_true(set_policy(mode, nodes));
		check_made(0, false, MPOL_PREFERRED, 1);
		check_made(0, true, MPOL_PREFERRED, 1);
		check_made(-1, false, mode, nodes);
		/* No machine that tests run on has it: the system refuses, the piece is made. */
		check_made((int)MEM_NUMA_NODES_MAX - 1, false, mode, nodes);
		check_made((int)MEM_NUMA_NODES_MAX, false, mode, nodes);
	}
	assert_int_equal(syscall(SYS_set_mempolicy, old.mode, old.nodes, MEM_NUMA_NODES_MAX + 1ul),
			 0);
}

static int make_sysfs(void **state)
{
	const char *parent = getenv("TMPDIR");

	(void)state;
	snprintf(sysfs, sizeof(sysfs), "%s/gbpf-numa-XXXXXX", parent ? parent : "/tmp");
	return mkdtemp(sysfs) ? 0 : -1;
}

static int remove_sysfs(void **state)
{
	char command[160];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", sysfs);
	return system(command);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_sysfs, remove_sysfs)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(lists_are_parsed),
		TEST(other_text_is_no_list),
		TEST(a_node_has_the_cpus_of_its_list),
		TEST(a_node_that_makes_no_difference_is_none),
		TEST(a_node_outside_the_affinity_is_none),
		TEST(the_node_of_a_pci_device),
		TEST(a_helper_goes_where_the_device_is_and_back),
		TEST(a_helper_keeps_to_the_affinity_that_it_was_created_with),
		TEST(pieces_are_allocated_on_the_node),
	};

	return cmocka_run_group_tests_name("mem-numa", tests, NULL, NULL);
}
