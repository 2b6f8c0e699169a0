/* Computes the fields of a program's context, each from special registers or constants. Only what a
 * program reads is computed, and only by the lanes that run it; what the active lanes collect
 * together has been computed before their election. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ptx/probe/emit/probe_emit.h"

/* How a value is computed: # is the field's register, ~ the stem. %~t, %~u and %~d are free. */
static const struct {
	const char *name, *text;
	uint32_t needs; /* PTX_PROBE_NEEDS_* */
} values[] = {
	{ "clock", "\tmov.u64 #, %clock64;\n" },
	{ "time_ns", "\tmov.u64 #, %globaltimer;\n" },
	{ "end_ns", "\tmov.u64 #, %globaltimer;\n" },
	{ "begin_ns", "\tld.shared.u64 #, [%~a+-8];\n" }, /* probe_insert.c */
	{ "block",
	  "\tmov.u32 %~t, %ctaid.z;\n\tmov.u32 %~u, %nctaid.y;\n\tmul.lo.u32 %~t, %~t, %~u;\n"
	  "\tmov.u32 %~u, %ctaid.y;\n\tadd.u32 %~t, %~t, %~u;\n\tmov.u32 %~u, %nctaid.x;\n"
	  "\tmul.wide.u32 #, %~t, %~u;\n\tmov.u32 %~t, %ctaid.x;\n\tcvt.u64.u32 %~d, %~t;\n"
	  "\tadd.u64 #, #, %~d;\n" },
	{ "block_x", "\tmov.u32 #, %ctaid.x;\n" },
	{ "block_y", "\tmov.u32 #, %ctaid.y;\n" },
	{ "block_z", "\tmov.u32 #, %ctaid.z;\n" },
	{ "grid_x", "\tmov.u32 #, %nctaid.x;\n" },
	{ "grid_y", "\tmov.u32 #, %nctaid.y;\n" },
	{ "grid_z", "\tmov.u32 #, %nctaid.z;\n" },
	{ "threads_x", "\tmov.u32 #, %ntid.x;\n" },
	{ "threads_y", "\tmov.u32 #, %ntid.y;\n" },
	{ "threads_z", "\tmov.u32 #, %ntid.z;\n" },
	{ "thread_x", "\tmov.u32 #, %tid.x;\n" },
	{ "thread_y", "\tmov.u32 #, %tid.y;\n" },
	{ "thread_z", "\tmov.u32 #, %tid.z;\n" },
	{ "warp", "\tmov.u32 #, %tid.z;\n\tmov.u32 %~t, %ntid.y;\n\tmov.u32 %~u, %tid.y;\n"
		  "\tmad.lo.u32 #, #, %~t, %~u;\n\tmov.u32 %~t, %ntid.x;\n\tmov.u32 %~u, %tid.x;\n"
		  "\tmad.lo.u32 #, #, %~t, %~u;\n\tshr.u32 #, #, 5;\n" },
	{ "warp_slot", "\tmov.u32 #, %warpid;\n" },
	{ "sm", "\tmov.u32 #, %smid;\n" },
	{ "lane", "\tmov.u32 #, %laneid;\n" },
	{ "active", "\tmov.u32 #, %~m;\n", PTX_PROBE_NEEDS_MASK },
	{ "lanes", "\tpopc.b32 #, %~m;\n", PTX_PROBE_NEEDS_MASK },
	{ "late", "\tmov.u32 #, 0;\n" },
	{ "addr", "\tmov.u64 #, %~lo;\n", PTX_PROBE_NEEDS_RANGE },
	{ "addr_high", "\tmov.u64 #, %~hi;\n", PTX_PROBE_NEEDS_RANGE },
	{ "sectors", "\tmov.u32 #, %~s;\n", PTX_PROBE_NEEDS_SECTORS },
	{ "stride", "\tmov.u32 #, %~k;\n", PTX_PROBE_NEEDS_STRIDE },
	{ "conflicts", "\tmov.u32 #, %~c;\n", PTX_PROBE_NEEDS_CONFLICTS },
	{ "taken", "\tmov.u32 #, %~k;\n", PTX_PROBE_NEEDS_TAKEN },
};

static int value_of(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (strcmp(values[i].name, name) == 0) {
			return (int)i;
		}
	}
	return -1;
}

static uint32_t place_of(const struct ptx_probe_work *p, const struct ptx_probe *probe,
			 const struct ptx_probe_site *s)
{
	struct ptx_probe_place place = {
		.kernel = p->kernel, .hook = s->hook, .site = s->number, .line = s->line
	};

	place.file = s->line ? ptx_probe_file_name(p->slice, s->file, &place.file_len) : NULL;
	return probe->place ? probe->place(probe->place_arg, &place) : PTX_PROBE_NO_NUMBER;
}

/* Returns true for a field whose value is known here, and the value. */
static bool constant(const struct ptx_probe_work *p, const char *name,
		     const struct ptx_probe_site *s, uint64_t *ret)
{
	const char *f = p->kernel, *in = s->in ? s->in->name : f;
	const struct {
		const char *name;
		uint64_t value;
	} known[] = {
		{ "kernel", hash_bytes(f, strlen(f)) },
		{ "function", hash_bytes(in, strlen(in)) },
		{ "site", s->number },
		{ "line", s->line },
		{ "space", s->space },
		{ "op", s->op },
		{ "scope", s->scope },
		{ "after", s->after },
		{ "kind", s->kind },
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (strcmp(known[i].name, name) == 0) {
			*ret = known[i].value;
			return true;
		}
	}
	return false;
}

uint32_t ptx_probe_field_needs(const char *name)
{
	int i = value_of(name);

	return i >= 0 ? values[i].needs : 0;
}

/* Appends the text with the register in place of #. */
static void print(struct ptx_probe_work *p, const char *text, const char *reg)
{
	struct buf out;

	buf_init(&out);
	for (const char *at = text; *at;) {
		size_t n = strcspn(at, "#");

		buf_add(&out, at, n);
		at += n;
		if (*at) {
			buf_puts(&out, reg);
			at++;
		}
	}
	ptx_probe_text(p, "%s", buf_text(&out));
	p->out->failed = out.failed ? out.failed : p->out->failed;
	buf_finish(&out);
}

void ptx_probe_field(struct ptx_probe_work *p, const struct ptx_probe_program *g, unsigned n,
		     const struct ptx_probe_site *s)
{
	const struct ptx_probe_field *f = &g->fields[n];
	uint64_t value;
	char reg[16];
	int i = value_of(f->name);

	snprintf(reg, sizeof(reg), "%%~f%u", n);
	if (strcmp(f->name, "bytes") == 0) {
		ptx_probe_size(p, s, "%~d");
		ptx_probe_text(p, "\tcvt.u32.u64 %s, %%~d;\n", reg);
	} else if (ptx_probe_field_is_number(f->name)) {
		ptx_probe_number_load(p, reg);
	} else if (strcmp(f->name, "place") == 0) {
		ptx_probe_text(p, "\tmov.u32 %s, %" PRIu32 ";\n", reg, place_of(p, g->probe, s));
	} else if (constant(p, f->name, s, &value)) {
		ptx_probe_text(p, "\tmov.u%u %s, %" PRIu64 ";\n", f->bytes * 8, reg, value);
	} else if (i >= 0) {
		print(p, values[i].text, reg);
	}
}
