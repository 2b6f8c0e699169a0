/* Entries as JSON, according to the type of their map. */
#include "daemon/maps/policy_maps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "bpf/load/btf/typed.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"

#define THREADS_TEXT (64u << 10) /* for one entry */

/* Returns true if keys are numbers even without type information. */
static bool is_index(uint32_t type)
{
	return ebpf_map_type_has(type, EBPF_MAP_INDEXED);
}

void daemon_maps_put_key(struct buf *out, const struct daemon_map_view *v, const void *key)
{
	if (!daemon_maps_has_keys(v)) {
		buf_printf(out, "\"index\":%" PRIu32, ebpf_map_index(key));
		return;
	}
	buf_puts(out, "\"key\":");
	if (!v->object->key_type[v->index] && is_index(v->def->type)) {
		buf_printf(out, "%" PRIu32, ebpf_map_index(key));
		return;
	}
	ebpf_typed_print(out, v->btf, v->object->key_type[v->index], key, v->def->key_bytes);
	if (ebpf_map_type_has(v->def->type, EBPF_MAP_PREFIX)) {
		buf_printf(out, ",\"prefix_bits\":%" PRIu32, ebpf_map_index(key));
	}
}

void daemon_maps_put_value(struct buf *out, const struct daemon_map_view *v, const void *value)
{
	ebpf_typed_print(out, v->btf, v->object->value_type[v->index], value, v->def->value_bytes);
}

/* JSON readers accept no integer above 2^63-1. */
static void put_number(struct buf *out, uint64_t n)
{
	buf_printf(out, n > INT64_MAX ? "\"%" PRIu64 "\"" : "%" PRIu64, n);
}

/* Bucket 0 counts zeros, bucket b numbers whose highest bit is b-1, and the last bucket all larger
 * ones. */
static void put_histogram(struct buf *out, const uint64_t *row)
{
	uint64_t count = 0;
	bool any = false;

	for (unsigned b = 0; b < EBPF_HIST_BUCKETS; b++) {
		count += row[b];
	}
	buf_puts(out, ",\"count\":");
	put_number(out, count);
	buf_puts(out, ",\"buckets\":[");
	for (unsigned b = 0; b < EBPF_HIST_BUCKETS; b++) {
		if (!row[b]) {
			continue;
		}
		buf_printf(out, "%s{\"low\":", any ? "," : "");
		put_number(out, b ? UINT64_C(1) << (b - 1) : 0);
		buf_puts(out, ",\"high\":");
		put_number(out, b == EBPF_HIST_BUCKETS - 1 ? UINT64_MAX
				: b			   ? (UINT64_C(1) << b) - 1
							   : 0);
		buf_puts(out, ",\"count\":");
		put_number(out, row[b]);
		buf_puts(out, "}");
		any = true;
	}
	buf_puts(out, "]");
}

/* Returns the name of the instances of a map with the trait PER_THREAD. */
static const char *instances_of(uint32_t type)
{
	return type == GBPF_MAP_SM_ARRAY     ? "sms"
	       : type == GBPF_MAP_WARP_ARRAY ? "warps"
					     : "threads";
}

/* Appends the values of instances, without those that are all zero and those beyond THREADS_TEXT.
 */
static void put_instances(struct buf *out, const struct daemon_map_view *v,
			  const struct ebpf_map *m, uint32_t index)
{
	uint64_t *value = calloc(1, EBPF_MAX_VALUE_BYTES);
	size_t most = out->len + THREADS_TEXT;
	uint32_t left_out = 0;
	bool any = false;

	buf_printf(out, ",\"%s\":[", instances_of(m->type));
	for (uint32_t t = 0; value && index < m->max_entries && t < ebpf_map_copies(m); t++) {
		const uint8_t *at = m->data + (size_t)t * m->copy_bytes + (size_t)index * m->stride;
		uint64_t sum = 0;

		for (uint32_t w = 0; w < m->value_bytes / 8; w++) {
			value[w] = load_relaxed((const uint64_t *)(const void *)(at + w * 8));
			sum |= value[w];
		}
		if (sum && out->len > most) {
			left_out++;
		} else if (sum) {
			buf_printf(out, "%s{\"slot\":%" PRIu32 ",\"value\":", any ? "," : "", t);
			daemon_maps_put_value(out, v, value);
			buf_puts(out, "}");
			any = true;
		}
	}
	buf_puts(out, "]");
	if (left_out) {
		buf_printf(out, ",\"%s_left_out\":%" PRIu32, instances_of(m->type), left_out);
	}
	free(value);
}

static void put_map_name(struct buf *out, const struct daemon_map_view *v, const void *value)
{
	uint32_t map_1 = ebpf_map_index(value);

	if (map_1 && map_1 <= v->object->n_maps) {
		buf_printf(out, ",\"map\":\"%s\"", v->object->maps[map_1 - 1].name);
	} else {
		buf_puts(out, ",\"map\":null");
	}
}

/* Appends a function's name, which comes from the object unchecked. */
static void put_name(struct buf *out, const char *name)
{
	char clean[64];
	json_t *j;
	char *text;

	daemon_text_copy(clean, sizeof(clean), name, strnlen(name, sizeof(clean)));
	j = json_string(clean);
	text = j ? json_dumps(j, JSON_ENCODE_ANY) : NULL;
	buf_printf(out, ",\"program\":%s", text ? text : "null");
	free(text);
	json_decref(j);
}

/* Any program that uses the array has the names: all name the same functions. */
static void put_program(struct buf *out, const struct daemon_map_view *v, uint32_t index)
{
	for (uint32_t p = 0; p < v->object->n_progs; p++) {
		const struct ebpf_prog *prog = &v->object->progs[p];

		for (uint32_t t = 0; t < prog->n_tails; t++) {
			if (prog->tails[t].map == v->index && prog->tails[t].index == index &&
			    prog->tails[t].subprog < prog->n_subprogs) {
				put_name(out, prog->subprog_name[prog->tails[t].subprog]);
				return;
			}
		}
	}
	buf_puts(out, ",\"program\":null");
}

void daemon_maps_put_entry(struct buf *out, const struct daemon_map_view *v,
			   const struct ebpf_map *m, int tenant, uint32_t position, const void *key,
			   const void *value)
{
	const struct ebpf_map_type *type = ebpf_map_type_of(v->def->type);

	if (tenant >= 0) {
		buf_printf(out, "\"tenant\":%d,", tenant);
	}
	daemon_maps_put_key(out, v, key);
	if (type->traits & EBPF_MAP_COUNTERS) {
		put_histogram(out, value);
	} else if (type->traits & EBPF_MAP_MAPS) {
		put_map_name(out, v, value);
	} else if (type->traits & EBPF_MAP_PROGRAMS) {
		put_program(out, v, position);
	} else {
		buf_puts(out, ",\"value\":");
		daemon_maps_put_value(out, v, value);
	}
	if ((type->traits & EBPF_MAP_PER_THREAD) && m) {
		put_instances(out, v, m, ebpf_map_index(key));
	}
}
