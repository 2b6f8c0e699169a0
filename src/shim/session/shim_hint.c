/* Announcements: gbpf_shim_hint(), the only name exported in addition to libcuda's, for gbpf_hint()
 * of libgbpf, and the environment variable for programs that call nothing. See docs/SCHEDULING.md,
 * Announcements. */
#include "shim/session/shim_hint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "shim/shim.h"

#define MAX_AHEAD_US 10000000u /* maximum time from the announcement to the request */
#define MAX_DEADLINE_US 3600000000u
#define MIN_PERIOD_US 2000u
#define MAX_PERIOD_US 10000000u

/* Returns the device of the calling thread's context; 0 if it has none. */
static uint32_t current_device(void)
{
	CUdevice device = 0;

	return shim_real.cuCtxGetDevice(&device) == CUDA_SUCCESS && device >= 0 ? (uint32_t)device
										: 0;
}

EXPORT int gbpf_shim_hint(uint64_t in_us, uint64_t deadline_us, int device)
{
	uint64_t at;

	if (in_us > MAX_AHEAD_US || deadline_us > MAX_DEADLINE_US || device < -1 ||
	    device >= (int)PROTO_MAX_GPUS) {
		return -EINVAL;
	}
	if (!shim_attached()) {
		return -ENOENT;
	}
	at = clock_now_ns() + in_us * 1000;
	return sched_announce(load_acquire(&shim.sched),
			      device < 0 ? current_device() : (uint32_t)device, at,
			      deadline_us ? at + deadline_us * 1000 : 0);
}

/* ---- the environment ---- */

static bool number(const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9') {
		return false;
	}
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return !errno && !*end && *ret >= min && *ret <= max;
}

static bool set_up_before;

static void complain(const char *name, const char *value, const char *rule)
{
	if (set_up_before) {
		return; /* a reconnection: reported already */
	}
	fprintf(stderr, "gbpf: invalid %s '%s': expected %s; ignored\n", name, value, rule);
}

static void set_rhythm(struct sched *s, bool learn)
{
	const char *v = getenv("GBPF_HINT");
	uint64_t us;

	sched_set_rhythm(s, (!v || !*v) && learn ? SCHED_RHYTHM_LEARN : SCHED_RHYTHM_OFF, 0);
	if (!v || !*v || strcmp(v, "off") == 0) {
		return;
	}
	if (strcmp(v, "auto") == 0) {
		sched_set_rhythm(s, SCHED_RHYTHM_LEARN, 0);
	} else if (strncmp(v, "period:", 7) == 0 &&
		   number(v + 7, MIN_PERIOD_US, MAX_PERIOD_US, &us)) {
		sched_set_rhythm(s, SCHED_RHYTHM_PERIOD, us * 1000);
	} else {
		complain("GBPF_HINT", v, "auto, off or period:MICROSECONDS (2000 to 10000000)");
	}
}

void shim_hint_setup(struct sched *s, bool learn, uint32_t lead_us)
{
	set_rhythm(s, learn);
	sched_set_lead(s, lead_us ? lead_us * UINT64_C(1000) : SCHED_LEAD_AUTO, SCHED_WARM_NS);
	set_up_before = true;
}
