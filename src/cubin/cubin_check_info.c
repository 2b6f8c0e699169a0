/* Checks attributes: the patched kernel's are the original's, in their order, with one more
 * parameter and what the stub adds; nothing else is added, left out or changed. */
#include "cubin/cubin_check_int.h"

#include <string.h>

#include "cubin/cubin.h"

static int differs(const struct cubin_checking *c, const struct cubin_check_kernel *k, unsigned id,
		   const char *what)
{
	return cubin_refuse(c->r, "check: attribute 0x%02x of '%s': %s", id, k->name, what);
}

/* The lists and flags that the stub adds, each to be seen once. */
struct expected {
	bool param, size, bank, barriers, ctaid_z, lists[CUBIN_STUB_LISTS_MAX];
	uint32_t param_bytes; /* end of the original's parameters, from its attributes */
	uint32_t bank_bytes;  /* new value of both sizes */
};

/* What the original says of its parameters. */
static int read_old(const struct cubin_checking *c, struct cubin_check_kernel *k,
		    struct expected *x)
{
	const uint8_t *at = cubin_elf_data(&c->old, k->info);
	const uint8_t *end = at + c->old.sections[k->info].sh_size;
	uint32_t declared = 0, used = 0;
	struct cubin_attr a;
	int err;

	k->n_params = 0;
	while ((err = cubin_attr_next(&at, end, &a)) > 0) {
		if (a.id == CUBIN_ATTR_KPARAM_INFO && a.len == 12) {
			uint32_t last = cubin_u16(a.data + 6) + (cubin_u32(a.data + 8) >> 18);

			used = MAX(used, last);
			k->n_params++;
		} else if (a.id == CUBIN_ATTR_CBANK_PARAM_SIZE) {
			declared = a.value;
		}
	}
	if (err < 0 || used > declared) {
		return differs(c, k, CUBIN_ATTR_CBANK_PARAM_SIZE,
			       "its parameters exceed their size");
	}
	k->arg_offset = (declared + 7) / 8 * 8;
	x->bank_bytes = k->arg_offset + c->stub->arg_bytes;
	return 0;
}

static bool is_new_param(const struct cubin_checking *c, const struct cubin_check_kernel *k,
			 const struct cubin_attr *a)
{
	return a->id == CUBIN_ATTR_KPARAM_INFO && a->format == 4 && a->len == 12 &&
	       cubin_u32(a->data) == 0 && cubin_u16(a->data + 4) == k->n_params &&
	       cubin_u16(a->data + 6) == k->arg_offset &&
	       cubin_u32(a->data + 8) == (0x1f000 | c->stub->arg_bytes << 18);
}

static const struct cubin_stub_list *list_of(const struct cubin_checking *c, unsigned id,
					     bool **seen, struct expected *x)
{
	for (unsigned i = 0; i < c->stub->n_lists; i++) {
		if (c->stub->lists[i].id == id) {
			*seen = &x->lists[i];
			return &c->stub->lists[i];
		}
	}
	return NULL;
}

/* The places at `data` are the stub's. */
static bool places_equal(const struct cubin_checking *c, const struct cubin_check_kernel *k,
			 const struct cubin_stub_list *l, const uint8_t *data)
{
	uint64_t stub_at = c->old.sections[k->text].sh_size;

	for (unsigned i = 0; i < l->n; i++) {
		if (cubin_u32(data + (size_t)4 * i) != stub_at + l->at[i]) {
			return false;
		}
	}
	return true;
}

/* Compares one record with the one that it was made from. */
static int check_pair(const struct cubin_checking *c, const struct cubin_check_kernel *k,
		      const struct cubin_attr *a, const struct cubin_attr *b, struct expected *x)
{
	bool *seen = NULL;
	const struct cubin_stub_list *l = list_of(c, a->id, &seen, x);
	unsigned value = a->value;

	if (a->id != b->id || a->format != b->format) {
		return differs(c, k, a->id, "missing, or not in its place");
	}
	if (l) {
		if (*seen || a->format != 4 || b->len != a->len + 4 * l->n ||
		    memcmp(a->data, b->data, a->len) != 0 ||
		    !places_equal(c, k, l, b->data + a->len)) {
			return differs(c, k, a->id, "its places");
		}
		*seen = true;
		return 0;
	}
	if (a->id == CUBIN_ATTR_PARAM_CBANK) {
		bool same = a->len == 8 && b->len == 8 && !memcmp(a->data, b->data, 6) &&
			    cubin_u16(a->data + 4) == c->stub->base &&
			    cubin_u16(b->data + 6) == x->bank_bytes && !x->bank;

		x->bank = true;
		return same ? 0 : differs(c, k, a->id, "its value");
	}
	if (a->id == CUBIN_ATTR_CBANK_PARAM_SIZE) {
		value = x->bank_bytes;
		x->size = true;
	} else if (a->id == CUBIN_ATTR_NUM_BARRIERS) {
		value = MAX(value, c->stub->barriers);
		x->barriers = true;
	} else if (a->id == CUBIN_ATTR_CTAIDZ_USED) {
		x->ctaid_z = true;
	}
	if (a->format == 4 ? a->len != b->len || memcmp(a->data, b->data, a->len) != 0
			   : b->value != value) {
		return differs(c, k, a->id, "its value");
	}
	return 0;
}

/* A record behind all of the original's. */
static int check_added(const struct cubin_checking *c, const struct cubin_check_kernel *k,
		       const struct cubin_attr *b, struct expected *x)
{
	bool *seen = NULL, ok = false;
	const struct cubin_stub_list *l = list_of(c, b->id, &seen, x);

	if (l) {
		ok = b->format == 4 && b->len == 4 * l->n && places_equal(c, k, l, b->data);
	} else if (b->id == CUBIN_ATTR_CBANK_PARAM_SIZE) {
		seen = &x->size;
		ok = b->format == 3 && b->value == x->bank_bytes;
	} else if (b->id == CUBIN_ATTR_PARAM_CBANK && b->format == 4 && b->len == 8 &&
		   cubin_u32(b->data) < c->new.n_symbols) {
		Elf64_Sym y = cubin_elf_symbol(&c->new, cubin_u32(b->data));

		seen = &x->bank;
		ok = ELF64_ST_TYPE(y.st_info) == STT_SECTION && y.st_shndx == k->bank &&
		     cubin_u16(b->data + 4) == c->stub->base &&
		     cubin_u16(b->data + 6) == x->bank_bytes;
	} else if (b->id == CUBIN_ATTR_NUM_BARRIERS) {
		seen = &x->barriers;
		ok = b->format == 2 && b->value == c->stub->barriers;
	} else if (b->id == CUBIN_ATTR_CTAIDZ_USED) {
		seen = &x->ctaid_z;
		ok = b->format == 1 && !b->value && c->stub->uses_ctaid_z;
	}
	if (!ok || *seen) {
		return differs(c, k, b->id, "not expected");
	}
	*seen = true;
	return 0;
}

static int check_all_seen(const struct cubin_checking *c, const struct cubin_check_kernel *k,
			  const struct expected *x)
{
	if (!x->param || !x->size || !x->bank) {
		return differs(c, k, CUBIN_ATTR_KPARAM_INFO, "the stub's parameter is missing");
	}
	if (c->stub->barriers && c->old.abi != CUBIN_ABI_OLD && !x->barriers) {
		return differs(c, k, CUBIN_ATTR_NUM_BARRIERS, "missing");
	}
	if (c->stub->uses_ctaid_z && !x->ctaid_z) {
		return differs(c, k, CUBIN_ATTR_CTAIDZ_USED, "missing");
	}
	for (unsigned i = 0; i < c->stub->n_lists; i++) {
		if (!x->lists[i]) {
			return differs(c, k, c->stub->lists[i].id, "missing");
		}
	}
	return 0;
}

int cubin_check_info(const struct cubin_checking *c, struct cubin_check_kernel *k)
{
	const uint8_t *p = cubin_elf_data(&c->old, k->info), *q = cubin_elf_data(&c->new, k->info);
	const uint8_t *p_end = p + c->old.sections[k->info].sh_size;
	const uint8_t *q_end = q + c->new.sections[k->info].sh_size;
	struct expected x = { 0 };
	struct cubin_attr a, b;
	int err = read_old(c, k, &x), more;

	while (!err && (more = cubin_attr_next(&q, q_end, &b)) != 0) {
		if (more < 0) {
			return differs(c, k, 0, "a broken record");
		}
		if (!x.param && is_new_param(c, k, &b)) { /* no other has this ordinal */
			x.param = true;
			continue;
		}
		more = cubin_attr_next(&p, p_end, &a);
		if (more < 0) {
			return differs(c, k, 0, "a broken record");
		}
		err = more ? check_pair(c, k, &a, &b, &x) : check_added(c, k, &b, &x);
	}
	if (!err && p != p_end) {
		err = differs(c, k, p[1], "missing");
	}
	return err ? err : check_all_seen(c, k, &x);
}

int cubin_check_bank(const struct cubin_checking *c, const struct cubin_check_kernel *k)
{
	const uint8_t *a = cubin_elf_data(&c->old, k->bank), *b = cubin_elf_data(&c->new, k->bank);
	uint64_t old = c->old.sections[k->bank].sh_size, new = c->new.sections[k->bank].sh_size;

	if (new != (uint64_t)c->stub->base + k->arg_offset + c->stub->arg_bytes || old > new ||
	    memcmp(a, b, old) != 0) {
		return cubin_refuse(c->r, "check: constant bank of '%s' differs", k->name);
	}
	for (uint64_t i = old; i < new; i++) {
		if (b[i]) {
			return cubin_refuse(c->r, "check: constant bank of '%s' is not zero",
					    k->name);
		}
	}
	return 0;
}

/* ---- of the image ---- */

/* Returns the patched kernel whose register count a record states, or NULL. */
static struct cubin_check_kernel *counted(const struct cubin_checking *c,
					  const struct cubin_attr *a)
{
	uint32_t symbol, kernel;
	Elf64_Sym y;

	if (a->id != CUBIN_ATTR_REGCOUNT || a->len != 8) {
		return NULL;
	}
	symbol = cubin_u32(a->data);
	if (symbol >= c->old.n_symbols) {
		return NULL;
	}
	y = cubin_elf_symbol(&c->old, symbol);
	kernel = y.st_shndx < c->old.n_sections ? c->kernel_of[y.st_shndx] : 0;
	if (!kernel || c->kernels[kernel - 1].symbol != symbol || !c->kernels[kernel - 1].patched) {
		return NULL;
	}
	return &c->kernels[kernel - 1];
}

int cubin_check_image_info(const struct cubin_checking *c, uint32_t section)
{
	const uint8_t *p = cubin_elf_data(&c->old, section), *record = p;
	const uint8_t *q = cubin_elf_data(&c->new, section);
	const uint8_t *end = p + c->old.sections[section].sh_size;
	struct cubin_attr a;
	int err;

	while ((err = cubin_attr_next(&p, end, &a)) > 0) {
		struct cubin_check_kernel *k = counted(c, &a);

		/* equal records have equal sizes: both go on in step */
		if (memcmp(record, q, k ? 8 : a.bytes) != 0) {
			return cubin_refuse(c->r, "check: attribute 0x%02x of the image", a.id);
		}
		if (k && cubin_u32(q + 8) != MAX(cubin_u32(record + 8), c->stub->registers)) {
			return cubin_refuse(c->r, "check: register count of '%s'", k->name);
		}
		if (k) {
			k->has_regcount = true;
		}
		record = p;
		q += a.bytes;
	}
	return err < 0 ? cubin_refuse(c->r, "check: broken attributes of the image") : 0;
}
