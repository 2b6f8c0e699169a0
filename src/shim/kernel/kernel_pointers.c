/* Which memory the kernels of an image can access (shim/kernel/kernel_pointers.h), by name. */
#include "shim/kernel/kernel_pointers.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/report.h"
#include "base/strmap.h"

#define TEXT_MAX ((size_t)8 << 20) /* of PTX that is read for it: a tenth of a second */
#define KERNELS_MAX 8192u	   /* of a process, 2 KiB each */

struct shim_kernel_pointers {
	struct strmap of; /* name > struct ptx_pointers, owned */
};

static uint32_t n_kernels; /* [atomic] of all images */

/* Adds what is known of a kernel. Returns false if there is no room. */
static bool add(struct shim_kernel_pointers *p, const struct ptx_module *m,
		const struct ptx_pointer_names *names, const char *name)
{
	struct ptx_pointers *of = malloc(sizeof(*of));
	struct report r;
	bool known, added = false;

	report_init(&r);
	known = of && ptx_pointers_of(m, names, name, of, &r) == 0 && of->n;
	report_finish(&r);
	if (known && add_acqrel(&n_kernels, 1u) < KERNELS_MAX) {
		added = strmap_add(&p->of, name, of) == 0;
	}
	if (known && !added) {
		(void)sub_acqrel(&n_kernels, 1u);
	}
	if (!added) {
		free(of);
	}
	return of && (!known || added);
}

/* Returns true for names that compilers give to the parts of functions that directives (OpenMP,
 * OpenACC) have on the device. Of an array of which a section is mapped they pass the address at
 * which it would begin, where there may be other memory. NVHPC: f_12_gpu, f_12_gpu__red,
 * nvkernel_f_F1L12_2; LLVM: __omp_offloading_...; GCC: f$_omp_fn$0; Cray: f$ck_L12_1. */
static bool is_of_directives(const char *name)
{
	static const char *const parts[] = { "nvkernel_", "__omp_offloading_", "_omp_fn", "$ck_L" };
	const char *gpu = name;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		if (strstr(name, parts[i])) {
			return true;
		}
	}
	while ((gpu = strstr(gpu, "_gpu")) != NULL) {
		if (gpu != name && gpu[-1] >= '0' && gpu[-1] <= '9' && (!gpu[4] || gpu[4] == '_')) {
			return true;
		}
		gpu += 4;
	}
	return false;
}

static void add_all(struct shim_kernel_pointers *p, const struct ptx_module *m)
{
	struct ptx_pointer_names names;
	bool room = true;

	if (ptx_pointer_names_open(&names, m) < 0) {
		return;
	}
	ptx_each (&m->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;

		if (room && it->kind == PTX_FUNCTION && f->is_entry && f->has_body &&
		    !is_of_directives(f->name)) {
			room = add(p, m, &names, f->name);
		}
	}
	ptx_pointer_names_close(&names);
}

struct shim_kernel_pointers *shim_kernel_pointers_read(const struct shim_kept_image *k)
{
	struct shim_kernel_pointers *p = malloc(sizeof(*p));
	struct ptx_module *m = NULL;
	struct report r;
	size_t bytes = 0;
	char *text = p && shim_kept_is_exact(k) ? shim_kept_text(k, &bytes) : NULL;

	if (p) {
		strmap_init(&p->of);
	}
	report_init(&r);
	if (text && bytes <= TEXT_MAX && ptx_module_parse(&m, text, bytes, "kernel", &r) == 0) {
		add_all(p, m);
	}
	report_finish(&r);
	ptx_module_free(m);
	free(text);
	if (p && !p->of.live) {
		shim_kernel_pointers_free(p);
		p = NULL;
	}
	return p;
}

void shim_kernel_pointers_free(struct shim_kernel_pointers *p)
{
	if (!p) {
		return;
	}
	strmap_each (&p->of, e) {
		free(e->value);
		(void)sub_acqrel(&n_kernels, 1u);
	}
	strmap_finish(&p->of);
	free(p);
}

struct ptx_pointers *shim_kernel_pointers_of(const struct shim_kernel_pointers *p, const char *name)
{
	const struct ptx_pointers *of = p ? strmap_get(&p->of, name) : NULL;
	struct ptx_pointers *copy = of ? malloc(sizeof(*copy)) : NULL;

	if (copy) {
		*copy = *of;
	}
	return copy;
}
