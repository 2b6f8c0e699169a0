/* gbpf: the command line. Looks up a verb in the table and runs it; every verb has a file of its
 * own. */
#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/paths.h"
#include "cli/cli.h"
#include "cli/interrupt.h"

static bool wants_color(const struct cli *c, int fd)
{
	const char *mode = c->global[CLI_COLOR];
	const char *no_color = getenv("NO_COLOR");
	const char *term = getenv("TERM");

	if (mode && strcmp(mode, "auto") != 0) {
		return strcmp(mode, "always") == 0;
	}
	return !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0) && isatty(fd);
}

static int run_verb(struct cli *c)
{
	char path[PATH_MAX];

	if (c->global[CLI_VERSION]) {
		c->group = NULL;
		c->verb = cli_verb_find(cli_verbs, "version");
		return c->verb->run(c);
	}
	if (c->global[CLI_HELP]) {
		cli_usage(c, stdout);
		return CLI_OK;
	}
	if (!c->verb || c->verb->subs) {
		cli_usage(c, stderr);
		return CLI_USAGE;
	}
	if (path_lib(path, sizeof(path), NULL) == -EINVAL ||
	    path_program(path, sizeof(path), "gbpf") == -EINVAL) {
		path_explain(-EINVAL, path, sizeof(path));
		return cli_fail(c, CLI_USAGE, "usage", "Unset it, or set it to an absolute path",
				"%s", path);
	}
	return c->verb->run(c);
}

int main(int argc, char **argv)
{
	struct cli c = { 0 };
	int code, written;

	setlocale(LC_CTYPE, "");
	c.sigpipe = signal(SIGPIPE, SIG_IGN); /* a closed pipe is reported as a write error */
	c.sigchld = signal(SIGCHLD, SIG_DFL); /* if it is ignored, ends of children are not seen */
	c.color_err = wants_color(&c, STDERR_FILENO);
	code = cli_parse(&c, argc, argv);
	if (code) {
		return code;
	}
	c.color_out = wants_color(&c, STDOUT_FILENO);
	c.color_err = wants_color(&c, STDERR_FILENO);
	code = run_verb(&c);
	written = cli_flush(&c);
	cli_interrupt_end();
	return code == CLI_OK ? written : code;
}
