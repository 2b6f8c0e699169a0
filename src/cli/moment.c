/* Moments that users name: how long ago, a time of day, a day, or both. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cli/cli.h"

#define NS_PER_SECOND UINT64_C(1000000000)
#define FIRST_YEAR 1970
#define LAST_YEAR 2400 /* what 64 bits of nanoseconds hold */

/* Reads n digits. Returns the text behind them, NULL if there are others, or a number above most.
 */
static const char *digits(const char *at, int n, int most, int *ret)
{
	*ret = 0;
	for (int i = 0; i < n; i++, at++) {
		if (*at < '0' || *at > '9') {
			return NULL;
		}
		*ret = *ret * 10 + (*at - '0');
	}
	return *ret <= most ? at : NULL;
}

/* "22:00", "22:00:30" or "22:00:30.125", whose fraction is not used. Returns false if it is no time
 * of day, or something follows. */
static bool time_of_day(const char *at, struct tm *tm)
{
	at = digits(at, 2, 23, &tm->tm_hour);
	at = at && *at == ':' ? digits(at + 1, 2, 59, &tm->tm_min) : NULL;
	tm->tm_sec = 0;
	if (at && *at == ':') {
		at = digits(at + 1, 2, 59, &tm->tm_sec);
		if (at && *at == '.') {
			at += 1 + strspn(at + 1, "0123456789");
		}
	}
	return at && !*at;
}

static int days_of(int month, int year)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

/* "today", "yesterday" or "2026-11-27". Returns the text behind it; NULL: it is no day. */
static const char *day(const char *at, struct tm *tm)
{
	int year = 0, month = 0, of_month = 0;

	if (strncmp(at, "today", 5) == 0) {
		return at + 5;
	}
	if (strncmp(at, "yesterday", 9) == 0) {
		tm->tm_mday--;
		return at + 9;
	}
	at = digits(at, 4, LAST_YEAR, &year);
	at = at && *at == '-' ? digits(at + 1, 2, 12, &month) : NULL;
	at = at && *at == '-' ? digits(at + 1, 2, 31, &of_month) : NULL;
	if (!at || year < FIRST_YEAR || !month || !of_month || of_month > days_of(month, year)) {
		return NULL;
	}
	tm->tm_year = year - 1900;
	tm->tm_mon = month - 1;
	tm->tm_mday = of_month;
	return at;
}

/* Returns the moment at which local clocks show that time, as mktime() has it for that tm_isdst. */
static uint64_t moment_of(const struct tm *shown, int dst)
{
	struct tm tm = *shown;
	time_t s;

	tm.tm_isdst = dst;
	s = mktime(&tm);
	return s > 0 ? (uint64_t)s * NS_PER_SECOND : 0;
}

/* Whether local clocks show that time at that moment. */
static bool shows(uint64_t ns, const struct tm *shown)
{
	time_t s = (time_t)(ns / NS_PER_SECOND);
	struct tm tm;

	return localtime_r(&s, &tm) && tm.tm_hour == shown->tm_hour && tm.tm_min == shown->tm_min &&
	       tm.tm_sec == shown->tm_sec;
}

/* Where clocks show a time twice, since they are put back: returns the later moment if it is not
 * after now, else the earlier one. now 0: the earlier one. Where they skip it, since they are put
 * forward: returns the moment by the clock as it was, which begins a day whose midnight is skipped;
 * *ret_skipped. */
static uint64_t latest(const struct tm *shown, uint64_t now, bool *ret_skipped)
{
	uint64_t with = moment_of(shown, 1), without = moment_of(shown, 0);
	uint64_t any = moment_of(shown, -1);

	*ret_skipped = !shows(any, shown);
	if (*ret_skipped) {
		return MAX(with, without);
	}
	if (!shows(with, shown) || !shows(without, shown)) {
		return any; /* one of them is no time of that day */
	}
	return now && MAX(with, without) <= now ? MAX(with, without) : MIN(with, without);
}

int cli_parse_moment(const char *text, uint64_t now_ns, uint64_t *ret_ns)
{
	time_t s = (time_t)(now_ns / NS_PER_SECOND);
	const char *behind;
	struct tm tm;
	uint64_t ago;
	bool skipped;

	if (cli_parse_duration(text, 0, &ago) == 0) {
		*ret_ns = now_ns > ago ? now_ns - ago : 0;
		return 0;
	}
	if (!localtime_r(&s, &tm)) {
		return -EINVAL;
	}
	if (time_of_day(text, &tm)) {
		*ret_ns = latest(&tm, now_ns, &skipped);
		if (skipped || *ret_ns > now_ns) {
			tm.tm_mday--;
			*ret_ns = latest(&tm, now_ns, &skipped);
		}
		return 0;
	}
	behind = day(text, &tm);
	if (!behind || (*behind && *behind != ' ' && *behind != 'T')) {
		return -EINVAL;
	}
	tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
	if (*behind && !time_of_day(behind + 1, &tm)) {
		return -EINVAL;
	}
	*ret_ns = latest(&tm, 0, &skipped);
	return 0;
}
