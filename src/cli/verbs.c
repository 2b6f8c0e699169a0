/* The table of verbs, in the order in which help shows them. */
#include "cli/verbs.h"

const struct cli_verb *const cli_verbs[] = {
	&verb_run,	  &verb_cc,    &verb_ps,      &verb_set,      &verb_vgpu,   &verb_mem,
	&verb_policy,	  &verb_probe, &verb_trace,   &verb_map,      &verb_device, &verb_events,
	&verb_status,	  &verb_off,   &verb_on,      &verb_shutdown, &verb_doctor, &verb_bench,
	&verb_completion, &verb_help,  &verb_version, NULL,
};

const struct cli_option cli_globals[] = {
	[CLI_JSON] = { "json", 0, NULL, "one JSON document on standard output" },
	[CLI_QUIET] = { "quiet", 'q', NULL, "no messages but errors" },
	[CLI_SOCKET] = { "socket", 0, "PATH", "gbpfd's control socket" },
	[CLI_TIMEOUT_OPT] = { "timeout", 0, "SECONDS",
			      "longest wait for gbpfd's answer (default 10)" },
	[CLI_COLOR] = { "color", 0, "auto|always|never", "colours; NO_COLOR is obeyed under auto" },
	[CLI_VERSION] = { "version", 0, NULL, "print the version" },
	[CLI_HELP] = { "help", 'h', NULL, "print the usage of a verb" },
	{ NULL, 0, NULL, NULL },
};
