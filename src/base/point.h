/* Named points at which tests kill or stop a process, for example in the middle of a map update or
 * a swap. Only test builds have them (-DGBPF_POINTS). */
#ifndef GBPF_BASE_POINT_H
#define GBPF_BASE_POINT_H

#ifdef GBPF_POINTS
/* name: "room.operation.step", a literal. Must not be called in a signal handler. */
void point_reached(const char *name);
#define POINT(name) point_reached(name)
/* The first thread that comes here waits while the test wants it to; the others go on. */
void point_held(const char *name);
#define POINT_HOLD(name) point_held(name)
#else
#define POINT(name) ((void)0)
#define POINT_HOLD(name) ((void)0)
#endif

#endif
