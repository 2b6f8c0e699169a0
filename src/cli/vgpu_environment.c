/* CUDA_DEVICE_MEMORY_LIMIT and its relatives (cli/vgpu_environment.h). */
#include "cli/vgpu_environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"

#define MEMORY "CUDA_DEVICE_MEMORY_LIMIT"
#define TIME "CUDA_DEVICE_SM_LIMIT"

_Static_assert(PROTO_MAX_GPUS == 16, "the message names the numbers");

/* Returns the variable's value, NULL if it is empty or not set. */
static const char *value_of(const char *name)
{
	const char *v = getenv(name);

	return v && v[0] ? v : NULL;
}

static int memory(struct cli *c, const char *name, const char *text, uint64_t *ret)
{
	if (cli_parse_bytes(text, ret) == 0 &&
	    (!*ret || (*ret >= PROTO_VGPU_MEM_MIN && *ret <= PROTO_VGPU_MEM_MAX))) {
		return CLI_OK;
	}
	return cli_fail(c, CLI_USAGE, "usage",
			"Use a number with K, M, G or T: at least 16M, at most the GPU's memory",
			"run: invalid size '%.40s' in %s", text, name);
}

static int percent(struct cli *c, const char *name, const char *text, uint32_t *ret)
{
	uint64_t n = 0;
	int code = cli_number(c, name, text, 0, 100, &n);

	if (!code && *ret && *ret != (uint32_t)n) {
		return cli_fail(c, CLI_USAGE, "usage", "Give the same to each, or use --compute",
				"run: %s: a virtual GPU has one share for all its devices", name);
	}
	*ret = (uint32_t)n;
	return code;
}

/* Refuses a limit of a device that there cannot be, which would have no effect: a variable of that
 * prefix and a number that is not read below. */
static int check_numbers(struct cli *c, const char *prefix)
{
	size_t n = strlen(prefix);

	for (char **e = environ; e && *e; e++) {
		const char *number = strncmp(*e, prefix, n) == 0 ? *e + n : "";
		size_t digits = strspn(number, "0123456789");
		char name[80];

		if (!digits || number[digits] != '=' || !number[digits + 1] ||
		    (digits <= 2 && (number[0] != '0' || digits == 1) &&
		     strtoul(number, NULL, 10) < PROTO_MAX_GPUS)) {
			continue;
		}
		snprintf(name, sizeof(name), "%s%.*s", prefix, (int)MIN(digits, 20u), number);
		return cli_fail(c, CLI_USAGE, "usage",
				"Devices have the numbers 0 to 15; without a number it is the "
				"limit of each",
				"run: %s limits no device", name);
	}
	return CLI_OK;
}

int cli_vgpu_from_environment(struct cli *c, struct proto_vgpu_config *config)
{
	const char *all = value_of(MEMORY), *share = value_of(TIME);
	uint64_t mem = 0;
	int code = check_numbers(c, MEMORY "_");

	code = code ? code : check_numbers(c, TIME "_");
	if (!code && all) {
		code = memory(c, MEMORY, all, &mem);
	}
	if (!code && share) {
		code = percent(c, TIME, share, &config->compute);
	}
	for (unsigned i = 0; i < PROTO_MAX_GPUS && !code; i++) {
		char of_memory[sizeof(MEMORY) + 4], of_time[sizeof(TIME) + 4];

		snprintf(of_memory, sizeof(of_memory), MEMORY "_%u", i);
		snprintf(of_time, sizeof(of_time), TIME "_%u", i);
		config->mem[i] = mem;
		if (value_of(of_memory)) {
			code = memory(c, of_memory, value_of(of_memory), &config->mem[i]);
		}
		if (!code && value_of(of_time)) {
			code = percent(c, of_time, value_of(of_time), &config->compute);
		}
	}
	return code;
}
