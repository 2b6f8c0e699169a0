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

int bench_probe_object(struct bench_probe *p, const char *name, struct buf *b)
{
	char path[4200];
	int err;

	buf_init(b);
	snprintf(path, sizeof(path), "%.4000s/%.60s.bpf.o", p->objects, name);
	err = buf_read_file(b, path, OBJECT_MAX);
	return err < 0 ? bench_testbed_fail(&p->testbed, "%s: %s", path, strerror(-err)) : 0;
}

int bench_probe_attach(struct bench_probe *p, const struct buf *object, const char *kernel,
		       uint32_t replace, struct bench_probe_tool *t)
{
	struct gbpf_probe o = {
		.size = sizeof(o), .name = "bench", .kernel = kernel, .replace = replace
	};
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

	*ret = e && number(e, "kernels") && !number(e, "waiting");
	if (list && !e) {
		err = bench_testbed_fail(&p->testbed, "gbpfd does not list tool %u", t->id);
	} else if (e && number(e, "refused")) {
		err = bench_testbed_fail(&p->testbed, "a kernel was refused: %s",
					 json_string_value(json_object_get(e, "why")));
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

/* The value of a shard. */
static uint64_t shard_of(const json_t *entry)
{
	return number(json_object_get(entry, "value"), "n");
}

/* The time of a warp in a block's entry. */
static uint64_t time_of(const json_t *entry, uint64_t warp)
{
	const json_t *all = json_object_get(json_object_get(entry, "value"), "warp");

	return (uint64_t)json_integer_value(json_array_get(all, warp % BENCH_PROBE_WARPS));
}

int bench_probe_sum(struct bench_probe *p, const struct bench_probe_tool *t, uint64_t *ret)
{
	struct gbpf_map m = map_of(t);
	char *after = NULL;

	*ret = 0;
	if (drain(p, &m)) {
		return -1;
	}
	do {
		char *text = NULL;
		int rc = gbpf_map_dump(p->daemon->g, &m, after, 0, 1, &text);
		json_t *j = answer(p, "map dump", rc, text);
		const char *next = json_string_value(json_object_get(j, "next"));
		const json_t *e;
		size_t i;

		json_array_foreach(json_object_get(j, "entries"), i, e)
		{
			*ret += shard_of(e);
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
