/* Finds which kernels of an image could run from a copy with a stub, before there is a stub. */
#include <errno.h>

#include "cubin/cubin.h"
#include "cubin/cubin_copy_int.h"
#include "cubin/cubin_insn_int.h"
#include "cubin/cubin_plan_int.h"
#include "cubin/cubin_redirect_int.h"

static enum cubin_why why_not(const struct cubin_scan *s, const struct cubin_kernel *k)
{
	const struct cubin_parts *p = &s->parts[k - s->kernels];
	enum cubin_why why = cubin_plan_form(s, p, k);

	if (!why && p->odd_params) {
		why = CUBIN_PARAM_LAYOUT;
	} else if (!why &&
		   !cubin_insn_loads_stack(cubin_insn_at(cubin_elf_data(s->elf, p->text)))) {
		why = CUBIN_FIRST_INSN;
	}
	return why;
}

static int look_at(const struct cubin_elf *e, const struct cubin_scan *s, const char *name,
		   struct report *r)
{
	const struct cubin_kernel *k = strmap_get(&s->names, name);
	struct cubin_redirects d = { 0 };
	enum cubin_why why;
	struct cubin_uses uses;
	int err;

	if (!k) {
		return report_set(r, -ENOENT, "cubin", "no kernel '%s'", name);
	}
	why = why_not(s, k);
	if (why) {
		return report_set(r, -ENOENT, "cubin", "it cannot be patched: %s",
				  cubin_why_text(why));
	}
	err = cubin_copy_check(e, s, k, &uses, r);
	if (!err) {
		err = cubin_redirects_make(&d, e, uses, NULL, NULL, r);
	}
	cubin_redirects_finish(&d);
	return err;
}

static int look_at_all(const struct cubin_elf *e, const char *const *kernels, size_t n,
		       cubin_copy_tell_fn *tell, void *arg, struct report *r)
{
	struct cubin_scan s;
	int err = cubin_scan_open(&s, e, r);

	if (err < 0) {
		return err;
	}
	for (size_t i = 0; i < n; i++) {
		struct report of_one;

		report_init(&of_one);
		err = look_at(e, &s, kernels[i], &of_one);
		tell(arg, i, err, &of_one);
		report_finish(&of_one);
	}
	cubin_scan_finish(&s);
	return 0;
}

int cubin_copy_survey(const void *image, size_t bytes, const char *const *kernels, size_t n,
		      cubin_copy_tell_fn *tell, void *arg, struct report *r)
{
	struct cubin_elf e;
	int err = cubin_elf_open(&e, image, bytes, r);

	if (err < 0) {
		return err;
	}
	err = look_at_all(&e, kernels, n, tell, arg, r);
	cubin_elf_finish(&e);
	return err;
}
