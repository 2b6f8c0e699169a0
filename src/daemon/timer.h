/* Timers of gbpfd's loop. */
#ifndef GBPF_DAEMON_TIMER_H
#define GBPF_DAEMON_TIMER_H

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>
#include <time.h>

/* Lets the timer's handler run once, at usec (CLOCK_MONOTONIC), also if it was to run at another
 * time or is off. */
static inline void daemon_timer_arm(sd_event_source *timer, uint64_t usec)
{
	sd_event_source_set_time(timer, usec);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

/* The same, and creates the timer if *timer is NULL: with its accuracy in us, its handler and the
 * handler's argument. Returns 0 or -errno, then *timer is NULL. */
static inline int daemon_timer_at(sd_event *loop, sd_event_source **timer, uint64_t usec,
				  uint64_t accuracy, sd_event_time_handler_t handler, void *arg)
{
	int err = 0;

	if (*timer) {
		daemon_timer_arm(*timer, usec);
	} else {
		err = sd_event_add_time(loop, timer, CLOCK_MONOTONIC, usec, accuracy, handler, arg);
	}
	return err < 0 ? err : 0;
}

/* Returns true if the timer's handler is to run. timer: NULL if there is none yet. */
static inline bool daemon_timer_is_armed(sd_event_source *timer)
{
	return timer && sd_event_source_get_enabled(timer, NULL) > 0;
}

#endif
