/* Calls through pointers, and addresses of functions, in modules that were prepared at load
 * (ptx/prepare.h). Pointers keep the numbers of the program's module, since they may be in its
 * memory: an address that is taken is read from the module's list. A call compares the pointer with
 * the list and calls the function of that place, of those with its prototype, in the new module
 * (emit/probe_via_call.c). */
#include <string.h>

#include "ptx/block_facts.h"
#include "ptx/prepare.h"
#include "ptx/probe/slice/probe_slice.h"

#define WORK_MAX 20000000u /* items looked at for prototypes */
#define PARAMS_MAX 8192u   /* bytes of parameters and results that are copied */

int ptx_probe_via_open(struct ptx_probe_slice *p)
{
	const struct ptx_operand *init;

	ptx_each (&p->m->items, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE &&
		    strncmp(v->name, PTX_FUNCTIONS, strlen(PTX_FUNCTIONS)) == 0) {
			p->list = p->list ? NULL : strmap_get(&p->names, v->name);
			if (!p->list) {
				return 0; /* of several modules: which one a place is in is unknown
					   */
			}
		}
	}
	init = p->list && p->list->v ? p->list->v->init : NULL;
	for (uint32_t i = 0; init && i < init->n_args; i++) {
		const struct ptx_operand *o = &init->args[i];
		struct ptx_probe_name *n =
			o->kind == PTX_NAME && o->name ? strmap_get(&p->names, o->name) : NULL;

		if (!n || !n->f || !n->f->has_body || n->f->is_entry || n->listed) {
			init = NULL;
			break;
		}
		n->listed = i + 1;
	}
	p->list = init && init->kind == PTX_VECTOR ? p->list : NULL;
	return 0;
}

/* ---- prototypes ---- */

static bool same_variable(const struct ptx_variable *a, const struct ptx_variable *b)
{
	uint64_t x, y;

	return a->space == PTX_PARAM && b->space == PTX_PARAM && ptx_variable_bytes(a, &x) == 0 &&
	       ptx_variable_bytes(b, &y) == 0 && x == y && !a->n_dims == !b->n_dims;
}

static bool same_signature(const struct ptx_function *a, const struct ptx_function *b)
{
	bool same = a->n_params == b->n_params && a->n_returns == b->n_returns;

	for (uint32_t i = 0; same && i < a->n_params; i++) {
		same = same_variable(&a->params[i], &b->params[i]);
	}
	for (uint32_t i = 0; same && i < a->n_returns; i++) {
		same = same_variable(&a->returns[i], &b->returns[i]);
	}
	return same;
}

/* The prototype behind the label. Recursion is bounded by the parser's limit on scopes. */
static const struct ptx_function *find_prototype(const struct ptx_list *list, const char *label,
						 unsigned *work)
{
	const struct ptx_function *found = NULL;
	bool named = false;

	for (const struct ptx_item *it = list->first; it && !found; it = it->next) {
		++*work;
		if (it->kind == PTX_PROTOTYPE && named) {
			found = &((const struct ptx_prototype *)it)->function;
		} else if (it->kind == PTX_SCOPE) {
			found = find_prototype(&((const struct ptx_scope *)it)->body, label, work);
		}
		named = it->kind == PTX_LABEL &&
			strcmp(((const struct ptx_label *)it)->name, label) == 0;
	}
	return found;
}

const struct ptx_function *ptx_probe_via_prototype(const struct ptx_function *in,
						   const struct ptx_insn *insn, unsigned *work)
{
	const struct ptx_operand *last =
		insn->n_operands > 1 ? &insn->operands[insn->n_operands - 1] : NULL;
	const struct ptx_function *f =
		last && last->kind == PTX_NAME && last != ptx_block_callee(insn)
			? find_prototype(&in->body, last->name, work)
			: NULL;
	uint64_t all = 0;

	for (uint32_t i = 0; f && i < f->n_params + f->n_returns; i++) {
		const struct ptx_variable *v =
			i < f->n_params ? &f->params[i] : &f->returns[i - f->n_params];
		uint64_t bytes;

		if (v->space != PTX_PARAM || v->n_dims > 1 || ptx_variable_bytes(v, &bytes) < 0 ||
		    !bytes || bytes > PARAMS_MAX - all) {
			return NULL;
		}
		all += bytes;
	}
	return f && f->n_returns <= 1 ? f : NULL;
}

unsigned ptx_probe_via_of(const struct ptx_probe_slice *p, const struct ptx_function *prototype)
{
	unsigned i = 0;

	while (i < p->n_via && p->via[i] != prototype) {
		i++;
	}
	return i;
}

struct ptx_probe_name *ptx_probe_via_candidate(const struct ptx_probe_slice *p, uint32_t i,
					       const struct ptx_function *prototype)
{
	struct ptx_probe_name *n = strmap_get(&p->names, p->list->v->init->args[i].name);

	return n && same_signature(n->f, prototype) ? n : NULL;
}

/* Whether an argument is the address of something of the module, which would have to be replaced.
 */
static bool passes_address(const struct ptx_probe_slice *p, const struct ptx_insn *insn)
{
	for (unsigned i = 0; i < insn->n_operands; i++) {
		const struct ptx_operand *o = &insn->operands[i];

		for (uint32_t k = 0; o->kind == PTX_TUPLE && k < o->n_args; k++) {
			if (o->args[k].name && ptx_probe_find(p, o->args[k].name)) {
				return true;
			}
		}
	}
	return false;
}

int ptx_probe_via_reach(struct ptx_probe_slice *p, const struct ptx_insn *insn)
{
	const struct ptx_function *prototype =
		p->list ? ptx_probe_via_prototype(p->scan.in, insn, &p->scan.via_work) : NULL;
	uint32_t line = insn->item.line, n = 0;
	int err;

	if (!p->list) {
		return ptx_probe_refuse_late(p, line, "calls through a pointer");
	}
	if (!prototype || passes_address(p, insn)) {
		return ptx_probe_refuse(p, line, "calls through a pointer in an unknown form");
	}
	if (p->scan.via_work > WORK_MAX) {
		return ptx_probe_refuse(p, line, "too many calls through pointers");
	}
	if (ptx_probe_via_of(p, prototype) < p->n_via) {
		return 0;
	}
	if (p->n_via == PTX_PROBE_VIA_MAX) {
		return ptx_probe_refuse(p, line,
					"calls through pointers of more than %u prototypes",
					PTX_PROBE_VIA_MAX);
	}
	p->via[p->n_via++] = prototype;
	err = ptx_probe_reach_variable(p, p->list, line);
	for (uint32_t i = 0; i < p->list->v->init->n_args && err == 0; i++) {
		struct ptx_probe_name *g = ptx_probe_via_candidate(p, i, prototype);

		if (g) {
			n++;
			err = ptx_probe_reach_function(p, g, line);
		}
	}
	return err || n ? err
			: ptx_probe_refuse(p, line,
					   "calls through a pointer, and no function of the module "
					   "has that prototype");
}
