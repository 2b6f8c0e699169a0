/* The history, and following it: after the answer gbpfd sends one line for each new event. */
#include "lib/lib_int.h"

#include <errno.h>
#include <stdlib.h>

static int give(struct gbpf *g, const json_t *event, gbpf_event_fn fn, void *arg)
{
	char *text = json_dumps(event, JSON_COMPACT);
	int r;

	if (!text) {
		return lib_no_memory(g);
	}
	r = fn(arg, text);
	free(text);
	return r;
}

static int follow(struct gbpf *g, const char *member, unsigned idle_ms, gbpf_event_fn fn, void *arg)
{
	bool ended = false;
	int r = 0;

	while (!r && !ended) {
		json_t *line = NULL, *event;

		r = lib_read_line(g, lib_deadline(idle_ms), true, &line);
		event = json_object_get(line, member);
		if (!r && event) {
			r = give(g, event, fn, arg);
			ended = json_object_get(event, "end") != NULL;
		}
		json_decref(line);
	}
	return r;
}

EXPORT int gbpf_events(struct gbpf *g, uint64_t since, unsigned flags, unsigned idle_ms,
		       gbpf_event_fn fn, void *arg)
{
	bool following = flags & GBPF_EVENTS_FOLLOW;
	json_t *result = NULL, *event;
	size_t i;
	int r;

	r = lib_request(g, "events",
			json_pack("{s:I,s:b,s:b}", "since", (json_int_t)since, "follow",
				  (int)following, "audit", !!(flags & GBPF_EVENTS_AUDIT)),
			-1, &result);
	if (r) {
		return r;
	}
	json_array_foreach(json_object_get(result, "events"), i, event)
	{
		r = give(g, event, fn, arg);
		if (r) {
			break;
		}
	}
	json_decref(result);
	if (following) {
		if (!r) {
			r = follow(g, "event", idle_ms, fn, arg);
		}
		lib_disconnect(g);
	}
	return r;
}

EXPORT int gbpf_map_watch(struct gbpf *g, const struct gbpf_map *m, unsigned interval_ms,
			  unsigned idle_ms, gbpf_event_fn fn, void *arg)
{
	json_t *p = lib_map_params(m), *result = NULL;
	int r;

	if (p && interval_ms) {
		json_object_set_new(p, "interval_ms", json_integer(interval_ms));
	}
	r = lib_request(g, "map.watch", p, -1, &result);
	json_decref(result);
	if (!r) {
		r = follow(g, "watch", idle_ms, fn, arg);
		lib_disconnect(g);
	}
	return r;
}
