#pragma GCC diagnostic ignored "-Wpedantic" /* functions as dlsym returns them */

#include "fixture.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

const struct fake_interface *fake;

static void note(const char *text)
{
	fake->note(text);
}

int fixture_setup(void **state)
{
	void *h = dlopen(getenv("GBPF_REAL_CUDA"), RTLD_NOW | RTLD_LOCAL);
	fake_interface_fn get = h ? (fake_interface_fn)dlsym(h, FAKE_INTERFACE) : NULL;

	if (!get) {
		return -1;
	}
	fake = get();
	double_note = note;
	shim_thread_setup();
	shim.sched = double_scheduler();
	shim.attached = 1;
	return 0;
}

int fixture_before(void **state)
{
	double_reset();
	fake->reset();
	fake->params(0);
	fake->pin(NULL, 0);
	return 0;
}

CUstream fixture_stream(unsigned flags)
{
	CUstream s = NULL;

	assert_int_equal(cuStreamCreate(&s, flags), CUDA_SUCCESS);
	assert_non_null(double_queue(s));
	return s;
}

CUresult fixture_launch(CUstream stream)
{
	return cuLaunchKernel(FAKE_FUNCTION, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

struct sched_queue *fixture_defer_one(CUstream stream)
{
	struct sched_queue *q;

	if (!double_queue(stream)) { /* a default stream gets its queue at its first use */
		assert_int_equal(fixture_launch(stream), CUDA_SUCCESS);
	}
	q = double_queue(stream);
	assert_non_null(q);
	fake->reset();
	q->defer = true;
	assert_int_equal(fixture_launch(stream), CUDA_SUCCESS);
	q->defer = false;
	assert_int_equal(fixture_count(CUABI_IDX_cuLaunchKernel), 0);
	assert_int_equal(double_deferred(), 1);
	q->queried = q->submits = 0;
	return q;
}

int fixture_find(uint32_t index)
{
	for (unsigned i = 0; i < fake->count(); i++) {
		if (fake->get(i).index == index) {
			return (int)i;
		}
	}
	return -1;
}

unsigned fixture_count(uint32_t index)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fake->count(); i++) {
		n += fake->get(i).index == index;
	}
	return n;
}

int fixture_find_note(const char *text)
{
	for (unsigned i = 0; i < fake->count(); i++) {
		if (fake->get(i).index == FAKE_NOTE && strcmp(fake->get(i).text, text) == 0) {
			return (int)i;
		}
	}
	return -1;
}
