/* The program's kernels that tools match, by handle. */
#include "shim/probe/shim_probe_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/point.h"
#include "shim/capture_state.h"
#include "shim/kernel/loaded_image.h"
#include "shim/probe/probe_mix.h"
#include "shim/probe/probe_timer.h"
#include "shim/object/handle_set.h"
#include "shim/session/session_agent.h"

#define KERNELS_MAX 65536u
#define FIRST_NS                                                                                   \
	1000000000u /* longest wait of a first launch, or a context's end, for its work            \
		     */

struct strmap shim_probe_kernels;
static struct shim_probe_kernel *free_kernels GUARDED_BY(shim_probe_mutex);

/* Key of a library's kernel: handle and context; of any other: the handle. */
struct kernel_key {
	char text[44];
};

static struct kernel_key key_of(const void *handle, bool library, CUcontext ctx)
{
	struct kernel_key k;

	snprintf(k.text, sizeof(k.text), "%llx/%llx", (unsigned long long)(uintptr_t)handle,
		 library ? (unsigned long long)(uintptr_t)ctx : 0);
	return k;
}

/* The struct may be one that launches still look at. */
static struct shim_probe_kernel *take_free_kernel(void) REQUIRES(shim_probe_mutex)
{
	struct shim_probe_kernel *k = free_kernels;

	if (k) {
		free_kernels = k->next;
		return k;
	}
	return calloc(1, sizeof(*k));
}

/* The form is NULL. */
static void put_kernel(struct shim_probe_kernel *k) REQUIRES(shim_probe_mutex)
{
	free(k->name);
	k->name = NULL;
	store_relaxed(&k->handle, NULL);
	k->next = free_kernels;
	free_kernels = k;
}

static struct shim_probe_kernel *new_kernel(const void *handle, CUcontext ctx,
					    const struct shim_kernel_origin *o)
	REQUIRES(shim_probe_mutex)
{
	bool library = o->kind == SHIM_KERNEL_OF_LIBRARY;
	struct shim_probe_kernel *k =
		ctx && shim_probe_kernels.live < KERNELS_MAX ? take_free_kernel() : NULL;

	if (!k) {
		return NULL;
	}
	k->owner = o->owner;
	k->kind = o->kind;
	k->name = strdup(o->name);
	k->made = NULL;
	k->made_for = k->tried = 0;
	shim_probe_mix_init(&k->mix);
	store_relaxed(&k->ctx, ctx);
	store_relaxed(&k->library, (uint32_t)library);
	store_relaxed(&k->seen, (uint64_t)0);
	if (!k->name || strmap_add(&shim_probe_kernels, key_of(handle, library, ctx).text, k) < 0) {
		put_kernel(k);
		return NULL;
	}
	store_release(&k->handle, handle);
	return k;
}

/* A handle that the program got after one of its tools was attached has not been launched yet: its
 * first launch is to run it. The agent must not wait for the compiler. */
static bool builds_at_once(bool newer)
{
	return newer && !shim_agent_is_current() && !shim_capture_any();
}

/* Loads in the current context, which is k's, as soon as that is idle. Work that never ends may
 * wait for the launch that waits here, so the wait is bounded, and shorter after a timeout; the
 * probe thread loads the form then. */
static void load_first(struct shim_probe_kernel *k) REQUIRES(shim_probe_build_mutex)
{
	static bool had_no_rest GUARDED_BY(shim_probe_build_mutex);
	uint64_t now = clock_now_ns();
	uint64_t until = now + clock_patience(had_no_rest ? SHIM_PROBE_BACKLOG_NS : FIRST_NS);
	enum shim_probe_quiet quiet = SHIM_PROBE_BUSY;

	for (; quiet == SHIM_PROBE_BUSY && now < until; now = clock_now_ns()) {
		quiet = shim_probe_quiet_begin(until - now);
		if (quiet == SHIM_PROBE_QUIET && !shim_probe_quiet_step()) {
			shim_probe_quiet_end();
			quiet = SHIM_PROBE_BUSY;
		}
	}
	if (quiet == SHIM_PROBE_QUIET) {
		shim_probe_kernel_load(k);
		shim_probe_quiet_end();
	}
	had_no_rest = quiet != SHIM_PROBE_QUIET;
}

/* Builds the form of a kernel that had none yet. */
static void build(struct shim_probe_kernel *k, const void *handle)
{
	CUstreamCaptureMode mode;
	CUcontext popped;

	lock_take(&shim_probe_build_mutex);
	mode = shim_capture_exempt();
	if (load_acquire(&k->handle) == handle && !load_relaxed(&k->seen) &&
	    shim_driver.cuCtxPushCurrent_v2(k->ctx) == CUDA_SUCCESS) {
		if (!shim_probe_kernel_is_compiled(k)) {
			shim_probe_kernel_forget_made(k);
		}
		if (k->made || shim_probe_kernel_compile(k)) {
			load_first(k);
		}
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
	shim_capture_restore(mode);
	lock_release(&shim_probe_build_mutex);
}

/* Stores in *ret_newer whether the program got the handle after one of its tools was attached. */
static struct shim_probe_kernel *known(const void *handle, CUcontext ctx, bool *ret_newer)
{
	struct shim_kernel_origin o;
	struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
	struct shim_probe_kernel *k;
	struct kernel_key key;
	uint32_t n;

	*ret_newer = false;
	if (!shim_kernel_origin(handle, &o)) {
		return NULL;
	}
	key = key_of(handle, o.kind == SHIM_KERNEL_OF_LIBRARY, ctx);
	lock_take(&shim_probe_mutex);
	n = shim_probe_tools_for(o.name, tools);
	for (uint32_t i = 0; i < n; i++) {
		*ret_newer = *ret_newer || tools[i]->number <= o.probes;
	}
	k = strmap_get(&shim_probe_kernels, key.text);
	if (!k && n) {
		k = new_kernel(handle, ctx, &o);
		shim_probe_thread_wake();
	}
	lock_release(&shim_probe_mutex);
	free(o.name);
	return k;
}

struct shim_probe_kernel *shim_probe_kernel_known(const void *handle, CUcontext ctx)
{
	bool newer;

	return known(handle, ctx, &newer);
}

struct shim_probe_kernel *shim_probe_kernel_find(const void *handle, CUcontext ctx)
{
	bool newer;
	struct shim_probe_kernel *k = known(handle, ctx, &newer);

	if (k && !load_acquire(&k->seen) && builds_at_once(newer)) {
		build(k, handle);
	}
	return k;
}

/* Reports the refusal of a kernel's form to all tools of the form. */
static void note_refusal(const struct shim_probe_kernel *k, struct shim_probe_form *f)
	REQUIRES(shim_probe_mutex)
{
	const char *name = NULL;
	char why[160];

	(void)shim_driver.cuGetErrorName((CUresult)load_relaxed(&f->refusal), &name);
	snprintf(why, sizeof(why),
		 "launches that the driver refuses for its probed form run the kernel itself: %s",
		 name ? name : "unknown error");
	for (uint32_t i = 0; i < f->n_tools; i++) {
		shim_probe_tool_refused(f->tools[i], k->name, why);
	}
	f->told = true;
}

static void note_left_out(const struct shim_probe_kernel *k, struct shim_probe_form *f)
	REQUIRES(shim_probe_mutex)
{
	char why[160];

	snprintf(why, sizeof(why),
		 "nodes of a graph are not reachable and run the kernel itself: %s",
		 load_acquire(&f->left_out));
	for (uint32_t i = 0; i < f->n_tools; i++) {
		shim_probe_tool_refused(f->tools[i], k->name, why);
	}
	f->told_left_out = true;
}

static void note_unmixed(const struct shim_probe_kernel *k, struct shim_probe_form *f)
	REQUIRES(shim_probe_mutex)
{
	for (uint32_t i = 0; i < f->n_tools; i++) {
		shim_probe_tool_refused(f->tools[i], k->name,
					"its budget is not kept in graphs: their nodes run it in "
					"each launch");
	}
	store_relaxed(&f->unmixed, 2u);
}

void shim_probe_kernels_note_refusals(void)
{
	strmap_each (&shim_probe_kernels, e) {
		const struct shim_probe_kernel *k = e->value;

		if (k->form && load_acquire(&k->form->refusal) && !k->form->told) {
			note_refusal(k, k->form);
		}
		if (k->form && load_acquire(&k->form->left_out) && !k->form->told_left_out) {
			note_left_out(k, k->form);
		}
		if (k->form && load_acquire(&k->form->unmixed) == 1) {
			note_unmixed(k, k->form);
		}
	}
}

static void count_verified(const struct shim_probe_kernel *k, struct proto_probe_state *ret)
	REQUIRES(shim_probe_mutex)
{
	const struct shim_probe_form *f = k->form;

	ret->equal += f->verified == SHIM_PROBE_EQUAL;
	ret->differing += f->verified == SHIM_PROBE_DIFFERS;
	ret->not_compared += f->verified == SHIM_PROBE_NOT_VERIFIED;
	if (f->verified == SHIM_PROBE_DIFFERS ||
	    (f->verified == SHIM_PROBE_NOT_VERIFIED && !ret->differing)) {
		snprintf(ret->compared, sizeof(ret->compared), "%.80s: %.150s", k->name,
			 f->verified_why);
	}
}

void shim_probe_kernels_count(const struct shim_probe_tool *t, struct proto_probe_state *ret)
{
	strmap_each (&shim_probe_kernels, e) {
		const struct shim_probe_kernel *k = e->value;
		struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
		uint32_t n = shim_probe_tools_for(k->name, tools);
		bool has = false, wanted = false, part = false;

		for (uint32_t i = 0; k->form && i < k->form->n_tools; i++) {
			if (k->form->tools[i] == t) {
				has = true;
				part = k->form->parts & 1u << i;
				shim_probe_gaps_add(ret, k, k->form, i);
			}
		}
		for (uint32_t i = 0; i < n; i++) {
			wanted = wanted || tools[i] == t;
		}
		ret->falls_back += has && (load_relaxed(&k->form->refusal) ||
					   load_relaxed(&k->form->left_out));
		ret->kernels += has;
		ret->stubs += has && k->form->code;
		ret->brackets += has && !k->form->handle;
		ret->parts += part;
		if (has && k->form->unseen && shim_probe_tool_sees(t, k->name)) {
			ret->unseen += k->form->unseen;
		}
		if (has && t->verify) {
			count_verified(k, ret);
		}
		ret->waiting += wanted && !has && k->seen != load_acquire(&shim_probe_generation);
		ret->refused += wanted && !has && k->seen == load_acquire(&shim_probe_generation);
	}
}

/* ---- ends ---- */

/* Removes a kernel of the context or, ctx NULL, of the owner. NULL: there is no more. */
static struct shim_probe_kernel *take_kernel(CUcontext ctx, const void *owner)
{
	struct shim_probe_kernel *found = NULL;

	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;

		if (ctx ? k->ctx == ctx : shim_image_is_of(k->owner, owner)) {
			strmap_del(&shim_probe_kernels, e->key);
			(void)add_acqrel(&shim.kernel_generation, 1u);
			(void)add_acqrel(&shim_probe_forms_generation, (uint64_t)1);
			found = k;
			break;
		}
	}
	lock_release(&shim_probe_mutex);
	return found;
}

/* Retires the forms of a context's kernels or, ctx NULL, of an owner's, and forgets these. */
static void forget(CUcontext ctx, const void *owner) REQUIRES(shim_probe_build_mutex)
{
	struct shim_probe_kernel *k;

	while ((k = take_kernel(ctx, owner)) != NULL) {
		struct shim_probe_form *f = k->form;

		lock_take(&shim_probe_mutex);
		store_seqcst(&k->form, NULL);
		lock_release(&shim_probe_mutex);
		if (f) {
			shim_probe_form_retire(f);
		}
		shim_probe_kernel_forget_made(k);
		lock_take(&shim_probe_mutex);
		put_kernel(k);
		lock_release(&shim_probe_mutex);
	}
}

static uint64_t unloading(const void *owner)
{
	if (!load_acquire(&shim.probes_attached)) {
		return 0;
	}
	lock_take(&shim_probe_build_mutex);
	forget(NULL, owner);
	lock_release(&shim_probe_build_mutex);
	POINT_HOLD("shim.probe.forgotten");
	shim_probe_graphs_leave(NULL); /* while the driver still knows the kernels */
	shim_probe_thread_wake();
	return 0;
}

/* The last launches of a context count, too. One that does not end in time is not waited for. */
static void await_work(CUcontext ctx)
{
	CUcontext popped;

	if (shim_driver.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS) {
		(void)shim_probe_work_done(clock_patience(FIRST_NS));
		(void)shim_driver.cuCtxPopCurrent_v2(&popped);
	}
}

static uint64_t context_ending(CUcontext ctx)
{
	if (!load_acquire(&shim.probes_attached)) {
		return 0;
	}
	lock_take(&shim_probe_build_mutex);
	await_work(ctx);
	shim_probe_timers_leave(ctx);
	forget(ctx, NULL);
	lock_release(&shim_probe_build_mutex);
	POINT_HOLD("shim.probe.forgotten");
	shim_probe_graphs_leave(ctx);
	lock_take(&shim_probe_build_mutex);
	forget(ctx, NULL); /* those that the probe thread has looked up for a graph meanwhile */
	(void)shim_probe_forms_sweep(ctx, false, true);
	(void)shim_probe_memory_sweep(ctx, false);
	shim_probe_busy_forget(ctx);
	for (unsigned i = 0; i < SHIM_PROBE_TOOLS_MAX; i++) {
		struct shim_probe_tool *t;

		lock_take(&shim_probe_mutex);
		t = shim_probe_tools[i];
		lock_release(&shim_probe_mutex);
		if (t) {
			shim_probe_memory_leave(t, ctx);
		}
	}
	shim_probe_memory_drop_stream(ctx);
	lock_release(&shim_probe_build_mutex);
	shim_probe_thread_wake();
	return 0;
}

const struct shim_part shim_probe_part = { .unloading = unloading,
					   .context_ending = context_ending,
					   .child = shim_probe_forget };

void shim_probe_exclude(CUfunction clone)
{
	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		const struct shim_probe_kernel *k = e->value;

		if (k->form && k->form->has_clone && k->form->clone.handle == clone) {
			store_relaxed(&k->form->clone.excluded, (uint8_t)SHIM_CLONE_HUNG);
		}
	}
	lock_release(&shim_probe_mutex);
}

/* Takes the forms of a handle's kernels, of a library's kernel in all contexts. Returns their
 * number. */
static unsigned forms_of(const void *handle, struct shim_probe_form *ret[SHIM_PROBE_CONTEXTS_MAX],
			 const void *ret_handle[SHIM_PROBE_CONTEXTS_MAX])
{
	struct shim_kernel_origin o;
	unsigned n = 0;

	if (!shim_kernel_origin(handle, &o)) {
		return 0;
	}
	lock_take(&shim_probe_mutex);
	strmap_each (&shim_probe_kernels, e) {
		struct shim_probe_kernel *k = e->value;
		bool same = k->handle == handle ||
			    (k->kind != SHIM_KERNEL_OF_MODULE && k->owner == o.owner &&
			     strcmp(k->name, o.name) == 0);
		struct shim_probe_form *f =
			same && n < SHIM_PROBE_CONTEXTS_MAX ? load_acquire(&k->form) : NULL;

		if (f) { /* forms are taken from kernels under the mutex */
			(void)add_seqcst(&f->users, 1u);
			ret_handle[n] = k->handle;
			ret[n++] = f;
		}
	}
	lock_release(&shim_probe_mutex);
	free(o.name);
	return n;
}

void shim_probe_refresh(const void *handle)
{
	struct shim_probe_form *forms[SHIM_PROBE_CONTEXTS_MAX];
	const void *handles[SHIM_PROBE_CONTEXTS_MAX];
	CUcontext popped;
	unsigned n;

	n = load_acquire(&shim.probes_attached) ? forms_of(handle, forms, handles) : 0;
	while (n-- > 0) {
		if (shim_driver.cuCtxPushCurrent_v2(forms[n]->ctx) == CUDA_SUCCESS) {
			shim_probe_form_follow(handles[n], forms[n]);
			(void)shim_driver.cuCtxPopCurrent_v2(&popped);
		}
		shim_probe_form_end(forms[n]);
	}
}
