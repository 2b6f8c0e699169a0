/* Reads .BTF.ext. For each code section it holds the source line of each instruction, the type of
 * each function, and the instructions that depend on the layout of types (CO-RE). libbpf has no
 * public call for this section. */
#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"
#include "bpf/load/elf/source_line.h"

struct ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t header_bytes;
	uint32_t func_off, func_bytes;
	uint32_t line_off, line_bytes;
	uint32_t core_off, core_bytes; /* valid if header_bytes >= 32 */
};

/* One of the three subsections. */
struct part {
	const char *name;
	uint32_t record_bytes; /* size of the record that this code knows */
	uint32_t limit;
	int (*add)(struct ebpf_obj_section *s, const uint8_t *records, uint32_t n, uint32_t bytes);
};

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static struct ebpf_obj_section *code_section(const struct ebpf_obj_parse *p, const char *name)
{
	for (uint32_t i = 1; name && i < p->n_secs; i++) {
		if (p->secs[i].role == OBJ_CODE && strcmp(p->secs[i].name, name) == 0) {
			return &p->secs[i];
		}
	}
	return NULL;
}

/* Grows an array so that it has room for more elements after n. */
static void *reserve(void *old, uint32_t n, uint32_t more, uint32_t *cap, size_t bytes)
{
	uint32_t want = MAX(*cap * 2, n + more);
	void *new;

	if (n + more <= *cap) {
		return old;
	}
	new = realloc(old, want * bytes);
	*cap = new ? want : *cap;
	return new;
}

static int add_lines(struct ebpf_obj_section *s, const uint8_t *at, uint32_t n, uint32_t bytes)
{
	void *lines = reserve(s->lines, s->n_lines, n, &s->cap_lines, sizeof(*s->lines));

	if (!lines) {
		return -ENOMEM;
	}
	s->lines = lines;
	for (; n > 0; n--, at += bytes) {
		s->lines[s->n_lines++] = (struct ebpf_obj_line){ get32(at), get32(at + 4),
								 get32(at + 8), get32(at + 12) };
	}
	return 0;
}

static int add_func_info(struct ebpf_obj_section *s, const uint8_t *at, uint32_t n, uint32_t bytes)
{
	void *info =
		reserve(s->func_info, s->n_func_info, n, &s->cap_func_info, sizeof(*s->func_info));

	if (!info) {
		return -ENOMEM;
	}
	s->func_info = info;
	for (; n > 0; n--, at += bytes) {
		s->func_info[s->n_func_info++] =
			(struct ebpf_obj_func_info){ get32(at), get32(at + 4) };
	}
	return 0;
}

static int add_core(struct ebpf_obj_section *s, const uint8_t *at, uint32_t n, uint32_t bytes)
{
	void *core = reserve(s->core, s->n_core, n, &s->cap_core, sizeof(*s->core));

	if (!core) {
		return -ENOMEM;
	}
	s->core = core;
	for (; n > 0; n--, at += bytes) {
		s->core[s->n_core++] = (struct ebpf_obj_core){ .off = get32(at),
							       .type = get32(at + 4),
							       .access = get32(at + 8),
							       .kind = get32(at + 12) };
	}
	return 0;
}

static const struct part func_part = { "function info", 8, OBJ_MAX_FUNCS, add_func_info };
static const struct part line_part = { "line info", 16, OBJ_MAX_LINES, add_lines };
static const struct part core_part = { "CO-RE relocations", 16, OBJ_MAX_CORE, add_core };

static int read_groups(struct ebpf_obj_parse *p, const struct part *part, const uint8_t *data,
		       size_t size)
{
	uint32_t bytes, total = 0, groups = 0;
	size_t at = 4;

	if (size < 4 || (bytes = get32(data)) < part->record_bytes || bytes > 256 || bytes % 4) {
		return ebpf_obj_refuse(p, -EINVAL, ".BTF.ext", 0, "broken %s", part->name);
	}
	while (at < size) {
		struct ebpf_obj_section *s;
		uint32_t name, n;
		int err;

		if (size - at < 8) {
			return ebpf_obj_refuse(p, -EINVAL, ".BTF.ext", at, "truncated %s",
					       part->name);
		}
		name = get32(data + at);
		n = get32(data + at + 4);
		at += 8;
		if (n == 0 || n > (size - at) / bytes) {
			return ebpf_obj_refuse(p, -EINVAL, ".BTF.ext", at,
					       "%s of %u records does not fit", part->name, n);
		}
		if (n > part->limit - total || ++groups > OBJ_MAX_GROUPS) {
			return ebpf_obj_refuse(p, -E2BIG, ".BTF.ext", at,
					       "more than %u records or %u sections of %s",
					       part->limit, OBJ_MAX_GROUPS, part->name);
		}
		total += n;
		s = code_section(p, btf__name_by_offset(p->btf, name));
		err = s ? part->add(s, data + at, n, bytes) : 0;
		if (err) {
			return err;
		}
		at += (size_t)n * bytes;
	}
	return 0;
}

static int read_part(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s,
		     const struct part *part, uint32_t header_bytes, uint32_t off, uint32_t bytes)
{
	size_t rest = s->size - header_bytes;

	if (bytes == 0) {
		return 0;
	}
	if (off > rest || bytes > rest - off) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, off, "%s lies outside the section",
				       part->name);
	}
	return read_groups(p, part, s->data + header_bytes + off, bytes);
}

static int offset_order(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a,
		 y = *(const uint32_t *)b; /* off is the first member of each record */

	return x < y ? -1 : x > y;
}

static void sort(void *array, uint32_t n, size_t bytes)
{
	for (uint32_t i = 1; i < n; i++) {
		const uint8_t *at = (const uint8_t *)array + i * bytes;

		if (offset_order(at - bytes, at) > 0) {
			qsort(array, n, bytes, offset_order);
			return;
		}
	}
}

static void sort_records(struct ebpf_obj_parse *p)
{
	for (uint32_t i = 1; i < p->n_secs; i++) {
		struct ebpf_obj_section *s = &p->secs[i];

		sort(s->lines, s->n_lines, sizeof(*s->lines));
		sort(s->core, s->n_core, sizeof(*s->core));
		sort(s->func_info, s->n_func_info, sizeof(*s->func_info));
	}
}

int ebpf_obj_read_ext(struct ebpf_obj_parse *p)
{
	struct ext_header h = { 0 };
	const struct ebpf_obj_section *s = NULL;
	int err;

	for (uint32_t i = 1; i < p->n_secs && !s; i++) {
		if (strcmp(p->secs[i].name, ".BTF.ext") == 0 && p->secs[i].data) {
			s = &p->secs[i];
		}
	}
	if (!s) {
		return 0; /* messages then name only instructions */
	}
	memcpy(&h, s->data, MIN(s->size, sizeof(h)));
	if (s->size < 24 || h.magic != 0xeb9f || h.version != 1 || h.header_bytes < 24 ||
	    h.header_bytes > s->size) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "broken header");
	}
	if (h.header_bytes < 32) {
		h.core_bytes = 0;
	}
	err = read_part(p, s, &func_part, h.header_bytes, h.func_off, h.func_bytes);
	err = err ? err : read_part(p, s, &line_part, h.header_bytes, h.line_off, h.line_bytes);
	err = err ? err : read_part(p, s, &core_part, h.header_bytes, h.core_off, h.core_bytes);
	sort_records(p);
	return err;
}

static const char *text_at(const struct ebpf_obj_parse *p, uint32_t off)
{
	const char *text = btf__name_by_offset(p->btf, off);

	return text ? text : "";
}

static uint32_t lower_bound(const struct ebpf_obj_section *s, uint32_t off)
{
	uint32_t lo = 0, hi = s->n_lines;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->lines[mid].off < off) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

bool ebpf_obj_line_at(const struct ebpf_obj_parse *p, const char *section, uint64_t offset,
		      struct ebpf_source_line *ret)
{
	const struct ebpf_obj_section *s = code_section(p, section);
	const struct ebpf_obj_line *l;
	uint32_t n = s && offset < s->size ? lower_bound(s, (uint32_t)offset + 1) : 0;

	if (!n) {
		return false;
	}
	l = &s->lines[n - 1];
	*ret = (struct ebpf_source_line){ .file = text_at(p, l->file_off),
					  .text = text_at(p, l->text_off),
					  .line = l->line_col >> 10,
					  .column = l->line_col & 0x3ff };
	return true;
}

int ebpf_obj_add_lines(struct ebpf_obj_parse *p, struct ebpf_prog *prog,
		       const struct ebpf_obj_func *f, uint32_t at)
{
	const struct ebpf_obj_section *s = &p->secs[f->section];
	uint32_t first = f->start * 8, from = lower_bound(s, first);
	uint32_t n = lower_bound(s, (f->start + f->n) * 8) - from;
	struct ebpf_line *lines;

	if (n == 0 || n > OBJ_MAX_LINES - p->n_lines) {
		return 0; /* messages about this function then have no source line */
	}
	p->n_lines += n;
	lines = realloc(prog->lines, ((size_t)prog->n_lines + n) * sizeof(*lines));
	if (!lines) {
		return -ENOMEM;
	}
	prog->lines = lines;
	for (uint32_t i = from; i < from + n; i++) {
		const struct ebpf_obj_line *l = &s->lines[i];

		lines[prog->n_lines++] = (struct ebpf_line){
			.insn = at + (l->off - first) / 8,
			.line = l->line_col >> 10,
			.column = l->line_col & 0x3ff,
			.file = text_at(p, l->file_off),
			.text = text_at(p, l->text_off),
		};
	}
	return 0;
}
