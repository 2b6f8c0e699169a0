/* A device in memory, policies from raw instructions, and a rig that connects both with a
 * scheduler. */
#ifndef GBPF_TESTS_SCHED_FAKE_H
#define GBPF_TESTS_SCHED_FAKE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "bpf/run/policy_image.h"
#include "policy/ctx.h"
#include "sched/sched.h"

/* A stream. Its work finishes when the test says so, or at once if `eager`. */
struct fake_queue {
	uint64_t seq, done; /* number of launches and markers submitted, and finished */
	uint64_t clock_ns;  /* device time at the end of the submitted work */
	uint32_t eager;
	uint32_t refuse_marks; /* as during a capture */
	uint32_t mute;	       /* does not say whether it is idle */
};

extern const struct sched_device_ops fake_ops;
extern uint64_t fake_live_markers, fake_live_timed;
void fake_launch(struct fake_queue *q, uint64_t ns);
void fake_finish(struct fake_queue *q);

/* ---- instructions ---- */
#define I_MOV(d, v)                                                                                \
	{                                                                                          \
		.code = EBPF_ALU64 | EBPF_MOV | EBPF_K, .dst = (d), .imm = (v)                     \
	}
#define I_LDX(size, d, s, o)                                                                       \
	{                                                                                          \
		.code = EBPF_LDX | EBPF_MEM | (size), .dst = (d), .src = (s), .off = (int16_t)(o)  \
	}
#define I_STX(size, d, o, s)                                                                       \
	{                                                                                          \
		.code = EBPF_STX | EBPF_MEM | (size), .dst = (d), .src = (s), .off = (int16_t)(o)  \
	}
#define I_ST(size, d, o, v)                                                                        \
	{                                                                                          \
		.code = EBPF_ST | EBPF_MEM | (size), .dst = (d), .off = (int16_t)(o), .imm = (v)   \
	}
#define I_J(op, d, v, o)                                                                           \
	{                                                                                          \
		.code = EBPF_JMP | (op) | EBPF_K, .dst = (d), .off = (int16_t)(o), .imm = (v)      \
	}
#define I_VALUE(d, map, o)                                                                         \
	{ .code = EBPF_LD_IMM64, .dst = (d), .src = EBPF_PSEUDO_MAP_VALUE, .imm = (map) },         \
	{                                                                                          \
		.imm = (o)                                                                         \
	}
#define I_SUBX(d, s)                                                                               \
	{                                                                                          \
		.code = EBPF_ALU64 | EBPF_SUB | EBPF_X, .dst = (d), .src = (s)                     \
	}
#define I_ATOMIC_ADD(d, o, s)                                                                      \
	{                                                                                          \
		.code = EBPF_STX | EBPF_ATOMIC | EBPF_DW, .dst = (d), .src = (s), .off = (o),      \
		.imm = EBPF_ADD                                                                    \
	}
#define I_EXIT                                                                                     \
	{                                                                                          \
		.code = EBPF_JMP | EBPF_EXIT                                                       \
	}
#define SUBMIT(field) offsetof(struct gbpf_submit_ctx, field)
#define RETIRE(field) offsetof(struct gbpf_retire_ctx, field)

struct prog {
	int hook;
	const struct ebpf_insn *insns;
	uint32_t n;
};
#define PROG(h, array)                                                                             \
	{                                                                                          \
		.hook = POLICY_HOOK_##h, .insns = (array), .n = sizeof(array) / sizeof((array)[0]) \
	}

/* ---- a process ---- */
struct rig {
	struct sched *s;
	struct proto_directory dir;
	struct proto_board own, other;
	struct proto_stats stats;
	uint32_t wakes, notes;
	uint32_t steps; /* that the agent's thread has completed */
	uint32_t stop_agent;
	pthread_t agent;
};

/* Does the work of rig_init for a scheduler on another device. r is zeroed; rig_finish frees it. */
void rig_create(struct rig *r, const struct sched_config *cfg);
void rig_init(struct rig *r, uint32_t class_id, uint64_t limit_ns, uint32_t share_ppm);
void rig_finish(struct rig *r);
void rig_start_agent(struct rig *r);
void rig_wake_agent(void *rig); /* also the callback wake_agent */
void rig_stop_agent(struct rig *r);

/* Builds an image of these programs, with a 4096-byte tenant map and a global map if maps is not
 * NULL (region descriptors or -1), and prepares it. Returns the result of sched_policy_prepare. */
struct regions {
	int fd[EBPF_REGIONS];
	uint64_t *global, *tenant; /* mapped */
};
int rig_policy_prepare(struct rig *r, uint64_t version, const struct prog *progs, unsigned n,
		       struct regions *maps);
void regions_make(struct regions *m);
void regions_free(struct regions *m);
/* submit: HOLD while requests of others are open */
extern const struct ebpf_insn hold_while_open[5];
/* Prepares and activates a policy of one submit program. */
void rig_policy_use(struct rig *r, uint64_t version, const struct ebpf_insn *insns, uint32_t n);
#define POLICY_USE(r, version, array)                                                              \
	rig_policy_use(r, version, array, sizeof(array) / sizeof((array)[0]))

/* Begins and ends the one ticket of this thread. */
enum sched_answer ticket_begin(struct sched_queue *q, struct sched_launch *l);
void ticket_end(bool ok);
extern _Thread_local struct sched_ticket ticket;
/* Begins a ticket and, on SCHED_GO, launches and commits. */
enum sched_answer go(struct sched_queue *q, struct fake_queue *fq, struct sched_launch *l);
struct sched_launch kernel_launch(struct sched_kernel *k);

/* The other tenant's board. */
void other_opens(struct rig *r);
void other_closes(struct rig *r);

#endif
