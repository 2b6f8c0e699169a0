/* Parses the command line; environment variables give the defaults. */
#include "daemon/main/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/paths.h"

static const char help[] =
	"Usage: gbpfd [--foreground] [OPTIONS]\n"
	"\n"
	"The daemon of gBPF: loads, verifies and swaps GPU policies, and serves the programs\n"
	"that run under `gbpf run`. Without --foreground it goes to the background when it is "
	"ready.\n"
	"\n"
	"  --foreground        stay in the foreground, log to standard error\n"
	"  --device KIND       soft, nvidia or auto (default: $GBPF_DEVICE, else auto)\n"
	"  --policy NAME       initial policy: an installed one, or the path of a .bpf.o\n"
	"                      (default: the one that was active last, else fair)\n"
	"  --runtime-dir DIR   sockets and lock (default: $GBPF_RUNTIME_DIR, else /run/gbpf for\n"
	"                      root, else $XDG_RUNTIME_DIR/gbpf, else /tmp/gbpf-<uid>)\n"
	"  --state-dir DIR     kept policies and history (default: $GBPF_STATE_DIR, else\n"
	"                      /var/lib/gbpf for root, else $XDG_STATE_HOME/gbpf, else\n"
	"                      ~/.local/state/gbpf)\n"
	"  --idle-exit SECONDS exit after this time without a connected program\n"
	"  --pinned-mib MIB    host memory that all virtual GPUs together may pin (default: half\n"
	"                      of the machine's memory)\n"
	"  --ready-fd N        write \"ready\" to descriptor N when serving\n"
	"  --help, --version\n"
	"\n"
	"Exit codes: 0 ended as asked, 1 failed (for example: another gbpfd runs), 2 usage.\n";

enum { FOREGROUND = 1000, DEVICE, POLICY, RUNTIME, STATE, IDLE, PINNED, READY, HELP, VERSION };

static int number(const char *text, long max, const char *what, long *ret)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10);
	if (errno || *end || end == text || n < 0 || n > max) {
		fprintf(stderr,
			"gbpfd: invalid value for %s: '%s': expected a number from 0 to %ld\n",
			what, text, max);
		return -EINVAL;
	}
	*ret = n;
	return 0;
}

static int copy(char *out, size_t cap, const char *text, const char *what)
{
	if (!text[0]) { /* an unset variable of a script must not lead to a default */
		fprintf(stderr, "gbpfd: empty value for %s: expected a name or a path\n", what);
		return -EINVAL;
	}
	if (snprintf(out, cap, "%s", text) >= (int)cap) {
		fprintf(stderr, "gbpfd: %s is too long\n", what);
		return -EINVAL;
	}
	return 0;
}

static int take(struct daemon_options *o, int option)
{
	long n;

	switch (option) {
	case FOREGROUND:
		o->foreground = true;
		return 1;
	case DEVICE:
		return copy(o->device, sizeof(o->device), optarg, "--device") ? -EINVAL : 1;
	case POLICY:
		return copy(o->policy, sizeof(o->policy), optarg, "--policy") ? -EINVAL : 1;
	case RUNTIME:
		return copy(o->runtime, sizeof(o->runtime), optarg, "--runtime-dir") ? -EINVAL : 1;
	case STATE:
		o->state_given = true;
		return copy(o->state, sizeof(o->state), optarg, "--state-dir") ? -EINVAL : 1;
	case IDLE:
		if (number(optarg, 31536000, "--idle-exit", &n) < 0) {
			return -EINVAL;
		}
		o->idle_exit_s = (unsigned)n;
		return 1;
	case PINNED:
		if (number(optarg, INT32_MAX, "--pinned-mib", &n) < 0) {
			return -EINVAL;
		}
		o->pinned_mib = (uint64_t)n;
		return 1;
	case READY:
		if (number(optarg, 1048576, "--ready-fd", &n) < 0) {
			return -EINVAL;
		}
		o->ready_fd = (int)n;
		return 1;
	case HELP:
		fputs(help, stdout);
		return 0;
	case VERSION:
		printf("gbpfd %s\n", GBPF_VERSION_TEXT);
		return 0;
	default:
		fputs("Try `gbpfd --help`.\n", stderr);
		return -EINVAL;
	}
}

static int check(struct daemon_options *o)
{
	static const char *const kinds[] = { "soft", "nvidia", "auto" };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(o->device, kinds[i]) == 0) {
			return 1;
		}
	}
	fprintf(stderr, "gbpfd: invalid device kind '%s': use soft, nvidia or auto\n", o->device);
	return -EINVAL;
}

/* Takes the directories that no option names from the environment. */
static int take_defaults(struct daemon_options *o)
{
	char text[512];
	int err = o->runtime[0] ? 0 : path_runtime(o->runtime, sizeof(o->runtime), NULL);

	if (!err && !o->state_given) {
		err = path_state(o->state, sizeof(o->state), NULL);
	}
	if (!err) {
		char unused[DAEMON_PATH];

		err = path_lib(unused, sizeof(unused), NULL);
		err = err == -EINVAL ? err : 0;
	}
	if (err) {
		path_explain(err, text, sizeof(text));
		fprintf(stderr, "gbpfd: %s\n", text);
	}
	return err;
}

int daemon_options_parse(struct daemon_options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, FOREGROUND },
		{ "device", required_argument, NULL, DEVICE },
		{ "policy", required_argument, NULL, POLICY },
		{ "runtime-dir", required_argument, NULL, RUNTIME },
		{ "state-dir", required_argument, NULL, STATE },
		{ "idle-exit", required_argument, NULL, IDLE },
		{ "pinned-mib", required_argument, NULL, PINNED },
		{ "ready-fd", required_argument, NULL, READY },
		{ "help", no_argument, NULL, HELP },
		{ "version", no_argument, NULL, VERSION },
		{ 0 },
	};
	const char *device = getenv("GBPF_DEVICE");
	int option, r;

	*o = (struct daemon_options){ .ready_fd = -1 };
	snprintf(o->device, sizeof(o->device), "%s", device && device[0] ? device : "auto");
	while ((option = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
		r = take(o, option);
		if (r <= 0) {
			return r;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gbpfd: unexpected argument '%s'. Try `gbpfd --help`.\n",
			argv[optind]);
		return -EINVAL;
	}
	if (take_defaults(o) < 0) {
		return -EINVAL;
	}
	return check(o);
}
