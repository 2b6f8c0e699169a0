/* Probed forms of kernels on the test engine: programs that log every field of their context, and
 * checks of the logs against what must have happened. */
#ifndef GBPF_TESTS_EXEC_PROBE_FORM_H
#define GBPF_TESTS_EXEC_PROBE_FORM_H

#include "engine.h"
#include "ptx/probe.h"

#define PROBE_FORM_FIELDS 40u
#define PROBE_FORM_RECORDS 2048u
#define PROBE_FORM_HOOKS 11u
#define PROBE_FORM_LAUNCH UINT64_C(0x123456789abcdef0) /* number of each launch */

struct probe_log {
	uint64_t n; /* calls; those beyond PROBE_FORM_RECORDS have no record */
	uint64_t fields[PROBE_FORM_RECORDS][PROBE_FORM_FIELDS];
};

struct probe_form {
	struct ptx_probed probed;
	char entry[512];
	uint32_t hooks[PTX_PROBES_MAX];
	bool lanes[PTX_PROBES_MAX];
	struct buf texts[PTX_PROBES_MAX];
	char names[PTX_PROBES_MAX][16];
	uint32_t n;
	struct exec_module *original; /* of the engine that it is bound to */
	struct probe_log *logs[PTX_PROBES_MAX];
};

/* Probes the first kernel of a text with the programs of these hooks (ids of hooks.def; + 100: of
 * each lane), which log all fields. Returns as ptx_probe_rewrite. */
int probe_form_make(struct probe_form *f, const char *ptx, size_t len, const uint32_t *hooks,
		    uint32_t n, char *message, size_t room);
/* The same for the kernel of that name in a module. */
int probe_form_of(struct probe_form *f, const struct ptx_module *m, const char *entry,
		  const uint32_t *hooks, uint32_t n, struct report *r);
void probe_form_finish(struct probe_form *f);

/* Loads the probed form, or this text made of it, in addition to the original, which e has loaded,
 * and fills the table. Undone by probe_form_unbind, before engine_finish. */
int probe_form_bind(struct probe_form *f, struct engine *e, const struct buf *text, char *message,
		    size_t room);
void probe_form_unbind(struct probe_form *f, struct engine *e);

/* Stores the launch's number behind the kernel's own parameters, where there is room for it. */
void probe_form_number(const struct probe_form *f, void *params);

/* Returns the log's value of a field; log: index of the probe. */
uint64_t probe_form_value(const struct probe_form *f, uint32_t log, uint64_t record,
			  const char *field);
/* Compares the logs of a launch that has ended with its blocks, warps and threads. Returns the
 * number of differences, which it prints. */
int probe_form_check(const struct probe_form *f, const uint32_t grid[3], const uint32_t block[3],
		     const char *name);

#endif
