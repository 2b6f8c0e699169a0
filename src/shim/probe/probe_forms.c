/* Forms: their users, and their end. A launch counts itself as a user of the form and then reads
 * again that it is the kernel's. A form that ends is first taken from the kernel; then its users
 * are read, and it is not finished while there are any. All four are sequentially consistent, so
 * either the launch finds the form gone, or the other side finds the launch. The structs of forms
 * and kernels stay, so a late look at one is harmless. */
#include "shim/probe/shim_probe_int.h"

#include <stdlib.h>

#include "base/clock.h"
#include "shim/capture_state.h"
#include "shim/object/queue_drain.h"

struct shim_probe_form *shim_probe_retired;
static struct shim_probe_form *free_forms GUARDED_BY(shim_probe_mutex);
static uint64_t numbers; /* [atomic] of forms */

struct shim_probe_form *shim_probe_form_new(void)
{
	struct shim_probe_form *f;

	lock_take(&shim_probe_mutex);
	f = free_forms;
	if (f) {
		free_forms = f->next;
	}
	lock_release(&shim_probe_mutex);
	f = f ? f : calloc(1, sizeof(*f));
	if (f) {
		store_relaxed(&f->refusal, 0u);
		store_relaxed(&f->left_out, NULL);
		store_relaxed(&f->unmixed, 0u);
		store_relaxed(&f->verify_left, 0u);
		f->verified = SHIM_PROBE_UNVERIFIED;
		f->verified_why[0] = '\0';
		f->number = add_acqrel(&numbers, (uint64_t)1) + 1;
		f->ended = f->told_left_out = false;
		f->told = f->draining = f->drained = f->finished = false;
		f->last = NULL;
	}
	return f;
}

static void put_form(struct shim_probe_form *f) REQUIRES(shim_probe_mutex)
{
	f->next = free_forms;
	free_forms = f;
}

void shim_probe_form_free(struct shim_probe_form *f)
{
	lock_take(&shim_probe_mutex);
	f->ended = load_relaxed(&f->held) != 0;
	if (!f->ended) {
		put_form(f);
	}
	lock_release(&shim_probe_mutex);
}

void shim_probe_form_hold(struct shim_probe_form *f)
{
	lock_take(&shim_probe_mutex);
	(void)add_seqcst(&f->held, 1u);
	lock_release(&shim_probe_mutex);
}

void shim_probe_form_unhold(struct shim_probe_form *f)
{
	lock_take(&shim_probe_mutex);
	if (sub_acqrel(&f->held, 1u) == 1 && f->ended) {
		f->ended = false;
		put_form(f);
	}
	lock_release(&shim_probe_mutex);
}

struct shim_probe_form *shim_probe_form_begin(struct shim_probe_kernel *k, const void *handle)
{
	return shim_capture_any() ? NULL : shim_probe_form_take(k, handle);
}

struct shim_probe_form *shim_probe_form_take(struct shim_probe_kernel *k, const void *handle)
{
	struct shim_probe_form *f = load_acquire(&k->form);

	if (!f) {
		return NULL;
	}
	(void)add_seqcst(&f->users, 1u);
	if (load_seqcst(&k->form) != f || load_relaxed(&k->handle) != handle) { /* see above */
		shim_probe_form_end(f);
		return NULL;
	}
	return f;
}

void shim_probe_form_end(struct shim_probe_form *f)
{
	(void)sub_acqrel(&f->users, 1u);
}

/* The launches of a retired form have ended: frees its tools. */
static void finish(struct shim_probe_form *f)
{
	lock_take(&shim_probe_mutex);
	for (uint32_t i = 0; i < f->n_tools; i++) {
		f->tools[i]->refs--;
	}
	f->finished = true;
	lock_release(&shim_probe_mutex);
}

void shim_probe_form_refused(struct shim_probe_form *f, CUresult r)
{
	if (!xchg_acqrel(&f->refusal, (uint32_t)r)) {
		shim_probe_thread_wake();
	}
}

void shim_probe_form_left_out(struct shim_probe_form *f, const char *why, CUresult r)
{
	const char *name = NULL;

	if (!why && shim_driver.cuGetErrorName(r, &name) == CUDA_SUCCESS) {
		why = name;
	}
	if (!load_acquire(&f->left_out)) {
		store_release(&f->left_out, why ? why : "unknown error");
		shim_probe_thread_wake();
	}
}

void shim_probe_form_unmixed(struct shim_probe_form *f)
{
	if (!load_relaxed(&f->unmixed)) {
		store_release(&f->unmixed, 1u);
		shim_probe_thread_wake();
	}
}

void shim_probe_form_retire(struct shim_probe_form *f)
{
	f->draining = f->drained = f->finished = false;
	f->next = shim_probe_retired;
	shim_probe_retired = f;
}

/* Draining launches what was deferred, which may build a form: without the mutex. */
void shim_probe_forms_drain(void)
{
	bool any = false;

	lock_take(&shim_probe_build_mutex);
	for (struct shim_probe_form *f = shim_probe_retired; f; f = f->next) {
		f->draining = f->has_clone && !f->drained && !load_seqcst(&f->users);
		any = any || f->draining;
	}
	lock_release(&shim_probe_build_mutex);
	if (!any) {
		return;
	}
	shim_drain_pending();
	lock_take(&shim_probe_build_mutex);
	for (struct shim_probe_form *f = shim_probe_retired; f; f = f->next) {
		f->drained = f->drained || f->draining;
	}
	lock_release(&shim_probe_build_mutex);
}

/* Returns whether all launches of a retired form are submitted. A node is counted before the user
 * that gave it the form leaves, so the users are read first. */
static bool is_submitted(const struct shim_probe_form *f)
{
	return !load_seqcst(&f->users) && !load_seqcst(&f->held) && (!f->has_clone || f->drained);
}

static void drop_mark(struct shim_probe_form *f)
{
	if (f->last) {
		(void)shim_driver.cuEventDestroy_v2(f->last);
		f->last = NULL;
	}
}

/* Returns whether the launches of a retired form have ended. In a context that has failed nothing
 * runs. The event stays until it has passed: a later one would also await what the program has
 * launched since, so it might never pass. */
static bool is_over(struct shim_probe_form *f, uint64_t until)
{
	enum shim_probe_quiet now = SHIM_PROBE_BUSY;

	if (!f->last && is_submitted(f)) {
		now = shim_probe_mark(&f->last);
	}
	if (f->last) {
		now = shim_probe_mark_passed(f->last, until);
	}
	return now != SHIM_PROBE_BUSY;
}

void shim_probe_forms_finish(CUcontext ctx)
{
	uint64_t until = clock_now_ns() + SHIM_PROBE_BACKLOG_NS;

	for (struct shim_probe_form *f = shim_probe_retired; f; f = f->next) {
		if (f->ctx == ctx && !f->finished && is_over(f, until)) {
			drop_mark(f);
			finish(f);
		}
	}
}

static void unload(struct shim_probe_form *f, bool context_ends) REQUIRES(shim_probe_build_mutex)
{
	drop_mark(f);
	if (!f->finished) {
		finish(f);
	}
	shim_probe_unload(f, context_ends);
	shim_probe_form_free(f);
}

bool shim_probe_forms_remain(CUcontext ctx, bool finished)
{
	const struct shim_probe_form *f = shim_probe_retired;

	while (f && (f->ctx != ctx || f->finished != finished)) {
		f = f->next;
	}
	return f != NULL;
}

bool shim_probe_forms_sweep(CUcontext ctx, bool idle, bool context_ends)
{
	bool remain = false;

	for (struct shim_probe_form **link = &shim_probe_retired; *link;) {
		struct shim_probe_form *f = *link;

		if (f->ctx == ctx &&
		    (context_ends || (idle && f->finished && shim_probe_quiet_step()))) {
			*link = f->next;
			unload(f, context_ends);
			continue;
		}
		remain = remain || f->ctx == ctx;
		link = &f->next;
	}
	if (idle || context_ends) {
		shim_probe_brackets_sweep(ctx, context_ends);
	}
	return remain;
}

unsigned shim_probe_has(const struct shim_probe_form *f)
{
	bool clone = f->has_clone && likely(!load_relaxed(&f->verify_left));

	return (f->handle ? SHIM_HAS_PROBED : 0) | (f->code ? SHIM_HAS_PROBED_STUB : 0) |
	       (clone ? SHIM_HAS_PROBED_CLONE : 0) | (f->bracket ? SHIM_HAS_BRACKETS : 0);
}

struct shim_clone *shim_probe_clone(struct shim_probe_form *f)
{
	return &f->clone;
}

void shim_probe_release(struct shim_probe_form *f)
{
	shim_probe_form_end(f);
}
