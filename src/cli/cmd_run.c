/* `gbpf run`: starts a program under the shim and forwards signals to it and its exit code to the
 * caller. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "cli/connect.h"
#include "cli/run_check.h"
#include "cli/run_env.h"
#include "cli/run_probe.h"
#include "cli/run_start.h"
#include "cli/verbs.h"
#include "cli/vgpu_environment.h"
#include "cli/vgpu_options.h"

#define FATE_TIMEOUT_NS                                                                            \
	3000000000u /* max wait for the exit record, which gbpfd has once the driver has ended the \
		       process */
#define FATE_LOOK_NS 20000000u
#define BACKOFF_NS 100000000u /* first delay; doubled with each restart */
#define BACKOFF_MOST_NS 10000000000u

enum {
	O_CLASS,
	O_NAME,
	O_WEIGHT,
	O_LANE,
	O_HINT,
	O_DEVICE,
	O_RESTART,
	O_CHECK,
	O_PROBES,
	O_PROBE,
	O_STRICT,
	O_OFF,
	O_VGPU,
	O_GROUP,
	O_GIVEN, /* the first option of what a new virtual GPU is given */
};

static const struct cli_option options[] = {
	[O_CLASS] = { "class", 'c', "latency|normal|batch", "scheduling class (default normal)" },
	[O_NAME] = { "name", 'n', "NAME", "shown by gbpf ps (default: the program's)" },
	[O_WEIGHT] = { "weight", 'w', "1-10000",
		       "relative GPU share under weight-based policies (default 100)" },
	[O_LANE] = { "lane", 'l', "auto|process|shared",
		     "sharing mode: a context of its own, or one shared with others (default auto: "
		     "the policy chooses)" },
	[O_HINT] = { "hint", 0, "HINT", "request announcements: auto, off or period:MICROSECONDS" },
	[O_DEVICE] = { "device", 'd', "soft|nvidia|auto",
		       "device (default auto: NVIDIA if present)" },
	[O_RESTART] = { "restart", 0, "TIMES",
			"restart it after a fault of a neighbour in the shared lane, where "
			"the policy allows it" },
	[O_CHECK] = { "check", 0, NULL,
		      "run on a soft GPU that reports memory errors and races of kernels" },
	[O_PROBES] = { "probes", 0, NULL,
		       "load PTX so that all of its kernels can be probed later" },
	[O_PROBE] = { "probe", 0, "TOOL",
		      "attach it before the program starts, and print its maps at the end" },
	[O_STRICT] = { "strict", 0, NULL, "without gbpfd fail instead of running unmanaged" },
	[O_OFF] = { "off", 0, NULL, "pass everything through: for comparing" },
	[O_VGPU] = { "vgpu", 0, CLI_VGPU_ARG, "virtual GPU to run in (see gbpf-vgpu(1))" },
	[O_GROUP] = { "group", 0, "NAME",
		      "processes that communicate across GPUs are stopped together with those of "
		      "this name (default: those of this command)" },
	CLI_VGPU_TABLE(O_GIVEN),
	{ NULL, 0, NULL, NULL },
};

struct started {
	pid_t child;	   /* -1: could not be started */
	uint64_t at_ns;	   /* upper bound of its start time */
	bool asked_to_end; /* a signal asked it to end; it may have ignored that */
	struct cli_run_probe *probe;
};

static const int forwarded[] = { SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT, SIGUSR1,
				 SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT };

static void signal_set(sigset_t *set)
{
	sigemptyset(set);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
		sigaddset(set, forwarded[i]);
	}
	sigaddset(set, SIGCHLD);
}

/* Runs in the child. Reports a failed exec through the pipe, which a successful exec closes. */
static void NORETURN start_child(const struct cli *c, const sigset_t *mask, int report_fd)
{
	int err;

	signal(SIGPIPE, c->sigpipe);
	signal(SIGCHLD, c->sigchld);
	sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(c->arg[0], c->arg);
	err = errno;
	if (write(report_fd, &err, sizeof(err)) < 0) {
		_exit(CLI_RUN_FAILED);
	}
	_exit(CLI_RUN_CANNOT_EXEC);
}

/* Stops with the child when the terminal stops it, so that the shell sees the job as stopped. */
static void stop_too(int sig)
{
	if (sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
		raise(SIGSTOP);
	}
}

/* Returns true, with the exit code, if the child has ended. */
static bool reap(pid_t child, int *ret_code)
{
	int status;

	while (waitpid(child, &status, WNOHANG | WUNTRACED) == child) {
		if (WIFSTOPPED(status)) {
			stop_too(WSTOPSIG(status));
			continue;
		}
		*ret_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
		return true;
	}
	return false;
}

static bool asks_to_end(int sig)
{
	return sig == SIGINT || sig == SIGTERM || sig == SIGHUP || sig == SIGQUIT;
}

/* Returns the next signal, or -1 if the tool is to be read first. */
static int wait_signal(const struct started *s, const sigset_t *set, siginfo_t *info)
{
	uint64_t ns = cli_run_probe_due(s->probe);
	struct timespec t = clock_timespec(ns);

	return ns == UINT64_MAX ? sigwaitinfo(set, info) : sigtimedwait(set, info, &t);
}

/* Forwards signals until the child ends. The child is in the same process group, so it has already
 * received a signal from the terminal; one sent to this process alone must be forwarded. */
static int stand_in(struct cli *c, struct started *s, const sigset_t *set)
{
	int code = CLI_RUN_FAILED;

	while (!reap(s->child, &code)) {
		siginfo_t info;
		int sig = wait_signal(s, set, &info);

		s->asked_to_end |= asks_to_end(sig);
		if (sig > 0 && sig != SIGCHLD && info.si_code <= 0) {
			kill(s->child, sig);
		}
		if (!cli_run_probe_due(s->probe)) {
			cli_run_probe_read(c, s->probe);
		}
	}
	return code;
}

/* Runs the program once. set is blocked; the child gets old. */
static int run_once(struct cli *c, const sigset_t *set, const sigset_t *old, struct started *s)
{
	int pipe_fd[2], err = 0;
	ssize_t n;
	pid_t child;

	if (pipe2(pipe_fd, O_CLOEXEC) < 0) {
		return cli_fail(c, CLI_RUN_FAILED, "pipe", NULL, "run: pipe: %s", strerror(errno));
	}
	s->at_ns = clock_now_ns();
	child = fork();
	if (child < 0) {
		err = errno;
		fd_close(pipe_fd[0]);
		fd_close(pipe_fd[1]);
		return cli_fail(c, CLI_RUN_FAILED, "fork", NULL, "run: fork: %s", strerror(err));
	}
	if (child == 0) {
		start_child(c, old, pipe_fd[1]);
	}
	fd_close(pipe_fd[1]);
	do {
		n = read(pipe_fd[0], &err, sizeof(err));
	} while (n < 0 && errno == EINTR);
	fd_close(pipe_fd[0]);
	if (n == (ssize_t)sizeof(err)) {
		waitpid(child, NULL, 0);
		return cli_run_exec_failed(c, "run", c->arg[0], err);
	}
	s->child = child;
	s->probe->started = true;
	return stand_in(c, s, set);
}

/* Queries gbpfd's exit record of a process, which may appear a moment later. Returns how many
 * restarts are allowed, with the reason in *ret_why (caller frees; NULL: none). */
static uint64_t restarts_allowed(struct cli *c, const struct started *s, char **ret_why)
{
	uint64_t now = clock_now_ns(), until = now + clock_patience(FATE_TIMEOUT_NS), n = 0;
	struct gbpf *g = NULL;
	char params[64];
	bool known = false;

	*ret_why = NULL;
	if (gbpf_open(&g, c->global[CLI_SOCKET], GBPF_OPEN_NO_CONNECT) < 0) {
		gbpf_close(g);
		return 0;
	}
	for (; !known && now < until; now = clock_now_ns()) {
		char *text = NULL;
		json_t *j;

		gbpf_set_timeout(g, (unsigned)((until - now) / 1000000u) + 1);
		snprintf(params, sizeof(params), "{\"pid\":%d,\"age_ns\":%llu}", (int)s->child,
			 (unsigned long long)(now - s->at_ns));
		if (gbpf_call(g, "restart", params, -1, &text) < 0) {
			break;
		}
		j = text ? json_loads(text, 0, NULL) : NULL;
		free(text);
		known = json_is_true(json_object_get(j, "known"));
		n = cli_u64(j, "restarts");
		*ret_why = known && n ? strdup(cli_text(j, "why")) : NULL;
		json_decref(j);
		if (!known) {
			clock_sleep_ns(FATE_LOOK_NS);
		}
	}
	gbpf_close(g);
	return *ret_why ? n : 0;
}

/* Waits before a restart. Returns false if a signal for the program ends the wait. */
static bool wait_backoff(unsigned restarts)
{
	uint64_t ns = MIN((uint64_t)BACKOFF_NS << MIN(restarts, 10u), (uint64_t)BACKOFF_MOST_NS);
	struct timespec t = clock_timespec(ns);
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigaddset(&ends, SIGQUIT);
	return sigtimedwait(&ends, NULL, &t) < 0;
}

static int run_program(struct cli *c, struct cli_run_probe *probe)
{
	uint64_t most = 0, allowed;
	sigset_t set, old;
	int code;
	char *why;

	if (c->opt[O_RESTART]) {
		(void)cli_number(c, "--restart", c->opt[O_RESTART], 1, 100, &most);
	}
	signal_set(&set);
	sigprocmask(SIG_BLOCK, &set, &old);
	for (unsigned n = 0;; n++) {
		struct started s = { .child = -1, .probe = probe };

		code = run_once(c, &set, &old, &s);
		if (code == 0 || s.child < 0 || s.asked_to_end || n >= most) {
			return code;
		}
		allowed = restarts_allowed(c, &s, &why);
		if (n < allowed) {
			cli_note(c,
				 "gbpf: run: '%s' ended with code %d, and %s: starting it again "
				 "(%u of %llu)",
				 c->arg[0], code, why, n + 1,
				 (unsigned long long)MIN(most, allowed));
		}
		free(why);
		if (n >= allowed || !wait_backoff(n)) {
			return code;
		}
	}
}

/* A running gbpfd decides the device unless the user chose one. */
static int follow_device(struct cli *c, const struct gbpf_hello *hello, struct cli_run_device *d,
			 struct report *r)
{
	const char *device = d->soft ? "soft" : "nvidia";
	bool chosen = c->opt[O_DEVICE] && strcmp(c->opt[O_DEVICE], "auto") != 0;

	if (strcmp(hello->device, device) == 0 ||
	    (strcmp(hello->device, "soft") != 0 && strcmp(hello->device, "nvidia") != 0)) {
		return CLI_OK;
	}
	if (chosen || getenv("GBPF_REAL_CUDA")) {
		cli_note(c,
			 "gbpf: run: gbpfd uses the device '%s', this program '%s'. "
			 "To change it: %s, then run again",
			 hello->device, device,
			 geteuid() == 0 || (uid_t)hello->uid == geteuid()
				 ? "gbpf shutdown"
				 : "set GBPF_RUNTIME_DIR to a directory of your own");
		return CLI_OK;
	}
	return cli_run_choose_device(hello->device, d, r) < 0
		       ? cli_fail_report(c, CLI_RUN_FAILED, "run", r)
		       : CLI_OK;
}

static int start_daemon(struct cli *c, struct cli_run_device *d, bool undecided, struct report *r)
{
	struct gbpf *g = NULL;
	int code = cli_run_start_daemon(c, "run", d, undecided, &g);

	if (code == CLI_OK) {
		code = follow_device(c, gbpf_hello(g), d, r);
	}
	gbpf_close(g);
	return code;
}

static int check_hint(struct cli *c)
{
	const char *hint = c->opt[O_HINT], *class_name = c->opt[O_CLASS];
	uint64_t us;

	if (!hint || strcmp(hint, "off") == 0) {
		return CLI_OK;
	}
	if (strcmp(hint, "auto") != 0 && strncmp(hint, "period:", 7) != 0) {
		return cli_fail(c, CLI_USAGE, "usage", "Use auto, off or period:MICROSECONDS",
				"run: --hint: unknown value '%s'", hint);
	}
	if (!class_name || strcmp(class_name, "latency") != 0) {
		cli_note(c, "gbpf: run: --hint has no effect unless the class is latency");
	}
	if (strcmp(hint, "auto") == 0) {
		return CLI_OK;
	}
	return cli_number(c, "--hint period", hint + 7, 2000, 10000000, &us);
}

/* Reads which virtual GPU the program shall be in: zero for that of the environment, or none. */
static int check_vgpu(struct cli *c, struct proto_vgpu *v)
{
	bool given = cli_vgpu_any(c->opt + O_GIVEN), inside = getenv("GBPF_VGPU") != NULL;
	const char *name = c->opt[O_VGPU];
	char own[CLI_VGPU_NAME] = "";
	int code;

	memset(v, 0, sizeof(*v));
	if (c->opt[O_OFF] && (inside || given || name)) {
		return cli_fail(
			c, CLI_USAGE, "usage", "Leave --off away",
			inside ? "run: --off: this process is in a virtual GPU, which has a limit"
			       : "run: --off switches the limits of a virtual GPU off");
	}
	if (given && name) {
		return cli_fail(c, CLI_USAGE, "usage", "`gbpf vgpu set` changes what it is given",
				"run: --vgpu names a virtual GPU that has its limits already");
	}
	if (inside && (given || name)) {
		return cli_fail(
			c, CLI_USAGE, "usage",
			"Leave the option away: the program gets the limits that are in force",
			"run: this process is in a virtual GPU already");
	}
	if (name && cli_vgpu_name(c, "run", name, own) != CLI_OK) {
		return CLI_RUN_FAILED;
	}
	if (name && proto_vgpu_parse_name(own, v) < 0) {
		return cli_fail(c, CLI_USAGE, "usage", "`gbpf vgpu ls` lists them",
				"run: '%s' cannot be the name of a virtual GPU", name);
	}
	if (name || inside || c->opt[O_OFF]) {
		return CLI_OK;
	}
	code = cli_vgpu_from_environment(c, &v->config);
	code = code ? code : cli_vgpu_read(c, "run", c->opt + O_GIVEN, &v->config);
	if (!code && v->config.swap && !proto_vgpu_limits_mem(&v->config)) {
		code = cli_fail(c, CLI_USAGE, "usage", "Give --mem, beyond which memory leaves",
				"run: --swap without --mem");
	}
	return code;
}

/* Returns true if a vGPU has the name, and the owner if there is one, that *is states. */
static bool is_meant(const json_t *v, const struct proto_vgpu *is)
{
	return strcmp(cli_text(v, "name"), is->name) == 0 &&
	       (!is->number || is->number == 1 + cli_u64(v, "uid"));
}

/* Reports a wrong name before the program starts. name: the option. Stores the owner in *is, so
 * that all that the program starts gets into the same vGPU, also as another user. */
static int find_vgpu(struct cli *c, struct proto_vgpu *is, const char *name)
{
	char own[CLI_VGPU_NAME] = "";
	json_t *result = NULL, *v;
	bool found = false;
	size_t i;

	if (!is->name[0]) {
		return CLI_OK;
	}
	if (proto_vgpu_print(is, own, sizeof(own)) < 0 ||
	    cli_call(c, "run", "vgpu.list", json_pack("{s:s,s:b}", "name", own, "join", 1),
		     &result)) {
		return CLI_RUN_FAILED;
	}
	json_array_foreach(json_object_get(result, "vgpus"), i, v)
	{
		if (is_meant(v, is)) {
			is->number = 1 + cli_u64(v, "uid");
			found = true;
		}
	}
	json_decref(result);
	return found ? CLI_OK
		     : cli_fail(c, CLI_RUN_FAILED, "not-found",
				"`gbpf vgpu ls` lists them; `gbpf vgpu create` makes one",
				"run: there is no virtual GPU '%s' for this user", name);
}

/* Checks the name that an option gives. */
static int check_name(struct cli *c, int option, const char *text)
{
	const char *name = c->opt[option];

	if (name && (!name[0] || strlen(name) > 63)) {
		return cli_fail(c, CLI_USAGE, "usage",
				name[0] ? "Choose a shorter one" : "Give one, or leave it away",
				"run: %s: 1 to 63 bytes are allowed, not %zu", text, strlen(name));
	}
	return CLI_OK;
}

/* Returns whether gbpfd compares the name as it is: it replaces control characters and bytes that
 * are not UTF-8. */
static bool is_plain(const char *name)
{
	json_t *j = json_string(name);
	bool plain = j;

	for (; plain && *name; name++) {
		plain = (unsigned char)*name >= 0x20 && *name != 0x7f;
	}
	json_decref(j);
	return plain;
}

/* Its target is the program's name. */
static int check_probe(struct cli *c)
{
	const char *name = c->opt[O_NAME];

	if (c->opt[O_PROBE] && c->opt[O_OFF]) {
		return cli_fail(c, CLI_USAGE, "usage", "Leave --off away",
				"run: --off: kernels run no tool");
	}
	if (c->opt[O_PROBE] && name && !name[strspn(name, "0123456789")]) {
		return cli_fail(c, CLI_USAGE, "usage", "Choose a name with a letter",
				"run: --probe: the name '%s' would mean a process", name);
	}
	if (c->opt[O_PROBE] && name && !is_plain(name)) {
		return cli_fail(c, CLI_USAGE, "usage", "Choose a name of printable characters",
				"run: --probe: the name '%s' has others", name);
	}
	return CLI_OK;
}

static int check_settings(struct cli *c)
{
	struct proto_vgpu vgpu;
	uint64_t weight, times;
	int code;

	if ((code = check_name(c, O_NAME, "--name")) != CLI_OK ||
	    (code = check_name(c, O_GROUP, "--group")) != CLI_OK ||
	    (code = check_probe(c)) != CLI_OK) {
		return code;
	}
	if ((code = check_hint(c)) != CLI_OK || (code = check_vgpu(c, &vgpu)) != CLI_OK) {
		return code;
	}
	if (c->opt[O_RESTART] &&
	    (code = cli_number(c, "--restart", c->opt[O_RESTART], 1, 100, &times)) != CLI_OK) {
		return code;
	}
	return c->opt[O_WEIGHT] ? cli_number(c, "--weight", c->opt[O_WEIGHT], 1, 10000, &weight)
				: CLI_OK;
}

static int prepare(struct cli *c, bool undecided, struct report *r)
{
	struct cli_run_settings s = { .class_name = c->opt[O_CLASS],
				      .name = c->opt[O_NAME],
				      .group = c->opt[O_GROUP],
				      .weight = c->opt[O_WEIGHT],
				      .lane = c->opt[O_LANE],
				      .hint = c->opt[O_HINT],
				      .probes = c->opt[O_PROBES],
				      .strict = c->opt[O_STRICT],
				      .off = c->opt[O_OFF] };
	struct cli_run_device d;
	char shim[CLI_RUN_PATH], full[PATH_MAX];
	int code;

	(void)check_vgpu(c, &s.vgpu);
	if (c->opt[O_CHECK] && c->opt[O_DEVICE] && strcmp(c->opt[O_DEVICE], "soft") != 0) {
		return cli_fail(c, CLI_USAGE, "usage", "Leave --device away, or say soft",
				"run: --check works on the soft GPU alone");
	}
	if (cli_run_choose_device(c->opt[O_CHECK] ? "soft" : c->opt[O_DEVICE], &d, r) < 0) {
		return cli_fail_report(c, CLI_RUN_FAILED, "run", r);
	}
	if (cli_run_find_shim(shim) < 0) {
		return cli_fail(
			c, CLI_RUN_FAILED, "install",
			"Is gBPF installed whole? GBPF_LIBDIR can say where its libraries are",
			"run: the shim is missing: %s", shim);
	}
	if (!cli_run_find_command(c->arg[0], full)) {
		return cli_run_exec_failed(c, "run", c->arg[0], ENOENT);
	}
	code = s.off ? CLI_OK : start_daemon(c, &d, undecided, r);
	if (code == CLI_OK) {
		code = find_vgpu(c, &s.vgpu, c->opt[O_VGPU]);
	}
	if (code == CLI_OK && cli_run_set_environment(&s, &d, shim, r) < 0) {
		code = cli_fail_report(c, CLI_RUN_FAILED, "run", r);
	}
	return code;
}

static int run_checked(struct cli *c, struct cli_run_probe *probe)
{
	struct cli_run_check k = { 0 };
	int code = cli_run_check_start(c, &k);

	return code == CLI_OK ? cli_run_check_end(&k, run_program(c, probe)) : code;
}

/* The program, its soft GPU and gbpfd find each other by these variables. */
static int check_environment(struct cli *c)
{
	char text[512];

	if (!path_relative_variable()) {
		return CLI_OK;
	}
	path_explain(-EINVAL, text, sizeof(text));
	return cli_fail(c, CLI_RUN_FAILED, "usage", "Unset it, or set it to an absolute path",
			"run: %s", text);
}

static int cmd_run(struct cli *c)
{
	struct cli_run_probe probe = { 0 };
	struct report r;
	bool undecided = false;
	char name[32];
	int code = check_settings(c);

	if (c->opt[O_PROBE] && !c->opt[O_NAME]) {
		snprintf(name, sizeof(name), "run-%d", (int)getpid());
		c->opt[O_NAME] = name;
	}

	if (code == CLI_OK) {
		code = cli_run_use_socket(c, "run", c->opt[O_OFF] ? NULL : &undecided);
	}
	if (code == CLI_OK) {
		code = check_environment(c);
	}
	if (code == CLI_OK) {
		report_init(&r);
		code = prepare(c, undecided, &r);
		report_finish(&r);
	}
	if (code == CLI_OK && c->opt[O_PROBE] &&
	    cli_run_probe_begin(c, &probe, c->opt[O_PROBE], c->opt[O_NAME]) != CLI_OK) {
		code = CLI_RUN_FAILED;
	}
	if (code == CLI_OK) {
		code = c->opt[O_CHECK] ? run_checked(c, &probe) : run_program(c, &probe);
	}
	cli_run_probe_end(c, &probe);
	return code;
}

const struct cli_verb verb_run = {
	.name = "run",
	.args = "[--] COMMAND [ARGUMENT]...",
	.doc = "run a program under gBPF; starts gbpfd when none runs",
	.page = "gbpf-run.1",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.command = true,
	.run = cmd_run,
};
