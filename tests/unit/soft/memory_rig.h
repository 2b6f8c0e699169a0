/* The server's memory without a server: a machine, a GPU, clients and contexts made by hand, and
 * the system calls of the files under test, which the linker redirects here. */
#ifndef GBPF_TESTS_SOFT_MEMORY_RIG_H
#define GBPF_TESTS_SOFT_MEMORY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdbool.h>

#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/memory/device_memory.h"
#include "soft/server/memory/device_memory_int.h"
#include "soft/server/memory/heap.h"
#include "soft/server/memory/shadow.h"
#include "soft/server/run/context_group.h"
#include "soft/server/run/op_stream.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PAGE UINT64_C(4096)
#define BASE ((uint64_t)SOFT_WINDOW_FIRST)
#define DEVICE_PAGES 32768u /* of the first part of a window: 128 MiB */

extern struct softd_machine *machine;
extern struct softd_gpu *gpu;
extern struct softd_client *client;
extern struct softd_group *group; /* of slot 0 */
extern struct softd_memory *m;	  /* the client's window */
extern bool checking;		  /* exec_checking() */

/* 1 GiB of device memory, 64 MiB of pinned memory. The machine's lock is held. */
int rig_set_up(void **state);
int rig_tear_down(void **state); /* asserts that the lock is held, and that no descriptor is left */

/* What the files under test ask of the kernel. */
extern struct rig_calls {
	unsigned closes, maps, unmaps, discards, creates, broadcasts; /* counts of calls */
	bool closed_elsewhere;	    /* the last close was another thread's */
	uint64_t at, bytes, offset; /* of the last discard (offset) or map (at) */
	int flags, fd;		    /* of the last map */
	bool unlocked;		    /* the last discard or map was made without the lock */
} calls;
/* That call fails, once, after so many that succeed, with this error. */
void rig_fail(const char *call, int error, unsigned after);
void rig_limit_descriptors(uint64_t n); /* what getrlimit() says; 0: the truth */
unsigned rig_open_fds(void);
extern unsigned rig_fds_before; /* descriptors at the begin of the test */
bool rig_heap_is_locked(void);

/* Allocates device memory of slot 0. Returns the page of the window; 0: refused. */
uint64_t rig_device(uint64_t bytes);
uint64_t address_of(uint64_t page);

#endif
