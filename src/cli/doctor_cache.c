/* The cache of patched machine code, as `gbpf doctor` shows it. Programs do without it where it
 * cannot be used, so that only a wrong setting is a fault. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/disk_cache.h"
#include "cli/doctor.h"

#define NAME "machine-code cache"

static void report_off(struct cli_doctor *d, int err)
{
	const char *mb = getenv("GBPF_CACHE_MB");

	if (err == -ENOTSUP) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, NAME, NULL,
				"switched off by GBPF_CACHE or GBPF_CACHE_MB");
	} else if (err == -ENOENT) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, NAME, NULL,
				"off: neither GBPF_CACHE_DIR, XDG_CACHE_HOME nor HOME is set");
	} else if (err == -EINVAL && mb && mb[0]) {
		cli_doctor_find(d, CLI_DOCTOR_BAD, NAME, "Correct it, or unset it",
				"off: invalid GBPF_CACHE_MB '%.64s' or relative folder: expected a "
				"number of MiB and an absolute path",
				mb);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_BAD, NAME, "Set GBPF_CACHE_DIR to an absolute path",
				"off: the path of its folder is %s",
				err == -EINVAL ? "relative" : "too long");
	}
}

static void report_folder(struct cli_doctor *d, const struct disk_cache *c)
{
	struct disk_cache_summary s;
	char why[PRIVATE_DIR_WHY], bytes[24], max[24];

	if (access(c->dir, F_OK) < 0 && errno == ENOENT) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, NAME, NULL,
				"%s: made when a program's machine code is patched", c->dir);
	} else if (private_dir_check(c->dir, why) < 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, NAME,
				"Correct that, or set GBPF_CACHE_DIR to a folder of your own",
				"off: %s is refused: %s", c->dir, why);
	} else if (disk_cache_summary(c, &s) < 0) {
		cli_doctor_find(d, CLI_DOCTOR_NOTE, NAME, NULL, "off: %s cannot be read", c->dir);
	} else {
		cli_doctor_find(d, CLI_DOCTOR_OK, NAME, NULL,
				"%s: %" PRIu64 " image%s, %s of %s, %" PRIu64 " hit%s, %" PRIu64
				" miss%s; rm -r clears it",
				c->dir, s.files, PLURAL(s.files), cli_bytes(bytes, s.bytes),
				cli_bytes(max, c->max_bytes), s.hits, PLURAL(s.hits), s.misses,
				s.misses == 1 ? "" : "es");
	}
}

void cli_doctor_check_cache(struct cli_doctor *d)
{
	struct disk_cache c;
	int err = disk_cache_settings(&c);

	if (err) {
		report_off(d, err);
	} else {
		report_folder(d, &c);
	}
}
