/* .BTF.ext: which source line each instruction came from. Read by hand, since libbpf offers no
 * public call for it. */
#include "bpf/load/object_int.h"

#include <bpf/btf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct ext_header {
	uint16_t magic;
	uint8_t version, flags;
	uint32_t header_bytes;
	uint32_t func_off, func_bytes;
	uint32_t line_off, line_bytes;
	uint32_t core_off, core_bytes; /* only when header_bytes >= 32 */
};

struct group { /* of records for one section */
	uint32_t name_off, n;
};

static uint32_t get32(const uint8_t *at)
{
	uint32_t v;

	memcpy(&v, at, sizeof(v));
	return v;
}

static struct obj_section *code_section(struct obj_parse *p, const char *name)
{
	for (uint32_t i = 1; name && i < p->n_secs; i++) {
		if (p->secs[i].role == OBJ_CODE && strcmp(p->secs[i].name, name) == 0) {
			return &p->secs[i];
		}
	}
	return NULL;
}

static int line_order(const void *a, const void *b)
{
	const struct obj_line *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int reserve_lines(struct obj_section *s, uint32_t more)
{
	uint32_t cap = MAX(s->cap_lines * 2, s->n_lines + more);
	struct obj_line *lines;

	if (s->n_lines + more <= s->cap_lines) {
		return 0;
	}
	lines = realloc(s->lines, (size_t)cap * sizeof(*lines));
	if (!lines) {
		return -ENOMEM;
	}
	s->lines = lines;
	s->cap_lines = cap;
	return 0;
}

static int add_group(struct obj_section *s, const uint8_t *records, uint32_t n, uint32_t bytes)
{
	int err = reserve_lines(s, n);

	for (uint32_t i = 0; err == 0 && i < n; i++) {
		const uint8_t *at = records + (size_t)i * bytes;

		s->lines[s->n_lines++] = (struct obj_line){ get32(at), get32(at + 4), get32(at + 8),
							    get32(at + 12) };
	}
	return err;
}

static int read_line_info(struct obj_parse *p, const uint8_t *data, size_t size)
{
	uint32_t bytes, total = 0;
	size_t at = 4;
	int err;

	if (size < 4 || (bytes = get32(data)) < 16 || bytes > 256 || bytes % 4) {
		return obj_refuse(p, -EINVAL, ".BTF.ext", 0, "broken line info");
	}
	while (at < size) {
		struct obj_section *s;
		struct group g;

		if (size - at < 8) {
			return obj_refuse(p, -EINVAL, ".BTF.ext", at, "truncated line info");
		}
		g = (struct group){ get32(data + at), get32(data + at + 4) };
		at += 8;
		if (g.n == 0 || g.n > (size - at) / bytes) {
			return obj_refuse(p, -EINVAL, ".BTF.ext", at,
					  "line info of %u records does not fit", g.n);
		}
		total += g.n;
		if (total > OBJ_MAX_LINES) {
			return obj_refuse(p, -E2BIG, ".BTF.ext", at, "more than %u lines",
					  OBJ_MAX_LINES);
		}
		s = code_section(p, btf__name_by_offset(p->btf, g.name_off));
		err = s ? add_group(s, data + at, g.n, bytes) : 0;
		if (err) {
			return err;
		}
		at += (size_t)g.n * bytes;
	}
	return 0;
}

int obj_read_lines(struct obj_parse *p)
{
	struct ext_header h = { 0 };
	const struct obj_section *s = NULL;
	size_t rest;
	int err;

	for (uint32_t i = 1; i < p->n_secs && !s; i++) {
		if (strcmp(p->secs[i].name, ".BTF.ext") == 0 && p->secs[i].data) {
			s = &p->secs[i];
		}
	}
	if (!s) {
		return 0; /* messages will name instructions only */
	}
	memcpy(&h, s->data, MIN(s->size, sizeof(h)));
	if (s->size < 24 || h.magic != 0xeb9f || h.version != 1 || h.header_bytes < 24 ||
	    h.header_bytes > s->size) {
		return obj_refuse(p, -EINVAL, s->name, 0, "broken header");
	}
	rest = s->size - h.header_bytes;
	if (h.header_bytes >= 32 && h.core_bytes) {
		report_hint(p->r, "leave out preserve_access_index and __builtin_preserve_*: "
				  "gBPF's contexts have "
				  "fixed layouts");
		return obj_refuse(p, -EINVAL, s->name, h.core_off,
				  "CO-RE relocations are not supported by this version");
	}
	if (h.line_bytes == 0) {
		return 0;
	}
	if (h.line_off > rest || h.line_bytes > rest - h.line_off) {
		return obj_refuse(p, -EINVAL, s->name, h.line_off,
				  "line info lies outside the section");
	}
	err = read_line_info(p, s->data + h.header_bytes + h.line_off, h.line_bytes);
	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		if (p->secs[i].n_lines) {
			qsort(p->secs[i].lines, p->secs[i].n_lines, sizeof(*p->secs[i].lines),
			      line_order);
		}
	}
	return err;
}

static const char *text_at(const struct obj_parse *p, uint32_t off)
{
	const char *text = btf__name_by_offset(p->btf, off);

	return text ? text : "";
}

static uint32_t lower_bound(const struct obj_section *s, uint32_t off)
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

int obj_add_lines(struct obj_parse *p, struct ebpf_prog *prog, const struct obj_func *f,
		  uint32_t at)
{
	const struct obj_section *s = &p->secs[f->section];
	uint32_t first = f->start * 8, from = lower_bound(s, first);
	uint32_t n = lower_bound(s, (f->start + f->n) * 8) - from;
	struct ebpf_line *lines;

	if (n == 0) {
		return 0;
	}
	lines = realloc(prog->lines, ((size_t)prog->n_lines + n) * sizeof(*lines));
	if (!lines) {
		return -ENOMEM;
	}
	prog->lines = lines;
	for (uint32_t i = from; i < from + n; i++) {
		const struct obj_line *l = &s->lines[i];

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
