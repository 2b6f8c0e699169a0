/* Findings of `gbpf doctor`, and the checks that make them. */
#ifndef GBPF_CLI_DOCTOR_H
#define GBPF_CLI_DOCTOR_H

#include "cli/run_env.h"

enum cli_doctor_status {
	DOCTOR_OK,
	DOCTOR_BAD,  /* something will not work: has a fix */
	DOCTOR_NOTE, /* good to know */
};

struct cli_doctor {
	struct cli *c;
	struct cli_run_device device;
	bool have_device; /* device is chosen */
	json_t *checks;	  /* what was found; printed at once unless --json */
	unsigned bad;
};

/* fix may be NULL. */
void cli_doctor_find(struct cli_doctor *d, enum cli_doctor_status status, const char *name,
		     const char *fix, const char *fmt, ...) PRINTF_LIKE(5, 6);

void cli_doctor_check_install(struct cli_doctor *d);
void cli_doctor_check_nvidia(struct cli_doctor *d, bool wanted);
/* chosen: the user named a device, so GBPF_REAL_CUDA did not choose it. */
void cli_doctor_check_device(struct cli_doctor *d, bool chosen);
void cli_doctor_check_machine(struct cli_doctor *d);
void cli_doctor_check_folders(struct cli_doctor *d);
void cli_doctor_check_daemon(struct cli_doctor *d);

/* Loads a driver library in a process of its own, so that its crash is a finding and not ours. */
struct cli_doctor_probe {
	int stage;  /* how far it came */
	int result; /* CUresult of the call that failed, 0 */
	int devices, version;
	int signal;		    /* that ended it, 0 */
	char name[128], error[256]; /* of device 0; of dlopen */
};
enum {
	PROBE_NOTHING,
	PROBE_LOADED,
	PROBE_SYMBOLS,
	PROBE_INIT,
	PROBE_COUNT,
	PROBE_DONE,
	PROBE_TIMEOUT
};
void cli_doctor_probe(const char *libcuda, uint64_t timeout_ns, struct cli_doctor_probe *ret);

#endif
