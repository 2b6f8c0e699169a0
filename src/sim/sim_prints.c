/* Lines that programs print with bpf_printk. Only a trace prints them at once. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_int.h"

static int keep(struct sim *s, const char *where, const char *text)
{
	struct sim_result *r = s->result;
	struct sim_print *p;

	if (r->n_prints == SIM_MAX_PRINTS) {
		r->prints_left_out++;
		return 0;
	}
	if (!r->prints) {
		r->prints = calloc(SIM_MAX_PRINTS, sizeof(*r->prints));
	}
	p = r->prints ? &r->prints[r->n_prints] : NULL;
	if (!p || !(p->text = strdup(text))) {
		return report_set(s->r, -ENOMEM, "memory", "out of memory");
	}
	p->line = s->line + 1;
	p->now_ns = sim_now();
	p->hook = s->last.hook->name;
	snprintf(p->where, sizeof(p->where), "%s", where);
	r->n_prints++;
	return 0;
}

int sim_print_collect(struct sim *s, const char *where)
{
	struct ebpf_prints *prints = &s->ran->policy->env.prints;
	char text[EBPF_PRINT_TEXT];
	int err = 0;

	while (!err && ebpf_prints_take(prints, text)) {
		err = keep(s, where, text);
		if (!err && s->o->trace) {
			fprintf(s->o->trace, "     printed: %s\n", text);
		}
	}
	s->result->prints_left_out += prints->dropped;
	prints->dropped = 0;
	return err;
}
