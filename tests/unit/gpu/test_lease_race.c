/* A lease that changes while its word is being written: the page under test faults at the store,
 * and the handler plays the other thread, which changes the lease and writes the word first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/shm.h"
#include "gpu/cuda/flag_lease_int.h"
#include "gpu/flag.h"
#include "gpu/flag_lease.h"
#include "policy/read.h"

#define OFFSET 1700000000000000000
#define SLOT 7u

static struct cuabi_table real; /* no call is made */
static struct gpu_device *d;
static void *page; /* as the code under test has mapped it */
static unsigned changes, faults;
static uint64_t until;

/* The threads that change the lease, one after the other. */
static void on_fault(int sig, siginfo_t *info, void *context)
{
	if ((uintptr_t)info->si_addr - (uintptr_t)page >= GPU_FLAG_BYTES ||
	    mprotect(page, GPU_FLAG_BYTES, PROT_READ | PROT_WRITE) < 0) {
		_exit(99); /* another fault */
	}
	faults++;
	if (changes) {
		changes--;
		until = changes % 2 ? 0 : until + 1000000000;
		gpu_lease(d, 0, until);
		if (changes) {
			(void)mprotect(page, GPU_FLAG_BYTES, PROT_READ);
		}
	}
}

static void *mapping_of(const char *name)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	void *p = NULL;

	while (f && !p && fgets(line, sizeof(line), f)) {
		if (strstr(line, name)) {
			assert_int_equal(sscanf(line, "%p", &p), 1);
		}
	}
	fclose(f);
	return p;
}

static void the_last_change_stays(void **state)
{
	struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER }, old;
	int fd = shm_create("changing-page", GPU_FLAG_BYTES, SHM_NOEXEC);
	uint32_t *mine;

	policy_read_setup();
	assert_int_equal(gpu_device_create(&d, &real), 0);
	gpu_leases_set_offset(d, 0, OFFSET);
	assert_int_equal(gpu_lease_add(d, 0, fd, 0, SLOT), 0);
	page = mapping_of("memfd:changing-page");
	assert_non_null(page);
	mine = shm_map(fd, GPU_FLAG_BYTES, 1);
	assert_int_equal(sigaction(SIGSEGV, &a, &old), 0);
	for (unsigned n = 1; n <= 4; n++) {
		changes = n;
		faults = 0;
		until = 5000000000 + n;
		assert_int_equal(mprotect(page, GPU_FLAG_BYTES, PROT_READ), 0);
		gpu_lease(d, 0, until);
		assert_int_equal(changes, 0);
		assert_true(faults >= 1);
		assert_int_equal(mine[SLOT], until ? gpu_lease_word(OFFSET, until) : 0);
	}
	assert_int_equal(sigaction(SIGSEGV, &old, NULL), 0);
	gpu_device_destroy(d);
	shm_unmap(mine, GPU_FLAG_BYTES);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_last_change_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
