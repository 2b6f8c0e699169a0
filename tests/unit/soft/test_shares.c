/* Stores, extents and the tokens that represent them: limits, references, and tokens that go when
 * their last holder closes them. */
#include "memory_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"

#include "../eventually.h"

/* Runs the condition without the lock, which the reaper needs. */
#define eventually_unlocked(condition)                                                             \
	do {                                                                                       \
		lock_release(&machine->lock);                                                      \
		eventually((lock_take(&machine->lock), reached = (condition),                      \
			    lock_release(&machine->lock), reached));                               \
		lock_take(&machine->lock);                                                         \
	} while (0)

static bool reached;

static void stores_are_counted_and_limited(void **state)
{
	struct softd_store *s[4];

	rig_limit_descriptors(9);
	for (unsigned i = 0; i < 3; i++) { /* with the window's: four */
		s[i] = softd_store_create(PAGE);
		assert_non_null(s[i]);
		assert_int_equal(s[i]->refs, 1);
	}
	assert_null(softd_store_create(PAGE));
	rig_fail("getrlimit", EINVAL, 0);
	s[3] = softd_store_create(PAGE); /* no limit is known */
	assert_non_null(s[3]);
	softd_store_unref(s[3]);
	softd_store_unref(s[2]);
	rig_fail("calloc", ENOMEM, 0);
	assert_null(softd_store_create(PAGE));
	assert_null(softd_store_create(UINT64_C(1) << 63)); /* no such file */
	s[2] = softd_store_create(PAGE);
	assert_non_null(s[2]);
	s[2]->refs++;
	assert_int_equal(softd_store_unref_take_fd(s[2]), -1);
	softd_store_unref(s[2]);
	softd_store_unref(s[1]);
	softd_store_unref(s[0]);
	softd_store_unref(NULL);
}

static void extents_are_charged_once(void **state)
{
	struct softd_extent *x, *y;

	machine->opt.memory_bytes = 10 * PAGE;
	x = softd_extent_create(gpu, 4 * PAGE, false);
	assert_non_null(x);
	assert_int_equal(x->refs, 1);
	assert_int_equal(x->store->refs, 1);
	assert_int_equal(x->offset, 0);
	assert_int_equal(x->bytes, 4 * PAGE);
	assert_null(x->home);
	assert_int_equal(gpu->memory_used, 4 * PAGE);
	assert_null(softd_extent_create(gpu, 7 * PAGE, false));
	assert_int_equal(gpu->memory_used, 4 * PAGE);
	y = softd_extent_create(gpu, 6 * PAGE, false);
	assert_non_null(y);
	assert_true(memcmp(x->secret, y->secret, sizeof(x->secret)) != 0);
	assert_int_equal(softd_share_count(), 2);
	softd_extent_unref(y);
	assert_int_equal(softd_share_count(), 1);
	for (unsigned i = 0; i < 2; i++) { /* the store, the extent */
		rig_fail("calloc", ENOMEM, i);
		assert_null(softd_extent_create(gpu, PAGE, false));
		assert_int_equal(gpu->memory_used, 4 * PAGE);
	}
	assert_int_equal(softd_share_count(), 1);
	x->refs++;
	softd_extent_unref(x);
	assert_int_equal(gpu->memory_used, 4 * PAGE);
	softd_extent_unref(x);
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(calls.discards, 2); /* once for each: a process may still map it */
	assert_int_equal(calls.offset, 0);
	assert_int_equal(calls.bytes, 4 * PAGE);
}

/* Closing a large store takes long: another thread does it. */
static void large_stores_are_closed_by_a_thread(void **state)
{
	struct softd_extent *x = softd_extent_create(gpu, 4 * MIB - PAGE, false);

	memset(&calls, 0, sizeof(calls));
	softd_extent_unref(x);
	assert_int_equal(calls.closes, 1);
	assert_false(calls.closed_elsewhere);
	assert_int_equal(calls.creates, 0);
	x = softd_extent_create(gpu, 4 * MIB, false);
	memset(&calls, 0, sizeof(calls));
	softd_extent_unref(x);
	eventually(load_acquire(&calls.closes) == 1);
	assert_true(calls.closed_elsewhere);
	assert_int_equal(calls.creates, 1);
	x = softd_extent_create(gpu, 4 * MIB, false);
	memset(&calls, 0, sizeof(calls));
	rig_fail("pthread_create", EAGAIN, 0);
	softd_extent_unref(x);
	assert_int_equal(calls.closes, 1);
	assert_false(calls.closed_elsewhere);
}

static void an_exported_part_is_discarded(void **state)
{
	struct softd_extent *x = softd_extent_wrap(m->store, gpu, 8 * PAGE, 2 * PAGE);

	assert_int_equal(m->store->refs, 2);
	assert_true(softd_memory_charge(gpu, 2 * PAGE));
	memset(&calls, 0, sizeof(calls));
	softd_extent_unref(x);
	assert_int_equal(calls.discards, 1);
	assert_int_equal(calls.offset, 8 * PAGE);
	assert_int_equal(calls.bytes, 2 * PAGE);
	assert_int_equal(calls.closes, 0);
	assert_int_equal(m->store->refs, 1);
}

static void server_ids_are_random_and_stay(void **state)
{
	uint64_t id = softd_share_server_id();

	assert_true(id & 1);
	assert_true(id >> 8 != 0);
	assert_true(softd_share_server_id() == id);
}

static int find(int fd, struct softd_extent **x, uint64_t *pool)
{
	struct softd_gpu *g = NULL;
	struct stat st;
	int err;

	assert_int_equal(fstat(fd, &st), 0);
	err = softd_token_find(&st, x, pool, &g);
	assert_true(err || g == gpu);
	return err;
}

/* The first test that makes tokens. */
static void tokens_that_cannot_be_made_leave_nothing(void **state)
{
	static const struct {
		const char *call;
		int error, want;
	} failures[] = {
		{ "epoll_create1", EMFILE, -EMFILE }, { "pthread_create", EAGAIN, -EAGAIN },
		{ "calloc", ENOMEM, -ENOMEM },	      { "pipe2", ENFILE, -ENFILE },
		{ "epoll_ctl", ENOSPC, -EMFILE },
	};
	struct softd_extent *found;
	unsigned fds = rig_open_fds();
	uint64_t pool;

	assert_int_equal(find(m->store->fd, &found, &pool), -ENOENT); /* there is none */
	softd_share_client_exit(client);
	for (unsigned i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		rig_fail(failures[i].call, failures[i].error, 0);
		assert_int_equal(softd_token_create(client, NULL, 5, gpu), failures[i].want);
		assert_int_equal(softd_share_count(), 0);
		/* the set of the reaper stays */
		assert_int_equal(rig_open_fds(), fds + (i >= 2));
	}
	rig_fds_before++;
}

static void a_token_represents_what_it_was_made_for(void **state)
{
	struct softd_extent *x = softd_extent_create(gpu, PAGE, false), *found = NULL;
	int fd = softd_token_create(client, x, 0, gpu), other, ends[2];
	uint64_t pool = 1;

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(x->refs, 2);
	assert_int_equal(softd_share_count(), 2);
	other = softd_token_create(client, NULL, 77, gpu);
	assert_true(other >= 0);
	assert_int_equal(find(fd, &found, &pool), 0);
	assert_ptr_equal(found, x);
	assert_int_equal(pool, 0);
	assert_int_equal(find(other, &found, &pool), 0);
	assert_null(found);
	assert_int_equal(pool, 77);
	assert_int_equal(find(m->store->fd, &found, &pool), -ENOENT);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	assert_int_equal(find(ends[0], &found, &pool), -ENOENT);
	close(ends[0]);
	close(ends[1]);
	softd_extent_unref(x);
	assert_int_equal(gpu->memory_used, PAGE);
	softd_share_client_exit(client); /* tokens live on */
	assert_int_equal(find(fd, &found, &pool), 0);
	close(fd);
	eventually_unlocked(softd_share_count() == 1);
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(find(other, &found, &pool), 0);
	close(other);
	eventually_unlocked(softd_share_count() == 0);
}

/* 1024 of one client. */
static void tokens_are_limited(void **state)
{
	static int fds[1024];
	struct softd_client *second = calloc(1, sizeof(*second));
	int another;

	assert_non_null(second);
	second->machine = machine;
	for (unsigned i = 0; i < 1024; i++) {
		fds[i] = softd_token_create(client, NULL, i, gpu);
		if (fds[i] == -EMFILE) { /* a machine with few descriptors */
			skip();
		}
		assert_true(fds[i] >= 0);
	}
	assert_int_equal(softd_token_create(client, NULL, 1, gpu), -ENOSPC);
	another = softd_token_create(second, NULL, 1, gpu);
	assert_true(another >= 0);
	close(fds[0]);
	eventually_unlocked(softd_share_count() == 1024);
	fds[0] = softd_token_create(client, NULL, 1, gpu);
	assert_true(fds[0] >= 0);
	softd_share_client_exit(client); /* no longer its own */
	close(fds[1]);
	fds[1] = softd_token_create(client, NULL, 1, gpu);
	assert_true(fds[1] >= 0);
	close(another);
	for (unsigned i = 0; i < 1024; i++) {
		close(fds[i]);
	}
	eventually_unlocked(softd_share_count() == 0);
	free(second);
}

static void handles_are_dropped_with_their_client(void **state)
{
	struct softd_extent *x = softd_extent_create(gpu, PAGE, false);

	client->handles = calloc(3, sizeof(*client->handles));
	client->n_handles = 3;
	client->handles[0] = x;
	client->handles[2] = x;
	x->refs = 3;
	softd_share_client_exit(client);
	assert_int_equal(x->refs, 1);
	assert_null(client->handles);
	assert_int_equal(client->n_handles, 0);
	softd_share_client_exit(client);
	assert_int_equal(x->refs, 1);
	softd_extent_unref(x);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, rig_set_up, rig_tear_down)
		T(tokens_that_cannot_be_made_leave_nothing),
		T(a_token_represents_what_it_was_made_for),
		T(tokens_are_limited),
		T(stores_are_counted_and_limited),
		T(extents_are_charged_once),
		T(large_stores_are_closed_by_a_thread),
		T(an_exported_part_is_discarded),
		T(server_ids_are_random_and_stay),
		T(handles_are_dropped_with_their_client),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
