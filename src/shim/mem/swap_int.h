/* Memory that can leave the device, for the files swap_*.c. */
#ifndef GBPF_SHIM_MEM_SWAP_INT_H
#define GBPF_SHIM_MEM_SWAP_INT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "cuabi/types.h"
#include "mem/swap_map.h"

/* Regions at addresses of gBPF's are above; arguments of closed kernels that are smaller are
 * numbers, no addresses. */
#define SHIM_SWAP_ADDRESS_MIN (UINT64_C(1) << 32)

/* Also held over the driver's calls that make, move and free chunks. */
extern struct lock shim_swap_mutex;
extern struct mem_swap_map shim_swap_map GUARDED_BY(shim_swap_mutex);

/* Managed memory that can leave (swap_managed.c): parts of allocations of the driver's. */
extern struct mem_swap_map shim_managed_map GUARDED_BY(shim_swap_mutex);

/* Shows what chunks of a row's device have on the host. */
void shim_swap_show_away(int row) REQUIRES(shim_swap_mutex);
/* Moves a chunk of a region in the map to a place, and shows what its row has at each, also in
 * shim_swap_on_host. */
void shim_swap_place(struct mem_swap_chunk *c, enum mem_swap_place place) REQUIRES(shim_swap_mutex);

/* ---- swap_region.c ---- */

/* Returns a region of the chunks that an allocation of so many bytes has in each process, as
 * mem_swap_region_create() does. */
struct mem_swap_region *shim_swap_region_create(uint64_t bytes, int row);
/* Maps a region, whose chunks have memory, at an address, and adds it to the map. Returns the
 * driver's error: nothing is mapped. */
CUresult shim_swap_enter(struct mem_swap_region *r, CUdeviceptr base) REQUIRES(shim_swap_mutex);
/* Removes a region from the map, which keeps its memory. unmap: that is mapped still. */
void shim_swap_withdraw(struct mem_swap_region *r, bool unmap) REQUIRES(shim_swap_mutex);

/* Returns a number for a region, which no other one has had. */
uint64_t shim_swap_new_id(void) REQUIRES(shim_swap_mutex);
/* Maps a region, whose chunks have memory, at addresses of gBPF's for the current context. Returns
 * as shim_swap_enter(), or CUDA_ERROR_NOT_SUPPORTED. */
CUresult shim_swap_place_region(struct mem_swap_region *r) REQUIRES(shim_swap_mutex);

/* ---- swap_pause.c: contexts, and pauses of their work ---- */

/* What moves in one pause, each way, at most: so many chunks and bytes. */
#define SHIM_SWAP_BATCH 64u
#define SHIM_SWAP_BATCH_BYTES (UINT64_C(1) << 30)

#define SHIM_SWAP_ENDS 8u /* intervals of which it is known whether their work is done */

struct shim_swap_context {
	CUcontext ctx; /* NULL: free */
	CUdevice device;
	uint64_t epoch;	    /* when it was seen */
	CUstream out, back; /* of copies; NULL: one of them, or an event, could not be made */
	CUevent event;	    /* behind all work */
	CUevent begin, end; /* around a launch that is timed */
	CUevent copied[SHIM_SWAP_BATCH]; /* of each chunk of a batch, on its way out */
	CUevent ends[SHIM_SWAP_ENDS];	 /* behind the work of the latest intervals, in turn */
	uint64_t first;			 /* interval: it has none of an earlier one */
	uint64_t done; /* interval: its work, and that of earlier ones, is done; 0: not known */
	uint64_t uses; /* number of the map's uses at the end of that */
	bool ending;   /* its work cannot be waited for */
	struct {
		enum { SHIM_SWAP_NOT_TIMED, SHIM_SWAP_TIMING, SHIM_SWAP_TIMED } state;
		CUfunction f;
		uint64_t bytes, missing; /* that it names, and of them on the host */
	} timed;			 /* a launch that uses memory of the host */
};

#define SHIM_SWAP_CONTEXTS_MAX 16u /* of a process whose memory moves */

/* Notes a context. made: just now; if it is known, and ending, the handle is that of another one.
 */
void shim_swap_see(CUcontext ctx, CUdevice device, bool made) REQUIRES(shim_swap_mutex);
/* Returns a context that has been noted, or NULL. */
struct shim_swap_context *shim_swap_context(CUcontext ctx) REQUIRES(shim_swap_mutex);
/* Returns a context on the row's device, in which chunks can be copied, or NULL: there is none, or
 * not all contexts of the process can be waited for. */
const struct shim_swap_context *shim_swap_context_of(int row) REQUIRES(shim_swap_mutex);
/* Forgets a context that has ended, unless it was seen after the epoch. Returns whether another one
 * is left. */
bool shim_swap_forget(CUcontext ctx, uint64_t epoch) REQUIRES(shim_swap_mutex);
/* Records an event behind all work of a context. Returns CUDA_ERROR_NOT_READY while a stream of the
 * process captures, or begins to, which that would invalidate. */
CUresult shim_swap_record(CUcontext ctx, CUevent event);
/* Makes an event in a context. NULL on errors. */
CUresult shim_swap_make_event(CUcontext ctx, CUevent *ret);
/* Makes an event behind all work of a context. Returns as shim_swap_record(). */
CUresult shim_swap_record_behind(CUcontext ctx, CUevent *ret);
/* Delays the next query of recorded work. waited_ns: since the wait for it began. */
void shim_swap_delay_query(uint64_t waited_ns);
/* Returns true if no work goes on in any context, as far as that can be said within 0.2 ms: a pause
 * would hardly make the program wait. */
bool shim_swap_is_quiet(void) REQUIRES(shim_swap_mutex);
/* Returns true if a context is known and all work of all contexts is done, without a wait: what the
 * program has freed in it may be used again. */
bool shim_swap_is_idle(CUcontext ctx) REQUIRES(shim_swap_mutex);
/* Returns a context on the device that is not about to end, or NULL. */
CUcontext shim_swap_context_on(CUdevice device) REQUIRES(shim_swap_mutex);
/* Returns true once contexts of several devices have been seen. */
bool shim_swap_has_several_devices(void);
/* Returns the place of a context by number, below SHIM_SWAP_CONTEXTS_MAX. It may be free. */
struct shim_swap_context *shim_swap_context_number(unsigned i) REQUIRES(shim_swap_mutex);
/* Returns the latest interval of which all work is done, in all contexts of the process, and that
 * of all earlier ones: copies between devices, and kernels of a device that has access to another
 * one, use chunks of both. *ret_uses becomes the number of the map's uses at its end. */
uint64_t shim_swap_done(uint64_t *ret_uses) REQUIRES(shim_swap_mutex);

/* Takes a slot of shim_work_used for a region that work may use already. Returns 0 if there is
 * none: work that may use the region counts as using any memory. */
uint32_t shim_swap_take_slot(void) REQUIRES(shim_swap_mutex);
void shim_swap_free_slot(uint32_t slot) REQUIRES(shim_swap_mutex); /* accepts 0 */
/* Returns the latest interval in which work was submitted that may use the region. Constant in a
 * pause. */
uint64_t shim_swap_last_use(const struct mem_swap_region *r);

/* A pause in which no work is submitted. Its thread runs no handler of the program, which could
 * submit work and wait for the pause to end. */
struct shim_swap_pause {
	sigset_t signals;
	int cancel;
};
/* How often a pause was to begin. */
extern uint64_t shim_swap_stops GUARDED_BY(shim_swap_mutex);
/* How long a pause that only makes work faster waits for calls, and then for work. */
#define SHIM_SWAP_WAIT_NS UINT64_C(5000000)
/* Waits that long, at most, for calls that submit work to return; others wait meanwhile. Returns
 * whether there is a pause, which ends the interval; if so, shim_swap_resume() follows. */
bool shim_swap_stop(struct shim_swap_pause *p, uint64_t wait_ns) REQUIRES(shim_swap_mutex);
/* In a pause: waits until the work of that interval, and of earlier ones, is done in all contexts
 * of the process, and until copies in the context could begin, for which a driver with few queues
 * (CUDA_DEVICE_MAX_CONNECTIONS) may have them wait for work that goes on. Returns false if that
 * takes longer: a kernel may wait for the host. */
bool shim_swap_await(const struct shim_swap_context *c, uint64_t interval, uint64_t wait_ns)
	REQUIRES(shim_swap_mutex);
void shim_swap_resume(struct shim_swap_pause *p);

/* ---- swap_peer.c: access by other devices of the process ---- */

/* Returns the devices, one bit each, to which a region's chunks are mapped. */
uint32_t shim_swap_access(const struct mem_swap_region *r) REQUIRES(shim_swap_mutex);
/* Returns the place of a region's chunks that are on the device and are not shared. */
enum mem_swap_place shim_swap_device_place(const struct mem_swap_region *r)
	REQUIRES(shim_swap_mutex);
/* A context has ended, with what was enabled for it up to the epoch. */
void shim_swap_peer_ended(CUcontext ctx, uint64_t epoch) REQUIRES(shim_swap_mutex);
void shim_swap_peer_install(void);

/* ---- swap_across.c: copies ---- */

void shim_swap_across_install(void);

/* ---- swap_fetch.c ---- */

/* Has the region of the allocation with that base and number return to the device, as for a launch
 * that names all of it, but only what moves in one pause. Waits for the work of its context for a
 * second at most. Returns whether something has moved. The caller does not hold the mutex. */
bool shim_swap_fetch_region(CUdeviceptr base, uint64_t id);

/* ---- swap_graphs.c ---- */

/* Stores the addresses that an executable graph names, sorted, each once; valid while the mutex is
 * held. Returns their number. */
uint32_t shim_swap_graph_names(CUgraphExec exec, const uint64_t **ret) REQUIRES(shim_swap_mutex);

/* ---- swap_region.c: regions that the program has freed ---- */

struct shim_swap_leaving {
	CUdeviceptr base;
	uint64_t id;   /* of the region */
	CUevent event; /* behind the work that may use it; NULL: none could be recorded yet */
	CUcontext ctx; /* of the event */
	bool others;   /* with those of other contexts: see shim_swap_leave_for_others() */
	bool again;    /* that is to be called once the event is reached */
	bool packed;   /* it is an allocation in a pack */
};

/* Returns the region with that base and number, freed or not, or NULL: it is no longer in the map.
 * (Allocations in packs: shim_packs_find().) */
struct mem_swap_region *shim_swap_find_by_id(CUdeviceptr base, uint64_t id)
	REQUIRES(shim_swap_mutex);
/* Returns true unless work is before the event, or a capture that has begun meanwhile has taken it
 * for its own. An error of the context ends all work. */
bool shim_swap_is_reached(CUevent event);
/* Notes a region that a settlement frees once its event is reached. Returns false without host
 * memory. */
bool shim_swap_leave(const struct shim_swap_leaving *l) REQUIRES(shim_swap_mutex);
/* Notes a region whose context has no work for each other context that has some, as a copy between
 * devices, which may use it and may wait for this thread, or once more if that cannot be said,
 * while a stream captures. Returns false if there is none: the caller frees it. The caller does not
 * hold the mutex. */
bool shim_swap_leave_for_others(const struct shim_swap_leaving *l);
/* Makes a region that was freed the program's again, as an allocation of so many bytes, at most
 * those that are reserved, with a number of its own. Returns its base. */
CUdeviceptr shim_swap_revive(struct mem_swap_region *r, uint64_t bytes) REQUIRES(shim_swap_mutex);

/* ---- swap_calls.c ---- */

/* Returns true if an address is in what the program has reserved, or up to MEM_SWAP_UNIT next to
 * it: there may be memory of handles at any distance, also in other reservations that touch it. */
bool shim_swap_is_reserved(CUdeviceptr address) REQUIRES(shim_swap_mutex);

/* ---- swap_move.c ---- */

/* Moves chunks back to the device while the limit has room, as many as fit into one pause. */
void shim_swap_back(int row) REQUIRES(shim_swap_mutex);
/* Moves chunks back into memory of a region that nothing uses, with its charge, as many as fit into
 * one pause and find chunks of their size, which are unmapped and have no place then. */
void shim_swap_back_into(struct mem_swap_region *unused) REQUIRES(shim_swap_mutex);
/* Moves those of the list back to the device, in that order, and others out for them where the
 * limit has no room: the ones that are worth least, were not used since that use, and are not used
 * by closed launches of intervals after done; UINT64_MAX: by any. At most SHIM_SWAP_BATCH. Where
 * chunks differ in size, some may come back only in a second pause, into the room that the first
 * one has made. Returns the bytes that came back; 0: no more can, or another process of the vGPU
 * takes each room at once. */
uint64_t shim_swap_exchange(int row, struct mem_swap_chunk *const list[], unsigned n,
			    uint64_t since, uint64_t done) REQUIRES(shim_swap_mutex);
/* Copies a chunk on the device to memory of the host that is mapped at that address, if no work was
 * submitted since the last pause that may use it, and none is under way. Returns whether it did;
 * *ret_interval becomes an interval: the memory has what the chunk has as long as
 * shim_swap_last_use() is not later, in a pause. */
bool shim_swap_copy_ahead(const struct mem_swap_chunk *k, CUdeviceptr to, uint64_t *ret_interval)
	REQUIRES(shim_swap_mutex);
/* Has gbpfd grant pinned memory that the limit has. The caller does not hold the mutex. */
void shim_swap_ask_for_host(uint64_t bytes);

#endif
