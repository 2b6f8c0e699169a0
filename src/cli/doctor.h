/* Findings of `gbpf doctor`, and its checks. */
#ifndef GBPF_CLI_DOCTOR_H
#define GBPF_CLI_DOCTOR_H

#include "cli/run_env.h"
#include "gbpf/gbpf.h"

#define CLI_DOCTOR_SOCKET_PATH 108 /* sun_path, with the final zero */

enum cli_doctor_status {
	CLI_DOCTOR_OK,
	CLI_DOCTOR_BAD,	 /* something will not work; has a remedy */
	CLI_DOCTOR_NOTE, /* information */
};

struct cli_doctor {
	struct cli *c;
	struct cli_run_device device;
	bool have_device; /* device is chosen */
	json_t *checks;	  /* findings; printed immediately unless --json */
	unsigned bad;
	bool awaited; /* gbpfd has had time to start or stop */
};

/* fix may be NULL. */
void cli_doctor_find(struct cli_doctor *d, enum cli_doctor_status status, const char *name,
		     const char *fix, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* Connects to gbpfd. Only the first call waits for one that starts or stops. Returns 0 or -errno;
 * the caller closes *ret in any case. */
int cli_doctor_connect(struct cli_doctor *d, struct gbpf **ret);

void cli_doctor_check_install(struct cli_doctor *d);
void cli_doctor_check_nvidia(struct cli_doctor *d, bool wanted);
/* chosen: the user named a device, so GBPF_REAL_CUDA was not used. */
void cli_doctor_check_device(struct cli_doctor *d, bool chosen);
void cli_doctor_check_machine(struct cli_doctor *d);
void cli_doctor_check_folders(struct cli_doctor *d);
void cli_doctor_check_cache(struct cli_doctor *d);
void cli_doctor_check_daemon(struct cli_doctor *d);
/* doctor_users.c: programs that escape root's gbpfd. */
void cli_doctor_check_users(struct cli_doctor *d);
/* doctor_vgpu.c: what virtual GPUs can do here; after the checks above. */
void cli_doctor_check_vgpus(struct cli_doctor *d);

/* Result of loading a driver library in a child process, where a crash is a finding. */
struct cli_doctor_probe {
	int stage;  /* last stage reached */
	int result; /* CUresult of the failed call, or 0 */
	int devices, version;
	int signal;		    /* signal that ended the child, or 0 */
	char name[128], error[256]; /* name of device 0; error of dlopen */
	uint64_t least_mem;	    /* memory of the smallest device, bytes; 0: unknown */
};
enum {
	CLI_PROBE_NOTHING,
	CLI_PROBE_LOADED,
	CLI_PROBE_SYMBOLS,
	CLI_PROBE_INIT,
	CLI_PROBE_COUNT,
	CLI_PROBE_DONE,
	CLI_PROBE_TIMEOUT
};
/* Starts an NVML in a child process. Returns 0; -ENOENT: it cannot be loaded; -ENOSYS: it lacks the
 * calls that list processes; -EIO: it does not start (*ret_code: nvmlReturn_t); -EFAULT: it crashed
 * or did not answer. start: call nvmlInit, too. */
int cli_doctor_probe_nvml(const char *path, bool start, uint64_t timeout_ns, int *ret_code);
void cli_doctor_probe(const char *libcuda, uint64_t timeout_ns, struct cli_doctor_probe *ret);

#endif
