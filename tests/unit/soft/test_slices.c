/* Time slices on the soft GPU: what two programs that always have work get of it. In virtual time
 * (tests/clock), by which durations do not depend on the load of the machine. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cuabi/private.h"
#include "rig.h"

#include "../eventually.h"

/* Shared by the test and its children. */
struct board {
	uint32_t ready[2], go, stop, looked[2];
	uint32_t slice_us[2], blocks;
	uint32_t first[2], last[2];
	uint64_t held_ns[2];
	uint64_t held_now_ns[2];	     /* in the window so far */
	uint64_t idle_ns, busy_ns, switches; /* of the GPU in the window */
};
static struct board *board;

static void nap(void)
{
	clock_sleep_ns(EVENTUALLY_POLL_NS);
}

static void ticking_program(void *arg)
{
	int me = *(int *)arg;
	const struct cuabi_soft_table *t = rig_table();
	struct cuabi_soft_counters a, b;
	struct cuabi_soft_switches c, d;
	volatile uint32_t *w;

	rig_context();
	CU(t->timeslice_set(NULL, board->slice_us[me]));
	w = rig_words();
	rig_tick(w, board->blocks, NULL);
	eventually(w[0]);
	store_release(&board->ready[me], 1);
	eventually(load_acquire(&board->go));
	board->first[me] = w[0];
	CU(t->counters(NULL, &a));
	CU(t->switches(NULL, &c, sizeof(c)));
	while (!load_acquire(&board->stop)) {
		nap();
		CU(t->switches(NULL, &d, sizeof(d)));
		store_release(&board->held_now_ns[me], d.held_ns - c.held_ns);
	}
	do { /* endless kernels are left inside; on a loaded machine this may take a while */
		nap();
		board->last[me] = w[0];
		CU(t->counters(NULL, &b));
		CU(t->switches(NULL, &d, sizeof(d)));
	} while (d.left_inside == c.left_inside);
	board->held_ns[me] = d.held_ns - c.held_ns;
	store_release(&board->looked[me], 1);
	eventually(load_acquire(&board->looked[!me])); /* it may still need to be switched off */
	w[16] = 1;
	CU(cuCtxSynchronize());
}

static struct soft_gpu_info gpu_info(void)
{
	struct soft_request q = { .op = SOFT_REQ_GPUS };
	static struct soft_reply r;
	int fds[FD_PASS_MAX], sock = rig_connect();
	unsigned n;

	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(sock, &r, sizeof(r), fds, &n) >= (ssize_t)SOFT_REPLY_MIN);
	close(sock);
	return r.gpu;
}

/* Runs two programs that always have work, until they have held the device for `ms` together.
 * Returns the second's share of the time in %. *ret_done:
 * its share of the completed work, which matches as far as the host schedules the workers fairly.
 */
static double share(uint32_t first_us, uint32_t second_us, unsigned blocks, unsigned ms,
		    double *ret_done)
{
	int me[2] = { 0, 1 };
	pid_t pid[2];
	struct soft_gpu_info from, to;
	double done[2];
	uint64_t begin;

	*board = (struct board){ .slice_us = { first_us, second_us }, .blocks = blocks };
	for (int i = 0; i < 2; i++) {
		pid[i] = rig_spawn(ticking_program, &me[i]);
	}
	eventually(load_acquire(&board->ready[0]) && load_acquire(&board->ready[1]));
	store_release(&board->go, 1);
	begin = clock_now_ns();
	from = gpu_info();
	eventually(load_acquire(&board->held_now_ns[0]) + load_acquire(&board->held_now_ns[1]) >=
		   ms * 1000000ull);
	to = gpu_info();
	board->busy_ns = to.busy_ns - from.busy_ns;
	board->idle_ns = clock_now_ns() - begin - board->busy_ns;
	board->switches = to.switches - from.switches;
	store_release(&board->stop, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_wait(pid[i]), 0);
		done[i] = board->last[i] - board->first[i];
	}
	*ret_done = 100 * done[1] / (done[0] + done[1]);
	return 100.0 * (double)board->held_ns[1] / (double)(board->held_ns[0] + board->held_ns[1]);
}

static const char *const plain[] = { "--mem", "256M", "--workers", "1", NULL };

/* Checks shares over a window of some ten slices, at whose ends a slice of the second may be cut.
 */
static void check_share(uint32_t first_us, uint32_t second_us, unsigned ms)
{
	double wanted = 100.0 * second_us / (first_us + second_us), done;
	double got = share(first_us, second_us, 4, ms, &done), cut = second_us / (10.0 * ms);

	print_message("%u/%u us: %.2f %% of the time\n", first_us, second_us, got);
	assert_true(got > wanted - cut && got < wanted + cut);
}

static void check_shares(const char *workers)
{
	const char *const args[] = { "--mem", "256M", "--workers", workers, NULL };

	rig_restart(args);
	check_share(2000, 2000, 100);
	check_share(20000, 2000, 440);
	rig_restart(plain);
}

static void slices_are_exact_with_one_worker(void **state)
{
	(void)state;
	check_shares("1");
}

static void slices_are_exact_with_two_workers(void **state)
{
	(void)state;
	check_shares("2");
}

static void a_slice_of_a_microsecond_leaves_little_throughput(void **state)
{
	double done;

	(void)state;
	assert_true(share(2000, 1, 4, 50, &done) < 10);
	assert_true(done < 10);
}

static void a_switch_costs_what_it_should(void **state)
{
	const char *const args[] = { "--mem", "256M", "--workers", "1", "--switch-cost-us",
				     "1000",  NULL };
	double done;

	(void)state;
	rig_restart(args);
	share(1000, 1000, 4, 50, &done);
	print_message("%llu switches of 1 ms: idle %llu us, busy %llu us\n",
		      (unsigned long long)board->switches,
		      (unsigned long long)board->idle_ns / 1000,
		      (unsigned long long)board->busy_ns / 1000);
	/* The last switch may have begun only. */
	assert_true(board->switches >= 2 && board->busy_ns > 0);
	assert_true(board->idle_ns >= (board->switches - 1) * 1000000u);
	rig_restart(plain);
}

static int start(void **state)
{
	(void)state;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		     0);
	if (board == MAP_FAILED) {
		return -1;
	}
	rig_open();
	rig_start(plain);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_are_exact_with_one_worker),
		cmocka_unit_test(slices_are_exact_with_two_workers),
		cmocka_unit_test(a_slice_of_a_microsecond_leaves_little_throughput),
		cmocka_unit_test(a_switch_costs_what_it_should),
	};

	return cmocka_run_group_tests_name("soft slices", tests, start, rig_end);
}
