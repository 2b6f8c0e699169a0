/* What the verifier knows of hooks, context fields and helpers, from gbpf/hooks.def. */
#ifndef GBPF_BPF_LOAD_VERIFY_VERIFY_TABLES_INT_H
#define GBPF_BPF_LOAD_VERIFY_VERIFY_TABLES_INT_H

#include <stdint.h>

#include "base/buf.h"
#include "bpf/run/signature.h"

/* Where programs run: in tenants' processes, in gbpfd, inside kernels. Bits, for helpers. */
enum { SIDE_LOCAL = 1, SIDE_DAEMON = 2, SIDE_BOTH = 3, SIDE_DEVICE = 4, SIDE_ALL = 7 };

struct ebpf_verify_hook {
	int id;
	const char *name;
	uint8_t side;
	uint32_t budget; /* of a program that each lane runs: a quarter */
	int64_t verdict_min, verdict_max;
	uint32_t ctx_bytes;
	uint16_t first_field, end_field; /* in the table of all fields */
};

/* Whether a value is the same for all threads of a block, for all lanes of a warp, or varies. */
enum { LEVEL_BLOCK, LEVEL_WARP, LEVEL_LANE };

struct ebpf_verify_field {
	int hook;
	const char *name;
	uint32_t offset, bytes;
	int writable;
};

struct ebpf_verify_helper {
	int32_t id;
	const char *name;
	uint8_t ret;
	uint8_t args[5];
	uint8_t sides;
	uint32_t cost;
};

enum {
#define GBPF_HELPER(id, name, type, params, ret, a1, a2, a3, a4, a5, sides, cost, doc)             \
	HELPER_##name = id,
#include "gbpf/hooks.def"
};

/* verify_tables.c */
const struct ebpf_verify_hook *ebpf_verify_hook(int id);
const struct ebpf_verify_field *ebpf_verify_fields(uint32_t *ret_n);
const struct ebpf_verify_helper *ebpf_verify_helper(int32_t id);
/* Returns the field that contains the byte, or NULL. */
const struct ebpf_verify_field *ebpf_verify_field_at(const struct ebpf_verify_hook *h, int64_t off);
/* Returns the level of a field of a hook inside kernels, in a program that each lane runs. */
uint8_t ebpf_verify_field_level(const struct ebpf_verify_field *f);
/* Returns whether maps of a type have the operation that the helper needs; true for helpers without
 * a map argument. */
int ebpf_verify_map_can(uint32_t map_type, int32_t helper);
const char *ebpf_verify_map_type(uint32_t map_type);
/* Returns whether the helper combines values of the lanes of a warp. */
int ebpf_verify_warp_wide(int32_t id);
/* Appends the names of the verdicts of a hook. */
void ebpf_verify_verdict_names(const struct ebpf_verify_hook *h, struct buf *out);

#endif
