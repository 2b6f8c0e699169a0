/* Named points at which tests kill or stop a process: in the middle of a map update, a swap, a
 * session's set-up. Only builds for tests have them (-DGBPF_POINTS). */
#ifndef GBPF_BASE_POINT_H
#define GBPF_BASE_POINT_H

#ifdef GBPF_POINTS
/* name: "room.operation.step", a literal. Signals: any; never in a signal handler. */
void point_reached(const char *name);
#define POINT(name) point_reached(name)
#else
#define POINT(name) ((void)0)
#endif

#endif
