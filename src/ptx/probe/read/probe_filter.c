/* The texts of filters of sites. probe.h has the grammar. */
#include <errno.h>
#include <string.h>

#include "ptx/probe/read/probe_read.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

/* Reads digits up to end. Returns false if there is anything else, or too much. */
static bool number(const char *at, const char *end, uint32_t *ret)
{
	uint64_t n = 0;

	for (const char *c = at; c < end; c++) {
		if (*c < '0' || *c > '9' || n > UINT32_MAX) {
			return false;
		}
		n = n * 10 + (uint64_t)(*c - '0');
	}
	*ret = (uint32_t)n;
	return at < end && n < PTX_PROBE_ANY;
}

static bool is_word(const char *at, const char *end, const char *word)
{
	return strlen(word) == (size_t)(end - at) && memcmp(at, word, (size_t)(end - at)) == 0;
}

static bool scope_word(const char *at, const char *end, uint32_t *ret)
{
	static const char *const scopes[] = { "block", "cluster", "gpu", "system" };

	for (uint32_t i = 0; i < ARRAY_SIZE(scopes); i++) {
		if (is_word(at, end, scopes[i])) {
			*ret = i;
			return true;
		}
	}
	return false;
}

static bool barrier_word(const char *at, const char *end, struct ptx_probe_filter *f)
{
	static const char *const places[] = { "before", "after" };
	static const char *const kinds[] = { "block", "mbarrier", "arrive", "copies" };

	for (uint32_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (is_word(at, end, places[i])) {
			f->after = i;
			return true;
		}
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (is_word(at, end, kinds[i])) {
			f->kind = i;
			return true;
		}
	}
	return false;
}

/* Stores the property of an access that a filter's word names. Returns false for another word. */
static bool access_word(const char *word, size_t len, uint32_t *space, uint32_t *op)
{
	static const struct {
		const char *word;
		int space, op;
	} words[] = {
		{ "generic", GBPF_SPACE_GENERIC, -1 },	 { "global", GBPF_SPACE_GLOBAL, -1 },
		{ "shared", GBPF_SPACE_SHARED, -1 },	 { "local", GBPF_SPACE_LOCAL, -1 },
		{ "constant", GBPF_SPACE_CONSTANT, -1 }, { "load", -1, GBPF_ACCESS_LOAD },
		{ "store", -1, GBPF_ACCESS_STORE },	 { "atomic", -1, GBPF_ACCESS_ATOMIC },
		{ "async", -1, GBPF_ACCESS_ASYNC },	 { "bulk", -1, GBPF_ACCESS_BULK },
		{ "matrix", -1, GBPF_ACCESS_MATRIX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strlen(words[i].word) == len && memcmp(words[i].word, word, len) == 0) {
			*space = words[i].space >= 0 ? (uint32_t)words[i].space : *space;
			*op = words[i].op >= 0 ? (uint32_t)words[i].op : *op;
			return true;
		}
	}
	return false;
}

static bool read_word(uint32_t hook, const char *at, const char *end, struct ptx_probe_filter *f)
{
	if (*at == '#') {
		return number(at + 1, end, &f->number);
	}
	switch (hook) {
	case PTX_PROBE_gdev_access:
		return number(at, end, &f->bytes) ||
		       access_word(at, (size_t)(end - at), &f->space, &f->op);
	case PTX_PROBE_gdev_fence:
		return scope_word(at, end, &f->scope);
	case PTX_PROBE_gdev_barrier:
		return barrier_word(at, end, f);
	default:
		return false;
	}
}

/* "FILE:LINE" */
static bool read_line(const char *text, struct ptx_probe_filter *f)
{
	const char *colon = strrchr(text, ':');

	if (!colon || colon == text || !number(colon + 1, text + strlen(text), &f->line)) {
		return false;
	}
	f->file = text;
	f->file_len = (size_t)(colon - text);
	return true;
}

static const char *words_of(uint32_t hook)
{
	switch (hook) {
	case PTX_PROBE_gdev_access:
		return "sites of access are words with dots between them, of generic, global, "
		       "shared, local, constant, load, store, atomic, async, bulk, matrix, a "
		       "number of bytes and #N; or FILE:LINE";
	case PTX_PROBE_gdev_fence:
		return "sites of fence are words with dots between them, of block, cluster, gpu, "
		       "system and #N; or FILE:LINE";
	case PTX_PROBE_gdev_barrier:
		return "sites of barrier are words with dots between them, of before, after, "
		       "block, mbarrier, arrive, copies and #N; or FILE:LINE";
	default:
		return "a site of this hook is #N or FILE:LINE";
	}
}

/* Reads a filter, which borrows the text. Returns NULL, or what is wrong. */
static const char *read_filter(uint32_t hook, const char *text, struct ptx_probe_filter *f)
{
	const char *end;

	*f = (struct ptx_probe_filter){ .number = PTX_PROBE_ANY,
					.op = PTX_PROBE_ANY,
					.space = PTX_PROBE_ANY,
					.bytes = PTX_PROBE_ANY,
					.scope = PTX_PROBE_ANY,
					.after = PTX_PROBE_ANY,
					.kind = PTX_PROBE_ANY };
	if (*text && *text != '#' &&
	    (hook == PTX_PROBE_gdev_probe || hook == PTX_PROBE_gdev_retprobe)) {
		f->function = text;
		return NULL;
	}
	if (strchr(text, ':')) {
		return read_line(text, f) ? NULL : "expected FILE:LINE";
	}
	for (const char *at = text; *at; at = *end ? end + 1 : end) {
		end = at + strcspn(at, ".");
		if (!read_word(hook, at, end, f) || (*end && !end[1])) {
			return words_of(hook);
		}
	}
	return NULL;
}

int ptx_probe_filter(struct ptx_probe_read *p, struct ptx_probe_program *g)
{
	const struct ptx_probe *probe = g->probe;
	const char *wrong = read_filter(probe->hook, probe->sites ? probe->sites : "", &g->filter);

	if (!wrong) {
		return 0;
	}
	report_place(p->report, "%s", probe->name ? probe->name : "probe");
	return report_set(p->report, -EINVAL, "site", "invalid site '%s': %s", probe->sites, wrong);
}

const char *ptx_probe_site_wrong(uint32_t hook, const char *sites)
{
	struct ptx_probe_filter f;

	return read_filter(hook, sites, &f);
}
