/* Tools of the bench: attaching, states, and values of their maps, by calls to its gbpfd. */
#include "bench/probe/bench_probe.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gbpf/gbpf.h"

#define OBJECT_MAX ((size_t)1 << 20)
#define DRAIN_NS 60000000000ull

/* Returns the answer of a call, NULL with the testbed's error. */
static json_t *answer(struct bench_probe *p, const char *what, int rc, char *text)
{
	json_t *j = rc < 0 ? NULL : json_loads(text, 0, NULL);

	free(text);
	if (!j) {
		bench_testbed_fail(&p->testbed, "%s: %s", what,
				   rc < 0 ? gbpf_last_error(p->daemon->g)->message
					  : "gbpfd's answer is no JSON");
	}
	return j;
}

static uint64_t number(const json_t *j, const char *member)
{
	return (uint64_t)json_integer_value(json_object_get(j, member));
}

static int read_object(struct bench_probe *p, const char *folder, const char *name, struct buf *b)
{
	char path[4200];
	int err;

	buf_init(b);
	snprintf(path, sizeof(path), "%.4000s/%.60s.bpf.o", folder, name);
	err = buf_read_file(b, path, OBJECT_MAX);
	return err < 0 ? bench_testbed_fail(&p->testbed, "%s: %s", path, strerror(-err)) : 0;
}

int bench_probe_object(struct bench_probe *p, const char *name, struct buf *b)
{
	return read_object(p, p->objects, name, b);
}

int bench_probe_tracer(struct bench_probe *p, const char *name, struct buf *b)
{
	return read_object(p, p->tracers, name, b);
}

int bench_probe_attach(struct bench_probe *p, const struct buf *object, const char *kernel,
		       uint32_t replace, struct bench_probe_tool *t)
{
	struct gbpf_probe o = { .size = sizeof(o),
				.name = "bench",
				.kernel = kernel,
				.replace = replace,
				.budget_ppm = t->budget_ppm };
	char *text = NULL;
	int rc = gbpf_probe_attach(p->daemon->g, object->data, object->len, &o, &text);
	json_t *j = answer(p, replace ? "swap" : "attach", rc, text);

	if (!j) {
		return -1;
	}
	t->id = (uint32_t)number(j, "id");
	json_decref(j);
	return 0;
}

/* Returns the tool's entry in gbpfd's list, which *ret_list holds; NULL without an error: there is
 * none. */
static const json_t *entry_of(struct bench_probe *p, uint32_t id, json_t **ret_list)
{
	char *text = NULL;
	int rc = gbpf_probe_list(p->daemon->g, &text);
	const json_t *e;
	size_t i;

	*ret_list = answer(p, "probe ls", rc, text);
	json_array_foreach(json_object_get(*ret_list, "probes"), i, e)
	{
		if (number(e, "id") == id) {
			return e;
		}
	}
	return NULL;
}

int bench_probe_is_running(struct bench_probe *p, const struct bench_probe_tool *t, bool *ret)
{
	json_t *list;
	const json_t *e = entry_of(p, t->id, &list);
	int err = list ? 0 : -1;

	*ret = e && number(e, "kernels") >= MAX(t->kernels, 1u) && !number(e, "waiting");
	if (list && !e) {
		err = bench_testbed_fail(&p->testbed, "gbpfd does not list tool %u", t->id);
	} else if (e && number(e, "refused")) {
		err = bench_testbed_fail(&p->testbed, "a kernel was refused: %s",
					 json_string_value(json_object_get(e, "why")));
	}
	json_decref(list);
	return err;
}

int bench_probe_get_state(struct bench_probe *p, const struct bench_probe_tool *t,
			  struct bench_probe_state *ret)
{
	json_t *list;
	const json_t *e = entry_of(p, t->id, &list);
	int err = list ? 0 : -1;

	*ret = (struct bench_probe_state){ .cost_known =
						   json_is_integer(json_object_get(e, "cost_ppm")),
					   .cost_ppm = (uint32_t)number(e, "cost_ppm"),
					   .launches = number(e, "launches"),
					   .probed = number(e, "probed") };
	if (list && !e) {
		err = bench_testbed_fail(&p->testbed, "gbpfd does not list tool %u", t->id);
	}
	json_decref(list);
	return err;
}

int bench_probe_detach(struct bench_probe *p, const struct bench_probe_tool *t, unsigned *late)
{
	char *text = NULL;
	int rc = gbpf_probe_detach(p->daemon->g, t->id, &text);
	json_t *j = answer(p, "detach", rc, text);
	bool is_late = number(j, "late");

	if (!j) {
		return -1;
	}
	json_decref(j);
	if (is_late && late) {
		(*late)++;
		return 0;
	}
	return is_late ? bench_testbed_fail(&p->testbed, "tool %u was not detached in time", t->id)
		       : 0;
}

int bench_probe_count(struct bench_probe *p, size_t *ret)
{
	char *text = NULL;
	int rc = gbpf_probe_list(p->daemon->g, &text);
	json_t *list = answer(p, "probe ls", rc, text);

	*ret = json_array_size(json_object_get(list, "probes"));
	json_decref(list);
	return list ? 0 : -1;
}

/* ---- values ---- */

static struct gbpf_map map_of(const struct bench_probe_tool *t)
{
	return (struct gbpf_map){ .size = sizeof(struct gbpf_map),
				  .name = t->map,
				  .tenant = GBPF_ALL_TENANTS,
				  .probe = t->id };
}

/* Has the maps copied. *ret: the bench's process has done so in the time that gbpfd gives it. */
static int drain_once(struct bench_probe *p, const struct gbpf_map *m, bool *ret)
{
	char *text = NULL;
	int rc = gbpf_map_drain(p->daemon->g, m, &text);
	json_t *j = answer(p, "map drain", rc, text);

	*ret = j && number(j, "drained") == 1 && !number(j, "late");
	json_decref(j);
	return j ? 0 : -1;
}

static int drain(struct bench_probe *p, const struct gbpf_map *m)
{
	uint64_t deadline = clock_now_ns() + DRAIN_NS;
	bool copied = false;
	int err = 0;

	while (!err && !copied) {
		err = drain_once(p, m, &copied);
		if (!err && !copied && clock_now_ns() > deadline) {
			err = bench_testbed_fail(&p->testbed,
						 "the maps of tool %llu are not copied",
						 (unsigned long long)m->probe);
		}
	}
	return err;
}

/* The time of a warp in a block's entry. */
static uint64_t time_of(const json_t *entry, uint64_t warp)
{
	const json_t *all = json_object_get(json_object_get(entry, "value"), "warp");

	return (uint64_t)json_integer_value(json_array_get(all, warp % BENCH_PROBE_WARPS));
}

/* Calls add with the value of each entry of a map. */
static int each_entry(struct bench_probe *p, const struct gbpf_map *m,
		      void (*add)(const json_t *value, uint64_t key, uint64_t *sum), uint64_t *sum)
{
	char *after = NULL;

	do {
		char *text = NULL;
		int rc = gbpf_map_dump(p->daemon->g, m, after, 0, 1, &text);
		json_t *j = answer(p, "map dump", rc, text);
		const char *next = json_string_value(json_object_get(j, "next"));
		const json_t *e;
		size_t i;

		json_array_foreach(json_object_get(j, "entries"), i, e)
		{
			add(json_object_get(e, "value"), number(e, "key"), sum);
		}
		free(after);
		after = next && next[0] ? strdup(next) : NULL;
		json_decref(j);
		if (!j) {
			return -1;
		}
	} while (after);
	return 0;
}

static void add_shard(const json_t *value, UNUSED uint64_t key, uint64_t *sum)
{
	*sum += number(value, "n");
}

/* Shapes of accesses are words of their own: tracers/memtrace.bpf.c. */
static void add_access(const json_t *value, UNUSED uint64_t key, uint64_t *sum)
{
	*sum += number(value, "single") + number(value, "lanes") + number(value, "others");
	for (unsigned i = 1; i <= 16; i++) {
		char word[8];

		snprintf(word, sizeof(word), "s%u", i);
		*sum += 32 * number(value, word);
	}
}

static void add_return(const json_t *value, UNUSED uint64_t key, uint64_t *sum)
{
	*sum += 32 * (uint64_t)json_integer_value(value);
}

/* Entry 0 is of lanes that were missing; the other one of returns before a begin was seen. */
static void add_figure(const json_t *value, uint64_t key, uint64_t *sum)
{
	*sum += key ? 32 * (uint64_t)json_integer_value(value)
		    : 0 - (uint64_t)json_integer_value(value);
}

static int sum_of(struct bench_probe *p, const struct bench_probe_tool *t, const char *map,
		  void (*add)(const json_t *, uint64_t, uint64_t *), uint64_t *sum)
{
	struct bench_probe_tool of = { .id = t->id, .map = map };
	struct gbpf_map m = map_of(&of);

	return drain(p, &m) || each_entry(p, &m, add, sum) ? -1 : 0;
}

int bench_probe_sum(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret)
{
	*ret = 0;
	return sum_of(p, t, t->map, add_shard, ret);
}

int bench_probe_accesses(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret)
{
	*ret = 0;
	return sum_of(p, t, "accesses", add_access, ret);
}

int bench_probe_returns(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret)
{
	*ret = 0;
	return sum_of(p, t, "returns", add_return, ret) || sum_of(p, t, "figures", add_figure, ret)
		       ? -1
		       : 0;
}

int bench_probe_times(struct bench_probe *p, const struct bench_probe_tool *t, const uint64_t *warp,
		      unsigned n, uint64_t *v)
{
	struct gbpf_map m = map_of(t);

	if (drain(p, &m)) {
		return -1;
	}
	for (unsigned i = 0; i < n; i++) {
		char *text = NULL, key[24];
		int rc;
		json_t *j;

		snprintf(key, sizeof(key), "%llu",
			 (unsigned long long)(warp[i] / BENCH_PROBE_WARPS));
		rc = gbpf_map_get(p->daemon->g, &m, key, &text);
		j = answer(p, "map get", rc, text);
		if (!j) {
			return -1;
		}
		v[i] = time_of(json_array_get(json_object_get(j, "entries"), 0), warp[i]);
		json_decref(j);
	}
	return drain(p, &m); /* reading may have begun to copy again: await that */
}
