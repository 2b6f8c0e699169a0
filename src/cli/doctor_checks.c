/* The checks of `gbpf doctor`. Each records its result and, if something will not work, a remedy.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/private_dir.h"
#include "base/runtime_choice.h"
#include "bpf/run/exec_mem.h"
#include "cli/capabilities.h"
#include "cli/connect.h"
#include "cli/doctor.h"
#include "cli/softgpu_start.h"

#define REINSTALL "Install gBPF whole, or set GBPF_LIBDIR and GBPF_BINDIR to where it is"
#define FREE_BYTES_WANTED (16u << 20)
#define PROBE_TIMEOUT_NS UINT64_C(10000000000)

void cli_doctor_check_install(struct cli_doctor *d)
{
	char path[PATH_MAX];

	if (cli_run_find_shim(path) == 0) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "shim", NULL, "%s", path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "shim", REINSTALL, "missing: %s", path);
	}
	if (path_program(path, sizeof(path), "gbpfd") == 0 && access(path, X_OK) == 0) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "gbpfd", NULL, "%s", path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "gbpfd", REINSTALL, "missing: %s", path);
	}
}

static void check_driver_version(struct cli_doctor *d)
{
	struct buf text = { 0 };

	if (buf_read_file(&text, "/proc/driver/nvidia/version", 65536) == 0) {
		const char *first = buf_text(&text);

		cli_doctor_find(d, CLI_DOCTOR_OK, "NVIDIA driver", NULL, "%.*s",
				(int)strcspn(first, "\n"), first);
	} else {
		cli_doctor_find(
			d, CLI_DOCTOR_NOTE, "NVIDIA driver", NULL,
			"/proc/driver/nvidia/version cannot be read (in a container this is "
			"usual)");
	}
	buf_finish(&text);
}

static void check_nodes(struct cli_doctor *d)
{
	static const char *const nodes[] = { "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0" };
	unsigned good = 0;

	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		if (access(nodes[i], R_OK | W_OK) == 0) {
			good++;
		} else if (errno == EACCES || errno == EPERM) {
			cli_doctor_find(d, CLI_DOCTOR_BAD, "device nodes",
					"Join the group that owns it, or ask for ACLs on it",
					"%s is not yours to read and write", nodes[i]);
		} else if (i < 2) {
			cli_doctor_find(
				d, CLI_DOCTOR_BAD, "device nodes",
				"Run nvidia-modprobe -u -c 0, or pass the device to the container",
				"%s: %s", nodes[i], strerror(errno));
		}
	}
	if (good) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "device nodes", NULL, "%u can be opened", good);
	}
}

static void check_mps(struct cli_doctor *d)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/control", dir && dir[0] ? dir : "/tmp/nvidia-mps");
	if (access(path, F_OK) == 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "MPS", NULL,
				"a control daemon is here (%s): programs share one GPU context",
				path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "MPS", NULL,
				"not in use: programs take turns on the GPU by time slices");
	}
}

void cli_doctor_check_nvidia(struct cli_doctor *d, bool wanted)
{
	bool nodes = access("/dev/nvidiactl", F_OK) == 0;
	char path[CLI_RUN_PATH];

	if (cli_run_find_real(path) == 0) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "NVIDIA libcuda", NULL, "%s", path);
	} else if (wanted || nodes) {
		cli_doctor_find(
			d, CLI_DOCTOR_BAD, "NVIDIA libcuda",
			"Install NVIDIA's driver (Debian: libcuda1), or set GBPF_REAL_CUDA to "
			"its libcuda.so.1",
			"no libcuda.so.1 in the usual places or in LD_LIBRARY_PATH");
	}
	if (!nodes && !wanted) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "NVIDIA GPU", NULL, "none on this machine%s",
				getenv("GBPF_REAL_CUDA") ? "" : ": the soft GPU serves");
		return;
	}
	check_driver_version(d);
	check_nodes(d);
	check_mps(d);
}

static void judge_probe(struct cli_doctor *d, const char *name, const struct cli_doctor_probe *p,
			const char *fix)
{
	if (p->signal) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix,
				"the library crashed when it was tried: %s", strsignal(p->signal));
	} else if (p->stage == CLI_PROBE_TIMEOUT) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "no answer in 10 s");
	} else if (p->stage == CLI_PROBE_NOTHING) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "cannot be loaded: %s",
				p->error[0] ? p->error : "no reason given");
	} else if (p->stage == CLI_PROBE_LOADED) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix,
				"is no libcuda: the driver API's functions are missing");
	} else if (p->stage == CLI_PROBE_SYMBOLS) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "cuInit answers error %d%s",
				p->result,
				p->result == 100   ? " (no device)"
				: p->result == 803 ? " (library and kernel driver do not match)"
				: p->result == 999 ? " (unknown; often missing device nodes)"
						   : "");
	} else if (p->stage != CLI_PROBE_DONE || p->devices < 1) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "%d devices, error %d", p->devices,
				p->result);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, name, NULL,
				"%d device%s, the first is %s; driver API %d.%d", p->devices,
				p->devices == 1 ? "" : "s", p->name, p->version / 1000,
				p->version % 1000 / 10);
	}
}

/* Returns true if a soft GPU server of this user, or of root, listens. */
static bool soft_serves(const char *path)
{
	int sock = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
	struct peer peer;
	bool yes =
		sock >= 0 && fd_peer(sock, &peer) == 0 && (peer.uid == 0 || peer.uid == geteuid());

	fd_close(sock);
	return yes;
}

/* Tries the running soft GPU server, or a private one that ends with the check, so that nothing is
 * left behind. */
static void try_soft(struct cli_doctor *d, struct cli_doctor_probe *p)
{
	static const char *const leaves[] = { "", ".lock", ".start" };
	const char *tmp = getenv("TMPDIR");
	char dir[96], path[PATH_MAX];
	bool runs = path_runtime(path, sizeof(path), "softgpu.sock") == 0 && soft_serves(path);
	bool given = getenv("GBPF_SOFTGPU_SOCKET") != NULL;
	pid_t server = 0;

	/* contains a socket, whose path is limited in length */
	snprintf(dir, sizeof(dir), "%s/gbpf-doctor-XXXXXX",
		 tmp && tmp[0] == '/' && strlen(tmp) < 64 ? tmp : "/tmp");
	if (runs || given || !mkdtemp(dir)) {
		cli_doctor_probe(d->device.libcuda, clock_patience(PROBE_TIMEOUT_NS), p);
		return;
	}
	snprintf(path, sizeof(path), "%s/softgpu.sock", dir);
	setenv("GBPF_SOFTGPU_SOCKET", path, 1);
	if (cli_softgpu_start(dir, (const char *const[]){ NULL }, &server) == 0) {
		cli_doctor_probe(d->device.libcuda, clock_patience(PROBE_TIMEOUT_NS), p);
	} else {
		memset(p, 0, sizeof(*p));
		snprintf(p->error, sizeof(p->error), "its server does not start");
	}
	cli_softgpu_stop(server);
	unsetenv("GBPF_SOFTGPU_SOCKET");
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		snprintf(path, sizeof(path), "%s/softgpu.sock%s", dir, leaves[i]);
		unlink(path);
	}
	rmdir(dir);
}

void cli_doctor_check_device(struct cli_doctor *d, bool chosen)
{
	const char *fix = "Does nvidia-smi work? Reinstall the driver or reboot when it does not";
	struct cli_doctor_probe p;
	char server[PATH_MAX];

	if (!d->have_device) {
		return;
	}
	if (d->device.soft && (path_program(server, sizeof(server), "gbpf-softgpu") < 0 ||
			       access(server, X_OK) < 0)) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "soft GPU server", REINSTALL, "missing: %s",
				server);
		return;
	}
	if (d->device.soft) {
		try_soft(d, &p);
		judge_probe(d, "soft GPU", &p, REINSTALL);
		return;
	}
	if (!chosen && getenv("GBPF_REAL_CUDA")) {
		fix = "GBPF_REAL_CUDA names it: correct it, or unset it";
	} else if (getenv("CUDA_VISIBLE_DEVICES")) {
		fix = "CUDA_VISIBLE_DEVICES is set: does it name a GPU that is here? Unset it to "
		      "see all; then: does nvidia-smi work?";
	}
	cli_doctor_probe(d->device.libcuda, clock_patience(PROBE_TIMEOUT_NS), &p);
	judge_probe(d, "GPU", &p, fix);
}

/* Compiled policies are memfds that each program maps executable, which some hardened machines
 * forbid. */
static void check_code(struct cli_doctor *d)
{
	static const unsigned char ret[] = { 0xc3 };
	const struct ebpf_exec_part part = { ret, 0, sizeof(ret) };
	void *p = NULL;
	int fd = ebpf_exec_create("gbpf-doctor", 4096, &part, 1);
	int err = fd < 0 ? fd : ebpf_exec_map(fd, 0, 4096, &p);

	if (fd < 0) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "shared memory",
				"Allow memfd_create (seccomp profile of the container?)",
				"memfd_create: %s", strerror(-fd));
	} else if (err) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "compiled policies",
				"sysctl vm.memfd_noexec=0, or a less strict SELinux policy",
				"executable memfds are forbidden here (%s): policies run in the "
				"interpreter, slower",
				strerror(-err));
	} else {
		munmap(p, 4096);
		cli_doctor_find(d, CLI_DOCTOR_OK, "compiled policies", NULL,
				"executable memfds are allowed");
	}
	fd_close(fd);
}

static void check_membarrier(struct cli_doctor *d)
{
	long cmds = syscall(__NR_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);

	if (cmds > 0 && (cmds & MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "membarrier", NULL,
				"available: a policy call needs no fence");
	} else {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "membarrier", NULL,
				"not available: a policy call pays for a fence");
	}
}

void cli_doctor_check_machine(struct cli_doctor *d)
{
	check_code(d);
	check_membarrier(d);
}

static int write_trial(const char *dir)
{
	char path[PATH_MAX + 32];
	char page[4096] = { 0 };
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/.doctor-XXXXXX", dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		return -errno;
	}
	if (write(fd, page, sizeof(page)) != (ssize_t)sizeof(page)) {
		err = errno ? -errno : -ENOSPC;
	}
	fd_close(fd);
	unlink(path);
	return err;
}

/* Checks whether a missing folder could be made, without making it. parents: its parents may be
 * missing, too. */
static int could_be_made(const char *dir, bool parents)
{
	char up[PATH_MAX];
	char *slash;

	snprintf(up, sizeof(up), "%s", dir);
	while (access(up, F_OK) < 0 && errno == ENOENT && (slash = strrchr(up, '/'))) {
		*slash = 0;
		if (!parents && access(up[0] ? up : "/", F_OK) < 0) {
			return -errno;
		}
	}
	return access(up[0] ? up : "/", W_OK | X_OK) < 0 ? -errno : 0;
}

static void check_dir(struct cli_doctor *d, const char *name, const char *variable, const char *dir,
		      bool parents)
{
	bool there = access(dir, F_OK) == 0;
	char fix[160], space[24], why[PRIVATE_DIR_WHY];
	struct statvfs fs;
	int err = there ? private_dir_check(dir, why) : could_be_made(dir, parents);

	if (there && err) {
		snprintf(fix, sizeof(fix), "Correct that, or set %s to a folder of your own",
			 variable);
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "%s is refused: %s", dir, why);
		return;
	}
	err = err || !there ? err : write_trial(dir);
	if (!err && there && statvfs(dir, &fs) == 0 &&
	    (uint64_t)fs.f_bavail * fs.f_frsize < FREE_BYTES_WANTED) {
		snprintf(fix, sizeof(fix), "Free space there, or set %s to a folder elsewhere",
			 variable);
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "%s has %s left", dir,
				cli_bytes(space, (uint64_t)fs.f_bavail * fs.f_frsize));
	} else if (err) {
		snprintf(fix, sizeof(fix), "%s, or set %s to another folder",
			 err == -ENOSPC ? "Free space there" : "Make it writable for you",
			 variable);
		cli_doctor_find(d, CLI_DOCTOR_BAD, name, fix, "%s: %s", dir, strerror(-err));
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, name, NULL, "%s", dir);
	}
}

int cli_doctor_connect(struct cli_doctor *d, struct gbpf **ret)
{
	unsigned flags = GBPF_OPEN_NO_CONNECT | (d->awaited ? GBPF_OPEN_NO_WAIT : 0u);
	int err = gbpf_open(ret, d->c->global[CLI_SOCKET], flags);

	if (err) {
		return err;
	}
	d->awaited = true;
	gbpf_set_timeout(*ret, cli_timeout_ms(d->c));
	return gbpf_status(*ret, NULL);
}

/* Returns true for another user's gbpfd that this user may use: its folders need not be ours. */
static bool is_guest(struct cli_doctor *d)
{
	struct gbpf *g = NULL;
	bool guest = cli_doctor_connect(d, &g) == 0 && gbpf_hello(g) &&
		     (uid_t)gbpf_hello(g)->uid != geteuid();

	gbpf_close(g);
	return guest;
}

static bool is_child(const char *dir, const char *parent)
{
	size_t n = strlen(parent);

	return strncmp(dir, parent, n) == 0 && dir[n] == '/' && !strchr(dir + n + 1, '/');
}

void cli_doctor_check_folders(struct cli_doctor *d)
{
	char dir[PATH_MAX], runtime[PATH_MAX];
	bool in_runtime;

	if (path_relative_variable()) {
		char text[512];

		path_explain(-EINVAL, text, sizeof(text));
		cli_doctor_find(d, CLI_DOCTOR_BAD, "environment",
				"Unset it, or set it to an absolute path", "%s", text);
		return;
	}
	if (runtime_path(dir, sizeof(dir), NULL) < 0 ||
	    strlen(dir) + sizeof("/control.sock") > CLI_DOCTOR_SOCKET_PATH) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "runtime directory",
				"Set GBPF_RUNTIME_DIR to a shorter path",
				"%s is too long for a socket", dir);
	} else if (is_guest(d)) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "runtime directory", NULL, "%s, of another user",
				dir);
		return;
	} else {
		check_dir(d, "runtime directory", "GBPF_RUNTIME_DIR", dir, false);
	}
	snprintf(runtime, sizeof(runtime), "%s", dir);
	if (path_state(dir, sizeof(dir), NULL) == 0) {
		/* gbpfd makes the runtime directory first */
		in_runtime = is_child(dir, runtime);
		check_dir(d, "state directory", "GBPF_STATE_DIR", dir,
			  in_runtime || path_state_is_default());
	}
}

/* Hardware controls need neither root nor ptrace: programs pass gbpfd the descriptors that control
 * their own work. */
static void check_controls(struct cli_doctor *d, struct gbpf *g)
{
	struct buf text = { 0 };
	char *json = NULL;
	json_t *result = NULL;
	const json_t *device;
	size_t i;

	if (gbpf_call(g, "device.list", NULL, -1, &json) == 0) {
		result = json_loads(json, 0, NULL);
	}
	free(json);
	json_array_foreach(json_object_get(result, "devices"), i, device)
	{
		bool known = cli_capabilities_of(&text, device);

		cli_doctor_find(d, known ? CLI_DOCTOR_OK : CLI_DOCTOR_NOTE, "controls", NULL,
				"GPU %llu: %s", (unsigned long long)cli_u64(device, "gpu"),
				buf_text(&text));
		buf_clear(&text);
	}
	if (result) {
		bool all = cli_capabilities_lanes(&text, result);

		cli_doctor_find(d, all ? CLI_DOCTOR_OK : CLI_DOCTOR_NOTE, "lanes", NULL, "%s",
				buf_text(&text));
	}
	buf_finish(&text);
	json_decref(result);
}

/* In a pid namespace gbpfd's process is not visible and cannot be watched: the kernel reports
 * another number for the listener, or 0. (/proc may hide other users' processes.) */
static void check_namespace(struct cli_doctor *d, const struct gbpf *g, int pid)
{
	int sock = unix_connect(gbpf_socket_path(g), SOCK_STREAM | SOCK_NONBLOCK);
	struct peer peer;

	if (sock >= 0 && fd_peer(sock, &peer) == 0 && peer.pid != pid) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "namespace", NULL,
				"gbpfd runs in another process namespace: ps and events show its "
				"numbers, and only a program's agent notices its death");
	}
	fd_close(sock);
}

/* Returns why this gbpfd is the one that is used. */
static const char *which_daemon(const struct cli_doctor *d, const struct gbpf *g)
{
	const char *named = getenv("GBPF_RUNTIME_DIR");

	if (d->c->global[CLI_SOCKET]) {
		return "named by --socket";
	}
	if (named && named[0]) {
		return "named by GBPF_RUNTIME_DIR";
	}
	return (uid_t)gbpf_hello(g)->uid != geteuid() ? "of root, which serves all users"
						      : "of this user";
}

void cli_doctor_check_daemon(struct cli_doctor *d)
{
	struct gbpf *g = NULL;
	int err = cli_doctor_connect(d, &g);
	const struct gbpf_hello *h = err < 0 ? NULL : gbpf_hello(g);
	const struct gbpf_error *e = gbpf_last_error(g);

	if (h) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "daemon", NULL,
				"gbpfd %s, PID %d, device %s, protocol %d, %s%s", h->version,
				h->pid, h->device, h->protocol, which_daemon(d, g),
				h->off ? "; it is switched off" : "");
		check_namespace(d, g, h->pid);
		check_controls(d, g);
	} else if (strcmp(e->code, "starting") == 0 || strcmp(e->code, "stopping") == 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "daemon", NULL, "%s", e->message);
	} else if (strcmp(e->code, "unreachable") == 0 && err != -EPROTONOSUPPORT &&
		   err != -ETIMEDOUT) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "daemon", NULL,
				"none runs: gbpf run starts one");
	} else {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "daemon",
				e->hint[0] ? e->hint : "See gbpfd.log in the runtime directory",
				"%s", e->message);
	}
	gbpf_close(g);
}
