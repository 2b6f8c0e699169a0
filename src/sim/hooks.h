/* The hooks as a scenario names them: fields, verdicts and constants, from hooks.def. */
#ifndef GBPF_SIM_HOOKS_H
#define GBPF_SIM_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_field {
	int hook;
	const char *name;
	size_t offset, bytes;
	bool is_signed, writable;
};

struct sim_hook {
	int id;
	const char *name;
	bool daemon; /* runs in gbpfd; else in the tenant's process */
	size_t ctx_bytes;
};

extern const struct sim_hook sim_hooks[];   /* ends with a NULL name */
extern const struct sim_field sim_fields[]; /* ends with a NULL name */

#define SIM_CTX_BYTES 256 /* room for any context */

const struct sim_hook *sim_hook_named(const char *name, size_t len);
const struct sim_field *sim_field_named(int hook, const char *name, size_t len);

uint64_t sim_field_get(const struct sim_field *f, const void *ctx);
/* Sets a field. Returns false if the value does not fit. */
bool sim_field_set(const struct sim_field *f, void *ctx, uint64_t value);

/* Returns the name of a verdict ("HOLD" for 1 of submit), or NULL. */
const char *sim_verdict_name(int hook, int64_t verdict);
/* Returns true if name is a verdict of that hook; hook -1: of any hook. */
bool sim_verdict_named(int hook, const char *name, size_t len, int64_t *ret);
/* Calls fn for the name of each verdict of a hook. */
void sim_verdict_each(int hook, void (*fn)(void *arg, const char *name), void *arg);

/* Looks up a constant of hooks.def by its full name, without GBPF_, or by its short name for a
 * field ("latency" of class_id, "copy" of kind). field may be NULL. */
bool sim_constant(const char *field, const char *name, size_t len, uint64_t *ret);
/* Calls fn for each short constant of a field ("LATENCY" of class_id). */
void sim_constant_each(const char *field, void (*fn)(void *arg, const char *name), void *arg);

#endif
