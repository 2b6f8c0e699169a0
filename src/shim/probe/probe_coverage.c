/* Reports to gbpfd which of the kernels that were launched can be probed, and how: by their PTX, or
 * at their entry, or from outside only. Each kernel is looked at once, when the question is asked,
 * so that programs that are never asked pay nothing. The driver is not called: it may refuse a form
 * later. */
#include "shim/probe/shim_probe_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin.h"
#include "ptx/probe.h"
#include "shim/code/shim_code_probe.h"
#include "shim/kernel/loaded_image.h"
#include "shim/session/session.h"
#include "shim/tool.h"

enum {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

static uint64_t asked GUARDED_BY(shim_probe_mutex); /* number of the question, 0: none */

/* The kernels of one module or library. */
struct look {
	const struct shim_kernel_launched *all;
	size_t n;
	struct buf *why;   /* owned; of each: why its PTX cannot be probed; empty: it can */
	size_t *left;	   /* owned; those whose machine code matters */
	const char **name; /* owned; of these */
	size_t n_left;
};

static void tell(const struct shim_kernel_launched *l, enum proto_form form, const char *why)
{
	sched_kernel_set_form(shim.sched, l->kernel, (uint8_t)form, why);
}

/* ---- PTX ---- */

/* Probes the kernel with a program that does nothing. */
static void slice(const struct ptx_module *m, const char *kernel, struct buf *why)
{
	static const struct ptx_probe nothing = {
		.hook = HOOK_gdev_enter,
		.name = "gbpf$look",
		.text = ".func gbpf$look_f0 (.param .b64 env)\n{\n\tret;\n}\n"
	};
	struct ptx_probed probed = { 0 };
	struct report r;

	report_init(&r);
	if (ptx_probe_rewrite(m, kernel, &nothing, 1, &probed, &r) < 0) {
		report_text(&r, why);
	}
	ptx_probed_finish(&probed);
	report_finish(&r);
}

static struct ptx_module *parse(const void *owner, struct buf *why)
{
	struct shim_kept_reason none;
	struct ptx_module *m = NULL;
	size_t bytes = 0;
	char *text = shim_image_ptx(owner, NULL, &bytes, &none);
	struct report r;

	report_init(&r);
	if (!text) {
		shim_kept_why_print(&none, why);
	} else if (ptx_module_parse(&m, text, bytes, "kernel", &r) < 0) {
		report_text(&r, why);
		m = NULL;
	}
	report_finish(&r);
	free(text);
	return m;
}

static void look_at_ptx(struct look *k)
{
	struct ptx_module *m;
	struct buf why;

	buf_init(&why);
	m = parse(k->all[0].owner, &why);
	for (size_t i = 0; i < k->n; i++) {
		if (m) {
			slice(m, k->all[i].name, &k->why[i]);
		} else {
			buf_printf(&k->why[i], "%s", buf_text(&why));
		}
		if (k->why[i].len) {
			k->name[k->n_left] = k->all[i].name;
			k->left[k->n_left++] = i;
		} else {
			tell(&k->all[i], PROTO_FORM_PTX, "");
		}
	}
	buf_finish(&why);
	ptx_module_free(m);
}

/* ---- machine code ---- */

static void take_survey(void *arg, size_t at, int err, const struct report *r)
{
	struct look *k = arg;
	size_t i = k->left[at];

	if (err) {
		buf_printf(&k->why[i], "; entry stub: ");
		report_text(r, &k->why[i]);
	}
	tell(&k->all[i], err ? PROTO_FORM_BRACKETS : PROTO_FORM_STUB, buf_text(&k->why[i]));
}

/* Returns 0 if each kernel that is left was reported. */
static int survey(struct look *k, struct report *r)
{
	struct shim_code_kept *kept = shim_image_code(k->all[0].owner);
	size_t bytes = 0;
	void *elf = NULL;
	int err;

	if (shim_tool_attached()) {
		err = report_set(r, -ENOTSUP, "code",
				 "a debugger or tool looks at the machine code");
	} else if (!kept) {
		err = report_set(r, -ENOENT, "code", "no machine code of it is known");
	} else {
		elf = shim_code_kept_elf(kept, &bytes, r);
		err = elf ? cubin_copy_survey(elf, bytes, k->name, k->n_left, take_survey, k, r)
			  : -ENOENT;
	}
	free(elf);
	shim_image_code_unref(kept);
	return err;
}

static void look_at_code(struct look *k)
{
	struct report r;

	report_init(&r);
	if (k->n_left && survey(k, &r) < 0) {
		for (size_t i = 0; i < k->n_left; i++) {
			take_survey(k, i, -ENOENT, &r);
		}
	}
	report_finish(&r);
}

/* ---- the question ---- */

/* Without memory the kernels stay unknown. */
static void look_at_owner(const struct shim_kernel_launched *all, size_t n)
{
	struct look k = { .all = all,
			  .n = n,
			  .why = calloc(n, sizeof(*k.why)),
			  .left = calloc(n, sizeof(*k.left)),
			  .name = calloc(n, sizeof(*k.name)) };

	if (k.why && k.left && k.name) {
		for (size_t i = 0; i < n; i++) {
			buf_init(&k.why[i]);
		}
		look_at_ptx(&k);
		look_at_code(&k);
		for (size_t i = 0; i < n; i++) {
			buf_finish(&k.why[i]);
		}
	}
	free(k.why);
	free(k.left);
	free(k.name);
}

static void look_at_all(void)
{
	size_t n = 0, from = 0;
	struct shim_kernel_launched *all = shim_kernel_launched(&n);

	for (size_t i = 1; all && i <= n; i++) {
		if (i == n || all[i].owner != all[from].owner) {
			look_at_owner(&all[from], i - from);
			from = i;
		}
	}
	shim_kernel_launched_free(all, n);
}

static uint64_t number_asked(void)
{
	uint64_t number;

	lock_take(&shim_probe_mutex);
	number = asked;
	lock_release(&shim_probe_mutex);
	return number;
}

bool shim_probe_cover_settle(void)
{
	union proto_message m = { .probe_order = { .number = number_asked() } };
	bool again = false;

	if (!m.probe_order.number) {
		return true;
	}
	shim_probe_graphs_account(); /* kernels that were launched in graphs only are looked at, too
				      */
	look_at_all();
	sched_publish_kernels(shim.sched);
	lock_take(&shim_probe_mutex);
	if (asked == m.probe_order.number) { /* of the gbpfd that is there now */
		again = shim_session_answer_probe(shim_probe_session(), &m, PROTO_COVERED) ==
			-EAGAIN;
		asked = again ? asked : 0;
	}
	lock_release(&shim_probe_mutex);
	return !again;
}

void shim_probe_cover(struct shim_session *s, const struct proto_probe_order *m)
{
	if (shim_probe_thread_start(s) < 0) {
		return; /* gbpfd does not wait for long */
	}
	lock_take(&shim_probe_mutex);
	asked = m->number;
	lock_release(&shim_probe_mutex);
	shim_probe_thread_wake();
}

void shim_probe_cover_lost(void)
{
	asked = 0;
}
