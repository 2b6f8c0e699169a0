/* Programs in sections that other loaders know: refused, with the section to write instead. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"
#include "bpf/load/elf/source_line.h"

#define CPU_CODE "gBPF runs no programs in code of the CPU"

static const struct {
	const char *type, *instead;
} alike[] = {
	/* bpftime's names of what is not a kernel */
	{ "kprobe/__memcapture", "write SEC(\"gdev/access\"); in gdev.lane/access it runs for each "
				 "thread" },
	{ "kprobe/__directly_run", "a program runs where kernels of a program come to; none is "
				   "launched by itself" },
	{ "uprobe", CPU_CODE "; SEC(\"gbpf/submit\") runs at each launch of a kernel" },
	{ "uretprobe", CPU_CODE "; SEC(\"gbpf/retire\") runs when a launch has ended" },
	{ "tracepoint", CPU_CODE "; SEC(\"gbpf/submit\") runs at each launch of a kernel" },
	{ "tp", CPU_CODE "; SEC(\"gbpf/submit\") runs at each launch of a kernel" },
};

/* Writes the section for a kernel's beginning or end. A name that is too long for a pattern ends
 * with *. */
static void hint_kernel(struct report *r, const char *hook, const char *kernel)
{
	int most = EBPF_PATTERN_BYTES - 2;
	bool cut = strlen(kernel) > (size_t)most + 1;
	struct buf name;

	buf_init(&name);
	ebpf_source_line_clean(kernel, (size_t)(cut ? most : most + 1), &name);
	report_hint(r,
		    "write SEC(\"gdev/%s/%s%s\"), which runs for each warp, or gdev.lane/%s, for "
		    "each thread",
		    hook, buf_text(&name), cut ? "*" : "", hook);
	buf_finish(&name);
}

static bool begins(const char *name, const char *type)
{
	size_t n = strlen(type);

	return strncmp(name, type, n) == 0 && (!name[n] || name[n] == '/' || name[n] == '.');
}

static void hint(struct report *r, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(alike); i++) {
		if (begins(name, alike[i].type)) {
			report_hint(r, "%s", alike[i].instead);
			return;
		}
	}
	if (strncmp(name, "kprobe/", strlen("kprobe/")) == 0 && name[strlen("kprobe/")]) {
		hint_kernel(r, "enter", name + strlen("kprobe/"));
	} else if (strncmp(name, "kretprobe/", strlen("kretprobe/")) == 0 &&
		   name[strlen("kretprobe/")]) {
		hint_kernel(r, "exit", name + strlen("kretprobe/"));
	} else {
		report_hint(r, "write SEC(\"gbpf/<hook>\") or SEC(\"gdev/<hook>\"); subprograms "
			       "need no SEC");
	}
}

int ebpf_obj_refuse_foreign(struct ebpf_obj_parse *p, const struct ebpf_obj_func *f)
{
	const char *section = p->secs[f->section].name;
	struct ebpf_source_line line;
	struct buf place;

	/* The first line of code is not that of SEC, which is not known. */
	buf_init(&place);
	ebpf_source_line_clean(section, 120, &place);
	buf_printf(&place, "\")");
	if (ebpf_obj_line_at(p, section, f->start * 8ull, &line) && line.file[0]) {
		buf_printf(&place, " (");
		ebpf_source_line_clean(line.file, 120, &place);
		buf_printf(&place, ")");
	}
	report_place(p->r, "%s SEC(\"%s", p->o->name, buf_text(&place));
	buf_finish(&place);
	hint(p->r, section);
	return ebpf_obj_refuse(p, -EINVAL, NULL, 0, "%.64s: programs of type '%.*s' are not gBPF's",
			       f->name, (int)MIN(strcspn(section, "/"), 64u), section);
}
