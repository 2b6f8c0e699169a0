/* Fields of an event that gBPF derives from others: fills in those that the scenario omits, and
 * refuses contradictions, so that no scenario tests a context that cannot occur. */
#include <string.h>

#include "base/compiler.h"
#include "sim/sim_int.h"

#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

struct settle {
	struct sim *s;
	const struct sim_hook *h;
	const char *at;
	const void *defaults;
};

static const struct sim_field *field(const struct settle *x, const char *name)
{
	return sim_field_named(x->h->id, name, strlen(name));
}

static uint64_t get(const struct settle *x, const char *name)
{
	return sim_field_get(field(x, name), x->s->last.ctx);
}

/* Sets a field. Returns -EINVAL if the scenario gives it a different value. */
static int derive(const struct settle *x, const char *name, uint64_t value, const char *from,
		  const char *hint)
{
	const struct sim_field *f = field(x, name);
	uint64_t given = sim_field_get(f, x->s->last.ctx);

	if (given != value && given != sim_field_get(f, x->defaults)) {
		return sim_wrong(x->s, x->at, hint, "%s and %s contradict each other", from, name);
	}
	sim_field_set(f, x->s->last.ctx, value);
	return 0;
}

/* While another tenant's latency request is open, no time has passed since the last one. */
static int settle_idle(const struct settle *x)
{
	if (!field(x, "lc_open") || !field(x, "lc_idle_ns") || !get(x, "lc_open")) {
		return 0;
	}
	return derive(x, "lc_idle_ns", 0, "lc_open",
		      "Omit lc_idle_ns: it is 0 while a latency request is open");
}

/* block_ok is 1 exactly if stop names a way; without one it is a clone. */
static int settle_stop(const struct settle *x)
{
	uint64_t stop = get(x, "stop");

	if (stop > GBPF_STOP_MACHINE_CODE) {
		return sim_wrong(x->s, x->at, "There are: none, clone, machine_code",
				 "the value does not fit 'stop'");
	}
	if (get(x, "block_ok") && !stop) {
		return derive(x, "stop", GBPF_STOP_CLONE, "block_ok", NULL);
	}
	return derive(x, "block_ok", stop != GBPF_STOP_NONE, "stop",
		      "Omit block_ok: it is 1 where stop is not none");
}

static int settle_waves(const struct settle *x)
{
	uint64_t resident = get(x, "resident"), blocks = get(x, "blocks");
	uint64_t waves = resident ? blocks / resident + (blocks % resident != 0) : 0;
	int err = derive(x, "waves", MIN(waves, (uint64_t)UINT32_MAX), "resident",
			 "Omit waves: it is blocks divided by resident");

	return err ? err
		   : derive(x, "persistent", waves == 1, "resident",
			    "Omit persistent: it is 1 where resident is at least blocks");
}

static int settle_memory(const struct settle *x)
{
	if (!field(x, "mem_free") || get(x, "mem_free") <= get(x, "mem_size")) {
		return 0;
	}
	return sim_wrong(x->s, x->at,
			 "Omit both after a statement gpu mem=SIZE: they follow from it",
			 "mem_free is greater than mem_size");
}

static int settle_ranks(const struct settle *x)
{
	if (!field(x, "ready") || get(x, "ready") <= get(x, "ranks")) {
		return 0;
	}
	return sim_wrong(x->s, x->at, NULL, "ready is greater than ranks");
}

int sim_settle(struct sim *s, const struct sim_hook *h, const char *at, const void *defaults)
{
	const struct settle x = { s, h, at, defaults };
	int err = settle_idle(&x);

	err = err ? err : settle_memory(&x);
	err = err ? err : settle_ranks(&x);
	if (err || !field(&x, "resident")) {
		return err;
	}
	err = settle_stop(&x);
	return err ? err : settle_waves(&x);
}
