/* A tenant's statistics page as JSON. The tenant writes that page: each word is read once, texts
 * are copied and cleaned, and nothing in it is used as an index or a size. */
#include "daemon/control_socket.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "daemon/clean_text.h"
#include "daemon/session/tenant_session.h"
#include "policy/ctx.h"
#include "proto/block_why.h"
#include "proto/hold_why.h"

#define SHOWN_KERNELS 16u

const struct proto_stats_gpu *daemon_session_gpu_stats(const struct daemon_session *s, uint32_t gpu)
{
	const struct proto_stats *st = s->stats.map;
	uint32_t i = 0;

	while (i + 1 < s->gpus && s->gpu_index[i] != gpu) {
		i++;
	}
	return &st->gpu[i];
}

/* Clamps: JSON integers are signed, and a tenant may write anything. */
static json_t *number(uint64_t v)
{
	return json_integer((json_int_t)MIN(v, (uint64_t)INT64_MAX));
}

/* Returns the lower bound of the bucket that contains the given quantile of all requests. */
static uint64_t percentile(const uint64_t *hist, uint64_t total, double part)
{
	uint64_t want = (uint64_t)((double)total * part), seen = 0;

	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		seen += hist[i];
		if (seen > want) {
			return proto_hist_floor(i);
		}
	}
	return 0;
}

/* Adds how many streams keep to the tenant's share of the multiprocessors, and how many do not. */
static void caps(const struct proto_stats *st, json_t *j)
{
	static const char *const names[PROTO_CAPS] = {
		[PROTO_CAP_DONE] = "capped",
		[PROTO_CAP_BLOCKING] = "uncapped_blocking",
		[PROTO_CAP_CONTEXT] = "uncapped_context",
		[PROTO_CAP_DRIVER] = "uncapped_driver",
	};
	uint32_t percent = load_relaxed(&st->sm_percent);

	if (percent == 0) {
		return;
	}
	json_object_set_new(j, "sm_percent", number(percent));
	for (unsigned i = 0; i < PROTO_CAPS; i++) {
		json_object_set_new(j, names[i], number(load_relaxed(&st->caps[i])));
	}
}

static void requests(const struct proto_stats *st, json_t *j)
{
	uint64_t hist[PROTO_HIST_BUCKETS], total = 0, max = 0;

	for (unsigned i = 0; i < PROTO_HIST_BUCKETS; i++) {
		uint64_t n = load_relaxed(&st->request_hist[i]);

		hist[i] = MIN(n, UINT64_C(1) << 48); /* prevents overflow of the sum */
		total += hist[i];
		max = hist[i] ? proto_hist_floor(i) : max;
	}
	json_object_set_new(j, "requests", number(load_relaxed(&st->requests)));
	json_object_set_new(j, "request_ns", number(load_relaxed(&st->request_ns)));
	json_object_set_new(j, "request_p50_ns", number(percentile(hist, total, 0.50)));
	json_object_set_new(j, "request_p99_ns", number(percentile(hist, total, 0.99)));
	json_object_set_new(j, "request_max_ns", number(max));
}

static int by_count(const void *a, const void *b)
{
	const struct proto_stats_kernel *x = a, *y = b;

	return x->count < y->count ? 1 : x->count > y->count ? -1 : 0;
}

struct kernel_copy {
	struct proto_stats_kernel k; /* first, for by_count */
	uint64_t block_ns, stoppable, persistent;
	uint8_t block; /* enum proto_block_why, or any value */
	uint8_t stop;  /* GBPF_STOP_*, or any value */
};

static bool stops(const struct kernel_copy *c)
{
	return c->stoppable || c->block == PROTO_BLOCK_OK;
}

static const char *stop_text(uint8_t stop)
{
	return stop == GBPF_STOP_MACHINE_CODE ? "machine code"
	       : stop == GBPF_STOP_CLONE      ? "clone"
					      : "";
}

/* Returns the reason why launches of the kernel cannot be stopped between blocks, "" if all can. */
static const char *block_text(const struct kernel_copy *c)
{
	uint8_t why = c->block;

	if (why == PROTO_BLOCK_OK || (c->stoppable && c->stoppable >= c->k.count)) {
		return "";
	}
	return proto_block_why_text(why < PROTO_BLOCK_WHYS ? (enum proto_block_why)why
							   : PROTO_BLOCK_UNKNOWN);
}

static json_t *kernel_json(const struct kernel_copy *c)
{
	char name[PROTO_KERNEL_NAME + 1];

	daemon_text_copy(name, sizeof(name), c->k.name, sizeof(c->k.name));
	return json_pack("{s:s,s:o,s:o,s:b,s:s,s:o,s:s,s:o,s:o}", "name", name, "count",
			 number(c->k.count), "est_ns", number(c->k.est_ns), "block", stops(c),
			 "block_why", block_text(c), "block_ns", number(c->block_ns), "stop",
			 stop_text(c->stop), "stoppable", number(c->stoppable), "persistent",
			 number(c->persistent));
}

bool daemon_kernel_name(const struct daemon_session *s, uint64_t hash, char *name, size_t size)
{
	const struct proto_stats *st = s->stats.map;

	for (unsigned i = 0; st && hash && i < PROTO_KERNELS; i++) {
		if (load_relaxed(&st->kernel[i].hash) == hash) {
			daemon_text_copy(name, size, st->kernel[i].name,
					 sizeof(st->kernel[i].name));
			return true;
		}
	}
	return false;
}

static json_t *kernels(const struct proto_stats *st, uint64_t why_hash, json_t *tenant)
{
	struct kernel_copy k[PROTO_KERNELS];
	json_t *all = json_array();
	char name[PROTO_KERNEL_NAME + 1];
	unsigned n = 0;

	for (unsigned i = 0; i < PROTO_KERNELS; i++) {
		k[n].k.hash = load_relaxed(&st->kernel[i].hash);
		k[n].k.count = load_relaxed(&st->kernel[i].count);
		k[n].k.est_ns = load_relaxed(&st->kernel[i].est_ns);
		memcpy(k[n].k.name, st->kernel[i].name, sizeof(k[n].k.name));
		k[n].block = load_relaxed(&st->kernel_block[i]);
		k[n].block_ns = load_relaxed(&st->kernel_block_ns[i]);
		k[n].stop = load_relaxed(&st->kernel_stop[i]);
		k[n].stoppable = load_relaxed(&st->kernel_stoppable[i]);
		k[n].persistent = load_relaxed(&st->kernel_persistent[i]);
		if (k[n].k.hash && k[n].k.hash == why_hash) {
			daemon_text_copy(name, sizeof(name), k[n].k.name, sizeof(k[n].k.name));
			json_object_set_new(tenant, "why_kernel", json_string(name));
		}
		n += k[n].k.count > 0;
	}
	qsort(k, n, sizeof(k[0]), by_count);
	for (unsigned i = 0; i < MIN(n, SHOWN_KERNELS); i++) {
		json_array_append_new(all, kernel_json(&k[i]));
	}
	return all;
}

static const char *form_name(unsigned form)
{
	static const char *const names[PROTO_FORMS] = {
		[PROTO_FORM_UNKNOWN] = "unknown",   [PROTO_FORM_NONE] = "none",
		[PROTO_FORM_BRACKETS] = "brackets", [PROTO_FORM_STUB] = "stub",
		[PROTO_FORM_PTX] = "ptx",
	};

	return names[form < PROTO_FORMS ? form : PROTO_FORM_UNKNOWN];
}

/* Returns a / b; 0 if that is none. Both may be anything. */
static double share(uint64_t a, uint64_t b)
{
	return b ? MIN((double)a / (double)b, 1.0) : 0;
}

static json_t *covered_kernel(const struct proto_stats *st, unsigned i, uint64_t launches,
			      uint64_t launches_ns)
{
	uint64_t count = load_relaxed(&st->kernel_cover[i].launches);
	uint64_t graphs = load_relaxed(&st->kernel_cover[i].graph_launches);
	uint64_t ns = load_relaxed(&st->kernel_cover[i].launches_ns);
	char name[PROTO_KERNEL_NAME + 1], why[PROTO_FORM_WHY + 1];

	if (!count) {
		return NULL;
	}
	daemon_text_copy(name, sizeof(name), st->kernel[i].name, sizeof(st->kernel[i].name));
	daemon_text_copy(why, sizeof(why), st->kernel_form_why[i], sizeof(st->kernel_form_why[i]));
	return json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:f,s:f}", "name", name, "form",
			 form_name(load_relaxed(&st->kernel_form[i])), "why", why, "launches",
			 number(count), "graph_launches", number(MIN(graphs, count)), "launches_ns",
			 number(ns), "share", share(count, launches), "share_ns",
			 share(ns, launches_ns));
}

static int by_launches(const void *a, const void *b)
{
	json_int_t x = json_integer_value(json_object_get(*(json_t *const *)a, "launches"));
	json_int_t y = json_integer_value(json_object_get(*(json_t *const *)b, "launches"));

	return x < y ? 1 : x > y ? -1 : 0;
}

json_t *daemon_coverage_json(const struct daemon_session *s)
{
	const struct proto_stats *st = s->stats.map;
	json_t *kernel[PROTO_KERNELS] = { 0 }, *kernels = json_array(), *forms = json_object();
	uint64_t launches = 0, launches_ns = 0;
	struct proto_stats_form f[PROTO_FORMS];
	unsigned n = 0;

	for (unsigned i = 0; i < PROTO_FORMS; i++) {
		f[i].kernels = load_relaxed(&st->form[i].kernels);
		f[i].launches = load_relaxed(&st->form[i].launches);
		f[i].launches_ns = load_relaxed(&st->form[i].launches_ns);
		launches += MIN(f[i].launches, UINT64_C(1) << 60);
		launches_ns += MIN(f[i].launches_ns, UINT64_C(1) << 60);
	}
	for (unsigned i = 0; i < PROTO_FORMS; i++) {
		json_object_set_new(
			forms, form_name(i),
			json_pack("{s:o,s:o,s:o,s:f,s:f}", "kernels", number(f[i].kernels),
				  "launches", number(f[i].launches), "launches_ns",
				  number(f[i].launches_ns), "share", share(f[i].launches, launches),
				  "share_ns", share(f[i].launches_ns, launches_ns)));
	}
	for (unsigned i = 0; i < PROTO_KERNELS; i++) {
		json_t *k = covered_kernel(st, i, launches, launches_ns);

		if (k) {
			kernel[n++] = k;
		}
	}
	qsort(kernel, n, sizeof(kernel[0]), by_launches);
	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(kernels, kernel[i]);
	}
	return json_pack("{s:o,s:o,s:o}", "forms", forms, "kernels", kernels, "divided_ns",
			 number(load_relaxed(&st->divided_ns)));
}

/* How much of all kernels' work could be stopped between blocks. */
static json_t *reach(const struct proto_stats *st)
{
	json_t *j = json_object();

#define COUNTER(name) json_object_set_new(j, #name, number(load_relaxed(&st->reach.name)))
	COUNTER(launches);
	COUNTER(stoppable);
	COUNTER(persistent);
	COUNTER(launches_ns);
	COUNTER(stoppable_ns);
	COUNTER(persistent_ns);
#undef COUNTER
	return j;
}

/* Parts of the counters, of the GPUs that it has used. */
static json_t *by_gpu(const struct daemon_session *s)
{
	const struct proto_stats *st = s->stats.map;
	json_t *gpus = json_array();

	for (uint32_t i = 0; i < s->gpus; i++) {
		const struct proto_stats_gpu *g = &st->gpu[i];
		uint64_t launches = load_relaxed(&g->launches), copies = load_relaxed(&g->copies);

		if (launches || copies) {
			json_array_append_new(
				gpus,
				json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "gpu", (int)s->gpu_index[i],
					  "launches", number(launches), "copies", number(copies),
					  "busy_ns", number(load_relaxed(&g->busy_ns)), "inflight",
					  number(load_relaxed(&g->inflight)), "inflight_ns",
					  number(load_relaxed(&g->inflight_ns))));
		}
	}
	return gpus;
}

void daemon_stats_json(const struct daemon_session *s, json_t *tenant)
{
	const struct proto_stats *st = s->stats.map;
	json_t *j = json_object();
	uint64_t why_hash = load_relaxed(&st->why_kernel);
	char hex[24], word[PROTO_WHY_WORD];

#define COUNTER(name) json_object_set_new(j, #name, number(load_relaxed(&st->name)))
	COUNTER(launches);
	COUNTER(copies);
	COUNTER(memsets);
	COUNTER(graphs);
	COUNTER(holds);
	COUNTER(held_ns);
	COUNTER(max_held_ns);
	COUNTER(deferred);
	COUNTER(limit_hits);
	COUNTER(submit_calls);
	COUNTER(busy_ns);
	COUNTER(inflight);
	COUNTER(inflight_ns);
	COUNTER(swap_stall_ns);
	COUNTER(verdict_errors);
	COUNTER(helper_errors);
	COUNTER(queues);
	COUNTER(block_launches);
	COUNTER(interruptions);
	COUNTER(forced);
	COUNTER(hints);
	COUNTER(wrong_hints);
	COUNTER(syncs);
	COUNTER(requests_cut);
	COUNTER(copy_up_bytes);
	COUNTER(copy_down_bytes);
	COUNTER(copy_pipelined_bytes);
	COUNTER(copies_direct);
	COUNTER(copy_direct_bytes);
	COUNTER(mem_out_bytes);
	COUNTER(mem_back_bytes);
	COUNTER(mem_in_place);
#undef COUNTER
	json_object_set_new(
		j, "copy_bytes",
		number(load_relaxed(&st->copy_up_bytes) + load_relaxed(&st->copy_down_bytes)));
	requests(st, j);
	caps(st, j);
	json_object_set_new(j, "reach", reach(st));
	json_object_set_new(j, "gpus", by_gpu(s));
	json_object_set_new(tenant, "stats", j);
	json_object_set_new(tenant, "why",
			    json_string(proto_why_word(word, load_relaxed(&st->why))));
	snprintf(hex, sizeof(hex), "0x%016" PRIx64, why_hash);
	json_object_set_new(tenant, "why_kernel", json_string(why_hash ? hex : ""));
	json_object_set_new(tenant, "policy_version", number(load_relaxed(&st->version_in_use)));
	json_object_set_new(tenant, "kernels", kernels(st, why_hash, tenant));
}
