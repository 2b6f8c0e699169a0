/* The list of entries is an array of 32-bit words, so that it can be written as a PTX initializer:
 * a head, then for each entry a head, the offsets of its parameters, and its name, padded with
 * zeros. */
#include "ptx/block_mark.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"

#define MAGIC 0x74776e73u /* "snwt" */
#define ARG_OFFSET_MAX (32764u - (uint32_t)sizeof(struct ptx_block_arg))

enum { H_MAGIC, H_ABI, H_WORDS, H_CHECK, H_ENTRIES, HEAD };
enum { E_WHY, E_LINE, E_PARAMS, E_ARG, E_THREADS, E_NAME_BYTES, ENTRY };

/* A change of what a clone expects requires a new PTX_BLOCK_ABI. */
_Static_assert(PTX_BLOCK_ABI == 2 && PTX_BLOCK_READY == 32768 && sizeof(struct ptx_block_arg) == 56,
	       "PTX_BLOCK_ABI");

/* ---- writing ---- */

static int add_word(struct buf *b, uint32_t word)
{
	return buf_add(b, &word, sizeof(word));
}

static void add_entry(struct buf *b, const struct ptx_block_entry *e)
{
	static const char zeros[4];
	uint32_t n_params = e->why == PROTO_BLOCK_OK ? e->n_params : 0;
	size_t len = strlen(e->name);

	add_word(b, e->why);
	add_word(b, e->line);
	add_word(b, n_params);
	add_word(b, e->why == PROTO_BLOCK_OK ? e->arg_offset : 0);
	add_word(b, e->max_threads);
	add_word(b, (uint32_t)len);
	for (uint32_t i = 0; i < n_params; i++) {
		add_word(b, e->param_offset[i]);
		add_word(b, e->param_bytes[i]);
	}
	buf_add(b, e->name, len);
	buf_add(b, zeros, ROUND_UP(len, (size_t)4) - len);
}

static uint32_t check_of(const void *list, size_t bytes)
{
	uint64_t h = hash_bytes(list, bytes);

	return (uint32_t)(h ^ h >> 32);
}

int ptx_block_mark_print(struct buf *out, const struct ptx_block_entry *entries, uint32_t n,
			 uint64_t id)
{
	struct buf list;
	uint32_t *words;
	int err;

	buf_init(&list);
	for (uint32_t i = 0; i < n; i++) {
		add_entry(&list, &entries[i]);
	}
	err = list.failed;
	if (err == 0 && n <= PTX_BLOCK_MARK_ENTRIES_MAX &&
	    list.len / 4 <= PTX_BLOCK_MARK_WORDS_MAX - HEAD) {
		words = (uint32_t *)(void *)list.data;
		buf_printf(out,
			   "\n.visible .global .align 4 .u32 " PTX_BLOCK_MARK
			   "%016llx[%zu] = {%u, %u, %zu, %u, %u",
			   (unsigned long long)id, HEAD + list.len / 4, MAGIC, PTX_BLOCK_ABI,
			   HEAD + list.len / 4, check_of(list.data, list.len), n);
		for (size_t i = 0; i < list.len / 4; i++) {
			buf_printf(out, i % 16 ? ", %u" : ",\n%u", words[i]);
		}
		buf_puts(out, "};\n");
		err = out->failed;
	}
	buf_finish(&list);
	return err;
}

/* ---- reading ---- */

/* A list; its words need not be aligned. */
struct reader {
	const uint8_t *at, *end;
	bool failed;
};

static uint32_t word(struct reader *r)
{
	uint32_t v = 0;

	if (r->end - r->at < (ptrdiff_t)sizeof(v)) {
		r->failed = true;
		return 0;
	}
	memcpy(&v, r->at, sizeof(v));
	r->at += sizeof(v);
	return v;
}

/* Parameters follow one another, all before the argument. */
static int read_params(struct ptx_arena *arena, struct reader *r, struct ptx_block_entry *e)
{
	uint32_t *offsets, *sizes, end = 0;

	if (e->n_params > PTX_BLOCK_MAX_PARAMS || e->arg_offset > ARG_OFFSET_MAX ||
	    e->arg_offset % 8) {
		return -ENOENT;
	}
	offsets = ptx_arena_array(arena, 2 * (size_t)e->n_params + 1, sizeof(*offsets));
	if (!offsets) {
		return -ENOMEM;
	}
	sizes = offsets + e->n_params;
	for (uint32_t i = 0; i < e->n_params; i++) {
		offsets[i] = word(r);
		sizes[i] = word(r);
		if (r->failed || offsets[i] < end || offsets[i] > e->arg_offset ||
		    sizes[i] > e->arg_offset - offsets[i]) {
			return -ENOENT;
		}
		end = offsets[i] + sizes[i];
	}
	e->param_offset = offsets;
	e->param_bytes = sizes;
	return 0;
}

static int read_entry(struct ptx_arena *arena, struct reader *r, struct ptx_block_entry *e)
{
	uint32_t why = word(r), len;
	int err;

	e->line = word(r);
	e->n_params = word(r);
	e->arg_offset = word(r);
	e->max_threads = word(r);
	len = word(r);
	if (r->failed || why == PROTO_BLOCK_UNKNOWN || why >= PROTO_BLOCK_WHYS || !len ||
	    len > PTX_NAME_MAX) {
		return -ENOENT;
	}
	e->why = (enum proto_block_why)why;
	err = read_params(arena, r, e);
	if (err < 0) {
		return err;
	}
	if ((size_t)(r->end - r->at) < ROUND_UP((size_t)len, (size_t)4) || memchr(r->at, 0, len)) {
		return -ENOENT;
	}
	e->name = ptx_arena_text(arena, (const char *)r->at, len);
	r->at += ROUND_UP((size_t)len, (size_t)4);
	return e->name ? 0 : -ENOMEM;
}

int ptx_block_mark_read(struct ptx_arena *arena, const void *list, size_t bytes,
			const struct ptx_block_entry **ret, uint32_t *ret_n)
{
	struct reader r = { .at = list, .end = (const uint8_t *)list + bytes };
	struct ptx_block_entry *entries;
	uint32_t head[HEAD];

	for (unsigned i = 0; i < HEAD; i++) {
		head[i] = word(&r);
	}
	if (r.failed || head[H_MAGIC] != MAGIC || head[H_ABI] != PTX_BLOCK_ABI ||
	    head[H_WORDS] != bytes / 4 || bytes % 4 ||
	    head[H_ENTRIES] > PTX_BLOCK_MARK_ENTRIES_MAX ||
	    head[H_ENTRIES] > (bytes / 4 - HEAD) / ENTRY ||
	    head[H_CHECK] != check_of(r.at, (size_t)(r.end - r.at))) {
		return -ENOENT;
	}
	entries = ptx_arena_array(arena, (size_t)head[H_ENTRIES] + 1, sizeof(*entries));
	if (!entries) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < head[H_ENTRIES]; i++) {
		int err = read_entry(arena, &r, &entries[i]);

		if (err < 0) {
			return err;
		}
	}
	*ret = entries;
	*ret_n = head[H_ENTRIES];
	return r.at == r.end ? 0 : -ENOENT;
}

static bool is_mark(const struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	return it->kind == PTX_VARIABLE && v->space == PTX_GLOBAL &&
	       strncmp(v->name, PTX_BLOCK_MARK, strlen(PTX_BLOCK_MARK)) == 0 && v->init &&
	       v->init->kind == PTX_VECTOR;
}

int ptx_block_mark_of_module(struct ptx_module *m, const struct ptx_block_entry **ret,
			     uint32_t *ret_n)
{
	ptx_each (&m->items, it) {
		const struct ptx_operand *init;
		uint32_t *words;

		if (!is_mark(it)) {
			continue;
		}
		init = ((const struct ptx_variable *)it)->init;
		words = ptx_arena_array(&m->arena, (size_t)init->n_args + 1, sizeof(*words));
		if (!words) {
			return -ENOMEM;
		}
		for (uint32_t i = 0; i < init->n_args; i++) {
			if (init->args[i].kind != PTX_INT || init->args[i].value > UINT32_MAX) {
				return -ENOENT;
			}
			words[i] = (uint32_t)init->args[i].value;
		}
		return ptx_block_mark_read(&m->arena, words, (size_t)init->n_args * 4, ret, ret_n);
	}
	return -ENOENT;
}
