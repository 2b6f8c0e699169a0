/* map.dump: entries in pages. Producing a page must not block the loop for more than about a
 * millisecond, whatever the map; the caller asks for further pages. */
#include "daemon/maps/policy_maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bpf/run/map/map_bucket.h"
#include "daemon/consts.h"

#define PAGE_ENTRIES 1000
#define PAGE_MAX_ENTRIES 4096
#define PAGE_LEAST_NS 10000u
#define PAGE_NS 500000u		/* the answer must also be copied and sent */
#define PAGE_BYTES (256u << 10) /* and read by the caller */
#define LOOK_EVERY 16u
#define SMALL_BYTES 64u /* larger values take longer to format */

/* Position of a walk over all instances. */
struct dump_position {
	uint32_t tenant, position;
};

struct map_dump {
	struct daemon_map_view v;
	struct daemon_maps_reader reader;
	struct dump_position at;
	int only; /* a tenant's number; DAEMON_MAPS_NO_TENANT: all */
	uint32_t limit, n;
	bool nonzero;
	uint64_t deadline_ns;
	uint64_t dropped;     /* values that found no room in the instances that end on this page */
	uint8_t *key, *value; /* owned */
	struct buf out;
};

static bool parse_place(const char *text, struct dump_position *ret)
{
	unsigned long long tenant, position;
	char *end;

	if (!text || *text < '0' || *text > '9') {
		return false;
	}
	tenant = strtoull(text, &end, 10);
	if (*end != '.' || end[1] < '0' || end[1] > '9') {
		return false;
	}
	position = strtoull(end + 1, &end, 10);
	*ret = (struct dump_position){ (uint32_t)tenant, (uint32_t)position };
	return !*end && tenant < PROTO_MAX_TENANTS && position <= UINT32_MAX;
}

static bool is_zero(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == 0 && memcmp(p, p + 1, n - 1) == 0);
}

/* Continues the walk in one instance. Returns true when it is complete, false if the page is full.
 */
static bool walk(struct map_dump *d, const struct ebpf_map *m)
{
	uint32_t positions = daemon_maps_positions(m);
	int tenant = daemon_maps_per_tenant(&d->v) ? (int)d->at.tenant : DAEMON_MAPS_NO_TENANT;
	bool said = false;

	for (; d->at.position < positions; d->at.position++) {
		if (d->n == d->limit || d->out.len > PAGE_BYTES ||
		    ((d->at.position % LOOK_EVERY == 0 || m->value_bytes > SMALL_BYTES || said ||
		      m->type == GBPF_MAP_STACK) &&
		     clock_now_ns() > d->deadline_ns)) {
			return false;
		}
		said = false;
		if (daemon_maps_entry_at(m, d->at.position, d->key, d->value) != 1 ||
		    (d->nonzero && is_zero(d->value, m->value_bytes))) {
			continue;
		}
		buf_puts(&d->out, d->n++ ? ",{" : "{");
		daemon_maps_put_entry(&d->out, &d->v, m, tenant, d->at.position, d->key, d->value);
		buf_puts(&d->out, "}");
		said = true;
	}
	d->dropped += ebpf_bucket_dropped(m) + ebpf_array_dropped(m);
	return true;
}

/* Returns true when no entry is left. */
static bool walk_all(struct map_dump *d)
{
	const struct ebpf_map *m;
	struct ebpf_map room;

	if (!daemon_maps_per_tenant(&d->v)) {
		m = daemon_maps_instance(&d->v, DAEMON_MAPS_NO_TENANT, &room);
		return !m || walk(d, m);
	}
	for (; d->at.tenant < PROTO_MAX_TENANTS; d->at.tenant++) {
		m = (d->only < 0 || d->only == (int)d->at.tenant) &&
				    daemon_maps_may_read(&d->reader, (int)d->at.tenant)
			    ? daemon_maps_instance(&d->v, (int)d->at.tenant, &room)
			    : NULL;
		if (m && !walk(d, m)) {
			return false;
		}
		d->at.position = 0;
	}
	return true;
}

/* Returns the time for a page. All dumps together get half of the loop's time, however many there
 * are: a page asked for too early has few entries, and its caller asks again. */
static uint64_t time_for_page(struct daemon *d, uint64_t now)
{
	d->maps.dump_left_ns =
		MIN(d->maps.dump_left_ns + (now - d->maps.dump_last_ns) / 2, (uint64_t)PAGE_NS);
	d->maps.dump_last_ns = now;
	return MAX(d->maps.dump_left_ns, (uint64_t)PAGE_LEAST_NS);
}

static bool timed_walk(struct daemon *d, struct map_dump *p)
{
	uint64_t begin = clock_now_ns(), took;
	bool done;

	p->deadline_ns = begin + time_for_page(d, begin);
	done = walk_all(p);
	took = clock_now_ns() - begin;
	d->maps.dump_left_ns -= MIN(took, d->maps.dump_left_ns);
	return done;
}

static bool params(struct daemon_call *c, struct map_dump *d)
{
	const json_t *after = json_object_get(c->params, "after");
	const json_t *limit = json_object_get(c->params, "limit");
	json_int_t n = limit ? json_integer_value(limit) : PAGE_ENTRIES;

	if (n < 1) {
		daemon_control_error(c, 2, "usage", "Use 1 to 4096", "invalid page size %lld",
				     (long long)n);
		return false;
	}
	d->limit = (uint32_t)MIN(n, PAGE_MAX_ENTRIES);
	d->nonzero = json_is_true(json_object_get(c->params, "nonzero"));
	if (after && !parse_place(json_string_value(after), &d->at)) {
		daemon_control_error(c, 2, "usage", "Pass the text `next` of the previous page",
				     "invalid 'after'");
		return false;
	}
	return true;
}

void daemon_method_map_dump(struct daemon_call *c)
{
	struct map_dump d = { .reader = daemon_maps_reader_of(c), .only = DAEMON_MAPS_NO_TENANT };
	bool done;

	if (!daemon_maps_find(c, &d.v) || !daemon_maps_tenant(c, &d.v, &d.only) || !params(c, &d)) {
		return;
	}
	d.key = malloc(EBPF_MAX_KEY_BYTES);
	d.value = malloc(EBPF_MAX_VALUE_BYTES);
	buf_init(&d.out);
	if (d.key && d.value) {
		daemon_maps_put_head(&d.out, &d.v);
		buf_puts(&d.out, ",\"entries\":[");
		done = timed_walk(c->d, &d);
		buf_puts(&d.out, "]");
		if (!done) {
			buf_printf(&d.out, ",\"next\":\"%u.%u\"", d.at.tenant, d.at.position);
		}
		if (d.dropped) {
			buf_printf(&d.out, ",\"dropped\":%" PRIu64, d.dropped);
		}
		buf_puts(&d.out, "}");
	}
	daemon_control_result_text(c, d.key && d.value ? &d.out : NULL);
	buf_finish(&d.out);
	free(d.key);
	free(d.value);
}
