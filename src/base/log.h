/* The log of programs (daemon, soft GPU server): standard error, with time and level,
 * or <N> priorities for journald.
 * Library code must not log; it returns errors and reports. */
#ifndef GBPF_BASE_LOG_H
#define GBPF_BASE_LOG_H

#include "base/compiler.h"

enum log_level { LOG_LEVEL_ERROR = 3, LOG_LEVEL_WARN = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* name is borrowed; level is the most detailed one that is printed. */
void log_setup(const char *name, enum log_level level);
void log_print(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);

#define log_error(...) log_print(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_print(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_print(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_print(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
