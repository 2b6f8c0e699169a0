/* The tool of `gbpf bench preempt --probe`, in the kernels of batch clients. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/lcbe/lcbe.h"
#include "gbpf/gbpf.h"

#define OBJECT_MAX ((size_t)1 << 20)
#define RUNNING_NS 30000000000ull /* the driver compiles the kernels meanwhile */
#define POLL_NS 5000000ull

int bench_lcbe_read_tool(struct bench_lcbe *b)
{
	int err = b->set.probe ? buf_read_file(&b->tool, b->set.probe, OBJECT_MAX) : 0;

	return err < 0 ? bench_testbed_fail(&b->testbed, "%s: %s", b->set.probe, strerror(-err))
		       : 0;
}

int bench_lcbe_attach(struct bench_lcbe *b, const struct bench_lcbe_condition *c,
		      const struct bench_testbed_client *batch)
{
	char pid[16], *text = NULL;
	struct gbpf_probe o = { .size = sizeof(o), .name = "bench", .to = pid };
	int rc;

	snprintf(pid, sizeof(pid), "%u", batch->page->pid);
	rc = gbpf_probe_attach(c->daemon->g, b->tool.data, b->tool.len, &o, &text);
	free(text);
	return rc < 0 ? bench_testbed_fail(&b->testbed, "probe attach: %s",
					   gbpf_last_error(c->daemon->g)->message)
		      : 0;
}

/* Adds the kernels of all tools. *ret_why: a reason of a refusal, NULL: there is none. */
static json_int_t running(const json_t *list, const char **ret_why)
{
	const json_t *p;
	json_int_t n = 0;
	size_t i;

	*ret_why = NULL;
	json_array_foreach(json_object_get(list, "probes"), i, p)
	{
		n += json_integer_value(json_object_get(p, "kernels")) > 0;
		if (json_integer_value(json_object_get(p, "refused"))) {
			*ret_why = json_string_value(json_object_get(p, "why"));
		}
	}
	return n;
}

int bench_lcbe_await_tool(struct bench_lcbe *b, const struct bench_lcbe_condition *c, unsigned n)
{
	uint64_t deadline = clock_now_ns() + RUNNING_NS;
	int err = 1;

	while (err > 0) {
		const char *why;
		char *text = NULL;
		int rc = gbpf_probe_list(c->daemon->g, &text);
		json_t *list = rc < 0 ? NULL : json_loads(text, 0, NULL);

		if (!list) {
			err = bench_testbed_fail(&b->testbed, "probe ls: %s",
						 gbpf_last_error(c->daemon->g)->message);
		} else if (running(list, &why) >= (json_int_t)n) {
			err = 0;
		} else if (why) {
			err = bench_testbed_fail(&b->testbed, "no kernel runs the probe: %s", why);
		} else if (clock_now_ns() > deadline || bench_testbed_interrupted()) {
			err = bench_testbed_fail(&b->testbed, "no kernel runs the probe in time");
		} else {
			clock_sleep_ns(POLL_NS);
		}
		json_decref(list);
		free(text);
	}
	return err;
}
