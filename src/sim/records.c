/* Collects what each event wrote to ring buffers, so that records keep the order of the events;
 * `expect ring` examines the first record not examined yet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/map/ring.h"
#include "bpf/run/map/map_type.h"
#include "sim/sim_int.h"

static int keep(struct sim *s, uint32_t map, const void *data, uint32_t bytes)
{
	struct sim_record *r;

	if (s->n_records >= SIM_MAX_RECORDS) {
		return sim_wrong(s, s->current, "Look at them: expect ring NAME {}",
				 "more than %u records of ring buffers", SIM_MAX_RECORDS);
	}
	r = malloc(sizeof(*r) + bytes);
	if (!r) {
		return report_set(s->r, -ENOMEM, "memory", "out of memory");
	}
	r->next = NULL;
	r->map = map;
	r->bytes = bytes;
	memcpy(r->data, data, bytes);
	*s->last_record = r;
	s->last_record = &r->next;
	s->n_records++;
	return 0;
}

static int collect(struct sim *s, const struct ebpf_map *ring)
{
	static uint8_t data[EBPF_MAX_RECORD_BYTES];
	struct ebpf_ring_reader reader;
	int n, err = 0;

	ebpf_ring_open(&reader, ring);
	while (!err && (n = ebpf_ring_read(ring, &reader, data, sizeof(data), sim_now(), 0)) > 0) {
		err = keep(s, ring->index, data, (uint32_t)n);
		if (!err && s->o->trace) {
			struct buf text = { 0 };

			ebpf_typed_print(&text, ebpf_object_btf(&s->testbed.built.object),
					 s->testbed.built.object.value_type[ring->index], data,
					 (size_t)n);
			fprintf(s->o->trace, "     %s: %s\n",
				s->testbed.built.object.maps[ring->index].name, buf_text(&text));
			buf_finish(&text);
		}
	}
	return err;
}

int sim_ring_collect(struct sim *s)
{
	struct ebpf_policy *p = s->ran->policy;
	int err = 0;

	for (uint32_t i = 0; i < p->env.n_maps && !err; i++) {
		if ((p->env.maps[i].ops->traits & EBPF_MAP_RECORDS) && p->env.maps[i].data) {
			err = collect(s, &p->env.maps[i]);
		}
	}
	return err;
}

static void drop(struct sim *s, struct sim_record **at)
{
	struct sim_record *r = *at;

	*at = r->next;
	if (s->last_record == &r->next) {
		s->last_record = at;
	}
	s->n_records--;
	free(r);
}

void sim_ring_finish(struct sim *s)
{
	while (s->records) {
		drop(s, &s->records);
	}
}

static struct sim_record **first_of(struct sim *s, uint32_t map)
{
	struct sim_record **at = &s->records;

	while (*at && (*at)->map != map) {
		at = &(*at)->next;
	}
	return at;
}

static void judge(struct sim *s, const char *at, const struct sim_record *r, uint32_t map,
		  bool holds)
{
	struct buf got = { 0 }, expected = { 0 };

	s->result->expectations++;
	if (holds) {
		return;
	}
	if (r) {
		ebpf_typed_print(&got, ebpf_object_btf(&s->testbed.built.object),
				 s->testbed.built.object.value_type[map], r->data, r->bytes);
	} else {
		buf_puts(&got, "no record");
	}
	buf_printf(&expected, "%.*s", (int)(s->at - at), at);
	sim_fail(s, at, buf_text(&expected), buf_text(&got));
	buf_finish(&got);
	buf_finish(&expected);
}

int sim_expect_ring(struct sim *s, const char *at)
{
	const struct ebpf_object *o = &s->testbed.built.object;
	struct sim_record **first;
	struct sim_place p;
	bool holds;
	int err = sim_place_map(s, &p);

	if (err) {
		return err;
	}
	if (!ebpf_map_type_has(o->maps[p.map].type, EBPF_MAP_RECORDS)) {
		return sim_wrong(s, at, "For its elements: expect map NAME[KEY] == 1",
				 "'%s' is no ring buffer", o->maps[p.map].name);
	}
	first = first_of(s, p.map);
	if (sim_take_word(s, "empty")) {
		if (!s->dry) {
			judge(s, at, *first, p.map, !*first);
		}
		return 0;
	}
	/* A record has at least the size of its type; members after it read as absent. */
	err = sim_match(s, o->value_type[p.map], *first ? (*first)->data : NULL,
			*first ? (*first)->bytes : EBPF_MAX_RECORD_BYTES, &holds);
	if (!err && !s->dry) {
		judge(s, at, *first, p.map, holds && *first);
		if (*first) {
			drop(s, first);
		}
	}
	return err;
}
