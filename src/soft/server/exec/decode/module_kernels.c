/* The kernels of a module: finds families among them and has each decoded. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/server/exec/decode/load_int.h"

static struct exec_decoder decoder_of(struct exec_loader *l)
{
	struct exec_decoder d = { .ptx = l->ptx,
				  .module = l->m,
				  .globals = &l->m->variables,
				  .functions = &l->functions,
				  .module_shared = &l->shared,
				  .reached = &l->reached,
				  .taken = &l->taken,
				  .inner = &l->inner,
				  .report = l->report,
				  .h = exec_handlers(),
				  .shared_align = 1 };

	strmap_init(&d.constant_index);
	strmap_init(&d.layouts);
	strmap_init(&d.components);
	ptx_arena_init(&d.arena);
	return d;
}

static struct exec_function *function_new(const struct ptx_function *f)
{
	struct exec_function *out = calloc(1, sizeof(*out));

	if (out) {
		out->info.name = strdup(f->name);
	}
	if (out && !out->info.name) {
		exec_load_function_free(out);
		return NULL;
	}
	return out;
}

static int load_function(struct exec_loader *l, const struct ptx_function *f,
			 struct exec_function **ret)
{
	struct exec_decoder d = decoder_of(l);
	struct exec_function *out = function_new(f);
	int err = out ? exec_dec_kernel(&d, f, out) : exec_load_no_memory(l);

	if (err < 0) {
		exec_load_function_free(out);
		return err;
	}
	*ret = out;
	return 0;
}

/* Kernels that exec_dec_family() may decode together. */
struct family {
	struct buf members; /* numbers in the list of kernels (uint32_t) */
};

struct kernels {
	const struct ptx_function **list; /* owned */
	struct exec_function **outs;	  /* owned; NULL: not decoded yet */
	uint32_t n;
	struct strmap families; /* key -> struct family, owned */
};

/* Decodes the members into outs, which the caller frees. */
static int decode_members(struct exec_loader *l, const struct ptx_function **list,
			  struct exec_function **outs, uint32_t n)
{
	struct exec_decoder d;

	for (uint32_t i = 0; i < n; i++) {
		outs[i] = function_new(list[i]);
		if (!outs[i]) {
			return exec_load_no_memory(l);
		}
	}
	d = decoder_of(l);
	return exec_dec_family(&d, list, outs, n);
}

/* Returns 0, also if the family must be decoded one by one. */
static int load_family(struct exec_loader *l, struct kernels *k, const struct family *f)
{
	const uint32_t *members = (const uint32_t *)f->members.data;
	uint32_t n = (uint32_t)(f->members.len / sizeof(*members));
	const struct ptx_function **list = calloc(n, sizeof(*list));
	struct exec_function **outs = calloc(n, sizeof(*outs));
	int err;

	if (!list || !outs) {
		free(list);
		free(outs);
		return exec_load_no_memory(l);
	}
	for (uint32_t i = 0; i < n; i++) {
		list[i] = k->list[members[i]];
	}
	err = decode_members(l, list, outs, n);
	for (uint32_t i = 0; i < n; i++) {
		if (err == 0) {
			k->outs[members[i]] = outs[i];
		} else {
			exec_load_function_free(outs[i]);
		}
	}
	free(list);
	free(outs);
	return err == -EAGAIN ? 0 : err;
}

static int find_family(struct exec_loader *l, struct kernels *k, uint32_t i)
{
	struct family *f;
	struct buf key;
	int err;

	buf_init(&key);
	err = exec_dec_family_key(&l->functions, k->list[i], &key);
	f = err > 0 ? strmap_get_n(&k->families, (const char *)key.data, key.len) : NULL;
	if (err > 0 && !f) {
		f = calloc(1, sizeof(*f));
		err = f ? strmap_add_n(&k->families, (const char *)key.data, key.len, f) : -ENOMEM;
		if (err < 0) {
			free(f);
			f = NULL;
		}
	}
	if (f && buf_add(&f->members, &i, sizeof(i)) < 0) {
		err = -ENOMEM;
	}
	buf_finish(&key);
	return err < 0 ? exec_load_no_memory(l) : 0;
}

static int load_families(struct exec_loader *l, struct kernels *k)
{
	int err = 0;

	strmap_init(&k->families);
	for (uint32_t i = 0; err == 0 && i < k->n; i++) {
		err = find_family(l, k, i);
	}
	strmap_each (&k->families, e) {
		struct family *f = e->value;

		if (err == 0 && f->members.len > sizeof(uint32_t)) {
			err = load_family(l, k, f);
		}
		buf_finish(&f->members);
		free(f);
	}
	strmap_finish(&k->families);
	return err;
}

/* Decodes the kernels that have no family, and adds all in the order of the text. */
static int load_others(struct exec_loader *l, struct kernels *k)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < k->n; i++) {
		if (!k->outs[i]) {
			err = load_function(l, k->list[i], &k->outs[i]);
		}
		if (err == 0 && strmap_add(&l->m->functions, k->list[i]->name, k->outs[i]) < 0) {
			err = exec_load_no_memory(l);
		} else if (err == 0) {
			k->outs[i] = NULL; /* the module owns it */
		}
	}
	return err;
}

int exec_load_kernels(struct exec_loader *l)
{
	struct kernels k = { .list = calloc(l->ptx->items.n + 1, sizeof(*k.list)),
			     .outs = calloc(l->ptx->items.n + 1, sizeof(*k.outs)) };
	int err = k.list && k.outs ? 0 : exec_load_no_memory(l);

	ptx_each (&l->ptx->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (err == 0 && it->kind == PTX_FUNCTION && f->has_body && f->is_entry) {
			k.list[k.n++] = f;
		}
	}
	if (err == 0) {
		err = load_families(l, &k);
	}
	if (err == 0) {
		err = load_others(l, &k);
	}
	for (uint32_t i = 0; i < k.n; i++) {
		exec_load_function_free(k.outs[i]);
	}
	free(k.list);
	free(k.outs);
	return err;
}

int exec_load_unreached(struct exec_loader *l)
{
	ptx_each (&l->ptx->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;
		struct exec_function *out;
		int err;

		if (it->kind != PTX_FUNCTION || !f->has_body || f->is_entry ||
		    strmap_get(&l->reached, f->name)) {
			continue;
		}
		err = load_function(l, f, &out);
		if (err < 0) {
			return err;
		}
		exec_load_function_free(out);
	}
	return 0;
}
