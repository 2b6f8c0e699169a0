/* Part `movement`: the rates at which memory leaves the device and comes back in a vGPU with swap,
 * next to those of pinned memory. */
#include <jansson.h>

#include "bench/common/program.h"
#include "bench/quota/quota.h"

/* A free brings at most 1 GiB back, and as much memory of the host is kept for the next round. */
#define LIMIT_MAX (UINT64_C(2) << 30)

static int record(struct bench_quota *b)
{
	const struct bench_quota_round *m = &b->page->movement;

	return bench_testbed_record(
		&b->testbed, "movement",
		json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "buffer_bytes",
			  (json_int_t)m->buffer_bytes, "out_bytes", (json_int_t)m->out_bytes,
			  "out_ns", (json_int_t)m->out_ns, "back_bytes", (json_int_t)m->back_bytes,
			  "back_ns", (json_int_t)m->back_ns, "pinned_bytes",
			  (json_int_t)m->pinned_bytes, "up_ns", (json_int_t)m->up_ns, "down_ns",
			  (json_int_t)m->down_ns));
}

int bench_quota_movement(struct bench_quota *b)
{
	struct bench_testbed_place place = {
		.lane = LANE_GBPF, .daemon = b->daemon, .class_name = "normal", .mps_priority = -1
	};
	pid_t pid = 0;
	int err;

	if (b->parts && !bench_program_lists(b->parts, "movement")) {
		return 0;
	}
	place.mem = place.swap = b->page->swap = MIN(b->page->limit, LIMIT_MAX);
	err = bench_quota_start_client(b, &place, "movement", "movement", QUOTA_MOVEMENT, &pid);
	err = err ? err : bench_quota_await_ready(b, pid, QUOTA_MOVEMENT, false);
	/* In the first round the memory of the host is made. */
	for (unsigned round = 0; round <= b->rounds && !err; round++) {
		bench_testbed_progress(&b->testbed, "quota: movement, round %u", round + 1);
		err = bench_quota_command(b, pid, QUOTA_MOVEMENT);
		err = err ? err : record(b);
	}
	bench_testbed_end(&b->testbed, pid, 0);
	return err;
}
