/* Controls on the soft GPU, from another process that has only the descriptor: slices share the
 * device in proportion, a tenant that is disabled makes no progress, and refusals return their
 * reason. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "cuabi/private.h"
#include "gpu/control.h"
#include "rig.h"
#include "table.h"

#include "../eventually.h"

static struct cuabi_table real;

struct tenant {
	pid_t pid;
	int sock, fd;
	struct gpu_handles h;
};

/* ---- the tenant: keeps the device busy until it has to end ---- */

static int their_sock;
static volatile int *ended; /* shared */

static void tenant_program(void *arg)
{
	CUcontext ctx = rig_context();
	CUfunction f = rig_function("spin");
	struct gpu_handles h;
	CUstream s[2];
	CUdeviceptr out;
	unsigned n = 200000; /* long, so that the device has work while a busy machine delays us */
	int fd, again;

	(void)arg;
	table_fill(&real);
	CHECK(gpu_learn(&real, 0, NULL, &h, &fd) == -EAGAIN);
	CHECK(gpu_learn(&real, 0, ctx, &h, &fd) == 0 && fd >= 0);
	CHECK(gpu_learn(&real, 0, ctx, &h, &again) == 0 && again == fd);
	gpu_self_test(&h, fd);
	CHECK(gpu_handles_check(&h) == 0);
	CHECK(msg_send(their_sock, &h, sizeof(h), &fd, 1) == 0);
	CU(cuMemAlloc_v2(&out, 4096));
	CU(cuStreamCreate(&s[0], CU_STREAM_NON_BLOCKING));
	CU(cuStreamCreate(&s[1], CU_STREAM_NON_BLOCKING));
	for (unsigned i = 0; !*ended; i++) {
		rig_launch(f, 16, 32, s[i % 2], (void *[]){ &out, &n });
		CU(cuStreamSynchronize(s[(i + 1) % 2]));
	}
	CU(cuCtxSynchronize());
	CU(cuCtxDestroy_v2(ctx));
	CHECK(gpu_control(&h, fd, GPU_CONTROL_SLICE_SET, 1000, NULL) == -ENODEV);
}

/* Reads the tenant's run time from the soft GPU's private table. */
static uint64_t run_ns(const struct tenant *t)
{
	static const struct cuabi_soft_table *soft;
	static const CUuuid id = CUABI_SOFT_UUID;
	struct cuabi_soft_counters c;
	const void *found;

	if (!soft) {
		assert_int_equal(cuGetExportTable(&found, &id), 0);
		soft = found;
	}
	assert_int_equal(soft->control_counters(t->fd, &c), 0);
	return c.run_ns;
}

/* Returns when it has begun to keep the device busy. */
static void tenant_start(struct tenant *t)
{
	int pair[2], fds[FD_PASS_MAX];
	unsigned n = 0;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	their_sock = pair[1];
	*ended = 0;
	t->pid = rig_spawn(tenant_program, NULL);
	t->sock = pair[0];
	close(pair[1]);
	assert_int_equal(msg_recv(t->sock, &t->h, sizeof(t->h), fds, &n), sizeof(t->h));
	assert_int_equal(n, 1);
	t->fd = fds[0];
	assert_int_equal(gpu_handles_check(&t->h), 0);
	eventually(run_ns(t) > 0);
}

static void tenant_end(struct tenant *t)
{
	*ended = 1;
	assert_int_equal(rig_wait(t->pid), 0);
	close(t->fd);
	close(t->sock);
}

static uint64_t ask(const struct tenant *t, enum gpu_control what, uint64_t value)
{
	uint64_t ret = 0;

	assert_int_equal(gpu_control(&t->h, t->fd, what, value, &ret), 0);
	return ret;
}

/* ---- from outside ---- */

/* Returns a's part of the time that both use. */
static double share(struct tenant *a, struct tenant *b)
{
	uint64_t a0 = run_ns(a), b0 = run_ns(b);
	double da, db;

	/* Until the run time is long enough for a share. */
	eventually(
		(da = (double)(run_ns(a) - a0), db = (double)(run_ns(b) - b0), da + db >= 600e6));
	return da / (da + db);
}

static void slices_share_the_device(void **state)
{
	struct tenant a, b;
	double part;

	(void)state;
	tenant_start(&a);
	tenant_start(&b);
	ask(&a, GPU_CONTROL_SLICE_SET, 4000);
	ask(&b, GPU_CONTROL_SLICE_SET, 4000);
	assert_int_equal(ask(&a, GPU_CONTROL_SLICE_GET, 0), 4000);
	/* A tenant that the machine's other load keeps from launching does not use its slices. */
	eventually((part = share(&a, &b)) > 0.3 && part < 0.7);
	ask(&a, GPU_CONTROL_SLICE_SET, 2000);
	ask(&b, GPU_CONTROL_SLICE_SET, 18000);
	eventually(share(&a, &b) < 0.25); /* a tenth */
	assert_true(ask(&a, GPU_CONTROL_COUNTERS, 0) > 0);
	ask(&b, GPU_CONTROL_SLICE_SET, 0);
	assert_int_not_equal(ask(&b, GPU_CONTROL_SLICE_GET, 0), 18000);
	tenant_end(&a);
	tenant_end(&b);
}

static void a_tenant_that_is_switched_off_makes_no_progress(void **state)
{
	struct tenant a, b;
	uint64_t before, other;

	(void)state;
	tenant_start(&a);
	tenant_start(&b);
	ask(&a, GPU_CONTROL_SCHEDULE, 0);
	before = run_ns(&a);
	other = run_ns(&b);
	eventually(run_ns(&b) - other >= 100000000);
	assert_int_equal(run_ns(&a), before);
	ask(&a, GPU_CONTROL_SCHEDULE, 1);
	eventually(run_ns(&a) != before);
	ask(&a, GPU_CONTROL_PREEMPT, 0);
	ask(&a, GPU_CONTROL_PREEMPT, 1);
	tenant_end(&a);
	tenant_end(&b);
}

static void missing_controls_are_refused(void **state)
{
	struct gpu_switches s;
	struct gpu_handles h;
	struct tenant a;
	uint64_t ret;
	int pair[2];

	(void)state;
	tenant_start(&a);
	assert_true(a.h.capable & 1u << GPU_CONTROL_SLICE_SET);
	assert_true(a.h.capable & 1u << GPU_CONTROL_SCHEDULE);
	assert_false(a.h.capable & 1u << GPU_CONTROL_INTERLEAVE);
	assert_int_equal(gpu_control(&a.h, a.fd, GPU_CONTROL_INTERLEAVE, 1, &ret), -ENOTSUP);
	assert_int_equal(gpu_control(&a.h, a.fd, GPU_CONTROL_FLAG, 1, &ret), -ENOTSUP);
	assert_int_equal(gpu_control(&a.h, a.fd, (enum gpu_control)77, 1, &ret), -ENOTSUP);
	assert_int_equal(gpu_control(&a.h, a.fd, GPU_CONTROL_SLICE_SET, 1u << 30, &ret), -EINVAL);
	assert_int_equal(gpu_control_switches(&a.h, a.fd, &s), 0);
	/* A descriptor of something else. */
	assert_int_equal(pipe(pair), 0);
	assert_true(gpu_control(&a.h, pair[0], GPU_CONTROL_SLICE_GET, 0, &ret) < 0);
	close(pair[0]);
	close(pair[1]);
	h = a.h;
	h.n_groups = GPU_MAX_GROUPS + 1;
	assert_int_equal(gpu_handles_check(&h), -EPROTO);
	assert_int_equal(gpu_control(&h, a.fd, GPU_CONTROL_SLICE_GET, 0, &ret), -ENOTSUP);
	h = a.h;
	h.kind = 9;
	assert_int_equal(gpu_handles_check(&h), -EPROTO);
	kill(a.pid, SIGKILL);
	assert_int_equal(rig_wait(a.pid), 128 + SIGKILL);
	rig_stats_idle();
	assert_int_equal(gpu_control(&a.h, a.fd, GPU_CONTROL_SLICE_GET, 0, &ret), -ENODEV);
	close(a.fd);
	close(a.sock);
}

static int begin(void **state)
{
	ended = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	/* This process acts as gbpfd: it does not use the device. */
	gpu_control_soft_library("/nonexistent");
	gpu_control_soft_library(getenv("SOFTCUDA"));
	return ended == MAP_FAILED ? -1 : rig_begin_small(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_share_the_device),
		cmocka_unit_test(a_tenant_that_is_switched_off_makes_no_progress),
		cmocka_unit_test(missing_controls_are_refused),
	};

	alarm(200);
	return cmocka_run_group_tests(tests, begin, rig_end);
}
