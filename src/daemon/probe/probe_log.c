/* probe.log: lines that a tool's programs print inside kernels. They come as numbers in a ring of
 * the tenant's memory, so a tenant can falsify its own; the formats are those of the tool's object,
 * and the text is made here. The caller keeps the positions and passes them back. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/run/map/map_sm_ring.h"
#include "bpf/run/printk.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/policy/map_view.h"
#include "daemon/probe/probes_int.h"

#define PAGE_LINES 256u
#define PAGE_NS 500000u /* of the loop's time */

/* Positions of a reader in the rings of one session. */
struct log_at {
	struct log_at *next;
	int tenant;
	uint64_t connected_ns; /* of the session: the number may be given again */
	uint64_t at[EBPF_SM_SLOTS];
};

struct log_page {
	struct daemon_map_view v;
	struct log_at *all; /* owned */
	json_t *lines;	    /* owned */
	uint64_t missed;    /* overwritten before they were read, or not readable */
	uint64_t deadline_ns;
	bool more;
};

static void page_finish(struct log_page *p)
{
	struct log_at *next;

	for (struct log_at *a = p->all; a; a = next) {
		next = a->next;
		free(a);
	}
	json_decref(p->lines);
}

/* Returns the positions in the rings of a session, at first all 0; NULL: no memory. */
static struct log_at *positions(struct log_page *p, const struct daemon_session *s)
{
	struct log_at *a = p->all;

	while (a && (a->tenant != s->tenant || a->connected_ns != s->connected_ns)) {
		a = a->next;
	}
	if (!a) {
		a = calloc(1, sizeof(*a));
		if (!a) {
			return NULL;
		}
		a->tenant = s->tenant;
		a->connected_ns = s->connected_ns;
		a->next = p->all;
		p->all = a;
	}
	return a;
}

/* ---- positions of the caller: [tenant, connected_ns, number in ring 0, in ring 1 ...] each ----
 */

static bool take_position(struct daemon *d, struct log_page *p, const json_t *j)
{
	json_int_t tenant = json_integer_value(json_array_get(j, 0));
	size_t n = json_array_size(j);
	const struct daemon_session *s;
	struct log_at *a;

	if (n < 2 || n > 2 + EBPF_SM_SLOTS || tenant < 0 ||
	    tenant >= (json_int_t)PROTO_MAX_TENANTS) {
		return false;
	}
	s = d->sessions.tenant[tenant];
	if (!s || s->connected_ns != (uint64_t)json_integer_value(json_array_get(j, 1))) {
		return true; /* it has ended */
	}
	a = positions(p, s);
	for (size_t k = 2; a && k < n; k++) {
		a->at[k - 2] = (uint64_t)json_integer_value(json_array_get(j, k));
	}
	return a != NULL;
}

static bool take_positions(struct daemon_call *c, struct log_page *p)
{
	const json_t *all = json_object_get(c->params, "next");
	const json_t *j;
	size_t i;

	if (all && (!json_is_array(all) || json_array_size(all) > PROTO_MAX_TENANTS)) {
		return false;
	}
	json_array_foreach(all, i, j)
	{
		if (!take_position(c->d, p, j)) {
			return false;
		}
	}
	return true;
}

static json_t *positions_json(const struct log_page *p)
{
	json_t *all = json_array();

	for (const struct log_at *a = p->all; a; a = a->next) {
		json_t *j = json_pack("[i,I]", a->tenant, (json_int_t)a->connected_ns);
		unsigned n = EBPF_SM_SLOTS;

		while (n && !a->at[n - 1]) {
			n--;
		}
		for (unsigned ring = 0; ring < n; ring++) {
			json_array_append_new(
				j, json_integer((json_int_t)(a->at[ring] & (uint64_t)INT64_MAX)));
		}
		json_array_append_new(all, j);
	}
	return all;
}

/* ---- lines ---- */

/* Returns the format on a program's stack that a record names, or NULL. */
static const char *stack_text(const struct ebpf_object *o, const struct ebpf_print_record *r)
{
	uint32_t prog = (uint32_t)r->fmt >> 16;
	const struct ebpf_stack_texts *t =
		r->fmt >> 32 == EBPF_PRINT_STACK && prog < o->n_progs ? o->progs[prog].texts : NULL;

	return t ? ebpf_stack_text(t, r->fmt & UINT16_MAX) : NULL;
}

/* Makes the text of a record. Returns false if its format is none of the object. */
static bool make_text(const struct ebpf_object *o, const struct ebpf_print_record *r, char *text)
{
	uint64_t map = r->fmt >> 32, from = (uint32_t)r->fmt;
	const struct ebpf_map_def *d = map < o->n_maps ? &o->maps[map] : NULL;
	const char *on_stack = stack_text(o, r);

	if (on_stack) {
		(void)ebpf_print_format(text, on_stack, strlen(on_stack), r->args, sizeof(r->args));
		return true;
	}
	if (!d || !d->is_data || !(d->flags & (uint32_t)GBPF_F_RDONLY) || !o->init[map] ||
	    from >= d->value_bytes) {
		return false;
	}
	(void)ebpf_print_format(text, (const uint8_t *)o->init[map] + from, d->value_bytes - from,
				r->args, sizeof(r->args));
	return true;
}

static json_t *line_json(const struct daemon_session *s, unsigned ring,
			 const struct ebpf_print_record *r, const char *text)
{
	char kernel[20], name[PROTO_KERNEL_NAME + 1] = "";
	json_t *j;

	snprintf(kernel, sizeof(kernel), "%016" PRIx64, r->kernel);
	j = json_pack("{s:i,s:i,s:s,s:i,s:I,s:s,s:I,s:I,s:I,s:s}", "tenant", s->tenant, "pid",
		      (int)s->peer.pid, "program", s->name, "sm", (int)ring, "time_ns",
		      (json_int_t)(r->time & INT64_MAX), "kernel", kernel, "block",
		      (json_int_t)(r->block & INT64_MAX), "warp", (json_int_t)(r->lane >> 32),
		      "lane", (json_int_t)(uint32_t)r->lane, "text", text);
	if (j && daemon_kernel_name(s, r->kernel, name, sizeof(name))) {
		json_object_set_new(j, "kernel_name", json_string(name));
	}
	return j;
}

/* Reads what is new in one ring. */
static void read_ring(struct log_page *p, const struct daemon_session *s, const struct ebpf_map *m,
		      unsigned ring, uint64_t *at)
{
	struct ebpf_print_record r;
	char text[EBPF_PRINT_TEXT];

	while (json_array_size(p->lines) < PAGE_LINES &&
	       ebpf_sm_ring_next(m, ring, 0, at, &p->missed, &r)) {
		if (make_text(p->v.object, &r, text)) {
			json_array_append_new(p->lines, line_json(s, ring, &r, text));
		} else {
			p->missed++;
		}
	}
}

/* Returns false if memory ran out. */
static bool read_session(struct log_page *p, const struct daemon_session *s)
{
	struct ebpf_map room;
	const struct ebpf_map *m = daemon_maps_instance(&p->v, s->tenant, &room);
	struct log_at *a = m ? positions(p, s) : NULL;

	for (unsigned ring = 0; a && ring < EBPF_SM_SLOTS && !p->more; ring++) {
		read_ring(p, s, m, ring, &a->at[ring]);
		p->more =
			json_array_size(p->lines) >= PAGE_LINES || clock_now_ns() > p->deadline_ns;
	}
	return !m || a;
}

static bool find_ring(struct daemon_call *c, struct log_page *p)
{
	json_int_t id = json_integer_value(json_object_get(c->params, "id"));
	struct daemon_version *l = daemon_probe_numbered(c, id);
	const struct ebpf_object *o = l ? &l->built->object : NULL;

	if (!l) {
		daemon_control_error(c, 5, "not-found", "`gbpf probe ls` lists them",
				     "there is no tool %lld", (long long)id);
		return false;
	}
	for (uint32_t i = 0; i < o->n_maps; i++) {
		if (strcmp(o->maps[i].name, EBPF_PRINT_MAP) == 0) {
			p->v = (struct daemon_map_view){ l, o, &o->maps[i], ebpf_object_btf(o), i };
			return true;
		}
	}
	daemon_control_error(c, 2, "not-possible",
			     "Its programs inside kernels can call bpf_printk",
			     "tool %lld '%s' prints nothing", (long long)id, l->run.name);
	return false;
}

static bool read_all(struct daemon_call *c, struct log_page *p)
{
	struct daemon_maps_reader reader = daemon_maps_reader_of(c);
	bool good = true;

	p->deadline_ns = clock_now_ns() + PAGE_NS;
	for (int t = 0; t < (int)PROTO_MAX_TENANTS && good && !p->more; t++) {
		const struct daemon_session *s = c->d->sessions.tenant[t];

		if (s && !s->dying && daemon_maps_may_read(&reader, t)) {
			good = read_session(p, s);
		}
	}
	return good;
}

void daemon_method_probe_log(struct daemon_call *c)
{
	struct log_page p = { .lines = json_array() };

	if (!find_ring(c, &p)) {
		page_finish(&p);
		return;
	}
	if (!take_positions(c, &p)) {
		daemon_control_error(c, 2, "usage", "Pass `next` of the previous answer",
				     "invalid 'next'");
	} else if (!p.lines || !read_all(c, &p)) {
		daemon_control_error(c, 1, "memory", NULL, "out of memory");
	} else {
		daemon_control_result(c,
				      json_pack("{s:I,s:s,s:O,s:I,s:b,s:o}", "id",
						(json_int_t)daemon_probe_id(p.v.live), "name",
						p.v.live->run.name, "lines", p.lines, "missed",
						(json_int_t)MIN(p.missed, (uint64_t)INT64_MAX),
						"more", (int)p.more, "next", positions_json(&p)));
	}
	page_finish(&p);
}
