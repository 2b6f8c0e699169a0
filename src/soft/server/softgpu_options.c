/* The options of gbpf-softgpu: one table with names, limits and descriptions, from which --help is
 * printed. */
#include "soft/server/softgpu_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/server/exec/exec.h"

#include "soft/server/connection.h"
#include "soft/server/machine.h"

enum option_id {
	OPT_GPUS,
	OPT_SMS,
	OPT_MEM,
	OPT_CONTEXT,
	OPT_WORKERS,
	OPT_ENGINES,
	OPT_BANDWIDTH,
	OPT_LINK,
	OPT_SLICE,
	OPT_SLICE_MAX,
	OPT_SWITCH,
	OPT_CLOCK,
	OPT_CPU,
	OPT_SOCKET,
	OPT_IDLE,
	OPT_LOG,
	OPT_READY,
	OPT_CHECK,
	OPT_FOREGROUND,
	OPT_HELP,
	OPT_VERSION,
	OPT_COUNT
};

static const struct {
	const char *name, *arg; /* arg NULL: the option takes no argument */
	uint64_t min, max;	/* limits of a number; both 0: the argument is a text */
	const char *text;
} table[OPT_COUNT] = {
	[OPT_GPUS] = { "gpus", "N", 1, SOFT_MAX_GPUS, "soft GPUs (default 1)" },
	[OPT_SMS] = { "sms", "N", 1, SOFTD_DEVICE_MAX_SMS,
		      "multiprocessors of each, which bound the resident blocks (default 4)" },
	[OPT_MEM] = { "mem", "BYTES", 1u << 20, 32ull << 30,
		      "memory of each, with suffix K, M or G (default 1G; committed when used)" },
	[OPT_CONTEXT] = { "context-memory", "BYTES", 0, 1ull << 30,
			  "memory that each context takes, with suffix (default 0)" },
	[OPT_WORKERS] = { "workers", "N", 1, SOFTD_DEVICE_MAX_WORKERS,
			  "execution threads of each (default: half the processors for all, at "
			  "most 8)" },
	[OPT_ENGINES] = { "copy-engines", "N", 1, SOFTD_DEVICE_MAX_COPY_ENGINES,
			  "copies of each that run at once (default 1)" },
	[OPT_BANDWIDTH] = { "copy-bandwidth", "BYTES", 0, 1ull << 50,
			    "a second, of all engines of a GPU, with suffix (default 0: as fast as "
			    "memory)" },
	[OPT_LINK] = { "link-bandwidth", "BYTES", 1u << 20, 1ull << 50,
		       "a second and direction, between each GPU and the host, of copies and "
		       "kernels, "
		       "with suffix (default: as fast as memory)" },
	[OPT_SLICE] = { "timeslice-us", "N", 1, SOFT_SLICE_MAX_US,
			"default time slice of a context (default 2000)" },
	[OPT_SLICE_MAX] = { "timeslice-max-us", "N", 1, SOFT_SLICE_MAX_US,
			    "longest slice, and all of one process together beyond the default "
			    "(default 100000)" },
	[OPT_SWITCH] = { "switch-cost-us", "N", 0, 100000,
			 "duration of a switch to another context (default 0)" },
	[OPT_CLOCK] = { "clock-mhz", "N", 1, 10000,
			"clock rate of attributes and %clock (default 1000)" },
	[OPT_CPU] = { "cpu", "N", 0, CPU_SETSIZE - 1, "run on this processor only" },
	[OPT_SOCKET] = { "socket", "PATH", 0, 0,
			 "socket (default $GBPF_SOFTGPU_SOCKET, else softgpu.sock in the runtime "
			 "directory)" },
	[OPT_IDLE] = { "idle-exit", "N", 0, 1000000,
		       "exit after N seconds without clients (default 0: never)" },
	[OPT_LOG] = { "log-limit", "BYTES", 4096, 1u << 30,
		      "truncate standard error when it is a file longer than this" },
	[OPT_READY] = { "ready-fd", "N", 0, 1 << 20,
			"write a byte to this descriptor when clients may connect" },
	[OPT_CHECK] = { "check", NULL, 0, 0,
			"check every memory access of kernels and report faults (slow)" },
	[OPT_FOREGROUND] = { "foreground", NULL, 0, 0,
			     "accepted and ignored: this program never daemonizes" },
	[OPT_HELP] = { "help", NULL, 0, 0, "this text" },
	[OPT_VERSION] = { "version", NULL, 0, 0, "the version" },
};

static void print_usage(void)
{
	printf("Usage: gbpf-softgpu [OPTION]...\n"
	       "Serves software GPUs to this user's CUDA programs (through "
	       "lib/gbpf/soft/libcuda.so.1).\n\n");
	for (int i = 0; i < OPT_COUNT; i++) {
		char left[48];

		snprintf(left, sizeof(left), "--%s%s%s", table[i].name, table[i].arg ? " " : "",
			 table[i].arg ? table[i].arg : "");
		printf("  %-23s %s\n", left, table[i].text);
	}
}

static int parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;
	unsigned long long v;
	uint64_t unit = 1;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || text[0] == '-') {
		return -EINVAL;
	}
	if (*end) {
		const char *k = strchr("KMG", *end);

		if (!k || end[1]) {
			return -EINVAL;
		}
		unit = *end == 'K' ? 1u << 10 : *end == 'M' ? 1u << 20 : 1u << 30;
	}
	if (checked_mul((uint64_t)v, unit, ret) || *ret < min || *ret > max) {
		return -ERANGE;
	}
	return 0;
}

static void set_number(struct softd_options *o, int opt, uint64_t v)
{
	struct softd_machine_options *d = &o->device;

	switch (opt) {
	case OPT_GPUS:
		d->gpus = (unsigned)v;
		break;
	case OPT_SMS:
		d->sms = (unsigned)v;
		break;
	case OPT_MEM:
		d->memory_bytes = v;
		break;
	case OPT_CONTEXT:
		d->context_bytes = v;
		break;
	case OPT_WORKERS:
		d->workers = (unsigned)v;
		break;
	case OPT_ENGINES:
		d->copy_engines = (unsigned)v;
		break;
	case OPT_BANDWIDTH:
		d->copy_bytes_s = v;
		break;
	case OPT_LINK:
		d->link_bytes_s = v;
		exec_link_enable(true);
		break;
	case OPT_SLICE:
		d->slice_ns = v * 1000;
		break;
	case OPT_SLICE_MAX:
		d->slice_max_us = v;
		break;
	case OPT_SWITCH:
		d->switch_ns = v * 1000;
		break;
	case OPT_CLOCK:
		d->clock_khz = (unsigned)v * 1000;
		break;
	case OPT_CPU:
		d->cpu = (int)v;
		break;
	case OPT_IDLE:
		d->idle_exit_s = (unsigned)v;
		break;
	case OPT_LOG:
		o->log_limit = v;
		break;
	case OPT_READY:
		o->ready = (int)v;
		break;
	default:
		break;
	}
}

/* The limit in the largest unit that divides it, in the form that the option accepts. */
static const char *limit_text(char text[32], bool bytes, uint64_t v)
{
	static const char units[] = " KMG";
	unsigned u = 0;

	while (bytes && u < 3 && v && v % 1024 == 0) {
		v /= 1024;
		u++;
	}
	snprintf(text, 32, "%" PRIu64 "%.*s", v, u > 0, units + u);
	return text;
}

static int bad_number(int opt, const char *value)
{
	bool bytes = strcmp(table[opt].arg, "BYTES") == 0;
	char min[32], max[32];

	fprintf(stderr,
		"gbpf-softgpu: invalid value \"%s\" for --%s: expected a number%s from %s to %s; "
		"see --help\n",
		value, table[opt].name, bytes ? " of bytes" : "",
		limit_text(min, bytes, table[opt].min), limit_text(max, bytes, table[opt].max));
	return -EINVAL;
}

static int set_option(struct softd_options *o, int opt, const char *value)
{
	uint64_t v;

	if (opt == OPT_SOCKET) {
		o->socket = value;
	}
	if (opt == OPT_CHECK) {
		exec_check_enable(true);
	}
	if (!table[opt].arg || opt == OPT_SOCKET) {
		return 0;
	}
	if (parse_number(value, table[opt].min, table[opt].max, &v) < 0) {
		return bad_number(opt, value);
	}
	set_number(o, opt, v);
	return 0;
}

static void set_defaults(struct softd_options *o)
{
	*o = (struct softd_options){ .ready = -1,
				     .device = { .gpus = 1,
						 .sms = 4,
						 .copy_engines = 1,
						 .memory_bytes = 1ull << 30,
						 .slice_ns = 2000000,
						 .slice_max_us = 100000,
						 .clock_khz = 1000000,
						 .cpu = -1 } };
}

static int finish(struct softd_options *o)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	o->device.slice_max_us = MAX(o->device.slice_max_us, o->device.slice_ns / 1000);
	if (!o->device.workers) {
		o->device.workers = (unsigned)MIN(MAX(n / 2 / (long)o->device.gpus, 1), 8);
	}
	return 0;
}

int softd_options_parse(struct softd_options *o, int argc, char **argv)
{
	struct option names[OPT_COUNT + 1] = { 0 };
	int opt;

	for (int i = 0; i < OPT_COUNT; i++) {
		names[i] = (struct option){ table[i].name,
					    table[i].arg ? required_argument : no_argument, NULL,
					    256 + i };
	}
	set_defaults(o);
	while ((opt = getopt_long(argc, argv, "", names, NULL)) >= 0) {
		if (opt == 256 + OPT_HELP) {
			print_usage();
			return 1;
		}
		if (opt == 256 + OPT_VERSION) {
			puts("gbpf-softgpu " GBPF_VERSION_TEXT);
			return 1;
		}
		if (opt < 256) { /* getopt_long has printed the message */
			fputs("Try gbpf-softgpu --help\n", stderr);
			return 3;
		}
		if (set_option(o, opt - 256, optarg) < 0) {
			return 3;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "gbpf-softgpu: unexpected argument \"%s\"; see --help\n",
			argv[optind]);
		return 3;
	}
	return finish(o);
}
