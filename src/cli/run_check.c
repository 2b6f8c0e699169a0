/* The checking soft GPU of `gbpf run --check`. It runs as long as the program, writes findings to
 * standard error, and its exit code reports whether there were any. */
#include "cli/run_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/softgpu_start.h"

int cli_run_check_start(struct cli *c, struct cli_run_check *k)
{
	static const char *const check[] = { "--check", NULL };
	char sock[96];

	snprintf(k->dir, sizeof(k->dir), "/tmp/gbpf-check-XXXXXX");
	if (!mkdtemp(k->dir)) {
		return cli_fail(c, CLI_RUN_FAILED, "check", NULL, "run: no folder in /tmp: %s",
				strerror(errno));
	}
	snprintf(sock, sizeof(sock), "%s/softgpu.sock", k->dir);
	if (cli_softgpu_start(k->dir, check, &k->pid) < 0 ||
	    setenv("GBPF_SOFTGPU_SOCKET", sock, 1) < 0 ||
	    setenv("GBPF_BLOCK", "0", 1) <
		    0) { /* line numbers in findings refer to the program's own PTX */
		cli_run_check_end(k, 0);
		return cli_fail(
			c, CLI_RUN_FAILED, "check",
			"Is gBPF installed whole? GBPF_BINDIR can say where its programs are",
			"run: gbpf-softgpu cannot be started");
	}
	return CLI_OK;
}

static void remove_folder(const char *dir)
{
	static const char *const leaves[] = { "softgpu.sock", "softgpu.sock.lock",
					      "softgpu.sock.start", "softgpu.log" };
	char path[96];

	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, leaves[i]);
		unlink(path);
	}
	rmdir(dir);
}

int cli_run_check_end(struct cli_run_check *k, int code)
{
	int status = cli_softgpu_stop(k->pid);

	k->pid = 0;
	remove_folder(k->dir);
	return code == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0) ? CLI_FAILED : code;
}
