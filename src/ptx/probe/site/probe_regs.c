/* What a body declares at a place: registers with their width, and variables. The scopes of the
 * place are a stack of tables, so that a look-up does not depend on the number of declarations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/probe/site/probe_site.h"

#define DIGITS_MAX 10u

static int add(struct strmap *m, const struct ptx_variable *v)
{
	struct buf key;
	int err;

	if (!v->has_range) {
		err = strmap_add(m, v->name, unqual(v));
		return err == -EEXIST ? 0 : err;
	}
	buf_init(&key); /* no name ends like this */
	buf_printf(&key, "%s<", v->name);
	err = key.failed ? -ENOMEM : strmap_add(m, buf_text(&key), unqual(v));
	buf_finish(&key);
	return err == -EEXIST ? 0 : err;
}

void ptx_probe_enter(struct ptx_probe_scopes *p)
{
	strmap_init(&p->at[p->n++]);
}

int ptx_probe_declare(struct ptx_probe_scopes *p, const struct ptx_variable *v)
{
	return add(&p->at[p->n - 1], v);
}

int ptx_probe_enter_params(struct ptx_probe_scopes *p, const struct ptx_function *f)
{
	int err = 0;

	ptx_probe_enter(p);
	for (uint32_t i = 0; i < f->n_params && err == 0; i++) {
		err = ptx_probe_declare(p, &f->params[i]);
	}
	for (uint32_t i = 0; i < f->n_returns && err == 0; i++) {
		err = ptx_probe_declare(p, &f->returns[i]);
	}
	return err;
}

int ptx_probe_enter_list(struct ptx_probe_scopes *p, const struct ptx_list *list)
{
	int err = 0;

	ptx_probe_enter(p);
	for (const struct ptx_item *it = list->first; it && err == 0; it = it->next) {
		if (it->kind == PTX_VARIABLE) {
			err = ptx_probe_declare(p, (const struct ptx_variable *)it);
		}
	}
	return err;
}

void ptx_probe_leave_scope(struct ptx_probe_scopes *p)
{
	strmap_finish(&p->at[--p->n]);
}

/* Returns the range of which name is a part. Its end may be any of name's digits. */
static const struct ptx_variable *in_range(const struct strmap *m, const char *name, size_t len)
{
	const struct ptx_variable *ret = NULL;
	struct buf key;

	buf_init(&key);
	for (size_t digits = 1; digits < len && digits <= DIGITS_MAX && !ret; digits++) {
		const char *number = name + len - digits;

		if (*number < '0' || *number > '9') {
			break;
		}
		buf_clear(&key);
		buf_add(&key, name, len - digits);
		buf_puts(&key, "<");
		ret = key.failed ? NULL : strmap_get_n(m, key.data, key.len);
		if (ret &&
		    ((*number == '0' && digits > 1) || strtoull(number, NULL, 10) >= ret->range)) {
			ret = NULL;
		}
	}
	buf_finish(&key);
	return ret;
}

const struct ptx_variable *ptx_probe_declared(const struct ptx_probe_scopes *p, const char *name)
{
	size_t len = strcspn(name, "."); /* of a vector's element */

	for (unsigned i = p->n; i-- > 0;) {
		const struct ptx_variable *v = strmap_get_n(&p->at[i], name, len);

		v = v ? v : in_range(&p->at[i], name, len);
		if (v) {
			return v;
		}
	}
	return NULL;
}

bool ptx_probe_has_address(const struct ptx_probe_scopes *p, const struct ptx_probe_slice *slice,
			   const struct ptx_operand *o)
{
	const struct ptx_variable *v;
	const struct ptx_probe_name *n;

	if (!o->name) {
		return true;
	}
	v = ptx_probe_declared(p, o->name);
	if (v) {
		unsigned bytes = ptx_type_bytes(v->type);

		return v->space == PTX_REG ? bytes == 4 || bytes == 8 : v->space != PTX_PARAM;
	}
	n = ptx_probe_find(slice, o->name);
	return n && n->v;
}
