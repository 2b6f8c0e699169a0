/* The checks of `gbpf doctor` about virtual GPUs: what this machine can do for them, and what it
 * cannot. Nothing is made that stays. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/paths.h"
#include "base/shm.h"
#include "cli/connect.h"
#include "cli/doctor.h"
#include "proto/account.h"

#define PROBE_TIMEOUT_NS UINT64_C(10000000000)
#define PINNED_BYTES (UINT64_C(64) << 20) /* of the pieces of a context, at most */
#define PCI_DEVICES "/sys/bus/pci/devices"
#define PROPERTY_MAX 4096u
#define SMALL_BAR (UINT64_C(1) << 30) /* no card with so little memory runs CUDA 12 */
#define THREADS_MAX 8u		      /* of a copy, unless GBPF_COPY_THREADS says more */

/* nvidia-smi, pynvml and NCCL see a vGPU by way of gBPF's own NVML. */
static void check_own_nvml(struct cli_doctor *d)
{
	char path[CLI_RUN_PATH];
	int code;

	if (cli_run_find_own_nvml(path) < 0) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "vGPU figures in NVML",
				"Install gBPF whole, or set GBPF_LIBDIR to where it is",
				"missing: %s: nvidia-smi and pynvml would show the whole GPU",
				path);
	} else if (cli_doctor_probe_nvml(path, false, clock_patience(PROBE_TIMEOUT_NS), &code) <
		   0) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "vGPU figures in NVML",
				"Install gBPF whole, or set GBPF_LIBDIR to where it is",
				"%s cannot be loaded", path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU figures in NVML", NULL, "%s", path);
	}
}

/* Overhead is NVML's figure for a process, or the difference that a call makes. */
static void check_overhead(struct cli_doctor *d)
{
	static const char differences[] = "overhead is measured by differences, to which other "
					  "programs add";
	char path[CLI_RUN_PATH], result[32] = "";
	int err, code = 0;

	if (!d->have_device) {
		return;
	}
	if (cli_run_find_nvml(&d->device, path) < 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU overhead",
				d->device.soft ? NULL : "Install libnvidia-ml.so.1 of the driver",
				"no libnvidia-ml.so.1 for %s: %s", d->device.libcuda, differences);
		return;
	}
	/* The soft GPU's NVML starts with its server, which need not run. */
	err = cli_doctor_probe_nvml(path, !d->device.soft, clock_patience(PROBE_TIMEOUT_NS), &code);
	if (err == -EIO) {
		snprintf(result, sizeof(result), " (nvmlReturn_t %d)", code);
	}
	if (err == 0) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU overhead", NULL,
				"by NVML's figure of each process, where NVML lists it (in "
				"containers it may not): %s",
				path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU overhead", NULL, "%s %s%s: %s", path,
				err == -EIO	 ? "does not start"
				: err == -ENOSYS ? "cannot list processes"
				: err == -ENOENT ? "cannot be loaded"
						 : "crashed or did not answer when it was tried",
				result, differences);
	}
}

/* The account of a vGPU is a memfd of fixed size that all its processes map. */
static void check_accounts(struct cli_doctor *d)
{
	int fd = shm_create("gbpf-doctor", PROTO_ACCOUNT_BYTES, SHM_NOEXEC);
	int err = fd < 0 ? fd : shm_check(fd, PROTO_ACCOUNT_BYTES);
	void *map = err ? NULL : shm_map(fd, PROTO_ACCOUNT_BYTES, 1);

	if (!err && !map) {
		err = -errno;
	}
	if (err) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "vGPU accounts",
				"Allow memfd_create and its seals (seccomp profile of the "
				"container?)",
				"sealed shared memory: %s: programs cannot join a virtual GPU",
				strerror(-err));
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU accounts", NULL,
				"shared memory of fixed size can be made");
	}
	shm_unmap(map, PROTO_ACCOUNT_BYTES);
	fd_close(fd);
}

static unsigned cores(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static void check_copies(struct cli_doctor *d)
{
	const char *how = getenv("GBPF_COPY");
	struct rlimit lock = { RLIM_INFINITY, RLIM_INFINITY };
	unsigned n = cores(), threads = MIN(MAX(n / 2, 1u), THREADS_MAX);
	char bytes[24];

	(void)getrlimit(RLIMIT_MEMLOCK, &lock);
	if (how && strcmp(how, "driver") == 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU copies", NULL,
				"GBPF_COPY=driver: pageable memory is copied by the driver's one "
				"thread");
	} else if (n < 2) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU copies", NULL,
				"one core: several threads cannot speed up copies of pageable "
				"memory");
	} else if (geteuid() != 0 && lock.rlim_cur < PINNED_BYTES) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU copies", "ulimit -l unlimited",
				"%u threads; RLIMIT_MEMLOCK is %s: a driver that obeys it refuses "
				"the pinned pieces, and copies are the driver's then",
				threads, cli_bytes(bytes, lock.rlim_cur));
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU copies", NULL,
				"%u threads for a copy of pageable memory, by way of pinned memory",
				threads);
	}
}

/* Reads what sysfs says of a PCI device. Returns false if that is nothing. */
static bool read_property(const char *device, const char *name, struct buf *ret)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), PCI_DEVICES "/%.200s/%s", device, name);
	buf_clear(ret);
	return buf_read_file(ret, path, PROPERTY_MAX) == 0 && ret->len;
}

static bool is_nvidia(const char *device, struct buf *b)
{
	unsigned vendor, class;

	return read_property(device, "vendor", b) && sscanf(buf_text(b), "%x", &vendor) == 1 &&
	       vendor == 0x10de && read_property(device, "class", b) &&
	       sscanf(buf_text(b), "%x", &class) == 1 && class >> 16 == 3;
}

/* Returns the bytes of a card's memory that the CPU can see at once, by the second line of its
 * `resource`; 0: not known. */
static uint64_t visible_memory(const char *device, struct buf *b)
{
	unsigned long long from, to;
	const char *line;

	if (!is_nvidia(device, b) || !read_property(device, "resource", b)) {
		return 0;
	}
	line = strchr(buf_text(b), '\n');
	return line && sscanf(line + 1, "%llx %llx", &from, &to) == 2 && to > from ? to - from + 1
										   : 0;
}

static bool has_streaming_loads(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("sse4.1");
#else
	return false;
#endif
}

/* The least of all cards; 0: none is known. */
static uint64_t least_visible_memory(void)
{
	DIR *devices = opendir(PCI_DEVICES);
	uint64_t least = 0, bytes;
	struct buf b = { 0 };
	struct dirent *e;

	while (devices && (e = readdir(devices))) {
		bytes = e->d_name[0] == '.' ? 0 : visible_memory(e->d_name, &b);
		least = bytes && (!least || bytes < least) ? bytes : least;
	}
	if (devices) {
		closedir(devices);
	}
	buf_finish(&b);
	return least;
}

static void check_small_copies(struct cli_doctor *d)
{
	const char *how = getenv("GBPF_COPY");
	uint64_t visible = d->have_device && !d->device.soft ? least_visible_memory() : 0;
	char bytes[24];

	if (how && strcmp(how, "all") != 0 && strcmp(how, "direct") != 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU small copies", NULL,
				"GBPF_COPY=%s: small copies are the driver's", how);
	} else if (!has_streaming_loads()) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU small copies", NULL,
				"this processor has no SSE 4.1: small copies are the driver's");
	} else if (visible && visible <= SMALL_BAR) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU small copies",
				"Enable resizable BAR in the firmware, if there is such a setting",
				"the GPU shows the CPU %s of its memory: small copies are the "
				"driver's",
				cli_bytes(bytes, visible));
	} else {
		cli_doctor_find(
			d, CLI_DOCTOR_OK, "vGPU small copies", NULL,
			"by stores and loads of the CPU where the GPU shows all of its memory");
	}
}

static void check_pinned(struct cli_doctor *d)
{
	uint64_t half = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
	char bytes[24];

	cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU pinned memory", NULL,
			"all virtual GPUs together may pin %s, unless gbpfd is started with "
			"--pinned-mib",
			cli_bytes(bytes, half));
}

/* vgpus.json has the vGPUs with names. Its folder was checked with the others. */
static void check_store(struct cli_doctor *d)
{
	char path[PATH_MAX];
	struct stat st;

	if (path_relative_variable() || path_state(path, sizeof(path), "vgpus.json") < 0) {
		return; /* reported with the folders */
	}
	if (lstat(path, &st) < 0) {
		if (errno != ENOENT && errno != EACCES) {
			cli_doctor_find(d, CLI_DOCTOR_BAD, "vGPU names", "Make it readable",
					"%s: %s", path, strerror(errno));
		}
	} else if (!S_ISREG(st.st_mode) || access(path, R_OK) < 0) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, "vGPU names", "Make it readable, or remove it",
				"%s is no file that can be read: gbpfd starts without virtual GPUs "
				"that have names, and keeps it with .bad appended",
				path);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU names", NULL, "%s", path);
	}
}

/* ---- by way of gbpfd ---- */

static json_t *result_of(struct gbpf *g, const char *method)
{
	json_t *result = NULL;
	char *json = NULL;

	if (gbpf_call(g, method, NULL, -1, &json) == 0) {
		result = json_loads(json, 0, NULL);
	}
	free(json);
	return result;
}

/* Shares are kept by a policy that reads the map VSLICE_SET. */
static void check_shares(struct cli_doctor *d, struct gbpf *g)
{
	json_t *result = result_of(g, "map.list");
	const json_t *m;
	bool reads = false;
	size_t i;

	json_array_foreach(json_object_get(result, "maps"), i, m)
	{
		reads |= strcmp(cli_text(m, "map"), "VSLICE_SET") == 0;
	}
	if (reads) {
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU shares", NULL, "policy %s keeps them",
				cli_text(result, "policy"));
	} else {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU shares",
				"gbpf policy swap vgpu_auto, if virtual GPUs shall keep shares",
				"the active policy%s%s does not read shares of compute and copies",
				result ? " " : "", result ? cli_text(result, "policy") : "");
	}
	json_decref(result);
}

/* Reservations, and vGPUs for others, are permitted for operators. */
static void check_rights(struct cli_doctor *d, const struct gbpf *g)
{
	char path[PATH_MAX];
	int sock;

	snprintf(path, sizeof(path), "%.*s/admin.sock",
		 (int)(strrchr(gbpf_socket_path(g), '/') - gbpf_socket_path(g)),
		 gbpf_socket_path(g));
	sock = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	if (sock >= 0 || sock == -EAGAIN) { /* EAGAIN: its queue is full */
		cli_doctor_find(d, CLI_DOCTOR_OK, "vGPU rights", NULL,
				"this user may reserve memory and open virtual GPUs to others");
	} else {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, "vGPU rights",
				"Join the group gbpf, or ask an operator",
				"this user may make virtual GPUs for itself, without reservations");
	}
	fd_close(sock);
}

void cli_doctor_check_vgpus(struct cli_doctor *d)
{
	struct gbpf *g = NULL;

	check_own_nvml(d);
	check_overhead(d);
	check_accounts(d);
	check_copies(d);
	check_small_copies(d);
	check_pinned(d);
	check_store(d);
	if (cli_doctor_connect(d, &g) == 0) {
		check_shares(d, g);
		check_rights(d, g);
	}
	gbpf_close(g);
}
