/* `gbpf doctor`: checks that the machine has what gBPF needs, and prints a remedy for each problem.
 */
#include <stdarg.h>
#include <string.h>

#include "cli/doctor.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

enum { O_DEVICE };

static const struct cli_option options[] = {
	[O_DEVICE] = { "device", 'd', "soft|nvidia|auto", "which GPU to look at (default auto)" },
	{ NULL, 0, NULL, NULL },
};

static const char isolation[] = "other users' processes are kept apart; same-uid processes are "
				"guarded against faults, not malice";

void cli_doctor_find(struct cli_doctor *d, enum cli_doctor_status status, const char *name,
		     const char *fix, const char *fmt, ...)
{
	static const char *const words[] = { "ok", "bad", "note" };
	const char *const marks[] = { CLI_SIGN_OK, CLI_SIGN_BAD, cli_sign("·", "note") };
	static const enum cli_style styles[] = { CLI_GREEN, CLI_RED, CLI_DIM };
	struct buf text = { 0 };
	bool color = d->c->color_out;
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	d->bad += status == CLI_DOCTOR_BAD;
	json_array_append_new(d->checks,
			      json_pack("{s:s, s:s, s:s?, s:s*}", "name", name, "status",
					words[status], "text", buf_text(&text), "fix", fix));
	if (!d->c->json && !(d->c->quiet && status != CLI_DOCTOR_BAD)) {
		printf("%s%s%s %s: %s\n", cli_style(color, styles[status]), marks[status],
		       cli_style(color, CLI_PLAIN), name, buf_text(&text));
		if (fix) {
			printf("    %s\n", fix);
		}
	}
	buf_finish(&text);
}

static int cmd_doctor(struct cli *c)
{
	struct cli_doctor d = { .c = c, .checks = json_array() };
	bool nvidia = c->opt[O_DEVICE] && strcmp(c->opt[O_DEVICE], "nvidia") == 0;
	bool soft = c->opt[O_DEVICE] && strcmp(c->opt[O_DEVICE], "soft") == 0;
	struct report r;

	cli_interrupt_catch(NULL); /* a private server must be ended, its folder removed */
	report_init(&r);
	cli_doctor_check_install(&d);
	if (!soft) {
		cli_doctor_check_nvidia(&d, nvidia);
	}
	d.have_device = cli_run_choose_device(c->opt[O_DEVICE], &d.device, &r) == 0;
	if (!d.have_device && !nvidia) {
		cli_doctor_find(&d, CLI_DOCTOR_BAD, "soft GPU", buf_text(&r.hint), "%s",
				buf_text(&r.message));
	}
	cli_doctor_check_device(&d, c->opt[O_DEVICE] != NULL);
	if (cli_interrupted()) {
		json_decref(d.checks);
		report_finish(&r);
		return CLI_FAILED;
	}
	cli_doctor_check_machine(&d);
	cli_doctor_check_folders(&d);
	cli_doctor_check_cache(&d);
	cli_doctor_check_daemon(&d);
	cli_doctor_check_users(&d);
	cli_doctor_check_vgpus(&d);
	cli_doctor_find(&d, CLI_DOCTOR_NOTE, "isolation", NULL, "%s", isolation);
	report_finish(&r);
	if (c->json) {
		cli_json(c, "doctor",
			 json_pack("{s:b, s:o}", "ok", d.bad == 0, "checks", d.checks));
	} else {
		json_decref(d.checks);
	}
	return d.bad ? CLI_FAILED : CLI_OK;
}

const struct cli_verb verb_doctor = {
	.name = "doctor",
	.args = "",
	.doc = "check this machine and the installation, with a fix for each finding",
	.page = "gbpf.1",
	.options = options,
	.run = cmd_doctor,
};
