/* Reads a cubin back to PTX: the text beside the code, in which each patched kernel has its stub's
 * text at its beginning, in a scope of its own, and one more parameter. */
#include "soft/code/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "ptx/module.h"
#include "soft/code/code_entry.h"
#include "soft/code/code_file.h"
#include "soft/code/code_patch.h"
#include "soft/code/code_variables.h"
#include "soft/code/code_view.h"

/* A stub as a module with one entry. */
struct stub {
	struct ptx_module *m;	     /* owned */
	const struct ptx_list *body; /* of that entry */
	struct buf text;
	uint32_t arg_bytes;
	struct stub *next;
};

/* A patched kernel; in the order of the text. */
struct patched {
	const char *name;
	struct soft_entry_param argument;
	const struct stub *stub;
	struct patched *next;
};

struct reading {
	struct soft_view view;
	const char *text, *name;
	size_t bytes;
	struct ptx_module *m;
	struct patched *patched, **end; /* in m's arena */
	struct stub *stubs;		/* in m's arena, newest first */
	struct strmap *registers;
	struct report *report;
};

static int wrong(struct reading *x, const char *why)
{
	return report_set(x->report, -EINVAL, "cubin", "%s: the cubin %s", x->name, why);
}

/* ---- the text ---- */

/* Finds the text. Returns -ENOENT without that section. */
static int find_text(struct reading *x)
{
	uint32_t index = soft_view_find(&x->view, SOFT_FILE_PTX, NULL);
	struct soft_file_head h;
	Elf64_Shdr s;

	if (!index) {
		return report_set(x->report, -ENOENT, "cubin",
				  "%s: the image is machine code of another device and holds no "
				  "PTX; make it with nvcc -ptx or -fatbin",
				  x->name);
	}
	if (!soft_view_section(&x->view, index, &s) || s.sh_type != SHT_PROGBITS ||
	    s.sh_size < sizeof(h)) {
		return wrong(x, "has no PTX");
	}
	memcpy(&h, x->view.data + s.sh_offset, sizeof(h));
	if (h.magic != SOFT_FILE_MAGIC || x->view.head.e_flags != SOFT_FILE_FLAGS) {
		return report_set(x->report, -ENOENT, "cubin",
				  "%s: the cubin is of another version of the soft GPU; link its "
				  "PTX again",
				  x->name);
	}
	x->text = (const char *)x->view.data + s.sh_offset + sizeof(h);
	x->bytes = (size_t)h.bytes;
	if (h.bytes != s.sh_size - sizeof(h) - 1 || memchr(x->text, 0, x->bytes)) {
		return wrong(x, "has no PTX");
	}
	return 0;
}

bool soft_code_is_own(const void *image, size_t bytes)
{
	struct soft_view v;
	bool is = soft_view_open(&v, image, bytes) == 0 && soft_view_find(&v, SOFT_FILE_PTX, NULL);

	soft_view_finish(&v);
	return is;
}

/* ---- stubs ---- */

static struct ptx_function *only_function(const struct ptx_module *m)
{
	struct ptx_function *found = NULL;

	ptx_each (&m->items, it) {
		if (it->kind == PTX_VARIABLE || (it->kind == PTX_FUNCTION && found)) {
			return NULL;
		}
		found = it->kind == PTX_FUNCTION ? (struct ptx_function *)it : found;
	}
	return found;
}

/* Parses a stub as the body of an entry: what does not fit into one is refused. */
static int parse_stub(struct reading *x, const struct soft_patch *p, struct stub *ret)
{
	const struct ptx_function *f;
	struct buf text;
	int err;

	buf_init(&text);
	buf_printf(&text,
		   ".version %u.%u\n.target %s\n.address_size 64\n"
		   ".entry stub(.param .align 8 .b8 " SOFT_PATCH_ARGUMENT "[%u])\n{\n",
		   x->m->version_major, x->m->version_minor, x->m->target, p->argument.bytes);
	buf_add(&text, p->stub.data, p->stub.len);
	buf_puts(&text, "}\n");
	err = text.failed ? text.failed
			  : ptx_module_parse(&ret->m, text.data, text.len, "stub", x->report);
	buf_finish(&text);
	if (err) {
		return err == -EFBIG ? -EINVAL : err;
	}
	f = only_function(ret->m);
	if (!f || !f->has_body || !soft_entry_is_plain(&f->body)) {
		ptx_module_free(ret->m);
		return wrong(x, "has a stub that is more than instructions");
	}
	ret->body = &f->body;
	ret->arg_bytes = p->argument.bytes;
	return 0;
}

/* Returns the stub of a patch, whose text passes to it. Usually all kernels have the same. */
static int make_stub(struct reading *x, struct soft_patch *p, const struct stub **ret)
{
	struct stub *add = x->stubs;
	int err;

	if (!add || add->arg_bytes != p->argument.bytes || add->text.len != p->stub.len ||
	    memcmp(buf_text(&add->text), buf_text(&p->stub), p->stub.len) != 0) {
		add = ptx_arena_alloc(&x->m->arena, sizeof(*add));
		err = add ? parse_stub(x, p, add) : -ENOMEM;
		if (err) {
			return err;
		}
		add->text = p->stub;
		buf_init(&p->stub);
		add->next = x->stubs;
		x->stubs = add;
	}
	*ret = add;
	return 0;
}

static void free_stubs(struct reading *x)
{
	for (struct stub *s = x->stubs; s; s = s->next) {
		ptx_module_free(s->m);
		buf_finish(&s->text);
	}
}

static int add_patched(struct reading *x, const struct soft_entry *e, struct soft_patch *p)
{
	struct patched *add = ptx_arena_alloc(&x->m->arena, sizeof(*add));
	bool unused = false;
	int err;

	if (!add) {
		return -ENOMEM;
	}
	err = make_stub(x, p, &add->stub);
	if (err) {
		return err;
	}
	add->name = e->name;
	add->argument = p->argument;
	p->stub_registers = soft_entry_registers(add->stub->body, &unused);
	*x->end = add;
	x->end = &add->next;
	return 0;
}

/* ---- kernels ---- */

static int read_entry(struct reading *x, struct ptx_function *f)
{
	struct soft_entry e;
	struct soft_patch p;
	int err = soft_entry_compile(&e, x->m, f);

	if (err) {
		soft_entry_finish(&e);
		return err == -ENOTSUP ? 0 : err;
	}
	err = soft_patch_open(&p, &x->view, &e, x->report);
	if (err == 0 && p.patched) {
		err = add_patched(x, &e, &p);
	}
	err = err ? err : soft_patch_check(&p, &x->view, &e, x->report);
	err = err ? err
		  : strmap_add(x->registers, e.name,
			       (void *)(uintptr_t)x->view.code[p.text].registers);
	err = err == -EEXIST ? wrong(x, "has two kernels of one name") : err;
	soft_patch_finish(&p);
	soft_entry_finish(&e);
	return err;
}

/* Kernels that the PTX does not have cannot be executed. */
static int check_claimed(struct reading *x)
{
	for (uint32_t i = 1; i < x->view.head.e_shnum; i++) {
		Elf64_Shdr s;

		if (soft_view_section(&x->view, i, &s) && s.sh_flags & SHF_EXECINSTR &&
		    !x->view.code[i].claimed) {
			return wrong(x, "has code that its PTX does not have");
		}
	}
	return 0;
}

static int read_entries(struct reading *x)
{
	uint32_t n = 0;
	int err = 0;

	ptx_each (&x->m->items, it) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->is_entry && f->has_body) {
			err = ++n > SOFT_FILE_ENTRIES_MAX ? wrong(x, "has too many kernels")
							  : read_entry(x, f);
		}
		if (err) {
			return err;
		}
	}
	return check_claimed(x);
}

/* ---- the result ---- */

/* Adds a patched kernel's parameter and its stub's body. */
static int insert(struct ptx_module *m, struct ptx_function *f, struct patched *p)
{
	struct ptx_scope *scope = ptx_arena_alloc(&m->arena, sizeof(*scope));
	struct ptx_variable *params = ptx_arena_array(&m->arena, f->n_params + 1u, sizeof(*params));

	if (!scope || !params) {
		return -ENOMEM;
	}
	if (f->n_params) {
		memcpy(params, f->params, f->n_params * sizeof(*params));
	}
	params[f->n_params++] = (struct ptx_variable){ .item.kind = PTX_VARIABLE,
						       .space = PTX_PARAM,
						       .linkage = "",
						       .attributes = "",
						       .align = 8,
						       .type = ".b8",
						       .name = SOFT_PATCH_ARGUMENT,
						       .n_dims = 1,
						       .dims = { p->argument.bytes } };
	f->params = params;
	scope->item.kind = PTX_SCOPE;
	scope->body = *p->stub->body; /* shared by kernels: it is only printed */
	ptx_list_insert(&f->body, NULL, &scope->item);
	return 0;
}

/* Inserts the stubs into a fresh copy of the module, since compiling changes entries. */
static int write_patched(struct reading *x, struct buf *ret)
{
	struct patched *next = x->patched;
	struct ptx_module *m;
	int err;

	if (memmem(x->text, x->bytes, SOFT_PATCH_ARGUMENT, strlen(SOFT_PATCH_ARGUMENT))) {
		return wrong(x, "uses the name " SOFT_PATCH_ARGUMENT " in its PTX");
	}
	err = ptx_module_parse(&m, x->text, x->bytes, x->name, x->report);
	if (err) {
		return err;
	}
	err = soft_variables_place(m, &x->view, x->report);
	for (struct ptx_item *it = m->items.first; it && next && err == 0; it = it->next) {
		struct ptx_function *f = (struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && f->is_entry && f->has_body &&
		    strcmp(f->name, next->name) == 0) {
			err = insert(m, f, next);
			next = next->next;
		}
	}
	err = err ? err : ptx_module_print(m, ret);
	ptx_module_free(m);
	return err;
}

static int read_file(struct reading *x, struct buf *ret)
{
	int err = find_text(x);

	err = err ? err : ptx_module_parse(&x->m, x->text, x->bytes, x->name, x->report);
	if (err) {
		return err;
	}
	x->end = &x->patched;
	err = read_entries(x);
	if (err == 0) {
		err = x->patched || soft_variables_placed(&x->view)
			      ? write_patched(x, ret)
			      : buf_add(ret, x->text, x->bytes);
	}
	free_stubs(x);
	ptx_module_free(x->m);
	return err;
}

int soft_code_read(struct buf *ret, struct strmap *registers, const void *image, size_t bytes,
		   const char *name, struct report *r)
{
	struct reading x = { .name = name, .registers = registers, .report = r };
	int err = soft_view_open(&x.view, image, bytes);

	if (err == -EINVAL) {
		wrong(&x, "is not well-formed");
	}
	err = err ? err : read_file(&x, ret);
	soft_view_finish(&x.view);
	return err;
}
