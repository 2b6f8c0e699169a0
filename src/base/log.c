/* Log lines, one write each, so that lines of several threads do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const char *log_name = "gbpf";
static enum log_level log_max = LOG_LEVEL_INFO;

void log_setup(const char *name, enum log_level level)
{
	log_name = name;
	log_max = level;
}

/* Writes "2026-11-21T19:50:01.123+0100 error gbpfd: ", or what journald expects, which adds the
 * time itself. Returns the length. */
static int print_head(char *line, size_t cap, enum log_level level)
{
	static const char *const words[] = { [LOG_LEVEL_ERROR] = "error",
					     [LOG_LEVEL_WARN] = "warning",
					     [LOG_LEVEL_INFO] = "info",
					     [LOG_LEVEL_DEBUG] = "debug" };
	char when[32], zone[8];
	uint64_t now = clock_wall_ns();
	time_t seconds = (time_t)(now / 1000000000u);
	struct tm tm;

	if (getenv("JOURNAL_STREAM")) {
		return snprintf(line, cap, "<%d>%s: ", level, log_name);
	}
	localtime_r(&seconds, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	strftime(zone, sizeof(zone), "%z", &tm);
	return snprintf(line, cap, "%s.%03d%s %s %s: ", when, (int)(now / 1000000 % 1000), zone,
			words[level], log_name);
}

void log_print(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n, m;

	if (level > log_max) {
		return;
	}
	n = print_head(line, sizeof(line), level);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	n = MIN(n + MAX(m, 0), (int)sizeof(line) - 2);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0) {
		return; /* the log itself cannot be written */
	}
}
