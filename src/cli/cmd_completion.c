/* `gbpf completion`: prints a shell's script, and, for these scripts, the words that may stand at
 * the end of a command line. The words are made from the table of verbs and from what gbpfd knows,
 * so the scripts contain no verb. */
#include <string.h>

#include "cli/complete.h"
#include "cli/verbs.h"

static const struct shell {
	const char *name, *script;
} shells[] = {
	{ "bash", cli_completion_bash },
	{ "zsh", cli_completion_zsh },
	{ "fish", cli_completion_fish },
};

static int cmd_completion(struct cli *c)
{
	if (strcmp(c->arg[0], "words") == 0) {
		cli_complete(c->arg + 1, c->n_args - 1, c->global[CLI_SOCKET]);
		return CLI_OK;
	}
	for (size_t i = 0; i < ARRAY_SIZE(shells); i++) {
		if (strcmp(c->arg[0], shells[i].name) == 0 && c->n_args == 1) {
			fputs(shells[i].script, stdout);
			return CLI_OK;
		}
	}
	return cli_fail(c, CLI_USAGE, "usage", "Use: gbpf completion bash|zsh|fish",
			"completion: unsupported shell '%s'", c->arg[0]);
}

const struct cli_verb verb_completion = {
	.name = "completion",
	.args = "bash|zsh|fish|words [-- WORD...]",
	.doc = "print the completion code of a shell",
	.page = "gbpf.1",
	.min_args = 1,
	.max_args = -1,
	.run = cmd_completion,
};
