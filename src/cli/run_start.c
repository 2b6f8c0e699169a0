/* What the verbs that start a program do before they start it. */
#include "cli/run_start.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/runtime_choice.h"

bool cli_run_find_command(const char *command, char full[PATH_MAX])
{
	const char *path = getenv("PATH");

	full[0] = '\0';
	if (!command[0]) {
		return false;
	}
	if (strchr(command, '/')) {
		snprintf(full, PATH_MAX, "%s", command);
		return access(command, F_OK) == 0 || errno != ENOENT;
	}
	if (!path) {
		return true; /* without PATH execvp uses its own default */
	}
	for (const char *p = path;; p++) {
		size_t n = strcspn(p, ":");

		if (snprintf(full, PATH_MAX, "%.*s%s%s", (int)n, p, n ? "/" : "./", command) >=
			    PATH_MAX ||
		    access(full, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR)) {
			return true;
		}
		p += n;
		if (!*p) {
			return false;
		}
	}
}

/* Stores the interpreter that the first line of a script names; an empty text if it names none. */
static void read_interpreter(const char *script, char *ret, size_t cap)
{
	char line[256] = { 0 };
	FILE *f = fopen(script, "re");
	const char *at = line + 2;

	ret[0] = '\0';
	if (f && fgets(line, sizeof(line), f) && strncmp(line, "#!", 2) == 0) {
		at += strspn(at, " \t");
		snprintf(ret, cap, "%.*s", (int)strcspn(at, " \t\r\n"), at);
	}
	if (f) {
		fclose(f);
	}
}

int cli_run_exec_failed(struct cli *c, const char *what, const char *program, int err)
{
	char full[PATH_MAX], interpreter[256];

	if (err == ENOENT && cli_run_find_command(program, full) && full[0]) {
		read_interpreter(full, interpreter, sizeof(interpreter));
		return cli_fail(c, CLI_RUN_CANNOT_EXEC, "exec", NULL,
				"%s: '%s' cannot be executed: %s%s%s does not exist", what, program,
				interpreter[0] ? "its interpreter '" : "the loader that it needs",
				interpreter, interpreter[0] ? "'" : "");
	}
	if (err == ENOENT) {
		return cli_fail(c, CLI_RUN_NO_COMMAND, "no-command",
				"Is it spelt right, and on the PATH?", "%s: '%s' not found", what,
				program);
	}
	return cli_fail(c, CLI_RUN_CANNOT_EXEC, "exec",
			err == EACCES ? "Is it an executable file?" : NULL,
			"%s: '%s' cannot be executed: %s", what, program, strerror(err));
}

static int set_dir(struct cli *c, const char *what, const char *path)
{
	static const char leaf[] = "/control.sock";
	size_t n = strlen(path);
	char dir[PATH_MAX];

	if (n > sizeof(leaf) - 1 && strcmp(path + n - (sizeof(leaf) - 1), leaf) == 0) {
		n -= sizeof(leaf) - 1;
	}
	if (path[0] != '/' || n >= sizeof(dir)) {
		return cli_fail(c, CLI_RUN_FAILED, "usage", "Give an absolute path",
				"%s: --socket: '%s' is not an absolute path", what, path);
	}
	snprintf(dir, sizeof(dir), "%.*s", (int)n, path);
	return setenv("GBPF_RUNTIME_DIR", dir, 1) == 0 ? 0 : CLI_RUN_FAILED;
}

int cli_run_use_socket(struct cli *c, const char *what, bool *ret_undecided)
{
	const char *path = c->global[CLI_SOCKET];
	bool roots = !path && runtime_is_roots(), undecided = roots && ret_undecided;
	char chosen[PATH_MAX];

	if (ret_undecided) {
		*ret_undecided = undecided;
	}
	if (undecided || (!path && runtime_path_of(roots, chosen, sizeof(chosen), NULL) < 0)) {
		return 0; /* an error is reported later, or by gbpf_open() */
	}
	return set_dir(c, what, path ? path : chosen);
}

int cli_run_start_daemon(struct cli *c, const char *what, const struct cli_run_device *d,
			 bool undecided, struct gbpf **ret)
{
	struct gbpf_start_options o = { .size = sizeof(o), .device = d->soft ? "soft" : "nvidia" };
	int code;

	*ret = NULL;
	code = cli_open(c, ret);
	if (c->global[CLI_TIMEOUT_OPT]) {
		o.timeout_ms = cli_timeout_ms(c) ? cli_timeout_ms(c) : UINT32_MAX;
	}
	if (code == CLI_OK && gbpf_start_daemon(*ret, &o) < 0) {
		code = cli_fail_daemon(c, *ret, what);
	}
	if (code == CLI_OK && undecided) {
		code = set_dir(c, what, gbpf_socket_path(*ret));
		if (strcmp(gbpf_socket_path(*ret), RUNTIME_OF_ROOT "/control.sock") != 0) {
			cli_note(c, "gbpf: %s: root's gbpfd has ended: using your own on %s", what,
				 gbpf_socket_path(*ret));
		}
	}
	return code;
}
