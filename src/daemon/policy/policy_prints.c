/* The ring of lines that policies have printed. */
#include "daemon/policy/policy_prints.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/clean_text.h"
#include "daemon/consts.h"
#include "daemon/control_socket.h"

#define PRINT_KIND "print"
#define STORED 512u
#define TENANTS_PER_SECOND 100u /* of all tenants together */

struct daemon_prints {
	struct daemon_history_event line[STORED]; /* uid -1: of gbpfd's own hooks */
	uint64_t n;				  /* total; the last STORED are kept */
	struct rate_limit tenants;
};

static const char *const hook_names[EBPF_MAX_HOOKS] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) [id] = #name,
#include "gbpf/hooks.def"
};

static struct daemon_prints *prints_of(struct daemon *d)
{
	if (!d->prints) {
		d->prints = calloc(1, sizeof(*d->prints));
	}
	return d->prints;
}

/* Adds a line whose text is in *e. */
static void add(struct daemon *d, struct daemon_history_event *e)
{
	struct daemon_prints *all = prints_of(d);

	e->seq = d->history.next - 1;
	e->wall_ns = clock_wall_ns();
	snprintf(e->kind, sizeof(e->kind), PRINT_KIND);
	daemon_text_clean(e->text);
	if (all) {
		all->line[all->n++ % STORED] = *e;
	}
	daemon_control_print(d, e);
	if (!d->control) {
		log_info("print: %s", e->text); /* gbpfd exits: no client sees it */
	}
}

static void add_own(struct daemon_version *l, unsigned hook, const char *text, uint64_t dropped)
{
	struct daemon_history_event e = { .tenant = -1, .pid = -1, .uid = -1 };
	char left_out[48] = "";

	if (dropped) {
		snprintf(left_out, sizeof(left_out), " (%llu lines left out)",
			 (unsigned long long)dropped);
	}
	snprintf(e.text, sizeof(e.text), "'%s' version %llu, %s: %s%s", l->built->object.name,
		 (unsigned long long)l->version, hook_names[hook], text, left_out);
	add(l->d, &e);
}

void daemon_prints_take(struct daemon_version *l, unsigned hook)
{
	char text[EBPF_PRINT_TEXT];
	uint64_t dropped;

	while (ebpf_prints_take_limited(&l->run.env.prints, clock_now_ns(), text, &dropped)) {
		add_own(l, hook, text, dropped);
	}
}

void daemon_prints_flush(struct daemon_version *l)
{
	struct ebpf_prints *p = &l->run.env.prints;
	char text[EBPF_PRINT_TEXT];

	for (unsigned i = 0; i < EBPF_PRINT_LINES && ebpf_prints_take(p, text); i++) {
		add_own(l, l->last_hook, text, xchg_acqrel(&p->dropped, UINT64_C(0)));
	}
}

static void add_tenants(struct daemon_session *s, const char *text)
{
	struct daemon_prints *all = prints_of(s->d);
	struct daemon_history_event e = { .tenant = s->tenant,
					  .pid = s->peer.pid,
					  .uid = s->peer.uid };

	if (!all || !rate_allow(&all->tenants, TENANTS_PER_SECOND, clock_now_ns())) {
		s->d->counters.events_left_out++;
		return;
	}
	snprintf(e.text, sizeof(e.text), "%s", text);
	add(s->d, &e);
}

static bool take_note(struct daemon_session *s, const struct proto_note *n)
{
	bool is_print = strcmp(n->what, PRINT_KIND) == 0;

	if (is_print && rate_allow(&s->prints, EBPF_PRINTS_PER_SECOND, clock_now_ns())) {
		add_tenants(s, n->text);
	}
	return is_print;
}

const struct daemon_feature daemon_prints_feature = { .note = take_note };

json_t *daemon_prints_next(struct daemon *d, uint64_t *cursor, uint64_t since, uint64_t wall_ns,
			   bool all, uid_t uid)
{
	uint64_t n = d->prints ? d->prints->n : 0;

	*cursor = MAX(*cursor, n > STORED ? n - STORED : 0);
	for (; *cursor < n; ++*cursor) {
		const struct daemon_history_event *e = &d->prints->line[*cursor % STORED];

		if (e->wall_ns > wall_ns) {
			return NULL;
		}
		if (e->seq >= since && (all || e->uid == (int64_t)uid)) {
			++*cursor;
			return daemon_history_json(e);
		}
	}
	return NULL;
}

void daemon_prints_close(struct daemon *d)
{
	free(d->prints);
	d->prints = NULL;
}
