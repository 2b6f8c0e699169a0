/* The models of `gbpf bench dev disb`: calibrates the bench's kernels to the published time of a
 * model, or measures PyTorch's networks. */
#include <stddef.h>
#include <stdio.h>

#include "bench/common/statistics.h"
#include "bench/disb/disb.h"

#define READY_NS 120000000000ull
#define ANSWER_NS 60000000000ull
#define UNIT_US 20.0 /* calibrated block; models are multiples */
#define ALONE_REQUESTS 30u
#define FITS 5u

_Static_assert(offsetof(struct bench_page, limit_ns) == 40, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, epoch_ns) == 48, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, mps) == 72, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, device) == 84, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, dropped) == 216, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, samples) == 224, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, error) == 236, "disb_torch.py");
_Static_assert(offsetof(struct bench_page, request) == 496, "disb_torch.py");
_Static_assert(sizeof(struct bench_page_request) == 24, "disb_torch.py");
_Static_assert(PAGE_FRONT == 8, "report/disb.py");

static const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };

static unsigned kernels_of(const struct bench_disb *b, unsigned model)
{
	return MAX(disb_models[model].kernels / b->divide, 1);
}

const char *bench_disb_role(const struct bench_disb *b)
{
	return b->torch ? b->torch : "model";
}

void bench_disb_model_options(const struct bench_disb *b, unsigned model,
			      struct bench_testbed_command *k)
{
	if (b->torch) {
		bench_command_option(k, "--model", "%s", disb_models[model].name);
		if (b->graphs) {
			bench_command_add(k, "--graphs");
		}
		return;
	}
	bench_command_option(k, "--grid", "%u", b->grid);
	bench_command_option(k, "--threads", "%u", b->threads);
	bench_command_option(k, "--kernels", "%u", kernels_of(b, model));
	bench_command_option(k, "--iterations", "%d", b->iterations[model]);
}

static int calibrate(struct bench_disb *b)
{
	struct bench_testbed_client c;
	int err;

	err = bench_client_calibrate(&b->testbed, &c, b->threads, UNIT_US, READY_NS);
	if (!err) {
		snprintf(b->device, sizeof(b->device), "%.63s", c.page->device);
		b->sms = b->soft ? 1 : c.page->sms;
		b->grid = b->sms * b->blocks;
		for (unsigned m = 0; m < DISB_MODELS; m++) {
			double us = disb_models[m].ms * 1000 / kernels_of(b, m);

			b->iterations[m] =
				(int)MAX(us / c.page->block_us[0] * c.page->iterations[0], 1);
		}
	}
	bench_client_stop(&c);
	return err;
}

static int start_alone(struct bench_disb *b, unsigned model, struct bench_testbed_client *c)
{
	struct bench_testbed_command k;
	int err;

	bench_command_init(&k);
	bench_disb_model_options(b, model, &k);
	err = bench_client_start(&b->testbed, c, "alone", &own, bench_disb_role(b), &k);
	bench_command_finish(&k);
	return err;
}

/* Returns the median of consecutive inferences, milliseconds. */
static int time_alone(struct bench_testbed_client *c, double *ret_ms)
{
	double us[ALONE_REQUESTS];
	unsigned n;
	int err;

	c->page->kind = KIND_ONE;
	c->page->n = ALONE_REQUESTS;
	bench_client_send(c, PAGE_REQUESTS);
	err = bench_client_await(c, ANSWER_NS);
	n = MIN(c->page->samples[0], ALONE_REQUESTS);
	for (unsigned i = 0; i < n; i++) {
		us[i] = (double)c->page->request[i].took_us;
	}
	bench_stats_sort(us, n);
	*ret_ms = bench_stats_quantile(us, n, 0.5) / 1000;
	return err;
}

static int time_model(struct bench_disb *b, unsigned model, double *ret_ms)
{
	struct bench_testbed_client c;
	int err = start_alone(b, model, &c);

	err = err ? err : bench_client_await(&c, READY_NS);
	err = err ? err : time_alone(&c, ret_ms);
	bench_client_stop(&c);
	return err;
}

/* Starts all networks at once, since PyTorch takes seconds to start, then times them one after the
 * other. */
static int time_networks(struct bench_disb *b, const bool *used)
{
	static struct bench_testbed_client c[DISB_MODELS];
	int err = 0;

	bench_testbed_progress(&b->testbed, "disb: networks alone");
	for (unsigned m = 0; m < DISB_MODELS && !err; m++) {
		err = used[m] ? start_alone(b, m, &c[m]) : 0;
	}
	for (unsigned m = 0; m < DISB_MODELS && !err; m++) {
		err = used[m] ? bench_client_await(&c[m], READY_NS) : 0;
	}
	for (unsigned m = 0; m < DISB_MODELS && !err; m++) {
		err = used[m] ? time_alone(&c[m], &b->alone_ms[m]) : 0;
		if (used[m]) {
			snprintf(b->device, sizeof(b->device), "%.63s", c[m].page->device);
		}
	}
	for (unsigned m = 0; m < DISB_MODELS; m++) {
		if (c[m].w) {
			bench_client_stop(&c[m]);
		}
	}
	return err;
}

/* Adjusts the spin time until the model's time fits: launches take time, too, and blocks of a
 * kernel may share a multiprocessor. */
static int fit_model(struct bench_disb *b, unsigned m)
{
	double want = disb_models[m].ms;
	int err = 0;

	for (unsigned i = 0; i < FITS && !err; i++) {
		err = time_model(b, m, &b->alone_ms[m]);
		if (err || (b->alone_ms[m] > 0.98 * want && b->alone_ms[m] < 1.02 * want)) {
			break;
		}
		if (i + 1 < FITS) {
			double by = MAX(MIN(want / MAX(b->alone_ms[m], 0.001), 4), 0.25);

			b->iterations[m] = (int)MAX(MIN(b->iterations[m] * by, 1e8), 1);
		}
	}
	return err;
}

int bench_disb_models_fit(struct bench_disb *b, const bool *used)
{
	int err = b->torch ? 0 : calibrate(b);

	if (b->torch) {
		return time_networks(b, used);
	}
	for (unsigned m = 0; m < DISB_MODELS && !err; m++) {
		if (used[m]) {
			bench_testbed_progress(&b->testbed, "disb: length of %s",
					       disb_models[m].name);
			err = fit_model(b, m);
		}
	}
	return err;
}

int bench_disb_record_models(struct bench_disb *b)
{
	json_t *models = json_array();

	for (unsigned m = 0; m < DISB_MODELS; m++) {
		if (b->alone_ms[m] > 0) {
			json_array_append_new(
				models,
				json_pack("{s:s, s:s, s:f, s:f, s:i}", "model", disb_models[m].name,
					  "is", disb_models[m].doc, "reference_ms",
					  disb_models[m].ms, "alone_ms", b->alone_ms[m], "kernels",
					  b->torch ? 0 : (int)kernels_of(b, m)));
		}
	}
	return bench_testbed_record(&b->testbed, "models",
				    json_pack("{s:s, s:s, s:o}", "device", b->device, "networks",
					      b->graphs	 ? "PyTorch, CUDA graphs"
					      : b->torch ? "PyTorch"
							 : "synthetic",
					      "models", models));
}
