/* Builds a sealed image from an object: opens the object, lays out its maps, verifies and compiles
 * every program, and writes the image. A failure of any step leaves nothing behind. */
#include "bpf/load/policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bpf/load/jit/jit.h"
#include "bpf/run/map/map_type.h"
#include "bpf/run/printk.h"

enum {
#define GBPF_CONST(name, value, doc) name = value,
#include "gbpf/hooks.def"
};

#define FIRST_CODE_BYTES (64u << 10)
#define MAX_CODE_BYTES (EBPF_MAX_IMAGE_BYTES / 2)

/* State of a build; the struct of the caller is filled only after success. */
struct build {
	struct ebpf_built *out;
	struct ebpf_map maps[EBPF_MAX_MAPS];
	struct ebpf_image_header header;
	struct ebpf_insn *insns;    /* owned: instructions of all programs */
	struct ebpf_tail_at *tails; /* owned: tail call tables of all programs */
	uint8_t *code;		    /* owned */
	size_t code_bytes, code_cap;
	struct ebpf_image_device *devices; /* owned: programs inside kernels */
	char *device_text;		   /* owned: their PTX */
	size_t device_text_bytes;
	const struct ebpf_verify_stats *known; /* borrowed: of programs that need no verification */
	uint32_t n_known;
	uint64_t object_hash;
	uint32_t print_map_1; /* 1 + index of the ring for lines of programs inside kernels, or 0 */
};

/* Lays out the maps, whose definitions were checked when the object was opened. */
static int lay_out_maps(struct build *c, struct report *r)
{
	const struct ebpf_object *o = &c->out->object;
	int err = ebpf_maps_layout(o->maps, o->n_maps, c->maps, c->out->region_bytes);

	if (err) {
		report_place(r, "%s", o->name);
		report_hint(r, "lower max_entries or the size of values");
		return report_set(r, -EINVAL, "map",
				  "the maps together need more than %u MiB of one kind",
				  EBPF_MAX_REGION_BYTES >> 20);
	}
	return 0;
}

static int is_device(const struct ebpf_prog *prog)
{
	return prog->hook >= (int)EBPF_FIRST_DEVICE_HOOK;
}

const struct ebpf_verify_stats *ebpf_built_stats(const struct ebpf_built *b, int hook)
{
	for (uint32_t i = 0; i < b->object.n_progs; i++) {
		if (b->object.progs[i].hook == hook && b->stats[i].cost) {
			return &b->stats[i];
		}
	}
	return NULL;
}

/* Adds the ring for lines that programs inside kernels print, if there are such programs. */
static int add_print_map(struct build *c, struct report *r)
{
	struct ebpf_object *o = &c->out->object;
	int any = 0;

	for (uint32_t i = 0; i < o->n_progs; i++) {
		any |= is_device(&o->progs[i]) && ebpf_verify_prints(&o->progs[i]);
	}
	if (!any) {
		return 0;
	}
	if (o->n_maps == EBPF_MAX_MAPS) {
		report_place(r, "%s", o->name);
		report_hint(r, "bpf_printk inside kernels needs one more");
		return report_set(r, -E2BIG, "map", "more than %u maps", EBPF_MAX_MAPS);
	}
	o->maps[o->n_maps++] =
		(struct ebpf_map_def){ .name = EBPF_PRINT_MAP,
				       .type = GBPF_MAP_SM_RING,
				       .value_bytes = sizeof(struct ebpf_print_record),
				       .max_entries = EBPF_PRINT_RECORDS,
				       .flags = (uint32_t)GBPF_F_DEVICE };
	c->print_map_1 = o->n_maps;
	return 0;
}

static int verify_one(const struct build *c, uint32_t i, unsigned flags,
		      struct ebpf_verify_stats *ret, struct report *r)
{
	const struct ebpf_object *o = &c->out->object;

	if (c->known && !o->progs[i].texts) { /* formats on the stack are found again */
		*ret = c->known[i];
		return 0;
	}
	return ebpf_verify(&o->progs[i], o->maps, o->n_maps, flags, ret, r);
}

static int verify_all(struct build *c, unsigned flags, struct report *r)
{
	struct ebpf_object *o = &c->out->object;
	uint64_t start = clock_now_ns(), effort = 0;

	flags &= ~(unsigned)EBPF_BUILD_NO_JIT;
	if (c->known && c->n_known != o->n_progs) {
		return report_set(r, -EINVAL, "elf", "%u programs are known, it has %u", c->n_known,
				  o->n_progs);
	}
	for (uint32_t i = 0; i < o->n_progs; i++) {
		struct ebpf_prog *prog = &o->progs[i];
		struct ebpf_verify_stats stats = { 0 };
		int err;

		if (prog->hook < 0 || prog->hook >= (int)EBPF_MAX_HOOKS || !prog->n_insns) {
			return report_set(r, -EINVAL, "elf", "program %s belongs to no hook",
					  prog->name);
		}
		if (!is_device(prog) && ebpf_built_stats(c->out, prog->hook)) {
			return report_set(r, -EINVAL, "elf",
					  "program %s: its hook is filled already", prog->name);
		}
		if (is_device(prog) && ebpf_verify_prints(prog)) {
			prog->texts = calloc(1, sizeof(*prog->texts));
			if (!prog->texts) {
				return -ENOMEM;
			}
		}
		if (effort > EBPF_VERIFY_POLICY_EFFORT) {
			flags |= EBPF_VERIFY_BRIEF;
		}
		err = verify_one(c, i, flags, &stats, r);
		if (err) {
			return err;
		}
		effort += stats.effort;
		stats.cost += !stats.cost; /* cost 0 stands for a program not verified yet */
		c->out->stats[i] = stats;
	}
	c->out->verify_ns = clock_now_ns() - start;
	return 0;
}

static int grow_code(struct build *c)
{
	size_t cap = c->code_cap ? c->code_cap * 2 : FIRST_CODE_BYTES;
	uint8_t *code = cap <= MAX_CODE_BYTES ? realloc(c->code, cap) : NULL;

	if (!code) {
		return -ENOMEM;
	}
	c->code = code;
	c->code_cap = cap;
	return 0;
}

/* Compiles a program. Sets *ret_offset to the offset of its code, or to UINT32_MAX if it cannot be
 * compiled and is interpreted. */
static int compile(struct build *c, const struct ebpf_code *prog, uint32_t *ret_offset)
{
	*ret_offset = UINT32_MAX;
	for (;;) {
		int at = ebpf_jit_compile(&ebpf_target_x86, prog, c->maps, c->out->object.n_maps,
					  c->code, c->code_cap, &c->code_bytes);

		if (at >= 0) {
			*ret_offset = (uint32_t)at;
			return 0;
		}
		if (at != -ENOSPC) {
			return at == -ENOMEM ? at : 0;
		}
		if (grow_code(c) < 0) {
			return -ENOMEM;
		}
	}
}

static int place_programs(struct build *c, unsigned flags)
{
	const struct ebpf_object *o = &c->out->object;
	uint64_t start = clock_now_ns();
	uint32_t total = 0, n_tails = 0, at = 0;

	for (uint32_t i = 0; i < o->n_progs; i++) {
		total += is_device(&o->progs[i]) ? 0 : o->progs[i].n_insns;
		n_tails += is_device(&o->progs[i]) ? 0 : o->progs[i].n_tails;
	}
	c->insns = calloc(total + 1u, sizeof(*c->insns));
	c->tails = calloc(n_tails + 1u, sizeof(*c->tails));
	if (!c->insns || !c->tails) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < o->n_progs; i++) {
		const struct ebpf_prog *prog = &o->progs[i];
		struct ebpf_image_prog *slot = &c->header.progs[prog->hook];
		int err = 0;

		if (is_device(prog)) {
			continue;
		}
		memcpy(&c->insns[at], prog->insns, prog->n_insns * sizeof(*c->insns));
		*slot = (struct ebpf_image_prog){ at,
						  prog->n_insns,
						  UINT32_MAX,
						  c->out->stats[i].cost,
						  c->header.n_tails,
						  prog->n_tails };
		for (uint32_t k = 0; k < prog->n_tails; k++) {
			const struct ebpf_tail *t = &prog->tails[k];

			c->tails[c->header.n_tails++] =
				(struct ebpf_tail_at){ t->map, t->index,
						       prog->subprog[t->subprog] };
		}
		at += prog->n_insns;
		if (!(flags & EBPF_BUILD_NO_JIT)) {
			const struct ebpf_code code = { prog->insns, prog->n_insns,
							c->tails + slot->tail_first,
							slot->n_tails };

			err = compile(c, &code, &slot->code_offset);
		}
		if (err) {
			return err;
		}
	}
	c->header.n_insns = total;
	c->out->jit_ns = clock_now_ns() - start;
	return 0;
}

/* ---- programs inside kernels ---- */

static int grow_device_text(struct build *c, size_t *cap)
{
	size_t bytes = *cap ? *cap * 2 : FIRST_CODE_BYTES;
	char *text =
		bytes <= 2 * (size_t)EBPF_MAX_DEVICE_TEXT ? realloc(c->device_text, bytes) : NULL;

	if (!text) {
		return -ENOMEM;
	}
	c->device_text = text;
	*cap = bytes;
	return 0;
}

/* Compiles a program to PTX behind the text of those before it. */
static int compile_device(struct build *c, const struct ebpf_prog *prog, uint32_t cost,
			  unsigned flags, struct ebpf_image_device *d, size_t *cap,
			  struct report *r)
{
	const struct ebpf_code code = { .insns = prog->insns, .n = prog->n_insns };
	size_t from = c->device_text_bytes;
	uint64_t maps; /* the text says which */
	struct ebpf_jit_options o = { .name = d->prefix,
				      .label = d->name,
				      .device_hook = prog->hook,
				      .device_lane = prog->lane,
				      .device_control = !!(flags & EBPF_BUILD_CONTROL),
				      .fields = &d->fields,
				      .maps = &maps,
				      .print_map_1 = c->print_map_1,
				      .texts = prog->texts,
				      .number = (uint32_t)(prog - c->out->object.progs),
				      .report = r };
	int err;

	*d = (struct ebpf_image_device){ .hook = (uint32_t)prog->hook,
					 .lane = prog->lane,
					 .cost = cost,
					 .text_offset = (uint32_t)from };
	snprintf(d->prefix, sizeof(d->prefix), "gbpf_%016llx_%u",
		 (unsigned long long)c->object_hash, (unsigned)(d - c->devices));
	memcpy(d->name, prog->name, sizeof(d->name));
	memcpy(d->kernel, prog->kernel, sizeof(d->kernel));
	memcpy(d->site, prog->site, sizeof(d->site));
	while ((err = ebpf_jit_compile_with(&ebpf_target_ptx, &o, &code, c->maps,
					    c->out->object.n_maps, (uint8_t *)c->device_text, *cap,
					    &c->device_text_bytes)) == -ENOSPC) {
		if (grow_device_text(c, cap) < 0) {
			return -ENOMEM;
		}
	}
	if (err < 0) {
		report_place(r, "%s", prog->name);
		return err;
	}
	d->text_bytes = (uint32_t)(c->device_text_bytes - from);
	return c->device_text_bytes <= EBPF_MAX_DEVICE_TEXT ? 0 : -E2BIG;
}

static int place_devices(struct build *c, unsigned flags, struct report *r)
{
	const struct ebpf_object *o = &c->out->object;
	size_t cap = 0;

	c->devices = calloc(o->n_progs + 1u, sizeof(*c->devices));
	if (!c->devices) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < o->n_progs; i++) {
		int err = 0;

		if (is_device(&o->progs[i])) {
			err = compile_device(c, &o->progs[i], c->out->stats[i].cost, flags,
					     &c->devices[c->out->n_devices], &cap, r);
			c->out->n_devices++;
		}
		if (err) {
			return err;
		}
	}
	return 0;
}

static int build_image(struct build *c, uint64_t version)
{
	c->header.version = version;
	memcpy(c->header.name, c->out->object.name, sizeof(c->header.name));
	c->header.n_maps = c->out->object.n_maps;
	c->header.n_devices = c->out->n_devices;
	c->header.device_text_bytes = (uint32_t)c->device_text_bytes;
	c->out->code_bytes = (uint32_t)c->code_bytes;
	return ebpf_image_build_parts(
		&c->header, &(struct ebpf_image_parts){ .defs = c->out->object.maps,
							.insns = c->insns,
							.tails = c->tails,
							.devices = c->devices,
							.device_text = c->device_text,
							.code = c->code_bytes ? c->code : NULL,
							.code_bytes = c->code_bytes });
}

static int build_opened(struct build *c, uint64_t version, unsigned flags, struct report *r)
{
	int err = add_print_map(c, r);

	if (!err) {
		err = lay_out_maps(c, r);
	}
	if (!err) {
		err = verify_all(c, flags, r);
	}
	if (!err) {
		err = place_programs(c, flags);
	}
	if (!err) {
		err = place_devices(c, flags, r);
		if (err == -ENOTSUP) {
			return -EACCES; /* the report has the reason */
		}
	}
	if (!err) {
		err = build_image(c, version);
		c->out->image_fd = err;
	}
	if (err < 0) {
		return report_set(r, err, "memory", "the policy image cannot be made: %s",
				  strerror(-err));
	}
	return 0;
}

int ebpf_policy_build(struct ebpf_built *b, const void *elf, size_t bytes, const char *name,
		      uint64_t version, unsigned flags, struct report *r)
{
	return ebpf_policy_build_known(b, elf, bytes, name, version, flags, NULL, 0, r);
}

int ebpf_policy_build_known(struct ebpf_built *b, const void *elf, size_t bytes, const char *name,
			    uint64_t version, unsigned flags, const struct ebpf_verify_stats *stats,
			    uint32_t n, struct report *r)
{
	struct build *c;
	int err;

	memset(b, 0, sizeof(*b));
	b->image_fd = -1;
	err = ebpf_object_open(&b->object, elf, bytes, name, r);
	if (err) {
		return err;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		err = report_set(r, -ENOMEM, "memory", "out of memory");
	} else {
		c->out = b;
		c->known = stats;
		c->n_known = n;
		c->object_hash = XXH3_64bits(elf, bytes);
		err = build_opened(c, version, flags, r);
		free(c->insns);
		free(c->tails);
		free(c->code);
		free(c->devices);
		free(c->device_text);
		free(c);
	}
	if (err) {
		ebpf_built_finish(b);
	}
	return err;
}

void ebpf_built_finish(struct ebpf_built *b)
{
	if (b->image_fd >= 0) {
		close(b->image_fd);
	}
	ebpf_object_finish(&b->object);
	memset(b, 0, sizeof(*b));
	b->image_fd = -1;
}

/* Writes the initial contents of a map: one value of a data map, all entries of an array of maps.
 */
static void init_map(uint8_t *at, const struct ebpf_map *m, const void *init)
{
	uint32_t n = ebpf_map_type_has(m->type, EBPF_MAP_MAPS) ? m->max_entries : 1;

	for (uint32_t i = 0; i < n; i++) {
		memcpy(at + (size_t)i * m->stride,
		       (const uint8_t *)init + (size_t)i * m->value_bytes, m->value_bytes);
	}
}

void ebpf_built_init_region(const struct ebpf_built *b, enum ebpf_region region, void *base)
{
	struct ebpf_map maps[EBPF_MAX_MAPS];
	size_t region_bytes[EBPF_REGIONS];

	if (ebpf_maps_layout(b->object.maps, b->object.n_maps, maps, region_bytes) < 0) {
		return; /* cannot happen: the build laid out the same definitions */
	}
	for (uint32_t i = 0; i < b->object.n_maps; i++) {
		if (maps[i].region == region && b->object.init[i]) {
			init_map((uint8_t *)base + maps[i].region_offset, &maps[i],
				 b->object.init[i]);
		}
	}
}
