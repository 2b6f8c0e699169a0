/* Writes audit entries to the second history and to the log. */
#include "daemon/audit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef HAVE_SYSTEMD
#include <systemd/sd-journal.h>
#endif

#include "base/clock.h"
#include "base/log.h"
#include "base/rate.h"

static void write_log(const struct daemon_history_event *e)
{
	char hash[24] = "";

	if (e->hash) {
		snprintf(hash, sizeof(hash), "%016" PRIx64, e->hash);
	}
#ifdef HAVE_SYSTEMD
	if (getenv("JOURNAL_STREAM") &&
	    sd_journal_send("MESSAGE=audit: %s by user %d (pid %d): %s", e->kind, (int)e->uid,
			    e->pid, e->text, "PRIORITY=5", "GBPF_ACTION=%s", e->kind, "GBPF_UID=%d",
			    (int)e->uid, "GBPF_PID=%d", e->pid, "GBPF_OBJECT_HASH=%s", hash,
			    NULL) == 0) {
		return;
	}
#endif
	log_info("audit: action=%s uid=%d pid=%d%s%s: %s", e->kind, (int)e->uid, e->pid,
		 hash[0] ? " hash=" : "", hash, e->text);
}

void daemon_audit(struct daemon *d, const struct peer *who, const char *action, uint64_t hash,
		  const char *fmt, ...)
{
	const struct daemon_history_event *e;
	char text[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	e = daemon_history_add_audit(&d->audit, who ? who->uid : d->uid,
				     (int)(who ? who->pid : getpid()), action, hash, "%s", text);
	write_log(e);
}

#define USER_NS UINT64_C(60000000000)
#define HOUR 3600u

void daemon_audit_user(struct daemon *d, const struct peer *who, const char *action,
		       const char *fmt, ...)
{
	uint64_t now = clock_now_ns();
	struct daemon_user *u = daemon_user_of(&d->users, who->uid, now);
	char text[300], more[64] = "";
	va_list ap;

	if ((u->audit.told_ns && now - u->audit.told_ns < USER_NS) ||
	    !rate_allow(&d->users.audit, DAEMON_AUDIT_USERS_PER_HOUR, now / HOUR)) {
		u->audit.more++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (u->audit.more) {
		snprintf(more, sizeof(more), " (and %u more before, in the history)",
			 u->audit.more);
	}
	daemon_audit(d, who, action, 0, "%s%s", text, more);
	u->audit.told_ns = now;
	u->audit.more = 0;
}
