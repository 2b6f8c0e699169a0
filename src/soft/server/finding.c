/* Formats findings of --check as one line each: place in the PTX, thread, access, and what is wrong
 * with it. */
#include "soft/server/finding.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/atomic.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/run/context_group.h"

static unsigned findings;

static void describe(char *out, size_t room, const struct exec_finding *f)
{
	const char *does = f->write ? "writes" : "reads";

	switch (f->kind) {
	case EXEC_FINDING_RACE:
		snprintf(out, room,
			 "%s %u bytes of shared memory at 0x%" PRIx64
			 " that thread %u %s at line %u, without a barrier between them",
			 does, f->bytes, f->address, f->other_thread,
			 f->other_writes ? "writes" : "reads", f->other_line);
		break;
	case EXEC_FINDING_UNINITIALIZED:
		snprintf(out, room,
			 "%s %u bytes of %s memory at 0x%" PRIx64 " that nothing has written",
			 f->write ? "reads and writes" : "reads", /* a write alone is no finding */
			 f->bytes, f->space, f->address);
		break;
	case EXEC_FINDING_FREED:
		snprintf(out, room, "%s %u bytes at 0x%" PRIx64 ", in memory that was freed", does,
			 f->bytes, f->address);
		break;
	default:
		if (f->distance) {
			snprintf(out, room,
				 "%s %u bytes at 0x%" PRIx64
				 ", %u bytes behind the end of an allocation",
				 does, f->bytes, f->address, f->distance - 1);
		} else {
			snprintf(out, room,
				 "%s %u bytes of %s memory at 0x%" PRIx64
				 ", outside any allocation",
				 does, f->bytes, f->space, f->address);
		}
	}
}

void softd_finding_report(void *group, const struct exec_finding *f)
{
	struct soft_notice n = { .op = SOFT_NOTICE_FAULT };
	struct softd_group *g = group;
	struct softd_client *c = g->client;
	char fault[256], program[80], line[600];

	add_relaxed(&findings, 1u);
	describe(fault, sizeof(fault), f);
	exec_program_text(program, sizeof(program), f->program, f->insn);
	snprintf(line, sizeof(line), "%.100s:%u: kernel %.100s%s, block %u,%u,%u, thread %u: %s",
		 f->module, f->line, f->kernel, program, f->block[0], f->block[1], f->block[2],
		 f->thread, fault);
	fprintf(stderr, "gbpf check: process %d: %s\n", c->pid, line);
	snprintf(n.text, sizeof(n.text), "%.255s", line);
	softd_machine_lock(c->machine);
	softd_client_notice(c, &n, sizeof(n));
	g->found = true;
	softd_machine_unlock(c->machine);
}

void softd_finding_count_fault(struct softd_group *g)
{
	if (exec_checking() && !g->found) {
		g->found = true;
		add_relaxed(&findings, 1u);
	}
}

unsigned softd_finding_summary(void)
{
	unsigned n = load_relaxed(&findings);

	if (n) {
		fprintf(stderr, "gbpf check: %u %s\n", n, n == 1 ? "fault found" : "faults found");
	} else {
		fprintf(stderr, "gbpf check: nothing found\n");
	}
	return n;
}
