/* The table of tools of `gbpf trace`. */
#include <limits.h>
#include <string.h>

#include "base/paths.h"
#include "cli/policy_file.h"
#include "cli/trace.h"

const struct cli_trace_tool *const cli_trace_tools[] = {
	&cli_trace_args,       &cli_trace_atomhot,    &cli_trace_bankconf,
	&cli_trace_barwait,    &cli_trace_blocktime,  &cli_trace_coalesce,
	&cli_trace_hang,       &cli_trace_hotbranch,  &cli_trace_kernelretsnoop,
	&cli_trace_launchlate, &cli_trace_memtrace,   &cli_trace_regionheat,
	&cli_trace_smmap,      &cli_trace_threadhist, NULL,
};

static json_t *list_json(void)
{
	json_t *tools = json_array();

	for (const struct cli_trace_tool *const *t = cli_trace_tools; *t; t++) {
		json_array_append_new(tools, json_pack("{s:s, s:s, s:s}", "name", (*t)->name, "doc",
						       (*t)->doc, "forms", (*t)->forms));
	}
	return json_pack("{s:o}", "tools", tools);
}

int cli_trace_list(struct cli *c)
{
	struct cli_table t;

	if (c->json) {
		return cli_json(c, "trace.list", list_json());
	}
	cli_table_init(&t);
	cli_table_column(&t, "TOOL", false);
	cli_table_column(&t, "KERNELS", false);
	cli_table_column(&t, "SHOWS", false);
	for (const struct cli_trace_tool *const *tool = cli_trace_tools; *tool; tool++) {
		cli_table_cell(&t, "%s", (*tool)->name);
		cli_table_cell(&t, "%s", (*tool)->forms);
		cli_table_cell(&t, "%s", (*tool)->doc);
	}
	cli_table_print(&t, stdout, c->color_out);
	cli_table_finish(&t);
	return CLI_OK;
}

static int unknown(struct cli *c, const char *name)
{
	struct nearest near;
	char hint[96];

	nearest_init(&near, name);
	for (const struct cli_trace_tool *const *t = cli_trace_tools; *t; t++) {
		nearest_offer(&near, (*t)->name);
	}
	if (nearest_best(&near)) {
		snprintf(hint, sizeof(hint), "Did you mean '%s'?", nearest_best(&near));
	} else {
		snprintf(hint, sizeof(hint),
			 "`gbpf trace` lists them; `gbpf probe attach` takes other objects");
	}
	return cli_fail(c, CLI_NOT_FOUND, "not-found", hint, "trace: no tool '%s'", name);
}

int cli_trace_find(struct cli *c, const char *name, const struct cli_trace_tool **ret,
		   struct buf *elf)
{
	const struct cli_trace_tool *const *t = cli_trace_tools;
	char leaf[64], path[PATH_MAX];
	int err;

	while (*t && strcmp((*t)->name, name) != 0) {
		t++;
	}
	if (!*t) {
		return unknown(c, name);
	}
	*ret = *t;
	snprintf(leaf, sizeof(leaf), "tracers/%s.bpf.o", name);
	err = path_lib(path, sizeof(path), leaf);
	if (!err) {
		err = buf_read_file(elf, path, CLI_OBJECT_MAX_BYTES);
	}
	return err ? cli_fail(c, CLI_FAILED, "file", "Is gBPF installed completely?",
			      "trace: %s: %s", leaf, strerror(-err))
		   : CLI_OK;
}
