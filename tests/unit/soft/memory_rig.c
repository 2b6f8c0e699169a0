/* See memory_rig.h. */
#include "memory_rig.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/atomic.h"

#include "../eventually.h"

/* The names are those of files with 64-bit offsets. */
struct softd_machine *machine;
struct softd_gpu *gpu;
struct softd_client *client;
struct softd_group *group;
struct softd_memory *m;
bool checking;
struct rig_calls calls;

static const char *failing;
static int failure;
static unsigned successes;
unsigned rig_fds_before;
static uint64_t descriptors;
static pid_t main_thread;

int __real_close(int fd);
int __wrap_close(int fd);
void *__real_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
int __real_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes);
int __real_pipe2(int ends[2], int flags);
int __wrap_pipe2(int ends[2], int flags);
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);
int __real_getrlimit64(int what, struct rlimit *ret);
int __wrap_getrlimit64(int what, struct rlimit *ret);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg);

int __real_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c);

bool exec_checking(void)
{
	return checking;
}

void rig_fail(const char *call, int error, unsigned after)
{
	failing = call;
	failure = error;
	successes = after;
}

void rig_limit_descriptors(uint64_t n)
{
	descriptors = n;
}

static bool fails(const char *call)
{
	if (failing && gettid() == main_thread && strcmp(failing, call) == 0 && !successes--) {
		failing = NULL;
		errno = failure;
		return true;
	}
	return false;
}

/* The lock is of the kind that tells its owner. */
static bool lock_is_held(void)
{
	if (lock_try(&machine->lock)) {
		lock_release(&machine->lock);
		return false;
	}
	return true;
}

bool rig_heap_is_locked(void)
{
	if (lock_try(&group->heap.lock)) {
		lock_release(&group->heap.lock);
		return false;
	}
	return true;
}

int __wrap_close(int fd)
{
	store_relaxed(&calls.closed_elsewhere, gettid() != main_thread);
	(void)add_acqrel(&calls.closes, 1u);
	return __real_close(fd);
}

void *__wrap_mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (fails("mmap")) {
		return MAP_FAILED;
	}
	if (at) {
		calls.maps++;
		calls.at = m && m->space.host ? (uint64_t)((uint8_t *)at - m->space.host) : 0;
		calls.bytes = bytes;
		calls.flags = flags;
		calls.fd = fd;
		calls.offset = (uint64_t)offset;
		calls.unlocked = !lock_is_held();
	}
	return __real_mmap64(at, bytes, prot, flags, fd, offset);
}

int __wrap_munmap(void *at, size_t bytes)
{
	calls.unmaps++;
	return __real_munmap(at, bytes);
}

int __wrap_fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
	assert_int_equal(mode, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);
	calls.discards++;
	calls.offset = (uint64_t)offset;
	calls.bytes = (uint64_t)bytes;
	calls.unlocked = !lock_is_held();
	return __real_fallocate64(fd, mode, offset, bytes);
}

int __wrap_pipe2(int ends[2], int flags)
{
	return fails("pipe2") ? -1 : __real_pipe2(ends, flags);
}

int __wrap_epoll_create1(int flags)
{
	return fails("epoll_create1") ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
	return fails("epoll_ctl") ? -1 : __real_epoll_ctl(epoll, op, fd, e);
}

int __wrap_getrlimit64(int what, struct rlimit *ret)
{
	int r = __real_getrlimit64(what, ret);

	if (fails("getrlimit")) {
		return -1;
	}
	ret->rlim_cur = descriptors && what == RLIMIT_NOFILE ? descriptors : ret->rlim_cur;
	return r;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails("calloc") ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return fails("realloc") ? NULL : __real_realloc(p, bytes);
}

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	if (fails("pthread_create")) {
		return EAGAIN;
	}
	calls.creates++;
	return __real_pthread_create(t, a, f, arg);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
	calls.broadcasts++;
	return __real_pthread_cond_broadcast(c);
}

unsigned rig_open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d)) {
		n++;
	}
	closedir(d);
	return n;
}

/* The machine and its lock exist as long as the process: a thread of share.c uses them. */
static void begin_machine(void)
{
	const size_t behind = offsetof(struct softd_machine, lock) + sizeof(machine->lock);
	pthread_mutexattr_t kind;

	if (machine) {
		memset(machine, 0, offsetof(struct softd_machine, lock));
		memset((char *)machine + behind, 0, sizeof(*machine) - behind);
		return;
	}
	machine = __real_calloc(1, sizeof(*machine));
	assert_non_null(machine);
	pthread_mutexattr_init(&kind);
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
	lock_init(&machine->lock, LOCK_SOFTD);
	pthread_mutex_init(&machine->lock.mutex, &kind);
}

int rig_set_up(void **state)
{
	if (!main_thread) {
		main_thread = gettid();
	}
	failing = NULL;
	descriptors = 0;
	checking = false;
	begin_machine();
	client = __real_calloc(1, sizeof(*client));
	group = __real_calloc(1, sizeof(*group));
	m = __real_calloc(1, sizeof(*m));
	assert_true(client && group && m);
	machine->opt.memory_bytes = GIB;
	machine->device_window_bytes = DEVICE_PAGES * PAGE;
	machine->pinned_limit = 64 * MIB;
	machine->window_bytes = softd_memory_window_bytes(DEVICE_PAGES * PAGE, 128 * MIB, GIB);
	gpu = &machine->gpus[0];
	gpu->machine = machine;
	client->machine = machine;
	client->groups[0] = group;
	client->windows[0] = m;
	group->client = client;
	group->gpu = gpu;
	group->memory = m;
	softd_list_init(&group->copies);
	softd_list_init(&group->in_copying);
	softd_list_init(&gpu->copiers);
	softd_heap_init(&group->heap, group);
	lock_take(&machine->lock);
	rig_fds_before = rig_open_fds();
	memset(&calls, 0, sizeof(calls));
	return softd_memory_init(m, gpu);
}

int rig_tear_down(void **state)
{
	if (m->space.host) {
		softd_memory_finish(m, machine);
	}
	assert_int_equal(gpu->memory_used, 0);
	assert_int_equal(machine->pinned_used, 0);
	assert_int_equal(machine->pinned, 0);
	assert_int_equal(softd_share_count(), 0);
	if (load_acquire(&calls.creates)) { /* threads close large memory */
		eventually(rig_open_fds() == rig_fds_before);
	}
	(void)load_acquire(
		&calls.closes); /* pairs with close(): what these threads wrote is seen */
	assert_int_equal(rig_open_fds(), rig_fds_before);
	assert_false(rig_heap_is_locked());
	softd_heap_finish(&group->heap);
	assert_int_equal(pthread_mutex_unlock(&machine->lock.mutex), 0); /* was held */
	assert_int_equal(pthread_mutex_trylock(&machine->lock.mutex), 0);
	lock_release(&machine->lock);
	free(m);
	free(group);
	free(client);
	return 0;
}

uint64_t address_of(uint64_t page)
{
	return m->space.base + page * PAGE;
}

uint64_t rig_device(uint64_t bytes)
{
	uint64_t a = softd_memory_alloc(m, machine, 0, bytes, SOFT_MEMORY_DEVICE, -1);

	return a ? (a - m->space.base) / PAGE : 0;
}
