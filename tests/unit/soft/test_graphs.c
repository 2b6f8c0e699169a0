/* Graphs under load: random ones, long ones, thousands of them, killed ones, and invalid calls. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "graphs.h"

#include "../eventually.h"

/* Kernels in a random dependency order draw numbers: each number is higher than those of its
 * dependencies. */
static void random_program(void *arg)
{
	enum { NODES = 150 };
	static CUgraphNode nodes[NODES];
	static uint32_t from[NODES][4], n_from[NODES], got[NODES];

	(void)arg;
	prepare();
	for (int round = 0; round < 12; round++) {
		CU(cuGraphCreate(&g, 0));
		for (uint32_t i = 0; i < NODES; i++) {
			CUgraphNode deps[4];

			n_from[i] = i ? draw(MIN(i, 4u) + 1) : 0;
			for (uint32_t j = 0; j < n_from[i]; j++) {
				bool again;

				do {
					again = false;
					from[i][j] = draw(i);
					for (uint32_t k = 0; k < j; k++) {
						again |= from[i][k] == from[i][j];
					}
				} while (again);
				deps[j] = nodes[from[i][j]];
			}
			nodes[i] = stamp_node(d, d + 4 + 4 * i, deps, n_from[i]);
		}
		CU(cuGraphInstantiateWithFlags(&x, g, 0));
		for (int again = 0; again < 3; again++) {
			CU(cuMemsetD32Async(d, 1, 1, s));
			CU(cuMemsetD32Async(d + 4, 0, NODES, s));
			CU(cuGraphLaunch(x, s));
			CU(cuMemcpyDtoHAsync_v2(got, d + 4, sizeof(got), s));
			CU(cuStreamSynchronize(s));
			for (uint32_t i = 0; i < NODES; i++) {
				CHECK(got[i] >= 1 && got[i] <= NODES);
				for (uint32_t j = 0; j < n_from[i]; j++) {
					CHECK(got[from[i][j]] < got[i]);
				}
			}
		}
		CU(cuGraphExecDestroy(x));
		CU(cuGraphDestroy(g));
	}
}

static void random_graphs_keep_their_edges(void **state)
{
	(void)state;
	assert_int_equal(rig_run(random_program, NULL), 0);
}

static void many_program(void *arg)
{
	struct soft_stats before = { 0 }, after;
	uint8_t host[256];

	(void)arg;
	prepare();
	memset(host, 0, sizeof(host));
	for (int i = 0; i < 1020; i++) {
		CUgraphNode a, b, c;
		CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
				       .srcHost = host,
				       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				       .dstDevice = d + 4096,
				       .WidthInBytes = sizeof(host),
				       .Height = 1,
				       .Depth = 1 };

		if (i == 20) {
			CU(cuCtxSynchronize());
			before = rig_stats();
		}
		CU(cuGraphCreate(&g, 0));
		a = set_node(d, 1, 4, NULL, 0);
		b = stamp_node(d, d + 64, &a, 1);
		c = stamp_node(d, d + 128, &a, 1);
		CU(cuGraphAddMemcpyNode(&c, g, (CUgraphNode[]){ b, c }, 2, &copy, NULL));
		CU(cuGraphInstantiateWithFlags(&x, g, 0));
		CU(cuGraphLaunch(x, s));
		CU(cuGraphExecDestroy(x));
		CU(cuGraphDestroy(g));
		if (i % 100 == 99) {
			CU(cuStreamSynchronize(s));
		}
	}
	CU(cuStreamSynchronize(s));
	CU(cuCtxSynchronize());
	CU(cuGraphCreate(&g, 0)); /* frees execs that were destroyed while running */
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	CU(cuStreamSynchronize(s));
	/* The server frees their streams a little later. */
	eventually((after = rig_stats(), after.streams <= before.streams + 1));
	CHECK(after.memory_used == before.memory_used);
	CHECK(after.pinned_used <= before.pinned_used + 4096);
	CHECK(after.descriptors <= before.descriptors);
}

static void a_thousand_graphs_leave_nothing_behind(void **state)
{
	(void)state;
	assert_int_equal(rig_run(many_program, NULL), 0);
}

static void long_program(void *arg)
{
	CUgraphNode last[4] = { 0 };

	(void)arg;
	prepare();
	/* More steps than the server queues, in four branches with occasional waits between them.
	 */
	for (uint32_t i = 0; i < 12000; i++) {
		CUgraphNode deps[2];
		size_t n = 0;

		if (i >= 4) {
			deps[n++] = last[i % 4];
		}
		if (i >= 4 && i % 13 == 0) {
			deps[n++] = last[(i + 1) % 4];
		}
		last[i % 4] = stamp_node(d, d + 4, deps, n);
	}
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	launch(x, s);
	launch(x, t);
	CHECK(word(d) == 24000);
}

static void long_graphs_run(void **state)
{
	(void)state;
	assert_int_equal(rig_run(long_program, NULL), 0);
}

/* Launches a graph with every kind of work until the process is killed. */
static void endless_program(void *fd)
{
	static uint8_t host[3000];
	CUgraphNode a, b, c, h;
	CUDA_MEMCPY3D copy = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .dstHost = host,
			       .WidthInBytes = sizeof(host),
			       .Height = 1,
			       .Depth = 1 };
	CUevent ev;

	prepare();
	CU(cuEventCreate(&ev, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	a = set_node(d, 1, 4, NULL, 0);
	b = stamp_node(d, d + 64, &a, 1);
	c = stamp_node(d, d + 128, &a, 1);
	copy.srcDevice = d;
	CU(cuGraphAddMemcpyNode(&h, g, (CUgraphNode[]){ b, c }, 2, &copy, NULL));
	CU(cuGraphAddHostNode(&b, g, &c, 1, &(CUDA_HOST_NODE_PARAMS){ count, NULL }));
	CU(cuGraphAddEventRecordNode(&b, g, &h, 1, ev));
	CU(cuGraphInstantiateWithFlags(&x, g, 0));
	for (uint32_t i = 0;; i++) {
		CU(cuGraphLaunch(x, i & 1 ? s : t));
		if (i == 20) {
			CHECK(write(*(int *)fd, "x", 1) == 1);
		}
	}
}

static void killed_graph_launches_leave_nothing(void **state)
{
	struct soft_stats before = rig_stats_idle(), after;

	(void)state;
	for (int i = 0; i < 15; i++) {
		int ends[2];
		pid_t p;
		char byte;

		assert_int_equal(pipe(ends), 0);
		p = rig_spawn(endless_program, &ends[1]);
		assert_int_equal(read(ends[0], &byte, 1), 1);
		kill(p, SIGKILL);
		assert_int_equal(rig_wait(p), 128 + SIGKILL);
		close(ends[0]);
		close(ends[1]);
	}
	after = rig_stats_idle();
	assert_int_equal(after.memory_used, before.memory_used);
	assert_int_equal(after.pinned_used, before.pinned_used);
	assert_int_equal(after.streams, before.streams);
	assert_int_equal(after.allocations, before.allocations);
	rig_check_descriptors(&before);
	assert_int_equal(after.refused, before.refused);
}

/* Random calls with handles that are valid, stale, of another type, or NULL: each succeeds or
 * fails, and none crashes. */
enum { POOL = 12 };

static CUgraph graphs[POOL];
static CUgraphNode nodes[POOL];
static CUgraphExec execs[POOL];
static CUstream streams[POOL];
static CUevent events[POOL];

#define ANY(pool) ((void *)pool[draw(POOL)])

/* Usually returns a handle of the right type. */
static void *some(void *right)
{
	switch (draw(24)) {
	case 0:
		return NULL;
	case 1:
		return ANY(graphs);
	case 2:
		return ANY(nodes);
	case 3:
		return ANY(execs);
	case 4:
		return ANY(streams);
	default:
		return right;
	}
}

static void add_something(void)
{
	CUgraph in = some(ANY(graphs));
	CUgraphNode deps[2] = { some(ANY(nodes)), some(ANY(nodes)) };
	CUgraphNode *out = &nodes[draw(POOL)];
	size_t n = draw(3);
	CUdeviceptr p = d;
	CUDA_KERNEL_NODE_PARAMS k = { .func = rig_function("stamp"),
				      .gridDimX = draw(3),
				      .gridDimY = 1,
				      .gridDimZ = 1,
				      .blockDimX = 1,
				      .blockDimY = 1,
				      .blockDimZ = 1,
				      .kernelParams = (void *[]){ &p, &p } };
	CUDA_MEMSET_NODE_PARAMS m = { d, 0, draw(9), 4, draw(64), 1 };
	CUDA_HOST_NODE_PARAMS h = { draw(8) ? count : NULL, NULL };

	switch (draw(8)) {
	case 0:
		cuGraphAddKernelNode_v2(out, in, deps, n, &k);
		break;
	case 1:
		cuGraphAddMemsetNode(out, in, deps, n, &m, NULL);
		break;
	case 2:
		cuGraphAddHostNode(out, in, deps, n, &h);
		break;
	case 3:
		cuGraphAddEmptyNode(out, in, deps, n);
		break;
	case 4:
		if (draw(3) == 0) { /* their number grows quickly */
			cuGraphAddChildGraphNode(out, in, deps, n, some(ANY(graphs)));
		}
		break;
	case 5:
		cuGraphAddEventRecordNode(out, in, deps, n, some(ANY(events)));
		break;
	case 6:
		cuGraphAddEventWaitNode(out, in, deps, n, some(ANY(events)));
		break;
	default:
		cuGraphAddDependencies(in, deps, deps + 1, 1);
		break;
	}
}

static void capture_something(void)
{
	CUstream one = some(ANY(streams)), two = some(ANY(streams));
	CUgraph *out = &graphs[draw(POOL)], made;

	switch (draw(8)) {
	case 0:
		cuStreamBeginCapture_v2(one, draw(3));
		break;
	case 1:
	case 2:
		if (cuStreamEndCapture(one, &made) == CUDA_SUCCESS) {
			cuGraphDestroy(*out);
			*out = made;
		}
		break;
	case 3:
		cuEventRecord(some(ANY(events)), one);
		break;
	case 4:
		cuStreamWaitEvent(two, some(ANY(events)), 0);
		break;
	case 5:
		cuMemsetD32Async(d, 1, 8, one);
		break;
	case 6:
		cuLaunchHostFunc(one, count, NULL);
		break;
	default:
		cuStreamBeginCaptureToGraph(one, some(*out), NULL, NULL, 0, draw(3));
		break;
	}
}

static void end_something(void)
{
	uint32_t i = draw(POOL);
	CUgraphExecUpdateResultInfo info;
	CUDA_MEMSET_NODE_PARAMS m = { d, 0, draw(9), 4, 8, 1 };
	CUgraph clone;

	switch (draw(12)) {
	case 0:
		cuGraphDestroy(some(graphs[i]));
		cuGraphCreate(&graphs[i], 0);
		break;
	case 1:
		cuGraphDestroyNode(some(nodes[i]));
		break;
	case 2:
		cuGraphExecDestroy(some(execs[i]));
		break;
	case 3:
		cuStreamDestroy_v2(some(streams[i]));
		cuStreamCreate(&streams[i], draw(2));
		break;
	case 4:
		cuEventDestroy_v2(some(events[i]));
		cuEventCreate(&events[i], 0);
		break;
	case 5:
		cuGraphExecUpdate_v2(some(execs[i]), some(ANY(graphs)), &info);
		break;
	case 6:
		cuGraphExecMemsetNodeSetParams(some(execs[i]), some(ANY(nodes)), &m, NULL);
		break;
	case 7:
		cuGraphNodeSetEnabled(some(execs[i]), some(ANY(nodes)), draw(2));
		break;
	case 8:
		if (cuGraphClone(&clone, some(graphs[i])) == CUDA_SUCCESS) {
			cuGraphDestroy(clone);
		}
		break;
	default:
		cuCtxSynchronize();
		break;
	}
}

static void harmless_program(void *arg)
{
	CUgraphExec made;
	CUcontext ctx;

	(void)arg;
	prepare();
	for (int i = 0; i < POOL; i++) {
		CU(cuGraphCreate(&graphs[i], 0));
		CU(cuStreamCreate(&streams[i], i & 1));
		CU(cuEventCreate(&events[i], 0));
	}
	for (int i = 0; i < 30000; i++) {
		uint32_t what = draw(16), at = draw(POOL);

		if (what < 6) {
			add_something();
		} else if (what < 10) {
			capture_something();
		} else if (what < 12) {
			end_something();
		} else if (what < 13) {
			if (cuGraphInstantiateWithFlags(&made, some(ANY(graphs)), 0) ==
			    CUDA_SUCCESS) {
				cuGraphExecDestroy(execs[at]);
				execs[at] = made;
			}
		} else {
			cuGraphLaunch(some(ANY(execs)), some(ANY(streams)));
		}
		if (i % 500 == 0) { /* limits their size */
			for (int j = 0; j < POOL; j++) {
				cuGraphDestroy(graphs[j]);
				cuGraphCreate(&graphs[j], 0);
			}
		}
	}
	eventually(load_acquire(&calls) > 0); /* no synchronization succeeds during a capture */
	CU(cuCtxGetCurrent(&ctx));
	CU(cuCtxDestroy_v2(ctx)); /* ends active captures too */
}

static void invalid_calls_do_no_harm(void **state)
{
	(void)state;
	assert_int_equal(rig_run(harmless_program, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_graphs_keep_their_edges),
		cmocka_unit_test(a_thousand_graphs_leave_nothing_behind),
		cmocka_unit_test(long_graphs_run),
		cmocka_unit_test(killed_graph_launches_leave_nothing),
		cmocka_unit_test(invalid_calls_do_no_harm),
	};

	return cmocka_run_group_tests_name("soft graphs", tests, rig_begin_small, rig_end);
}
