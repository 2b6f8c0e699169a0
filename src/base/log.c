/* Log lines, one write each, so that lines of several threads do not mix. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *log_name = "gbpf";
static enum log_level log_max = LOG_LEVEL_INFO;

void log_setup(const char *name, enum log_level level)
{
	log_name = name;
	log_max = level;
}

void log_print(enum log_level level, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n = 0, m;

	if (level > log_max) {
		return;
	}
	if (getenv("JOURNAL_STREAM")) {
		n = snprintf(line, sizeof(line), "<%d>", level);
	}
	n += snprintf(line + n, sizeof(line) - (size_t)n, "%s: ", log_name);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n, fmt, ap);
	va_end(ap);
	n = MIN(n + MAX(m, 0), (int)sizeof(line) - 2);
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)n) < 0) {
		return; /* the log itself cannot be written */
	}
}
