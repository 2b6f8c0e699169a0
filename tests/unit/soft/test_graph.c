/* Graphs on the soft GPU: captured and made by nodes, launched, changed. Each test is a process of
 * its own beside one server. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/atomic.h"
#include "rig.h"

#define N 1000u

/* c = a + b, captured with the copies around it. */
static void captured_program(void *arg)
{
	uint32_t a[N], b[N], c[N], n = N;
	CUdeviceptr da, db, dc;
	CUgraphExec x;
	CUgraph g;
	CUstream s;
	CUfunction f;
	size_t count = 0;

	(void)arg;
	rig_context();
	f = rig_function("add");
	CU(cuMemAlloc_v2(&da, sizeof(a)));
	CU(cuMemAlloc_v2(&db, sizeof(b)));
	CU(cuMemAlloc_v2(&dc, sizeof(c)));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuMemcpyHtoDAsync_v2(da, a, sizeof(a), s));
	CU(cuMemsetD32Async(db, 7, N, s));
	rig_launch(f, (N + 127) / 128, 128, s, (void *[]){ &da, &db, &dc, &n });
	CU(cuMemcpyDtoHAsync_v2(c, dc, sizeof(c), s));
	CU(cuStreamEndCapture(s, &g));
	CU(cuGraphGetNodes(g, NULL, &count));
	CHECK(count == 4);
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < N; i++) {
			a[i] = i * round;
		}
		memset(c, 0, sizeof(c));
		CU(cuGraphLaunch(x, s));
		CU(cuStreamSynchronize(s));
		for (uint32_t i = 0; i < N; i++) {
			CHECK(c[i] == i * round + 7);
		}
	}
	CU(cuGraphExecDestroy(x));
	CU(cuGraphDestroy(g));
}

static void a_captured_stream_runs_again_and_again(void **state)
{
	(void)state;
	assert_int_equal(rig_run(captured_program, NULL), 0);
}

static int start(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *const[]){ "--mem", "256M", "--sms", "2", "--workers", "2", NULL });
	return 0;
}

static int stop(void **state)
{
	(void)state;
	rig_stop(SIGTERM);
	rig_close();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_captured_stream_runs_again_and_again),
	};

	return cmocka_run_group_tests_name("soft graph", tests, start, stop);
}
