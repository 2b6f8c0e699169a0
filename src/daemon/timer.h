/* Timers of gbpfd's loop. */
#ifndef GBPF_DAEMON_TIMER_H
#define GBPF_DAEMON_TIMER_H

#include <stdint.h>
#include <systemd/sd-event.h>

/* Lets the timer's handler run once, at usec (CLOCK_MONOTONIC), also if it was to run at another
 * time or is off. */
static inline void daemon_timer_arm(sd_event_source *timer, uint64_t usec)
{
	sd_event_source_set_time(timer, usec);
	sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
}

#endif
