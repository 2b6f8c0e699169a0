/* What the host has room for, by texts and by a folder of the test's own in place of /proc and
 * /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "mem/host_room.h"
#include "../put_file.h"

#define MIB ((uint64_t)1 << 20)
#define UNCHANGED 77u

static char root[128];

/* ---- texts ---- */

static void pressure_is_parsed(void **state)
{
	uint64_t p = UNCHANGED;

	(void)state;
	assert_true(mem_host_parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
					    "full avg10=9.00 avg60=0.00 avg300=0.00 total=0\n",
					    &p));
	assert_int_equal(p, 0);
	assert_true(mem_host_parse_pressure("full avg10=1.00 avg60=2.00 \n"
					    "some avg10=12.34 avg60=0.00",
					    &p));
	assert_int_equal(p, 1234);
	assert_true(mem_host_parse_pressure("some avg10=100.00 ", &p));
	assert_int_equal(p, 10000);
}

static void other_text_is_no_pressure(void **state)
{
	static const char *const bad[] = {
		"",
		"some",
		"some avg10=",
		"some avg10=1",
		"some avg10=1.",
		"some avg10=1.2 ",
		"some avg10=1.234 ",
		"some avg10=1.23",
		"some avg10=-1.23 ",
		"some avg10=101.00 ",
		"some avg10=99999999999999999999999.00 ",
		"some avg60=1.23 ",
		" some avg10=1.23 ",
		"full avg10=1.23 avg60=0.00\n",
		"some avg10=a.bc ",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t p = UNCHANGED;

		if (mem_host_parse_pressure(bad[i], &p)) {
			fail_msg("'%s' is a pressure", bad[i]);
		}
		assert_int_equal(p, UNCHANGED);
	}
}

static void fields_are_parsed(void **state)
{
	static const char meminfo[] = "MemTotal:       16384 kB\n"
				      "MemFree:          100 kB\n"
				      "MemAvailable:    8192 kB\n";
	static const char stat[] = "anon 5\n"
				   "total_inactive_file 9\n"
				   "inactive_file 7\n";
	uint64_t n;

	(void)state;
	assert_true(mem_host_parse_field(meminfo, "MemTotal", &n));
	assert_int_equal(n, 16 * MIB);
	assert_true(mem_host_parse_field(meminfo, "MemAvailable", &n));
	assert_int_equal(n, 8 * MIB);
	assert_true(mem_host_parse_field(stat, "inactive_file", &n));
	assert_int_equal(n, 7);
	assert_true(mem_host_parse_field("a 18446744073709551615", "a", &n));
	assert_true(n == UINT64_MAX);
}

static void other_text_has_no_field(void **state)
{
	static const char *const bad[] = {
		"",
		"a",
		"a ",
		"a:",
		"a: 1",
		"a: 1 MB\n",
		"a x",
		"a -1",
		"b 1",
		"ba 1\n",
		"a: 1 k",
		"a 1 2",
		"a 1kB",
		"aa 1\naaa 2",
		"a 18446744073709551616",
		"a: 18446744073709551615 kB\n",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		uint64_t n = UNCHANGED;

		if (mem_host_parse_field(bad[i], "a", &n)) {
			fail_msg("'%s' has the field", bad[i]);
		}
		assert_int_equal(n, UNCHANGED);
	}
}

static void has_group(const char *text, const char *controller, const char *path)
{
	char got[16];

	assert_true(mem_host_parse_group(text, controller, got, sizeof(got)));
	assert_string_equal(got, path);
}

static void groups_are_parsed(void **state)
{
	static const char both[] = "12:cpu,cpuacct:/a\n"
				   "11:hugetlb,memory:/b/c\n"
				   "1:name=systemd:/d\n"
				   "0::/e:f\n";

	(void)state;
	has_group(both, "", "/e:f");
	has_group(both, "memory", "/b/c");
	has_group("0::/\n", "", "/");
	has_group("0::/a", "", "/a");
}

static void other_text_has_no_group(void **state)
{
	static const char *const bad[] = {
		"",
		"0",
		"0:",
		"0::",
		"0::a",
		"1:x:/a",
		"0::/../a",
		"0::/a/..",
		"\n\n",
		":memory",
		"0::/123456789012345",
	};
	char got[16];

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
		if (mem_host_parse_group(bad[i], "", got, sizeof(got))) {
			fail_msg("'%s' has the group", bad[i]);
		}
	}
	assert_false(mem_host_parse_group("1:memoryx,xmemory:/a\n", "memory", got, sizeof(got)));
	assert_false(mem_host_parse_group("0::/memory\n", "memory", got, sizeof(got)));
}

/* ---- files ---- */

static int make_root(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/host-room-XXXXXX");
	return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
	char command[192];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void has_room(uint64_t bytes)
{
	uint64_t room = mem_host_room(root);

	if (room != bytes) {
		fail_msg("room for %llu instead of %llu bytes", (unsigned long long)room,
			 (unsigned long long)bytes);
	}
}

static void without_files_nothing_is_known(void **state)
{
	(void)state;
	has_room(UINT64_MAX);
	put_file(root, "proc/meminfo", "rubbish\n");
	put_file(root, "proc/pressure/memory", "\xff\xfe");
	put_file(root, "proc/self/cgroup", "0::/a\n");
	put_file(root, "sys/fs/cgroup/a/memory.max", "");
	has_room(UINT64_MAX);
}

static void an_eighth_of_the_machine_is_left_alone(void **state)
{
	(void)state;
	put_file(root, "proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 8192 kB\n");
	has_room(6 * MIB);
	put_file(root, "proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 2047 kB\n");
	has_room(0);
}

static void while_tasks_wait_for_memory_there_is_no_room(void **state)
{
	(void)state;
	put_file(root, "proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 8192 kB\n");
	put_file(root, "proc/pressure/memory", "some avg10=4.99 avg60=50.00 \n");
	has_room(6 * MIB);
	put_file(root, "proc/pressure/memory", "some avg10=5.00 avg60=0.00 \n");
	has_room(0);
}

static void each_group_above_counts(void **state)
{
	(void)state;
	put_file(root, "proc/self/cgroup", "0::/a/b\n");
	put_file(root, "sys/fs/cgroup/a/b/memory.max", "max\n");
	put_file(root, "sys/fs/cgroup/a/b/memory.current", "1048576\n");
	has_room(UINT64_MAX);
	put_file(root, "sys/fs/cgroup/a/memory.max", "16777216\n");
	has_room(UINT64_MAX); /* its use is not known */
	put_file(root, "sys/fs/cgroup/a/memory.current", "8388608\n");
	has_room(6 * MIB);
	put_file(root, "sys/fs/cgroup/a/b/memory.max", "8388608\n");
	put_file(root, "sys/fs/cgroup/a/b/memory.current", "5242880\n");
	has_room(2 * MIB);
	put_file(root, "sys/fs/cgroup/a/b/memory.current", "9999999999\n");
	has_room(0);
}

static void cache_that_is_not_in_use_is_room(void **state)
{
	(void)state;
	put_file(root, "proc/self/cgroup", "0::/\n");
	put_file(root, "sys/fs/cgroup/memory.max", "16777216\n");
	put_file(root, "sys/fs/cgroup/memory.current", "16777216\n");
	has_room(0);
	put_file(root, "sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 4194304\n");
	has_room(2 * MIB);
	put_file(root, "sys/fs/cgroup/memory.stat", "inactive_file 99999999999\n");
	has_room(14 * MIB);
}

static void the_first_version_counts_too(void **state)
{
	(void)state;
	put_file(root, "proc/self/cgroup", "4:cpuset,memory:/not/here\n0::/\n");
	put_file(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
	put_file(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "8388608\n");
	has_room(UINT64_MAX);
	put_file(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "16777216\n");
	has_room(6 * MIB);
	put_file(root, "sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1048576\n");
	has_room(7 * MIB);
}

static void this_machine_is_read(void **state)
{
	(void)state;
	assert_true(mem_host_room(MEM_HOST_SYSTEM) < UINT64_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pressure_is_parsed),
		cmocka_unit_test(other_text_is_no_pressure),
		cmocka_unit_test(fields_are_parsed),
		cmocka_unit_test(other_text_has_no_field),
		cmocka_unit_test(groups_are_parsed),
		cmocka_unit_test(other_text_has_no_group),
#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
		IN_ROOT(without_files_nothing_is_known),
		IN_ROOT(an_eighth_of_the_machine_is_left_alone),
		IN_ROOT(while_tasks_wait_for_memory_there_is_no_room),
		IN_ROOT(each_group_above_counts),
		IN_ROOT(cache_that_is_not_in_use_is_room),
		IN_ROOT(the_first_version_counts_too),
		cmocka_unit_test(this_machine_is_read),
	};

	return cmocka_run_group_tests_name("host room", tests, NULL, NULL);
}
