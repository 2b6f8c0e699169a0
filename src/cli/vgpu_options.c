/* Parsing of what a virtual GPU is given (cli/vgpu_options.h). */
#include "cli/vgpu_options.h"

#include <string.h>

bool cli_vgpu_any(const char *const *opt)
{
	for (unsigned i = 0; i < CLI_VGPU_OPTIONS; i++) {
		if (opt[i]) {
			return true;
		}
	}
	return false;
}

int cli_vgpu_name(struct cli *c, const char *what, const char *text, char out[CLI_VGPU_NAME])
{
	const char *slash = strchr(text, '/');
	char user[64];
	uint32_t uid;

	if (!slash) {
		snprintf(out, CLI_VGPU_NAME, "%s", text);
		return CLI_OK;
	}
	snprintf(user, sizeof(user), "%.*s", (int)MIN(slash - text, 63), text);
	if (slash - text > 63 || !cli_parse_user(user, &uid)) {
		return cli_fail(c, CLI_NOT_FOUND, "not-found",
				"Give the name or number of the virtual GPU's owner",
				"%s: there is no user '%s'", what, user);
	}
	snprintf(out, CLI_VGPU_NAME, "%u/%.40s", (unsigned)uid, slash + 1);
	return CLI_OK;
}

/* Returns true for the word that takes a value back: all of them are unset by 0. */
static bool is_none(const char *text)
{
	return strcmp(text, "none") == 0;
}

static int read_size(struct cli *c, const char *what, const char *option, const char *text,
		     uint64_t least, const char *allowed, uint64_t *ret)
{
	if (text && is_none(text)) {
		*ret = 0;
		return CLI_OK;
	}
	if (!text ||
	    (cli_parse_bytes(text, ret) == 0 && *ret >= least && *ret <= PROTO_VGPU_MEM_MAX)) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_USAGE, "usage", allowed, "%s: invalid size '%.40s' for --%s", what,
			text, option);
}

static int read_percent(struct cli *c, const char *option, const char *text, uint32_t *ret)
{
	uint64_t n = text && is_none(text) ? 0 : *ret;
	int code = text && !is_none(text) ? cli_number(c, option, text, 1, 100, &n) : CLI_OK;

	*ret = (uint32_t)n;
	return code;
}

static int read_wait(struct cli *c, const char *what, const char *text, uint64_t *ret)
{
	if (text && is_none(text)) {
		*ret = 0;
		return CLI_OK;
	}
	if (!text ||
	    (cli_parse_duration(text, 1000000000, ret) == 0 && *ret <= PROTO_VGPU_WAIT_MAX_NS)) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_USAGE, "usage",
			"Use a number with ms, s, m or h: at most 1h; or none",
			"%s: invalid time '%s' for --wait", what, text);
}

static int read_sizes(struct cli *c, const char *what, const char *const *opt,
		      struct proto_vgpu_config *config)
{
	uint64_t mem = config->mem[0];
	int code = read_size(
		c, what, "mem", opt[CLI_VGPU_MEM], PROTO_VGPU_MEM_MIN,
		"Use a number with K, M, G or T: at least 16M, at most the GPU's memory; or none",
		&mem);

	for (unsigned i = 0; i < PROTO_MAX_GPUS && opt[CLI_VGPU_MEM]; i++) {
		config->mem[i] = mem;
	}
	if (!code) {
		code = read_size(c, what, "reserve", opt[CLI_VGPU_RESERVE], 0,
				 "Use a number with K, M, G or T: at most --mem; or none",
				 &config->reserve);
	}
	if (!code) {
		code = read_size(
			c, what, "pinned", opt[CLI_VGPU_PINNED], 1,
			"Use a number with K, M, G or T: at most the machine's memory; or none",
			&config->pinned);
	}
	if (!code) {
		code = read_size(c, what, "swap", opt[CLI_VGPU_SWAP], PROTO_VGPU_SWAP_MIN,
				 "Use a number with K, M, G or T: at least 2M, at most the "
				 "machine's memory; or none",
				 &config->swap);
	}
	if (!code && mem && config->reserve > mem) {
		code = cli_fail(c, CLI_USAGE, "usage", "Use at most --mem",
				"%s: --reserve is more than --mem", what);
	}
	return code;
}

/* Reads one of two words, which were checked; on: the one that sets the flag. text NULL: it stays.
 */
static void read_flag(const char *text, const char *on, uint32_t flag, uint32_t *flags)
{
	if (text) {
		*flags = strcmp(text, on) == 0 ? *flags | flag : *flags & ~flag;
	}
}

int cli_vgpu_read(struct cli *c, const char *what, const char *const *opt,
		  struct proto_vgpu_config *config)
{
	uint64_t prio = (uint64_t)config->prio;
	int code = read_sizes(c, what, opt, config);

	if (!code) {
		code = read_wait(c, what, opt[CLI_VGPU_WAIT], &config->wait_ns);
	}
	if (!code) {
		code = read_percent(c, "--compute", opt[CLI_VGPU_COMPUTE], &config->compute);
	}
	if (!code) {
		code = read_percent(c, "--copy", opt[CLI_VGPU_COPY], &config->copy);
	}
	if (!code && opt[CLI_VGPU_PRIO]) {
		code = cli_number(c, "--prio", opt[CLI_VGPU_PRIO], 0, PROTO_VGPU_PRIO_MAX, &prio);
		config->prio = (int32_t)prio;
	}
	read_flag(opt[CLI_VGPU_SHOW], "mem", PROTO_VGPU_SHOW_MEM, &config->flags);
	read_flag(opt[CLI_VGPU_BURST], "on", PROTO_VGPU_BURST, &config->flags);
	return code;
}

void cli_vgpu_given(const char *const *opt, const struct proto_vgpu_config *config,
		    struct gbpf_vgpu *ret)
{
	static const unsigned bits[CLI_VGPU_OPTIONS] = {
		[CLI_VGPU_MEM] = GBPF_GIVEN_MEM,	 [CLI_VGPU_RESERVE] = GBPF_GIVEN_RESERVE,
		[CLI_VGPU_PINNED] = GBPF_GIVEN_PINNED,	 [CLI_VGPU_SWAP] = GBPF_GIVEN_SWAP,
		[CLI_VGPU_SHOW] = GBPF_GIVEN_SHOW,	 [CLI_VGPU_WAIT] = GBPF_GIVEN_WAIT,
		[CLI_VGPU_COMPUTE] = GBPF_GIVEN_COMPUTE, [CLI_VGPU_COPY] = GBPF_GIVEN_COPY,
		[CLI_VGPU_PRIO] = GBPF_GIVEN_PRIO,	 [CLI_VGPU_BURST] = GBPF_GIVEN_BURST,
	};

	*ret = (struct gbpf_vgpu){ .size = sizeof(*ret),
				   .burst = (config->flags & PROTO_VGPU_BURST) != 0,
				   .mem = config->mem[0],
				   .reserve = config->reserve,
				   .pinned = config->pinned,
				   .swap = config->swap,
				   .show = config->flags & PROTO_VGPU_SHOW_MEM ? GBPF_SHOW_MEM
									       : GBPF_SHOW_ALL,
				   .wait_ns = config->wait_ns,
				   .compute = config->compute,
				   .copy = config->copy,
				   .prio = (uint32_t)config->prio };
	for (unsigned i = 0; i < CLI_VGPU_OPTIONS; i++) {
		ret->given |= opt[i] ? bits[i] : 0;
	}
}

void cli_vgpu_note_ignored(struct cli *c, const json_t *result)
{
	static const struct {
		const char *member, *share;
	} shares[] = { { "compute", "the GPU's time" }, { "copy", "copy bandwidth" } };
	const json_t *ignored = json_object_get(result, "ignored");

	for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
		const char *name = json_string_value(json_object_get(ignored, shares[i].member));

		if (name) {
			cli_note(c,
				 "warning: %s%s does not keep shares of %s: `gbpf policy swap "
				 "vgpu_auto`",
				 name[0] ? "policy " : "gBPF without a policy", name,
				 shares[i].share);
		}
	}
}
