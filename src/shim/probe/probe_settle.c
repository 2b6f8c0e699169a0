/* Gives kernels the forms that the tools ask for: compiles them, which waits for nothing, then
 * loads them, and unloads what was replaced, while the context is idle. A failure changes nothing
 * but that the newest tool is left out of the kernel. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "shim/probe/probe_mix.h"

static uint64_t round_number;					  /* of the probe thread */
static struct lock follow_mutex = LOCK_INITIALIZER(PROBE_FOLLOW); /* attributes of forms are set */

static bool runs(const struct shim_probe_form *f, struct shim_probe_tool *const *tools, uint32_t n)
{
	if (!f || f->n_tools != n) {
		return !f && !n;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (f->tools[i] != tools[i]) {
			return false;
		}
	}
	return true;
}

/* Removes tool number i of a kernel's list, and notes why. */
static void leave_out(struct shim_probe_kernel *k, uint32_t i, const char *why)
{
	lock_take(&shim_probe_mutex);
	shim_probe_tool_refused(k->tools[i], k->name, why);
	lock_release(&shim_probe_mutex);
	memmove(&k->tools[i], &k->tools[i + 1], (--k->n_tools - i) * sizeof(k->tools[0]));
}

static void leave_out_newest(struct shim_probe_kernel *k, const struct report *r)
{
	uint32_t newest = 0;
	struct buf why;

	for (uint32_t i = 1; i < k->n_tools; i++) {
		newest = k->tools[i]->version > k->tools[newest]->version ? i : newest;
	}
	buf_init(&why);
	report_text(r, &why);
	leave_out(k, newest, buf_text(&why));
	buf_finish(&why);
}

/* Leaves tools out, as bits, that have no site in a kernel where others have some: alone they would
 * be refused there, too. */
static void leave_out_idle(struct shim_probe_kernel *k, uint32_t idle)
{
	for (uint32_t i = k->n_tools; i-- > 0;) {
		if (idle & 1u << i) {
			leave_out(k, i, "no program of the tool has a site in it");
		}
	}
}

/* Leaves the newest tool out of a kernel that cannot have all its programs. */
static void refuse(struct shim_probe_kernel *k, const struct report *r)
	REQUIRES(shim_probe_build_mutex)
{
	struct report partial;

	if (!shim_probe_cut_would_help(k, k->tools, k->n_tools)) {
		leave_out_newest(k, r);
		return;
	}
	report_init(&partial);
	report_set(&partial, -EACCES, "form",
		   "only its programs of begin and end can run (--partial allows that): %s",
		   buf_text(&r->message));
	leave_out_newest(k, &partial);
	report_finish(&partial);
}

/* A change of the kernel's attributes that is made later finds the form (shim_probe_refresh()). */
void shim_probe_form_follow(const void *handle, struct shim_probe_form *f)
{
	lock_take(&follow_mutex);
	shim_probe_follow_attributes(handle, f);
	lock_release(&follow_mutex);
}

/* A tool without a limit must not miss a launch, so the form has one only if all its tools have. */
static void take_budget(const struct shim_probe_kernel *k, struct shim_probe_form *f)
	REQUIRES(shim_probe_mutex)
{
	uint32_t least = UINT32_MAX;

	for (uint32_t i = 0; i < f->n_tools; i++) {
		uint32_t ppm = f->tools[i]->budget_ppm;

		least = !ppm || !least ? 0 : MIN(least, ppm);
	}
	store_relaxed(&f->budget_ppm, least);
	for (uint32_t i = 0; i < f->n_tools && !least; i++) {
		if (f->tools[i]->budget_ppm) {
			shim_probe_tool_refused(f->tools[i], k->name,
						"its budget is not kept: another tool that "
						"the kernel runs has none");
		}
	}
}

void shim_probe_budget_changed(const struct shim_probe_tool *t)
{
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;

		if (shim_probe_kernel_runs(k, t)) {
			take_budget(k, k->form);
			shim_probe_mix_adjust(&k->mix, load_relaxed(&k->form->budget_ppm));
		}
	}
}

/* Gives the kernel a form, or takes it away. */
static void publish(struct shim_probe_kernel *k, struct shim_probe_form *f)
	REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_residents residents;
	struct shim_probe_form *before = k->form;

	if (f) {
		shim_probe_mix_ask(k, f, &residents);
	}
	lock_take(&shim_probe_mutex);
	for (uint32_t i = 0; f && i < f->n_tools; i++) {
		f->tools[i]->refs++;
		if (f->tools[i]->verify && f->handle) {
			store_relaxed(&f->verify_left, SHIM_PROBE_VERIFY);
		}
	}
	if (f) {
		take_budget(k, f);
	}
	shim_probe_mix_renew(&k->mix, f ? &residents : NULL);
	store_seqcst(&k->form, f);
	store_release(&k->seen, k->made_for);
	lock_release(&shim_probe_mutex);
	(void)add_acqrel(&shim_probe_forms_generation, (uint64_t)1);
	if (f) {
		shim_probe_form_follow(k->handle, f);
	}
	if (before) {
		shim_probe_form_retire(before);
	}
}

bool shim_probe_kernel_compile(struct shim_probe_kernel *k)
{
	struct report r;
	uint32_t idle;
	int err = -1;

	lock_take(&shim_probe_mutex);
	k->made_for = load_acquire(&shim_probe_generation);
	k->n_tools = shim_probe_tools_for(k->name, k->tools);
	lock_release(&shim_probe_mutex);
	if (runs(k->form, k->tools, k->n_tools)) {
		store_release(&k->seen, k->made_for);
		return false;
	}
	while (k->n_tools && err) {
		report_init(&r);
		err = shim_probe_compile(k, k->tools, k->n_tools, &k->made, &idle, &r);
		if (err && idle) {
			leave_out_idle(k, idle);
		} else if (err) {
			refuse(k, &r);
		}
		report_finish(&r);
	}
	if (err) {
		publish(k, NULL);
	}
	return !err;
}

void shim_probe_kernel_load(struct shim_probe_kernel *k)
{
	struct shim_probe_form *f = shim_probe_form_new();
	struct report r;
	int err;

	report_init(&r);
	err = f ? shim_probe_load(k->made, f, &r)
		: report_set(&r, -ENOMEM, "memory", "out of memory");
	shim_probe_kernel_forget_made(k);
	if (!err) {
		f->n_tools = k->n_tools;
		memcpy(f->tools, k->tools, sizeof(f->tools));
		shim_probe_prepare_submit(f, k);
		publish(k, f);
	} else {
		if (f) {
			shim_probe_form_free(f);
		}
		while (k->n_tools) {
			leave_out_newest(k, &r);
		}
		publish(k, NULL);
	}
	report_finish(&r);
}

/* Returns a kernel whose form is not decided and that this round has not looked at. */
static struct shim_probe_kernel *next_undecided(void) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *found = NULL;

	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;

		if (k->seen != load_acquire(&shim_probe_generation) && k->tried != round_number) {
			found = k;
			break;
		}
	}
	lock_release(&shim_probe_mutex);
	return found;
}

bool shim_probe_kernel_is_compiled(const struct shim_probe_kernel *k)
{
	return k->made && k->made_for == load_acquire(&shim_probe_generation);
}

void shim_probe_kernel_forget_made(struct shim_probe_kernel *k)
{
	shim_probe_made_free(k->made);
	k->made = NULL;
}

/* Compiles what is missing, one kernel after the other, between which others may have the mutex. */
static void compile_all(void)
{
	struct shim_probe_kernel *k;
	CUcontext popped;

	round_number++;
	do {
		lock_take(&shim_probe_build_mutex);
		k = shim_probe_stopped ? NULL : next_undecided();
		if (k) {
			k->tried = round_number;
		}
		if (k && !shim_probe_kernel_is_compiled(k)) {
			shim_probe_kernel_forget_made(k);
			if (shim_driver.cuCtxPushCurrent_v2(k->ctx) == CUDA_SUCCESS) {
				(void)shim_probe_kernel_compile(k);
				(void)shim_driver.cuCtxPopCurrent_v2(&popped);
			}
		}
		lock_release(&shim_probe_build_mutex);
	} while (k);
}

/* A context with forms to load or to unload; NULL: none that this round has not looked at. */
static CUcontext next_context(void) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *k = NULL;
	CUcontext ctx = NULL;

	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		k = e->value;
		if (shim_probe_kernel_is_compiled(k) && k->tried != round_number) {
			ctx = k->ctx;
			break;
		}
	}
	lock_release(&shim_probe_mutex);
	for (struct shim_probe_form *f = shim_probe_retired; f && !ctx; f = f->next) {
		ctx = f->seen != round_number ? f->ctx : NULL;
	}
	return ctx ? ctx : shim_probe_memory_unused(round_number);
}

/* Marks all of a context as looked at in this round. */
static void mark(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;

		k->tried = k->ctx == ctx ? round_number : k->tried;
	}
	lock_release(&shim_probe_mutex);
	for (struct shim_probe_form *f = shim_probe_retired; f; f = f->next) {
		f->seen = f->ctx == ctx ? round_number : f->seen;
	}
	shim_probe_memory_mark(ctx, round_number);
}

/* Returns the next compiled kernel of a context. */
static struct shim_probe_kernel *next_compiled(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *found = NULL;

	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;

		if (k->ctx == ctx && shim_probe_kernel_is_compiled(k)) {
			found = k;
			break;
		}
	}
	lock_release(&shim_probe_mutex);
	return found;
}

/* Nothing runs in a context that has failed or ended, and nothing can be loaded. */
static void leave_failed(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *k;
	struct report r;

	report_init(&r);
	report_set(&r, -EIO, "context", "its context has failed");
	while ((k = next_compiled(ctx)) != NULL) {
		shim_probe_kernel_forget_made(k);
		while (k->n_tools) {
			leave_out_newest(k, &r);
		}
		publish(k, NULL);
	}
	report_finish(&r);
	(void)shim_probe_forms_sweep(ctx, false, true);
	(void)shim_probe_memory_sweep(ctx, false);
	shim_probe_busy_forget(ctx);
}

/* Returns QUIET with launches paused if a context, which is current, becomes idle. */
static enum shim_probe_quiet await_idle(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	uint64_t pause_ns = shim_probe_busy_pause(ctx), begin = clock_now_ns();
	enum shim_probe_quiet now = pause_ns ? shim_probe_quiet_force(pause_ns)
					     : shim_probe_quiet_begin(SHIM_PROBE_BACKLOG_NS);

	if (pause_ns) {
		pause_ns = clock_now_ns() - begin;
		shim_probe_busy_paused(pause_ns);
	}
	if (now == SHIM_PROBE_BUSY) {
		shim_probe_busy_failed(ctx, pause_ns);
	} else {
		shim_probe_busy_forget(ctx);
	}
	return now;
}

/* Loads and unloads in a context, which is current, if it becomes idle. Tools that ended are
 * reported first, so that the memory of tools is freed in the pause in which their forms are
 * unloaded: each pause delays a launch. Returns whether nothing is left to do there. */
static bool settle_context(CUcontext ctx) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *k;
	enum shim_probe_quiet now;
	bool remain;

	shim_probe_forms_finish(ctx);
	(void)shim_probe_tools_end();
	if (!next_compiled(ctx) && !shim_probe_forms_remain(ctx, true) &&
	    !shim_probe_memory_remains(ctx)) {
		shim_probe_busy_forget(ctx);
		return !shim_probe_forms_remain(ctx, false);
	}
	now = await_idle(ctx);
	if (now == SHIM_PROBE_FAILED) {
		leave_failed(ctx);
	}
	if (now != SHIM_PROBE_QUIET) {
		return now == SHIM_PROBE_FAILED;
	}
	k = next_compiled(ctx);
	while (k && shim_probe_quiet_step()) {
		shim_probe_kernel_load(k);
		k = next_compiled(ctx);
	}
	remain = shim_probe_forms_sweep(ctx, true, false);
	remain = shim_probe_memory_sweep(ctx, true) || remain;
	shim_probe_quiet_end();
	return !k && !remain;
}

static bool settle_contexts(void)
{
	bool settled = true;
	CUcontext ctx, popped;

	round_number++;
	do {
		lock_take(&shim_probe_build_mutex);
		ctx = shim_probe_stopped ? NULL : next_context();
		if (ctx) {
			mark(ctx);
		}
		if (ctx && shim_driver.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
			settled = settle_context(ctx) && settled;
			(void)shim_driver.cuCtxPopCurrent_v2(&popped);
		} else if (ctx) {
			leave_failed(ctx);
		}
		lock_release(&shim_probe_build_mutex);
	} while (ctx);
	return settled;
}

bool shim_probe_kernels_settle(void)
{
	uint64_t before;
	bool settled;

	compile_all();
	shim_probe_forms_drain();
	settled = shim_probe_graphs_settle();
	before = load_acquire(&shim_probe_forms_generation);
	settled = settle_contexts() && settled;
	return settled && before == load_acquire(&shim_probe_forms_generation);
}
