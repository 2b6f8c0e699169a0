/* The verbs; each is defined in cmd_<verb>.c, next to the code that runs it. */
#ifndef GBPF_CLI_VERBS_H
#define GBPF_CLI_VERBS_H

#include "cli/cli.h"

extern const struct cli_verb verb_run, verb_cc, verb_ps, verb_set, verb_vgpu, verb_policy, verb_map,
	verb_mem, verb_probe, verb_trace, verb_device, verb_events, verb_status;
extern const struct cli_verb verb_off, verb_on, verb_shutdown, verb_doctor, verb_bench,
	verb_completion;
extern const struct cli_verb verb_help, verb_version;

/* of `policy` */
extern const struct cli_verb verb_policy_load, verb_policy_swap, verb_policy_rollback,
	verb_policy_unload;
extern const struct cli_verb verb_policy_list, verb_policy_show, verb_policy_check,
	verb_policy_exec, verb_policy_test, verb_policy_new, verb_policy_build, verb_policy_watch;

/* of `probe` */
extern const struct cli_verb verb_probe_coverage, verb_probe_rewrite, verb_probe_set,
	verb_probe_log;

/* of `map` */
extern const struct cli_verb verb_map_list, verb_map_dump, verb_map_get, verb_map_set,
	verb_map_delete, verb_map_watch;

#endif
