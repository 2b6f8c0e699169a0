/* Versions of a policy that are built from raw instructions. */
#ifndef GBPF_TESTS_POLICY_IMAGE_H
#define GBPF_TESTS_POLICY_IMAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "base/compiler.h"
#include "policy/hook.h"

#define MOV(d, v)                                                                                  \
	{                                                                                          \
		.code = EBPF_ALU64 | EBPF_MOV | EBPF_K, .dst = (d), .imm = (v)                     \
	}
#define LOAD(d, s, o)                                                                              \
	{                                                                                          \
		.code = EBPF_LDX | EBPF_MEM | EBPF_DW, .dst = (d), .src = (s), .off = (o)          \
	}
#define STORE(d, o, s)                                                                             \
	{                                                                                          \
		.code = EBPF_STX | EBPF_MEM | EBPF_DW, .dst = (d), .src = (s), .off = (o)          \
	}
#define CALL(id)                                                                                   \
	{                                                                                          \
		.code = EBPF_JMP | EBPF_CALL, .imm = (id)                                          \
	}
#define EXIT                                                                                       \
	{                                                                                          \
		.code = EBPF_JMP | EBPF_EXIT                                                       \
	}
#define HELPER_NOTE 1003

static const int no_regions[EBPF_REGIONS] = EBPF_NO_REGIONS;

/* An image whose program for that hook is the given one. */
static inline int image_of(uint64_t version, unsigned hook, const struct ebpf_insn *insns,
			   unsigned n)
{
	struct ebpf_image_header h = { .version = version, .name = "test", .n_insns = n };

	h.progs[hook] =
		(struct ebpf_image_prog){ .n_insns = n, .code_offset = UINT32_MAX, .cost = 1 };
	return ebpf_image_build(&h, NULL, insns, NULL, 0);
}

/* submit answers `verdict`. */
static inline int image_answering(uint64_t version, int verdict)
{
	const struct ebpf_insn code[] = { MOV(0, verdict), EXIT };

	return image_of(version, POLICY_HOOK_submit, code, 2);
}

static inline int prepare(struct policy *p, uint64_t version, int fd)
{
	int err = policy_prepare(p, version, UINT32_MAX, fd, no_regions);

	if (fd >= 0) {
		close(fd);
	}
	return err;
}

/* A process with a directory and statistics. */
struct process {
	struct policy p;
	struct proto_directory dir;
	struct proto_stats stats;
};

static inline void process_init(struct process *t)
{
	memset(t, 0, sizeof(*t));
	policy_read_setup();
	policy_init(&t->p, &t->dir, &t->stats);
}

static inline struct policy_version *in_force(struct process *t, uint32_t gpu)
{
	struct policy_reader *r = policy_read_enter();
	struct policy_version *v = policy_current(&t->p, gpu);

	policy_read_leave(r);
	return v;
}

static inline uint64_t version_in_force(struct process *t, uint32_t gpu)
{
	const struct policy_version *v = in_force(t, gpu);

	return v ? v->version : 0;
}

#endif
