/* Edges of the base room that other rooms' tests only pass by: which word counts as near, addresses
 * of sockets at their longest, memory behind the end of a page, windows of rate limits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/fd.h"
#include "base/nearest.h"
#include "base/pattern.h"
#include "base/rate.h"
#include "base/shm.h"

static const char *nearest_of(const char *word, const char *const *candidates)
{
	struct nearest n;

	nearest_init(&n, word);
	for (; *candidates; candidates++) {
		nearest_offer(&n, *candidates);
	}
	return nearest_best(&n);
}

static void nearest_word_is_found(void **state)
{
	static const struct {
		const char *word, *near;
		const char *candidates[4];
	} cases[] = {
		{ "swap", "swap", { "swop", "swap", "snap" } },
		{ "sawp", "swap", { "load", "swap" } },	    /* neighbours exchanged: 1 */
		{ "swaap", "swap", { "load", "swap" } },    /* one too many */
		{ "swp", "swap", { "load", "swap" } },	    /* one missing */
		{ "swxp", "swap", { "swap" } },		    /* one replaced */
		{ "swxy", NULL, { "swap" } },		    /* two of four: another word */
		{ "rollbcka", "rollback", { "rollback" } }, /* three of eight may differ */
		{ "rolbcka", NULL, { "rollback" } },	    /* three of seven may not */
		{ "rxxxback", "rollback", { "rollback" } },
		{ "rxxxxack", NULL, { "rollback" } },
		{ "a", "b", { "b" } }, /* one may always differ */
		{ "a", NULL, { "bc" } },
		{ "ab", NULL, { "cd" } },
		{ "abcde", "abxye", { "abxye" } }, /* two of five */
		{ "abcd", NULL, { "abxy" } },
		/* the first of two that are as near */
		{ "map", "map1", { "mop22", "map1", "map2" } },
		{ "x", NULL, { NULL } },
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *found = nearest_of(cases[i].word, cases[i].candidates);

		if ((found != NULL) != (cases[i].near != NULL) ||
		    (found && strcmp(found, cases[i].near) != 0)) {
			fail_msg("nearest to %s: %s", cases[i].word, found ? found : "none");
		}
	}
}

/* Words of more than 40 letters are never near, whatever they are. */
static void long_words_are_not_compared(void **state)
{
	char longest[42], longer[61];
	const char *const candidates[] = { longest, NULL };

	memset(longest, 'x', sizeof(longest));
	longest[40] = 0;
	assert_ptr_equal(nearest_of(longest, candidates), longest);
	longest[40] = 'x';
	longest[41] = 0;
	assert_null(nearest_of(longest, candidates));
	/* also if the candidate is short enough, and a third of the letters differ */
	memset(longer, 'x', sizeof(longer));
	longer[60] = longest[40] = 0;
	assert_null(nearest_of(longer, candidates));
}

static void addresses_of_sockets_have_107_bytes(void **state)
{
	char dir[] = "/tmp/gbpf-edges-XXXXXX", path[200];
	int fd, to;

	assert_non_null(mkdtemp(dir));
	for (unsigned n = 107; n <= 108; n++) {
		memset(path, 'x', sizeof(path));
		memcpy(path, dir, strlen(dir));
		path[strlen(dir)] = '/';
		path[n] = 0;
		fd = unix_listen(path, SOCK_STREAM, 0640);
		to = unix_connect(path, SOCK_STREAM);
		if (n == 107) {
			struct peer peer;
			struct stat st;

			assert_true(fd >= 0);
			assert_true(to >= 0);
			assert_int_equal(stat(path, &st), 0);
			assert_int_equal(st.st_mode & 0777, 0640);
			assert_int_equal(fd_peer(to, &peer), 0);
			assert_int_equal(peer.pid, getpid());
			assert_int_equal(peer.uid, geteuid());
			assert_int_equal(peer.gid, getegid());
			close(fd);
			close(to);
			unlink(path);
		} else {
			assert_int_equal(fd, -ENAMETOOLONG);
			assert_int_equal(to, -ENAMETOOLONG);
		}
	}
	snprintf(path, sizeof(path), "%s/none", dir);
	assert_int_equal(unix_connect(path, SOCK_STREAM), -ENOENT);
	rmdir(dir);
}

/* A memfd of 4 MiB may have as much memory, and not a page more behind its end. */
static void memory_behind_the_end_is_refused(void **state)
{
	enum { BYTES = 4 << 20 };

	for (int beyond = 0; beyond < 2; beyond++) {
		int fd = memfd_create("edges", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		void *p;

		assert_true(fd >= 0);
		assert_int_equal(ftruncate(fd, BYTES), 0);
		p = shm_map(fd, BYTES, 1);
		assert_non_null(p);
		memset(p, 1, BYTES);
		shm_unmap(p, BYTES);
		if (beyond) {
			assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, BYTES, 4 << 20), 0);
		}
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
		assert_int_equal(shm_check(fd, BYTES), beyond ? -EINVAL : 0);
		close(fd);
	}
}

static void windows_of_rates_are_seconds(void **state)
{
	struct rate_limit r = { 0 };

	for (uint64_t s = 10; s < 20; s++) {
		assert_true(rate_allow(&r, 2, s * 1000000000u));
		assert_true(rate_allow(&r, 2, s * 1000000000u + 999999999u));
		assert_false(rate_allow(&r, 2, s * 1000000000u + 999999999u));
	}
}

/* A file of exactly the limit is read, one byte more is too much; an empty one is not an error. */
static void files_are_read_up_to_the_limit(void **state)
{
	struct buf b;
	int fd = memfd_create("edges", MFD_CLOEXEC);
	char text[1000];

	memset(text, 'a', sizeof(text));
	assert_true(fd >= 0);
	buf_init(&b);
	assert_int_equal(buf_read_fd(&b, fd, 0), 0);
	assert_int_equal(b.len, 0);
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(buf_read_fd(&b, fd, sizeof(text)), 0);
	assert_int_equal(b.len, sizeof(text));
	buf_clear(&b);
	lseek(fd, 0, SEEK_SET);
	assert_int_equal(buf_read_fd(&b, fd, sizeof(text) - 1), -EFBIG);
	buf_finish(&b);
	close(fd);
}

static void patterns_match_whole_names(void **state)
{
	static const struct {
		const char *pattern, *name;
		bool matches;
	} cases[] = {
		{ "", "", true },
		{ "", "a", false },
		{ "*", "", true },
		{ "gemm*", "gemm_128", true },
		{ "gemm*", "sgemm", false },
		{ "*gemm", "gemm_gemm", true },
		{ "a?c", "abc", true },
		{ "a?c", "ac", false },
		{ "*a*b", "aabab", true },
		{ "*a*b", "aaba", false },
		{ "[ab]", "a", false },
		{ "[ab]", "[ab]", true },
		{ "a\\*", "a\\b", true },
		/* exponential if each * were tried again */
		{ "*a*a*a*a*a*a*a*a*a*a*a*a*b",
		  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(pattern_matches(cases[i].pattern, cases[i].name),
				 cases[i].matches);
	}
}

static void patterns_may_match_names_that_begin_so(void **state)
{
	static const struct {
		const char *pattern, *begin;
		bool may;
	} cases[] = {
		{ "gemm", "ge", true },	   { "ge", "gemm", false }, { "g*", "gemm", true },
		{ "s*", "gemm", false },   { "*x", "gemm", true },  { "g?m*x", "gem", true },
		{ "g?m*x", "gxx", false }, { "", "", true },	    { "", "g", false },
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(pattern_may_match(cases[i].pattern, cases[i].begin), cases[i].may);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patterns_match_whole_names),
		cmocka_unit_test(patterns_may_match_names_that_begin_so),
		cmocka_unit_test(nearest_word_is_found),
		cmocka_unit_test(long_words_are_not_compared),
		cmocka_unit_test(addresses_of_sockets_have_107_bytes),
		cmocka_unit_test(memory_behind_the_end_is_refused),
		cmocka_unit_test(windows_of_rates_are_seconds),
		cmocka_unit_test(files_are_read_up_to_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
