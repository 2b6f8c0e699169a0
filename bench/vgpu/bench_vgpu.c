/* bench-vgpu: shares of saturating tenants, short kernels against long ones, each tenant in a vGPU
 * of its own, under several policies and without one. Shares are those of the device time that
 * gbpfd reports in windows of a second; the tenants' own progress is the independent figure. */
#include "bench/vgpu/bench_vgpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/program.h"

#define THREADS 256u

static int calibrate(struct bench_vgpu *b)
{
	double unit_us = b->testbed.soft ? 200 : 100, block_us[VGPU_KINDS];
	struct bench_testbed_client c;
	unsigned fill;
	int err;

	bench_testbed_progress(&b->testbed, "vgpu: calibrating");
	err = bench_client_calibrate(&b->testbed, &c, THREADS, unit_us, VGPU_READY_NS);
	if (err) {
		bench_client_stop(&c);
		return err;
	}
	snprintf(b->device, sizeof(b->device), "%.63s", c.page->device);
	fill = b->testbed.soft ? 1 : MAX(c.page->sms * (c.page->threads_per_sm / THREADS), 1);
	for (unsigned k = 0; k < VGPU_KINDS; k++) {
		struct bench_vgpu_load *l = &b->load[k];
		/* A long kernel is many waves of blocks of at most 1 ms, as those of programs are.
		 */
		unsigned waves = b->testbed.soft ? 1 : (unsigned)(b->kernel_us[k] / 1000) + 1;

		/* calibrated while the device holds as many blocks as fit, as it does here */
		block_us[k] = b->kernel_us[k] / waves;
		l->kernel_us = b->kernel_us[k];
		l->grid = fill * waves;
		l->iterations = (int)MAX(
			MIN(block_us[k] / c.page->block_us[1] * c.page->iterations[1], 1e9), 1);
		l->group = (unsigned)MAX(2000 / l->kernel_us, 1);
		l->depth =
			(unsigned)MIN(MAX(b->queue_ms * 1000 / (l->group * l->kernel_us), 2), 64);
	}
	bench_client_stop(&c);
	return 0;
}

/* Reads "50,50|30,70". */
static bool parse_shares(struct bench_vgpu *b)
{
	const char *p = b->shares;

	while (*p) {
		struct bench_vgpu_set *s = &b->set[b->sets];
		unsigned long sum = 0, v;
		char *end;

		if (b->sets == VGPU_SETS) {
			return false;
		}
		do {
			v = strtoul(p, &end, 10);
			if (end == p || v < 1 || v > 100 || s->n == VGPU_TENANTS) {
				return false;
			}
			s->share[s->n++] = (unsigned)v;
			sum += v;
			p = end + (*end == ',');
		} while (*end == ',');
		if (sum > 100 || (*end && *end != '|')) {
			return false;
		}
		p = end + (*end == '|');
		b->sets++;
	}
	return b->sets > 0;
}

static bool chosen(const char *list, const char *name)
{
	return !list || bench_program_lists(list, name);
}

static json_t *sets_json(const struct bench_vgpu *b)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < b->sets; i++) {
		json_array_append_new(all, bench_program_integers(b->set[i].share, b->set[i].n));
	}
	return all;
}

static bool lane_is_chosen(const struct bench_vgpu *b, unsigned lane)
{
	/* The soft GPU has no MPS: the shared lane would be the same one. */
	return chosen(b->lanes, bench_vgpu_lanes[lane]) && !(lane && b->testbed.soft && !b->lanes);
}

static void count_parts(struct bench_vgpu *b)
{
	unsigned policies = 0, lanes = 0;

	for (unsigned p = 0; p < VGPU_POLICIES; p++) {
		policies += chosen(b->policies, bench_vgpu_policies[p]);
	}
	for (unsigned i = 0; i < VGPU_LANES; i++) {
		lanes += lane_is_chosen(b, i);
	}
	b->parts = lanes * (VGPU_KINDS + policies * b->sets);
}

static int run_lane(struct bench_vgpu *b, const char *lane)
{
	unsigned none = VGPU_POLICIES - 1;
	int err = 0;

	for (unsigned k = 0; k < VGPU_KINDS && !err; k++) {
		err = bench_vgpu_run(b, lane, none, NULL, (enum bench_vgpu_kind)k);
	}
	for (unsigned p = 0; p < VGPU_POLICIES && !err; p++) {
		if (!chosen(b->policies, bench_vgpu_policies[p])) {
			continue;
		}
		for (unsigned i = 0; i < b->sets && !err; i++) {
			err = bench_vgpu_run(b, lane, p, &b->set[i], VGPU_SHORT);
		}
	}
	return err;
}

static int run_lanes(struct bench_vgpu *b)
{
	int err = 0;

	count_parts(b);
	for (unsigned i = 0; i < VGPU_LANES && !err; i++) {
		err = lane_is_chosen(b, i) ? run_lane(b, bench_vgpu_lanes[i]) : 0;
	}
	if (!err && !b->parts) {
		return bench_testbed_fail(&b->testbed, "no lane was chosen");
	}
	return err;
}

static int run(struct bench_vgpu *b)
{
	int err = bench_testbed_init(&b->testbed);

	err = err ? err : calibrate(b);
	err = err ? err
		  : bench_testbed_record(
			    &b->testbed, "set_up",
			    json_pack("{s:s, s:b, s:f, s:f, s:f, s:f, s:f, s:b, s:o}", "device",
				      b->device, "soft", b->testbed.soft, "seconds", b->seconds,
				      "window_s", b->window_s, "settle_s", b->settle_s, "short_us",
				      b->kernel_us[VGPU_SHORT], "long_us", b->kernel_us[VGPU_LONG],
				      "burst", b->burst, "shares", sets_json(b)));
	return err ? err : run_lanes(b);
}

static bool in_range(const struct bench_vgpu *b)
{
	return b->seconds >= b->window_s && b->window_s >= 0.1 && b->settle_s >= 0 &&
	       b->kernel_us[VGPU_SHORT] >= 10 && b->kernel_us[VGPU_LONG] <= 1e6 &&
	       b->queue_ms > 0 && b->policy_dir && b->testbed.libcuda && b->testbed.gbpf &&
	       b->testbed.client;
}

int main(int argc, char **argv)
{
	static struct bench_vgpu b = { .shares = "50,50|30,70|10,20,30,40",
				       .seconds = 10,
				       .window_s = 1,
				       .settle_s = 2,
				       .kernel_us = { 100, 10000 },
				       .queue_ms = 30,
				       .threads = THREADS };
	const struct bench_program_option table[] = {
		BENCH_TESTBED_OPTIONS(&b.testbed),
		{ "--policy-dir", .text = &b.policy_dir },
		{ "--shares", .text = &b.shares },
		{ "--policies", .text = &b.policies },
		{ "--lanes", .text = &b.lanes },
		{ "--seconds", .real = &b.seconds },
		{ "--window", .real = &b.window_s },
		{ "--settle", .real = &b.settle_s },
		{ "--short-us", .real = &b.kernel_us[VGPU_SHORT] },
		{ "--long-us", .real = &b.kernel_us[VGPU_LONG] },
		{ "--queue-ms", .real = &b.queue_ms },
		{ "--burst", .flag = &b.burst },
		{ NULL },
	};
	int err;

	if (!bench_program_options(table, &argc, argv) || !in_range(&b) || !parse_shares(&b)) {
		return bench_program_usage();
	}
	err = run(&b);
	return bench_testbed_exit(&b.testbed, err, false);
}
