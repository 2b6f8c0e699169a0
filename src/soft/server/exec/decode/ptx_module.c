/* A module: names, layout and initial values of its variables, and what it answers. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "soft/server/exec/decode/load_int.h"
#include "soft/server/exec/handlers.h"

#define FREE_AT_ONCE 1000u		 /* functions and variables freed by the caller's thread */
#define IMAGE_MAX (UINT64_C(256) << 20)	 /* bytes of variables with initial values */
#define GLOBALS_MAX (UINT64_C(64) << 30) /* bytes of all variables */

/* makes function pointers of one module invalid in another */
static uint32_t next_module;

static int load_fail(struct exec_loader *l, const char *what, const char *name)
{
	report_place(l->report, "%s:%u", l->m->name, l->line);
	return report_set(l->report, -EINVAL, "ptx", "%s: %s", name, what);
}

int exec_load_no_memory(struct exec_loader *l)
{
	return report_set(l->report, -ENOMEM, "ptx", "no memory for module %s", l->m->name);
}

static void code_free(struct exec_function *f)
{
	for (uint32_t i = 0; i < f->n_calls; i++) {
		free(f->calls[i].in);
		free(f->calls[i].out);
	}
	for (uint32_t i = 0; i < f->n_tables; i++) {
		free(f->tables[i].targets);
	}
	free(f->calls);
	free(f->callees);
	free(f->tables);
	free(f->code);
	free(f->found);
	free(f->constants);
	free(f->relocs);
}

void exec_load_function_free(struct exec_function *f)
{
	if (!f) {
		return;
	}
	if (!f->borrows) {
		code_free(f);
	}
	free(f->params);
	free(unqual(f->info.name));
	free(f);
}

static void module_free(struct exec_module *m)
{
	strmap_each (&m->functions, e) {
		exec_load_function_free(e->value);
	}
	strmap_each (&m->variables, e) {
		free(e->value);
	}
	strmap_finish(&m->functions);
	strmap_finish(&m->variables);
	free(m->image);
	free(m->relocs);
	free(m->origins);
	free(m->names);
	free(m->name);
	free(m);
}

struct exec_module *exec_module_ref(struct exec_module *m)
{
	add_relaxed(&m->refs, 1);
	return m;
}

static void *free_later(void *m)
{
	module_free(m);
	return NULL;
}

/* The last reference is often dropped under the machine's lock: freeing a large module is left to a
 * thread. */
void exec_module_unref(struct exec_module *m)
{
	pthread_attr_t attr;
	pthread_t t;
	bool later;

	if (!m || sub_acqrel(&m->refs, 1) != 1) {
		return;
	}
	later = m->functions.n + m->variables.n > FREE_AT_ONCE;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (!later || pthread_create(&t, &attr, free_later, m) != 0) {
		module_free(m);
	}
	pthread_attr_destroy(&attr);
}

/* Returns the address of a function as a value; bits may hold a mask. */
static bool function_value(const struct exec_loader *l, const struct ptx_operand *o, uint64_t *bits)
{
	const struct ptx_function *f = strmap_get(&l->functions, o->name);
	uintptr_t index = f ? (uintptr_t)strmap_get(&l->taken.index, f->name) : 0;
	uint64_t address = l->m->code_base + (index - 1) * EXEC_CODE_STEP;

	if (index == 0 || !f->has_body || o->offset) {
		return false;
	}
	*bits = o->kind == PTX_MASK ? *bits & address : address;
	return true;
}

/* Writes one value at image + at. */
static int write_value(struct exec_loader *l, const struct ptx_operand *o,
		       const struct ptx_variable *v, uint64_t at, unsigned bytes)
{
	uint64_t bits = o->value;
	enum exec_type t = exec_dec_type(v->type);
	struct exec_init_reloc r = { .at = at, .bytes = bytes };
	const struct exec_variable *target;
	double wide;
	float narrow;

	switch (o->kind) {
	case PTX_F64:
		memcpy(&wide, &bits, sizeof(wide));
		if (t == TY_F32) {
			narrow = (float)wide;
			memcpy(&bits, &narrow, sizeof(narrow));
		}
		break;
	case PTX_F32:
		memcpy(&narrow, &bits, sizeof(narrow));
		wide = narrow;
		if (t == TY_F64) {
			memcpy(&bits, &wide, sizeof(wide));
		}
		break;
	case PTX_INT:
		break;
	case PTX_MASK:
		/* 0xFF00(sym): these bits of the address, shifted down. */
		r.shift = bits ? (uint32_t)__builtin_ctzll(bits) : 0;
		FALLTHROUGH;
	case PTX_NAME:
	case PTX_GENERIC:
		target = strmap_get(&l->m->variables, o->name);
		if (!target && function_value(l, o, &bits)) {
			bits >>= r.shift;
			break;
		}
		if (!target) {
			return load_fail(l, "its initial value names something that has no address",
					 v->name);
		}
		r.addend = target->offset + (uint64_t)o->offset;
		return buf_add(&l->relocs, &r, sizeof(r)) < 0 ? exec_load_no_memory(l) : 0;
	default:
		return load_fail(l, "its initial value is not supported", v->name);
	}
	memcpy(l->m->image + at, &bits, bytes);
	return 0;
}

/* Nested braces only group: values fill the variable from its beginning, as in ptxas, and the rest
 * is 0. The parser bounds the depth. */
static int write_init(struct exec_loader *l, const struct ptx_operand *o,
		      const struct ptx_variable *v, uint64_t *at, uint64_t end)
{
	unsigned element = ptx_type_bytes(v->type);
	int err = 0;

	if (o->kind != PTX_VECTOR) {
		if (element > sizeof(o->value)) {
			return load_fail(l, "initial values of more than 8 bytes are not supported",
					 v->name);
		}
		if (*at + element > end) {
			return load_fail(l, "it has too many initial values", v->name);
		}
		*at += element;
		return write_value(l, o, v, *at - element, element);
	}
	for (uint32_t i = 0; err == 0 && i < o->n_args; i++) {
		err = write_init(l, &o->args[i], v, at, end);
	}
	return err;
}

static bool is_device_variable(const struct ptx_item *it)
{
	const struct ptx_variable *v = (const struct ptx_variable *)it;

	return it->kind == PTX_VARIABLE && (v->space == PTX_GLOBAL || v->space == PTX_CONST) &&
	       strcmp(v->linkage, ".extern") != 0;
}

static int place_variable(struct exec_loader *l, const struct ptx_variable *v, bool inner)
{
	struct exec_module *m = l->m;
	struct exec_variable *var;
	struct ptx_variable sized = *v;
	uint64_t bytes;
	int err;

	l->line = v->item.line;
	if (v->open_array && v->init) {
		sized.open_array = false;
		sized.dims[0] = v->init->n_args;
	}
	err = ptx_variable_bytes(&sized, &bytes);
	if (err < 0 || bytes > GLOBALS_MAX || sized.open_array) {
		return load_fail(l, "its size is not known or too large", v->name);
	}
	if (ptx_variable_align(v) > EXEC_PAGE_BYTES) {
		return load_fail(l, "alignment beyond 4096 is not supported", v->name);
	}
	var = calloc(1, sizeof(*var));
	if (!var) {
		return exec_load_no_memory(l);
	}
	var->offset = ROUND_UP(m->global_bytes, ptx_variable_align(v));
	var->bytes = bytes;
	if (var->offset + bytes > GLOBALS_MAX) {
		free(var);
		return load_fail(l, "the module's variables are too large", v->name);
	}
	err = inner ? strmap_add_n(&l->inner, (const char *)&v, sizeof(v), var)
		    : strmap_add(&m->variables, v->name, var);
	if (err < 0) {
		free(var);
		return err == -EEXIST ? load_fail(l, "it is declared twice", v->name)
				      : exec_load_no_memory(l);
	}
	m->global_bytes = var->offset + bytes;
	var->texref = strcmp(v->type, ".texref") == 0;
	var->surfref = strcmp(v->type, ".surfref") == 0;
	var->managed = strstr(v->attributes, ".managed") != NULL;
	m->managed |= var->managed;
	if (v->space == PTX_CONST) {
		m->const_bytes += bytes;
	}
	return 0;
}

/* Also inside functions. Recursion is bounded by the parser's limit on nested scopes. */
static int find_variables(struct exec_loader *l, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; err == 0 && it; it = it->next) {
		if (it->kind == PTX_SCOPE) {
			err = find_variables(l, &((const struct ptx_scope *)it)->body);
		} else if (is_device_variable(it)) {
			err = buf_add(&l->variables, &it, sizeof(it)) < 0 ? exec_load_no_memory(l)
									  : 0;
		}
	}
	return err;
}

static int find_all_variables(struct exec_loader *l)
{
	int err = find_variables(l, &l->ptx->items);

	l->n_outer = (uint32_t)(l->variables.len / sizeof(void *));
	for (const struct ptx_item *it = l->ptx->items.first; err == 0 && it; it = it->next) {
		if (it->kind == PTX_FUNCTION) {
			err = find_variables(l, &((const struct ptx_function *)it)->body);
		}
	}
	return err;
}

/* Variables with initial values come first, so that the image ends early. */
static int place_variables(struct exec_loader *l, bool with_init)
{
	const struct ptx_variable *const *list = (const struct ptx_variable **)l->variables.data;

	for (uint32_t i = 0; i < l->variables.len / sizeof(*list); i++) {
		if ((list[i]->init != NULL) == with_init) {
			int err = place_variable(l, list[i], i >= l->n_outer);

			if (err < 0) {
				return err;
			}
		}
	}
	return 0;
}

/* What is declared and nowhere defined exists all the same, as with NVIDIA's driver. */
static int place_extern(struct exec_loader *l)
{
	int err = 0;

	for (const struct ptx_item *it = l->ptx->items.first; err == 0 && it; it = it->next) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		if (it->kind == PTX_VARIABLE && !v->open_array &&
		    (v->space == PTX_GLOBAL || v->space == PTX_CONST) &&
		    !strmap_get(&l->m->variables, v->name)) {
			err = place_variable(l, v, false);
		}
	}
	return err;
}

static int load_variables(struct exec_loader *l)
{
	struct exec_module *m = l->m;
	const struct ptx_variable *const *list;
	int err = find_all_variables(l);

	if (err == 0) {
		err = place_variables(l, true);
	}
	m->image_bytes = m->global_bytes;
	if (err == 0 && m->image_bytes > IMAGE_MAX) {
		err = load_fail(l, "its initial values are too large", m->name);
	}
	if (err == 0) {
		m->image = calloc(1, MAX(m->image_bytes, (uint64_t)1));
		err = m->image ? place_variables(l, false) : exec_load_no_memory(l);
	}
	if (err == 0) {
		err = place_extern(l);
	}
	list = (const struct ptx_variable **)l->variables.data;
	for (uint32_t i = 0; err == 0 && i < l->variables.len / sizeof(*list); i++) {
		const struct ptx_variable *v = list[i];
		const struct exec_variable *var =
			i < l->n_outer ? strmap_get(&m->variables, v->name)
				       : strmap_get_n(&l->inner, (const char *)&v, sizeof(v));

		l->line = v->item.line;
		if (v->init) {
			uint64_t at = var->offset;

			err = write_init(l, v->init, v, &at, var->offset + var->bytes);
		}
	}
	m->n_relocs = (uint32_t)(l->relocs.len / sizeof(struct exec_init_reloc));
	m->relocs = (struct exec_init_reloc *)buf_steal(&l->relocs);
	return err;
}

/* Collects names of functions and of shared variables. A definition hides its declarations. */
static int load_names(struct exec_loader *l)
{
	static const char *const known[] = { ".version", ".target",  ".address_size", ".file",
					     ".loc",	 ".section", ".pragma",	      ".alias" };

	ptx_each (&l->ptx->items, it) {
		struct ptx_function *f = (struct ptx_function *)it, *before;
		struct ptx_variable *v = (struct ptx_variable *)it;
		bool ok = it->kind != PTX_DIRECTIVE;
		int err = 0;

		l->line = it->line;
		for (size_t i = 0; i < ARRAY_SIZE(known) && !ok; i++) {
			ok = strncmp(((struct ptx_directive *)it)->text, known[i],
				     strlen(known[i])) == 0;
		}
		if (!ok) {
			return load_fail(l, "unknown directive", "module");
		}
		if (it->kind == PTX_FUNCTION) {
			before = strmap_get(&l->functions, f->name);
			if (before && before->has_body && f->has_body) {
				return load_fail(l, "it is defined twice", f->name);
			}
			if (before && f->has_body) {
				strmap_del(&l->functions, f->name);
			}
			err = before && !f->has_body ? 0 : strmap_add(&l->functions, f->name, f);
		} else if (it->kind == PTX_VARIABLE && v->space == PTX_SHARED) {
			err = strmap_add(&l->shared, v->name, v);
		}
		if (err < 0) {
			return err == -EEXIST ? load_fail(l, "it is declared twice", v->name)
					      : exec_load_no_memory(l);
		}
	}
	return 0;
}

/* ".alias g, f;": g names f, which has a body. */
static int load_alias(struct exec_loader *l, const char *text)
{
	const char *from = text + strlen(".alias"), *to;
	const struct ptx_function *f, *alias;
	size_t n_from, n_to;

	from += strspn(from, " \t\r\n");
	n_from = strcspn(from, ", \t\r\n;");
	to = from + n_from + strspn(from + n_from, ", \t\r\n");
	n_to = strcspn(to, ", \t\r\n;");
	alias = strmap_get_n(&l->functions, from, n_from);
	f = strmap_get_n(&l->functions, to, n_to);
	if (!f || !f->has_body || f->is_entry || !alias || alias->has_body) {
		return load_fail(l, "an alias needs a declared function and one with a body", text);
	}
	strmap_del(&l->functions, alias->name);
	return strmap_add(&l->functions, alias->name, unqual(f)) < 0 ? exec_load_no_memory(l) : 0;
}

static int load_aliases(struct exec_loader *l)
{
	int err = 0;

	for (const struct ptx_item *it = l->ptx->items.first; err == 0 && it; it = it->next) {
		const struct ptx_directive *d = (const struct ptx_directive *)it;

		l->line = it->line;
		if (it->kind == PTX_DIRECTIVE && strncmp(d->text, ".alias", 6) == 0) {
			err = load_alias(l, d->text);
		}
	}
	return err;
}

static int take_address(struct exec_loader *l, const char *name)
{
	const struct ptx_function *f = name ? strmap_get(&l->functions, name) : NULL;
	int err;

	if (!f || strmap_get(&l->taken.index, f->name)) {
		return 0;
	}
	if (l->taken.n == EXEC_CODE_FUNCTIONS) {
		return load_fail(l, "the addresses of too many functions are taken", name);
	}
	err = buf_add(&l->taken_list, &f, sizeof(f)) < 0
		      ? -ENOMEM
		      : strmap_add(&l->taken.index, f->name, (void *)(uintptr_t)++l->taken.n);
	return err < 0 ? exec_load_no_memory(l) : 0;
}

/* Recursion is bounded by the parser's limit on nested operands. */
static int take_operands(struct exec_loader *l, const struct ptx_operand *o, uint32_t n)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < n; i++) {
		err = o[i].kind == PTX_ADDRESS ? 0 : take_address(l, o[i].name);
		if (err == 0) {
			err = take_operands(l, o[i].args, o[i].n_args);
		}
	}
	return err;
}

/* Finds names in instructions, except the callee of a call. Recursion is bounded by the parser's
 * limit on nested scopes. */
static int take_in_body(struct exec_loader *l, const struct ptx_list *list)
{
	int err = 0;

	for (const struct ptx_item *it = list->first; err == 0 && it; it = it->next) {
		const struct ptx_insn *insn = (const struct ptx_insn *)it;
		const struct ptx_targets *t = (const struct ptx_targets *)it;
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		l->line = it->line;
		switch (it->kind) {
		case PTX_VARIABLE:
			err = v->init ? take_operands(l, v->init, 1) : 0;
			break;
		case PTX_SCOPE:
			err = take_in_body(l, &((const struct ptx_scope *)it)->body);
			break;
		case PTX_TARGETS:
			for (uint32_t i = 0; err == 0 && i < t->n; i++) {
				err = take_address(l, t->names[i]);
			}
			break;
		case PTX_INSN:
			for (uint32_t i = 0; err == 0 && i < insn->n_operands; i++) {
				if (insn->operands[i].kind != PTX_NAME ||
				    strcmp(insn->opcode, "call") != 0) {
					err = take_operands(l, &insn->operands[i], 1);
				}
			}
			break;
		default:
			break;
		}
	}
	return err;
}

static int find_taken(struct exec_loader *l)
{
	int err = 0;

	for (const struct ptx_item *it = l->ptx->items.first; err == 0 && it; it = it->next) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;

		l->line = it->line;
		if (it->kind == PTX_FUNCTION) {
			err = take_in_body(l, &((const struct ptx_function *)it)->body);
		} else if (it->kind == PTX_VARIABLE && v->init) {
			err = take_operands(l, v->init, 1);
		}
	}
	l->taken.list = (const struct ptx_function **)l->taken_list.data;
	return err;
}

static int load_all(struct exec_loader *l)
{
	int err = 0;

	l->line = 1;
	if (l->ptx->address_size != 64) {
		err = load_fail(l, "only .address_size 64 is supported", "module");
	}
	if (err == 0) {
		err = load_names(l);
	}
	if (err == 0) {
		err = load_aliases(l);
	}
	if (err == 0) {
		err = find_taken(l);
	}
	if (err == 0) {
		err = load_variables(l);
	}
	if (err == 0) {
		err = exec_load_origins(l);
	}
	if (err == 0) {
		err = exec_load_kernels(l);
	}
	return err < 0 ? err : exec_load_unreached(l);
}

int exec_module_load(struct exec_module **ret, const char *ptx, size_t bytes, const char *name,
		     struct report *r)
{
	struct exec_loader l = { .report = r };
	int err;

	l.m = calloc(1, sizeof(*l.m));
	if (!l.m) {
		return -ENOMEM;
	}
	l.m->refs = 1;
	strmap_init(&l.m->functions);
	strmap_init(&l.m->variables);
	strmap_init(&l.functions);
	strmap_init(&l.shared);
	strmap_init(&l.reached);
	strmap_init(&l.taken.index);
	strmap_init(&l.inner);
	buf_init(&l.variables);
	buf_init(&l.taken_list);
	buf_init(&l.relocs);
	l.m->code_base = EXEC_WINDOW_CODE | (uint64_t)add_relaxed(&next_module, 1)
						    << EXEC_CODE_MODULE_SHIFT;
	l.m->name = strdup(name);
	err = l.m->name ? ptx_module_parse(&l.ptx, ptx, bytes, name, r) : -ENOMEM;
	if (err == 0) {
		err = load_all(&l);
		ptx_module_free(l.ptx);
	}
	strmap_finish(&l.functions);
	strmap_finish(&l.shared);
	strmap_finish(&l.reached);
	strmap_finish(&l.taken.index);
	strmap_each (&l.inner, e) {
		free(e->value);
	}
	strmap_finish(&l.inner);
	buf_finish(&l.variables);
	buf_finish(&l.taken_list);
	buf_finish(&l.relocs);
	if (err < 0) {
		module_free(l.m);
		return err == -ENOMEM ? err : -EINVAL;
	}
	*ret = l.m;
	return 0;
}

size_t exec_module_code_bytes(const struct exec_module *m)
{
	return m->operations * sizeof(struct exec_op) + m->constant_bytes;
}

size_t exec_module_global_bytes(const struct exec_module *m)
{
	return m->global_bytes;
}

static void patch_function(struct exec_function *f, uint64_t address)
{
	for (uint32_t i = 0; i < f->n_relocs; i++) {
		const struct exec_reloc *r = &f->relocs[i];
		uint64_t v = address + (uint64_t)r->addend;

		for (unsigned k = 0; k < EXEC_LANES && r->kind == RELOC_GLOBAL; k++) {
			size_t size = r->wide ? 8 : 4;

			memcpy(f->constants + r->offset + k * size, &v, size);
		}
	}
}

void exec_module_bind(struct exec_module *m, uint64_t device_address, void *host)
{
	m->address = device_address;
	for (uint32_t i = 0; i < m->n_relocs; i++) {
		const struct exec_init_reloc *r = &m->relocs[i];
		uint64_t v = (device_address + r->addend) >> r->shift;

		memcpy(m->image + r->at, &v, r->bytes);
	}
	if (m->global_bytes) {
		memcpy(host, m->image, m->image_bytes);
		memset((uint8_t *)host + m->image_bytes, 0, m->global_bytes - m->image_bytes);
	}
	strmap_each (&m->functions, e) {
		patch_function(e->value, device_address);
	}
}

int exec_module_global(const struct exec_module *m, const char *name, uint64_t *ret_address,
		       uint64_t *ret_bytes)
{
	const struct exec_variable *v = strmap_get(&m->variables, name);

	if (!v) {
		return -ENOENT;
	}
	*ret_address = m->address + v->offset;
	*ret_bytes = v->bytes;
	return 0;
}

bool exec_module_reference(const struct exec_module *m, const char *name, const char *type)
{
	const struct exec_variable *v = strmap_get(&m->variables, name);

	return v && (strcmp(type, ".texref") == 0 ? v->texref : v->surfref);
}

bool exec_module_managed(const struct exec_module *m, const char *name)
{
	const struct exec_variable *v = name ? strmap_get(&m->variables, name) : NULL;

	return name ? v && v->managed : m->managed;
}

const struct exec_function *exec_module_function(const struct exec_module *m, const char *name)
{
	return strmap_get(&m->functions, name);
}

unsigned exec_module_functions(const struct exec_module *m)
{
	return (unsigned)m->functions.live;
}

const struct exec_function *exec_module_function_at(const struct exec_module *m, unsigned i)
{
	return i < m->functions.n ? m->functions.entries[i].value
				  : NULL; /* entries are never removed */
}

const struct exec_function_info *exec_function_info(const struct exec_function *f)
{
	return &f->info;
}
