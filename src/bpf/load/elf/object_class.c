/* Classifies each section of an object by its name. Constructs of Linux and of C that have no
 * meaning in a policy are refused here by name; those that are visible only in symbols, types or
 * relocations are refused where these are read. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bpf/load/elf/object_int.h"
#include "bpf/load/elf/source_line.h"
#include "ptx/probe.h"

/* Names of hooks inside kernels begin with this; sections do without it. */
#define DEVICE_PREFIX "gdev_"

static const struct {
	int id;
	const char *name;
} hooks[] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) { id, #name },
#define GBPF_DEVICE_HOOK(id, name, budget, doc) { id, #name },
#include "gbpf/hooks.def"
};

int ebpf_obj_hook_by_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (strcmp(hooks[i].name, name) == 0) {
			return hooks[i].id;
		}
	}
	return -ENOENT;
}

const char *ebpf_obj_hook_name(int hook)
{
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (hooks[i].id == hook) {
			return hooks[i].name;
		}
	}
	return "?";
}

/* Refused data sections. prefix: start of the name; exact: the whole name. */
static const struct {
	const char *prefix;
	int exact;
	const char *what;
	const char *hint;
} refused[] = {
	{ "maps", 0, "legacy map definitions (struct bpf_map_def)",
	  "declare maps with their types in SEC(\".maps\")" },
	{ ".kconfig", 1, "kernel configuration values",
	  "make it a const volatile variable, which the operator sets at load" },
	{ ".ksyms", 1, "addresses of kernel symbols", "a policy reaches maps and helpers alone" },
	{ ".arena", 0, "arena memory", "use a map" },
	{ ".addr_space.", 0, "arena memory", "use a map" },
	{ ".init_array", 0, "constructors", "use the hook init: SEC(\"gbpf/init\")" },
	{ ".fini_array", 0, "destructors", "use the hook exit: SEC(\"gbpf/exit\")" },
	{ ".ctors", 0, "constructors", "use the hook init: SEC(\"gbpf/init\")" },
	{ ".dtors", 0, "destructors", "use the hook exit: SEC(\"gbpf/exit\")" },
	{ ".jumptables", 0, "jump tables", "compile with -fno-jump-tables" },
	{ ".data.rel", 0, "pointer tables", "use an index instead of a pointer" },
};

static int refuse_data(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s)
{
	if (s->flags & SHF_TLS) {
		report_hint(p->r, "GBPF_MAP_THREAD_ARRAY has an instance for each thread");
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "thread-local variables are not supported");
	}
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		size_t n = strlen(refused[i].prefix);

		if (strncmp(s->name, refused[i].prefix, n) == 0 &&
		    (!refused[i].exact || !s->name[n])) {
			report_hint(p->r, "%s", refused[i].hint);
			return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
					       "%s are not supported (section '%s')",
					       refused[i].what, s->name);
		}
	}
	report_hint(p->r, "known are .maps, .data, .bss, .rodata, .data.tenant, .bss.tenant, "
			  ".data.device, .bss.device, .struct_ops, license and version");
	return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "data section '%s' is not supported",
			       s->name);
}

static int is_device(int hook)
{
	return hook >= (int)EBPF_FIRST_DEVICE_HOOK;
}

/* Refuses a section of a hook that does not exist, and names those that do. */
static int unknown_hook(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s,
			const char *hook, int device)
{
	struct buf names;

	buf_init(&names);
	for (size_t i = 0; i < ARRAY_SIZE(hooks); i++) {
		if (is_device(hooks[i].id) == device) {
			buf_printf(&names, "%s%s", names.len ? ", " : "",
				   hooks[i].name + (device ? strlen(DEVICE_PREFIX) : 0));
		}
	}
	report_hint(p->r, "hooks: %s", buf_text(&names));
	buf_finish(&names);
	return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "there is no hook '%s'%s", hook,
			       device ? " inside kernels" : "");
}

static int hook_section(struct ebpf_obj_parse *p, struct ebpf_obj_section *s, const char *hook)
{
	s->hook = ebpf_obj_hook_by_name(hook);
	return s->hook >= 0 && !is_device(s->hook) ? 0 : unknown_hook(p, s, hook, 0);
}

/* Patterns have * and ?, sites also : and /. */
static int is_printable(const char *text)
{
	for (; *text; text++) {
		if (*text < ' ' || *text > '~') {
			return 0;
		}
	}
	return 1;
}

/* Copies a part of a section's name that ends before `end`. */
static int name_part(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s, const char *from,
		     const char *end, char *out, size_t cap)
{
	size_t n = (size_t)(end - from);

	if (n == 0 || n >= cap) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "a part of its name is empty or longer than %zu", cap - 1);
	}
	memcpy(out, from, n);
	out[n] = 0;
	return is_printable(out)
		       ? 0
		       : ebpf_obj_refuse(p, -EINVAL, s->name, 0, "its name is not printable");
}

/* Hooks that one thread of a block or launch runs. */
static int has_no_lanes(int hook)
{
	static const char *const names[] = { "gdev_block_enter", "gdev_block_exit", "gdev_begin",
					     "gdev_end" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (hook == ebpf_obj_hook_by_name(names[i])) {
			return 1;
		}
	}
	return 0;
}

/* <hook>[/<kernel>[/<site>]]. A site may contain slashes. */
static int device_section(struct ebpf_obj_parse *p, struct ebpf_obj_section *s, const char *rest)
{
	char hook[sizeof(DEVICE_PREFIX) + 32] = DEVICE_PREFIX;
	const char *kernel = strchrnul(rest, '/');
	const char *site = *kernel ? strchrnul(kernel + 1, '/') : kernel, *wrong;
	int err = name_part(p, s, rest, kernel, hook + strlen(hook), 32);
	struct buf clean;

	if (err) {
		return err;
	}
	s->code = OBJ_DEVICE;
	s->hook = ebpf_obj_hook_by_name(hook);
	if (s->hook < 0) {
		return unknown_hook(p, s, hook + strlen(DEVICE_PREFIX), 1);
	}
	if (s->lane && has_no_lanes(s->hook)) {
		buf_init(&clean);
		ebpf_source_line_clean(rest, 300, &clean);
		report_hint(p->r, "SEC(\"gdev/%s\")", buf_text(&clean));
		buf_finish(&clean);
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "one thread of a block or launch runs %s, so it has no "
				       "programs of lanes",
				       hook + strlen(DEVICE_PREFIX));
	}
	snprintf(s->kernel, sizeof(s->kernel), "*");
	if (*kernel) {
		err = name_part(p, s, kernel + 1, site, s->kernel, sizeof(s->kernel));
	}
	if (!err && *site) {
		err = name_part(p, s, site + 1, site + 1 + strlen(site + 1), s->site,
				sizeof(s->site));
	}
	wrong = err ? NULL : ptx_probe_site_wrong((uint32_t)s->hook, s->site);
	if (wrong) {
		report_hint(p->r, "%s", wrong);
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0, "invalid site '%s'", s->site);
	}
	return err;
}

/* Returns whether the name is "struct_ops" or begins with "struct_ops/". */
static int is_member_section(const char *name)
{
	size_t n = strlen("struct_ops");

	return strncmp(name, "struct_ops", n) == 0 && (!name[n] || name[n] == '/');
}

static int code_section(struct ebpf_obj_parse *p, struct ebpf_obj_section *s)
{
	const char *name = s->name + (s->name[0] == '?');

	s->role = OBJ_CODE;
	if (s->size % 8 || !s->data) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "%zu bytes are not whole instructions", s->size);
	}
	if (s->size / 8 > EBPF_MAX_INSNS) {
		return ebpf_obj_refuse(p, -E2BIG, s->name, 0, "%zu instructions (limit %u)",
				       s->size / 8, EBPF_MAX_INSNS);
	}
	if (strncmp(name, "gbpf/", 5) == 0) {
		s->code = name == s->name ? OBJ_HOOK : OBJ_OF_HOOK;
		return hook_section(p, s, name + 5);
	}
	if (strncmp(s->name, "gdev/", 5) == 0) {
		return device_section(p, s, s->name + 5);
	}
	if (strncmp(s->name, "gdev.lane/", 10) == 0) {
		s->lane = 1;
		return device_section(p, s, s->name + 10);
	}
	s->code = is_member_section(name)	  ? OBJ_MEMBER
		  : !strncmp(s->name, ".text", 5) ? OBJ_TEXT
						  : OBJ_FOREIGN;
	return 0;
}

static int is_data_name(const char *name)
{
	static const char *const kinds[] = { ".data", ".bss", ".rodata" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		size_t n = strlen(kinds[i]);

		if (strncmp(name, kinds[i], n) == 0 && (!name[n] || name[n] == '.') &&
		    strncmp(name, ".data.rel", 9) != 0) {
			return 1;
		}
	}
	return 0;
}

static int text_section(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s, char *out,
			size_t cap)
{
	size_t n = s->data ? strnlen((const char *)s->data, s->size) : 0;

	if (n == s->size || n >= cap) {
		return ebpf_obj_refuse(p, -EINVAL, s->name, 0,
				       "not a zero-terminated text of at most %zu bytes", cap - 1);
	}
	for (size_t i = 0; i < n; i++) {
		if (s->data[i] < ' ' || s->data[i] > '~') {
			return ebpf_obj_refuse(p, -EINVAL, s->name, i, "not a printable text");
		}
	}
	if (n) { /* a section without data, as .bss, has none */
		memcpy(out, s->data, n);
	}
	return 0;
}

/* Reads the version of the policy. Objects for old kernels have a number in this section, which is
 * ignored. */
static int version_section(struct ebpf_obj_parse *p, const struct ebpf_obj_section *s)
{
	return s->size == 4 ? 0 : text_section(p, s, p->o->version, sizeof(p->o->version));
}

static int data_section(struct ebpf_obj_parse *p, struct ebpf_obj_section *s)
{
	if (strcmp(s->name, ".maps") == 0) {
		s->role = OBJ_MAPS;
	} else if (strcmp(s->name, ".struct_ops") == 0 ||
		   strcmp(s->name, ".struct_ops.link") == 0) {
		s->role = OBJ_OPS;
	} else if (strcmp(s->name, "license") == 0) {
		return text_section(p, s, p->o->license, sizeof(p->o->license));
	} else if (strcmp(s->name, "version") == 0) {
		return version_section(p, s);
	} else if (strncmp(s->name, ".eh_frame", 9) == 0) {
		return 0;
	} else if (is_data_name(s->name) && !(s->flags & SHF_TLS)) {
		s->role = OBJ_DATA;
	} else {
		return refuse_data(p, s);
	}
	return 0;
}

int ebpf_obj_classify(struct ebpf_obj_parse *p)
{
	int err = 0;

	for (uint32_t i = 1; err == 0 && i < p->n_secs; i++) {
		struct ebpf_obj_section *s = &p->secs[i];

		if ((s->flags & SHF_ALLOC) && s->size) {
			err = s->flags & SHF_EXECINSTR ? code_section(p, s) : data_section(p, s);
		}
	}
	return err;
}
