/* Cost of probed forms and budgets: which launches take the form. */
#ifndef GBPF_SHIM_PROBE_PROBE_MIX_H
#define GBPF_SHIM_PROBE_PROBE_MIX_H

#include "ptx/probe.h"
#include "shim/probe/shim_probe_int.h"

struct shim_probe_timer;

/* Forgets all shapes: the kernel's struct is given to another handle. */
void shim_probe_mix_init(struct shim_probe_mix *m);
/* Resident blocks of the shapes that are known, without and with a form. */
struct shim_probe_residents {
	struct {
		uint64_t key; /* 0: not known */
		uint32_t before, after;
	} of[SHIM_PROBE_SHAPES];
};
/* Asks the driver, for a form that the kernel is to get, so that its first launch need not. The
 * form's context is current. */
void shim_probe_mix_ask(const struct shim_probe_kernel *k, const struct shim_probe_form *f,
			struct shim_probe_residents *ret);
/* Forgets what was measured with the form: it is another one now, of which r is known. NULL:
 * nothing is. */
void shim_probe_mix_renew(struct shim_probe_mix *m, const struct shim_probe_residents *r);

/* Returns whether a launch takes the form, and counts it. *ret: its shape, NULL: unknown. dims:
 * grid, block, dynamic shared memory. */
bool shim_probe_mix_choose(struct shim_probe_kernel *k, const struct shim_probe_form *f,
			   const uint32_t dims[SHIM_PROBE_DIMS], struct shim_probe_shape **ret);
/* Takes a launch out of the count of those with the form: the driver has refused the form for
 * it. */
void shim_probe_mix_missed(const struct shim_probe_form *f);
/* Begins to time a launch, if one of that kind is wanted: f NULL: the kernel has no form yet. s may
 * be NULL. NULL: it is not timed. Call shim_probe_timer_end() after the launch. */
struct shim_probe_timer *shim_probe_mix_begin(struct shim_probe_kernel *k,
					      const struct shim_probe_form *f, bool probed,
					      const uint32_t dims[SHIM_PROBE_DIMS],
					      struct shim_probe_shape *s, CUstream stream);
/* Sets the shares of the shapes for another budget, as far as costs are known. */
void shim_probe_mix_adjust(struct shim_probe_mix *m, uint32_t budget_ppm);
/* Takes a result. */
void shim_probe_mix_note(const struct shim_probe_timer *t, uint32_t ns)
	REQUIRES(shim_probe_timer_mutex);
/* Fills cost, resident blocks and launches. */
void shim_probe_mix_report(const struct shim_probe_tool *t, struct proto_probe_state *ret)
	REQUIRES(shim_probe_mutex);

#endif
