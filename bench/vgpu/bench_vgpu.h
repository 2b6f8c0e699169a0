/* `gbpf bench dev vgpu`: the coordinator's state. */
#ifndef GBPF_BENCH_VGPU_BENCH_VGPU_H
#define GBPF_BENCH_VGPU_BENCH_VGPU_H

#include "bench/common/testbed.h"

#define VGPU_TENANTS 16u
#define VGPU_SETS 8u /* divisions of the GPU in one run */
#define VGPU_POLICIES 6u
#define VGPU_LANES 2u
#define VGPU_READY_NS 120000000000ull

/* A kind of load: kernels of one length. */
enum bench_vgpu_kind { VGPU_SHORT, VGPU_LONG, VGPU_KINDS };

struct bench_vgpu_load {
	double kernel_us;
	unsigned grid, group, depth; /* group: kernels; depth: groups in flight */
	int iterations;
};

/* One division of the GPU. */
struct bench_vgpu_set {
	unsigned share[VGPU_TENANTS], n;
};

struct bench_vgpu {
	struct bench_testbed testbed;
	const char *shares, *policies, *lanes, *policy_dir;
	double seconds, settle_s, window_s, kernel_us[VGPU_KINDS], queue_ms;
	bool burst;
	struct bench_vgpu_set set[VGPU_SETS];
	unsigned sets;
	unsigned parts, part; /* number of conditions to be run, and of the one under way */
	struct bench_vgpu_load load[VGPU_KINDS];
	struct bench_testbed_daemon *daemon[VGPU_POLICIES]; /* started when first used */
	char device[64];
	unsigned threads;
};

/* bench_vgpu_run.c */
/* Runs the tenants of a division, or (set NULL) one of a kind alone, under a policy; writes a
 * record for each window. Returns 0; -1 with the testbed's error. */
int bench_vgpu_run(struct bench_vgpu *b, const char *lane, unsigned policy,
		   const struct bench_vgpu_set *set, enum bench_vgpu_kind alone);
extern const char *const bench_vgpu_lanes[VGPU_LANES];
extern const char *const bench_vgpu_policies[VGPU_POLICIES];
extern const char *const bench_vgpu_kinds[VGPU_KINDS];

#endif
