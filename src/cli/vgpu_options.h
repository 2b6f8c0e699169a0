/* The options that say what a virtual GPU is given: of `vgpu create`, `vgpu set`, `run` and `set`.
 */
#ifndef GBPF_CLI_VGPU_OPTIONS_H
#define GBPF_CLI_VGPU_OPTIONS_H

#include "cli/cli.h"
#include "gbpf/gbpf.h"
#include "proto/vgpu_text.h"

/* In each verb's table they follow each other, from the first on. */
enum {
	CLI_VGPU_MEM,
	CLI_VGPU_RESERVE,
	CLI_VGPU_PINNED,
	CLI_VGPU_SWAP,
	CLI_VGPU_SHOW,
	CLI_VGPU_WAIT,
	CLI_VGPU_COMPUTE,
	CLI_VGPU_COPY,
	CLI_VGPU_PRIO,
	CLI_VGPU_BURST,
	CLI_VGPU_OPTIONS
};

#define CLI_VGPU_TABLE(first)                                                                      \
	[(first) +                                                                                 \
		CLI_VGPU_MEM] = { "mem", 'm', "SIZE",                                              \
				  "limit of device memory on each GPU (for example 4G)" },         \
		[(first) + CLI_VGPU_RESERVE] = { "reserve", 0, "SIZE",                             \
						 "device memory that no other virtual GPU can "    \
						 "take" },                                         \
		[(first) +                                                                         \
			CLI_VGPU_PINNED] = { "pinned", 0, "SIZE", "limit of pinned host memory" }, \
		[(first) + CLI_VGPU_SWAP] = { "swap", 0, "SIZE",                                   \
					      "host memory for device memory beyond --mem" },      \
		[(first) + CLI_VGPU_SHOW] = { "show", 0, "mem|all",                                \
					      "memory that programs see: --mem alone, or --swap "  \
					      "as well (default all)" },                           \
		[(first) + CLI_VGPU_WAIT] = { "wait", 0, "TIME",                                   \
					      "how long an allocation waits for memory before it " \
					      "fails "                                             \
					      "(default 0s)" },                                    \
		[(first) + CLI_VGPU_COMPUTE] = { "compute", 0, "PERCENT",                          \
						 "share of the GPU's time, under policies that "   \
						 "divide it" },                                    \
		[(first) + CLI_VGPU_COPY] = { "copy", 0, "PERCENT",                                \
					      "share of copy bandwidth, likewise" },               \
		[(first) + CLI_VGPU_PRIO] = { "prio", 0, "0-100",                                  \
					      "priority: the highest goes first (default 0)" },    \
		[(first) + CLI_VGPU_BURST] = { "burst", 0, "on|off",                               \
					       "may it use what others leave over (default off)" }

#define CLI_VGPU_ARG "[USER/]NAME" /* of usage lines; names a vGPU that exists */
#define CLI_VGPU_NAME 64u
/* Reads NAME, USER/NAME or UID/NAME. Stores NAME or UID/NAME, as gbpfd takes them. Returns CLI_OK,
 * or CLI_NOT_FOUND after a message. what: the verb. */
int cli_vgpu_name(struct cli *c, const char *what, const char *text, char out[CLI_VGPU_NAME]);
/* Reads those that are given, from opt[0..CLI_VGPU_OPTIONS), into *config, whose other members
 * stay. what: the verb. Returns CLI_OK, or CLI_USAGE after a message. */
int cli_vgpu_read(struct cli *c, const char *what, const char *const *opt,
		  struct proto_vgpu_config *config);
/* Stores those that are given, for libgbpf. */
void cli_vgpu_given(const char *const *opt, const struct proto_vgpu_config *config,
		    struct gbpf_vgpu *ret);
/* Returns true if one of them is given. */
bool cli_vgpu_any(const char *const *opt);
/* Warns of the shares in gbpfd's answer that an active policy does not keep. */
void cli_vgpu_note_ignored(struct cli *c, const json_t *result);

#endif
