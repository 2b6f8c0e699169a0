/* The direct plan: small copies by the CPU's own loads and stores. Device memory is mapped into the
 * process in units of 2 MiB (windows), once a unit has seen some copies. Nothing is put on a
 * stream, so the caller must know that all work which the copy is ordered behind has finished.
 * docs/MEMORY-INTERNALS.md says why the order is CUDA's, and why no window outlives its memory.
 *
 * All functions may be called by any thread. The device's memory is only touched under the lock;
 * the program's memory, which may fault, only without it. */
#ifndef GBPF_MEM_DIRECT_H
#define GBPF_MEM_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "mem/mem_device.h"
#include "mem/region.h"

#define MEM_WINDOW_BYTES ((size_t)2 << 20)
#define MEM_WINDOWS_MAX 256u
#define MEM_WINDOW_HITS                                                                            \
	8u		    /* copies by the driver before a unit is mapped, which takes 15-100 us \
			       (H200): as much as they could have saved */
#define MEM_UNITS_MAX 4096u /* whose copies are counted; one more restarts all counts */
/* Stores of 64 KiB take 4 us, of 256 KiB 15 us, as long as the driver's copy; loads of 1 KiB 1.1
 * us, of 2 KiB 2.1 us (H200). */
#define MEM_DIRECT_UP_MAX ((size_t)256 << 10)
#define MEM_DIRECT_DOWN_MAX ((size_t)2 << 10)
#define MEM_DIRECT_LINE ((size_t)64)

/* Device memory as the CPU sees it. */
struct mem_window {
	uint64_t base;	   /* device address */
	size_t bytes;	   /* at most MEM_WINDOW_BYTES; it lies in one unit */
	unsigned char *at; /* of the device; aligned to MEM_DIRECT_LINE as base is */
	uint64_t own[3];   /* the device's */
};

struct mem_window_ops {
	/* Maps the unit that the address is in, or as much of it as belongs to the same allocation.
	 * Returns 0 or -Exxx. Called under the lock: must not call the program's driver library,
	 * which may wait for it in mem_direct_gone(). */
	int (*open)(void *dev, uint64_t address, struct mem_window *ret);
	void (*close)(void *dev, struct mem_window *w);
};

/* Copies that take the driver different times. Of page-locked memory: an asynchronous copy of
 * 256 KiB takes the caller 1.8 us then, else 16 us (H200). */
enum mem_direct_kind {
	MEM_DIRECT_ASYNC = 0,
	MEM_DIRECT_BLOCKING = 1,
	MEM_DIRECT_PINNED = 2, /* added to one of the others */
	MEM_DIRECT_KINDS = 4,
};

/* Shortest times of copies of 2^n to 2^(n + 1) - 1 bytes, by plan. */
#define MEM_DIRECT_CLASSES 19u
struct mem_direct_time {
	struct {
		uint32_t ns, n; /* [atomic] of how many copies, up to MEM_DIRECT_TIMES */
	} of_driver, of_plan;
	uint32_t refused; /* [atomic] copies since the plan was found not to pay */
	uint32_t untimed; /* [atomic] copies by the driver whose time is not known */
};
#define MEM_DIRECT_UNTIMED UINT64_MAX
#define MEM_DIRECT_UNTIMED_MAX 32u /* then it is no longer asked for */
#define MEM_DIRECT_TIMES 4u
#define MEM_DIRECT_RETRY 256u /* copies after which that is measured again */

struct mem_direct {
	const struct mem_window_ops *ops;
	void *dev;
	struct lock lock;
	struct mem_regions units; /* lock; by number of the unit; count: copies, plus 1 */
	struct mem_slot {
		struct mem_window w; /* bytes 0: unused */
		uint8_t busy, skip, ones, skip_down;
	} slot[MEM_WINDOWS_MAX]; /* lock */
	uint32_t n_windows;	 /* [atomic], written under lock; with one that is being opened */
	bool closed;		 /* lock; no window is opened any more */
	/* By way, kind, class. */
	struct mem_direct_time time[2][MEM_DIRECT_KINDS][MEM_DIRECT_CLASSES];
};

/* ops may not be NULL; dev is passed to them. */
void mem_direct_init(struct mem_direct *d, const struct mem_window_ops *ops, void *dev);
/* Closes all windows, and opens none any more. */
void mem_direct_finish(struct mem_direct *d);
/* In a child after fork, which has none of the windows: does not touch them. Nothing else may be
 * called there. */
void mem_direct_forget(struct mem_direct *d);

/* Returns whether copies of that size are fit for the plan at all. */
static inline bool mem_direct_is_small(enum mem_copy_way way, size_t bytes)
{
	return bytes <= (way == MEM_COPY_UP ? MEM_DIRECT_UP_MAX : MEM_DIRECT_DOWN_MAX);
}

enum mem_direct_answer {
	MEM_DIRECT_NO,	      /* the copy is the driver's */
	MEM_DIRECT_OPEN,      /* the same, but the first unit has seen so many that a window pays */
	MEM_DIRECT_OPEN_NEXT, /* the same, but the unit of the last byte has */
	MEM_DIRECT_YES,	      /* there are windows on all of it */
};
/* Asks about a copy that is small, of at least 1 byte. asks_if_done: the caller is going to ask
 * whether earlier work is done; then units where it was not lately are left alone for some copies.
 */
enum mem_direct_answer mem_direct_find(struct mem_direct *d, uint64_t address, size_t bytes,
				       bool asks_if_done);
/* Maps the unit of the address if possible; may: it is memory that may be mapped. Otherwise the
 * unit's copies stay the driver's. */
void mem_direct_open(struct mem_direct *d, uint64_t address, bool may);
/* Earlier work was done, or not, when the caller asked after MEM_DIRECT_YES. */
void mem_direct_asked(struct mem_direct *d, uint64_t address, bool was_done);

/* Copies to, or from, the device. The stores are ordered before all that this thread or another one
 * submits afterwards. Returns false if a window was closed, or if what was read is all ones, as it
 * is of a device that does not answer: the copy is the driver's then, from its beginning. */
bool mem_direct_up(struct mem_direct *d, uint64_t address, const void *host, size_t bytes);
bool mem_direct_down(struct mem_direct *d, void *host, uint64_t address, size_t bytes);

/* The plan pays for copies of that kind: they take clearly less time, by a 16th, than the driver's
 * of the same or the next smaller class that has been timed. Where only the driver's times are
 * known, or none are, it is tried; where only the plan's are, the driver is. */
bool mem_direct_pays(struct mem_direct *d, enum mem_copy_way way, enum mem_direct_kind kind,
		     size_t bytes);
/* Returns whether the time of a copy by the plan, or by the driver, is still wanted. */
bool mem_direct_wants_time(const struct mem_direct *d, enum mem_copy_way way,
			   enum mem_direct_kind kind, size_t bytes, bool by_plan);
/* ns: MEM_DIRECT_UNTIMED: it is not known. */
void mem_direct_took(struct mem_direct *d, enum mem_copy_way way, enum mem_direct_kind kind,
		     size_t bytes, bool by_plan, uint64_t ns);

/* Closes the windows on those addresses, before the memory is freed. Returns when no copy uses
 * them. The memory can no longer be found by ops->open. */
void mem_direct_gone(struct mem_direct *d, uint64_t address, uint64_t bytes);
/* Closes the windows for which is_gone() returns true; it is called under the lock. As above, their
 * memory can no longer be found by ops->open. */
void mem_direct_gone_if(struct mem_direct *d, bool (*is_gone)(const struct mem_window *, void *),
			void *arg);

/* ---- direct_bytes.c ---- */

/* Returns whether this processor has the instructions. */
bool mem_direct_is_possible(void);
/* Stores to a window, and returns when the stores are on their way to the device, ahead of
 * whatever the CPU writes next. */
void mem_direct_store(unsigned char *to, const unsigned char *from, size_t bytes);
/* Loads all lines that the bytes are in, into `to`, which is aligned to a line: the device's memory
 * as it is now, whatever was loaded before. */
void mem_direct_load(unsigned char *to, const unsigned char *from, size_t bytes);
/* The same for whole lines and without the fence, by vectors of 16, 32 or 64 bytes. */
typedef void mem_direct_load_fn(unsigned char *to, const unsigned char *from, size_t bytes);
/* NULL: this processor does not have them. */
mem_direct_load_fn *mem_direct_loads_by(unsigned vector_bytes);

#endif
