/* `gbpf policy exec`: runs one raw program, unverified and confined, in the form that eBPF
 * conformance suites expect. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bpf/load/exec_raw.h"
#include "cli/exec_gpu.h"
#include "cli/run_env.h"
#include "cli/verbs.h"

#define MAX_TEXT (8u << 20)

enum { O_JIT, O_INTERP, O_PTX, O_DEVICE };

static const struct cli_option options[] = {
	[O_JIT] = { "jit", 0, NULL, "run it compiled, in a confined process" },
	[O_INTERP] = { "interp", 0, NULL, "run it in the checked interpreter (default)" },
	[O_PTX] = { "ptx", 0, NULL, "run it compiled to PTX, by one thread of a GPU" },
	[O_DEVICE] = { "device", 'd', "soft|nvidia|auto",
		       "device for --ptx (default auto: NVIDIA if present)" },
	{ NULL, 0, NULL, NULL },
};

static int digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses hex bytes separated by blanks. Returns 0 or -EINVAL. */
static int parse_hex(const char *text, struct buf *out)
{
	while (*text) {
		int high, low;
		char byte;

		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		high = digit(text[0]);
		low = high < 0 ? -1 : digit(text[1]);
		if (low < 0) {
			return -EINVAL;
		}
		byte = (char)(high << 4 | low);
		buf_add(out, &byte, 1);
		text += 2;
	}
	return out->failed;
}

static int read_input(struct cli *c, struct buf *insns, struct buf *mem)
{
	struct buf text = { 0 };
	int err = buf_read_fd(&text, STDIN_FILENO, MAX_TEXT);

	if (!err && strlen(buf_text(&text)) != text.len) {
		err = -EINVAL;
	}
	if (!err) {
		err = parse_hex(buf_text(&text), insns);
	}
	buf_finish(&text);
	if (err) {
		return cli_fail(c, CLI_FAILED, "input",
				"Write 8 bytes an instruction, blanks are allowed",
				"policy exec: standard input: %s",
				err == -EINVAL ? "not hex bytes" : strerror(-err));
	}
	if (c->n_args && parse_hex(c->arg[0], mem) < 0) {
		return cli_fail(c, CLI_FAILED, "input", NULL, "policy exec: MEMORY: not hex bytes");
	}
	return CLI_OK;
}

static const char *engine(const struct cli *c)
{
	return c->opt[O_PTX] ? "ptx" : c->opt[O_JIT] ? "jit" : "interp";
}

/* Runs the program on the chosen device; *ret_soft says which. */
static int execute_ptx(struct cli *c, struct buf *insns, struct buf *mem, bool *ret_soft,
		       uint64_t *ret_r0, struct report *r)
{
	struct cli_run_device d;
	int err = cli_run_choose_device(c->opt[O_DEVICE], &d, r);

	*ret_soft = d.soft;
	if (!err && d.soft) {
		err = cli_run_place_soft_gpu();
	}
	return err ? err : cli_exec_gpu(d.libcuda, insns, mem, ret_r0, r);
}

static void print_json(struct cli *c, uint64_t r0, bool soft)
{
	char text[24];
	json_t *d;

	snprintf(text, sizeof(text), "%" PRIx64, r0);
	d = json_pack("{s:s, s:s}", "r0", text, "engine", engine(c));
	if (c->opt[O_PTX]) {
		json_object_set_new(d, "device", json_string(soft ? "soft" : "nvidia"));
	}
	cli_json(c, "policy.exec", d);
}

static int execute(struct cli *c, struct buf *insns, struct buf *mem)
{
	struct report r;
	uint64_t r0 = 0;
	bool soft = false;
	int err, code = CLI_OK;

	report_init(&r);
	err = c->opt[O_PTX] ? execute_ptx(c, insns, mem, &soft, &r0, &r)
			    : ebpf_exec_raw(insns->data, insns->len, mem->data, mem->len,
					    c->opt[O_JIT] != NULL, &r0, &r);
	if (err) {
		report_set(&r, err, "exec", "%s", strerror(-err));
		code = cli_fail_report(c, CLI_FAILED, "policy exec", &r);
	} else if (c->json) {
		print_json(c, r0, soft);
	} else {
		printf("%" PRIx64 "\n", r0);
	}
	report_finish(&r);
	return code;
}

static int check_options(struct cli *c)
{
	if (!!c->opt[O_JIT] + !!c->opt[O_INTERP] + !!c->opt[O_PTX] > 1) {
		return cli_fail(c, CLI_USAGE, "usage", "Give one of them",
				"policy exec: --jit, --interp and --ptx exclude each other");
	}
	if (c->opt[O_DEVICE] && !c->opt[O_PTX]) {
		return cli_fail(c, CLI_USAGE, "usage", "Add --ptx",
				"policy exec: --device is an option of --ptx");
	}
	return CLI_OK;
}

static int cmd_policy_exec(struct cli *c)
{
	struct buf insns = { 0 }, mem = { 0 };
	int code = check_options(c);

	if (code != CLI_OK) {
		return code;
	}
	code = read_input(c, &insns, &mem);
	if (code == CLI_OK) {
		code = execute(c, &insns, &mem);
	}
	buf_finish(&insns);
	buf_finish(&mem);
	return code;
}

const struct cli_verb verb_policy_exec = {
	.name = "exec",
	.args = "[MEMORY]",
	.doc = "run one raw program from standard input, unverified and confined",
	.page = "gbpf-policy.1",
	.options = options,
	.max_args = 1,
	.run = cmd_policy_exec,
};
