/* The table of mapped addresses. The driver library maps memory for GPUs with calls of the unified
 * memory driver (uvm_ioctl.h of the open kernel modules; UVM_MAX_GPUS is 256 from 535 to 595), each
 * of which names an object at the resource manager. For cuMemAlloc it makes the object and maps it
 * right afterwards, in the same thread (580.159.04); objects that are mapped otherwise, such as
 * those of cuMemCreate, are only known as addresses.
 *
 * Nothing here depends on the layout being right: where it is not, the object that a call names is
 * not the one that the thread has just made. */
#include "base/lock.h"
#include "gpu/ranges.h"

#include <search.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/rm.h"

#define UVM_MAP_EXTERNAL 33u
#define UVM_FREE 34u
#define UVM_UNMAP_EXTERNAL 66u
#define UVM_MAX_GPUS 256u
#define UVM_ATTRIBUTES_BYTES 36u /* of a mapping for one GPU */

struct uvm_range {
	uint64_t base, bytes, offset; /* offset: of a mapping, in its object */
};

struct uvm_object { /* behind the attributes of a mapping */
	uint64_t n_attributes;
	int32_t fd;
	uint32_t client, memory, status;
};

struct node {
	struct gpu_range range; /* memory 0: only the addresses are known */
	struct node *next;	/* in a list of removed ones */
};

static const struct gpu_ranges_watch *watch; /* [atomic] NULL: nothing is recorded */
static struct lock lock = LOCK_INITIALIZER(NV_RANGES);
static void *tree GUARDED_BY(lock);	      /* of nodes that do not overlap, by address */
static TLS_FAST struct gpu_learn_object last; /* memory object that this thread has made */
/* One whose addresses this thread's latest call has freed, as cuMemFree does before it frees the
 * object: no range has it, so the tree need not be walked. */
static TLS_FAST struct gpu_rm_free unmapped;

/* ---- the tree ---- */

/* Overlapping ranges compare as equal. */
static int compare(const void *a, const void *b)
{
	const struct gpu_range *x = a, *y = b;

	if (x->base < y->base) {
		return x->bytes <= y->base - x->base ? -1 : 0;
	}
	return y->bytes <= x->base - y->base ? 1 : 0;
}

static struct node *find(uint64_t base, uint64_t bytes) REQUIRES(lock)
{
	struct gpu_range key = { .base = base, .bytes = bytes };
	struct gpu_range **at = bytes ? tfind(&key, &tree, compare) : NULL;

	return at ? container_of(*at, struct node, range) : NULL;
}

/* Removes what overlaps; returns the list of it. */
static struct node *take(uint64_t base, uint64_t bytes) REQUIRES(lock)
{
	struct node *list = NULL, *n;

	while ((n = find(base, bytes)) != NULL) {
		(void)tdelete(&n->range, &tree, compare);
		n->next = list;
		list = n;
	}
	return list;
}

static struct gpu_rm_free freeing GUARDED_BY(lock); /* for disown() */

/* Freeing an object frees what is below it. */
static void disown(const void *at, VISIT order, int level) REQUIRES(lock)
{
	struct gpu_range *r = *(struct gpu_range *const *)at;

	(void)level;
	if ((order == preorder || order == leaf) && r->client == freeing.root &&
	    (r->memory == freeing.object || r->device == freeing.object ||
	     r->client == freeing.object)) {
		r->memory = 0;
	}
}

/* ---- calls ---- */

/* Reports removed ranges, without the lock. */
static void report(struct node *list)
{
	const struct gpu_ranges_watch *w = load_acquire(&watch);

	while (list) {
		struct node *n = list;

		list = n->next;
		w->gone(n->range.base, n->range.bytes);
		free(n);
	}
}

/* Reads a call's argument with process_vm_readv, since another version's may be shorter. */
static bool read_argument(const void *argument, size_t offset, void *to, size_t bytes)
{
	struct iovec into = { to, bytes }, from = { (char *)unqual(argument) + offset, bytes };

	return process_vm_readv(getpid(), &into, 1, &from, 1, 0) == (ssize_t)bytes;
}

/* Fills in the object if it is the one that this thread has just made for it. */
static void identify(struct gpu_range *r, const struct uvm_range *u, const struct uvm_object *o)
{
	if (u->offset || o->status || o->fd != last.fd || o->client != last.root ||
	    o->memory != last.object || last.class_id != GPU_RM_CLASS_MEMORY) {
		return;
	}
	r->fd = last.fd;
	r->client = last.root;
	r->device = last.parent;
	r->memory = last.object;
}

/* Host memory that the driver library has made is mapped for the CPU, too. */
static bool is_of_host(const struct uvm_object *o)
{
	return o->client == last.root && o->memory == last.object &&
	       (last.class_id == GPU_RM_CLASS_HOST_MEMORY ||
		last.class_id == GPU_RM_CLASS_HOST_PAGES);
}

static void mapped(const void *argument)
{
	struct uvm_object o = { .status = UINT32_MAX };
	struct node *n, *replaced;
	struct uvm_range u = { 0 };
	uint64_t end;
	void *at;

	if (!read_argument(argument, 0, &u, sizeof(u)) || !u.bytes ||
	    checked_add(u.base, u.bytes, &end)) {
		return;
	}
	(void)read_argument(argument, sizeof(u) + (size_t)UVM_MAX_GPUS * UVM_ATTRIBUTES_BYTES, &o,
			    sizeof(o));
	if (is_of_host(&o)) {
		return;
	}
	n = calloc(1, sizeof(*n));
	if (!n) {
		return;
	}
	n->range.base = u.base;
	n->range.bytes = u.bytes;
	identify(&n->range, &u, &o);
	lock_take(&lock);
	replaced = take(u.base, u.bytes);
	at = tsearch(&n->range, &tree, compare);
	lock_release(&lock);
	if (!at) { /* out of memory */
		free(n);
	}
	report(replaced);
}

/* From here on nothing finds the object, so that no window can be opened after `freed` has closed
 * them. Its addresses stay the GPU's. */
static void freed(const struct gpu_ranges_watch *w, const void *argument,
		  const struct gpu_rm_free *before)
{
	struct gpu_rm_free f = { 0 };

	if (!read_argument(argument, 0, &f, sizeof(f))) {
		return;
	}
	if (f.root != before->root || f.object != before->object) {
		lock_take(&lock);
		freeing = f;
		twalk(tree, disown);
		lock_release(&lock);
	}
	if (f.root == last.root && f.object == last.object) {
		last.object = 0; /* another thread's object may get the handle */
	}
	w->freed(f.root, f.object);
}

/* A call that fails removes the addresses as well: at worst, copies there are the driver's. */
static void unmapping(const void *argument, bool has_length)
{
	struct uvm_range u = { 0 };
	struct node *list;

	if (!read_argument(argument, 0, &u, has_length ? 16 : 8)) {
		return;
	}
	lock_take(&lock);
	list = take(u.base, has_length ? u.bytes : 1);
	lock_release(&lock);
	if (list) {
		unmapped.root = list->range.client;
		unmapped.object = list->range.memory;
	}
	report(list);
}

void gpu_ranges_before(unsigned long request, const void *argument)
{
	const struct gpu_ranges_watch *w = load_acquire(&watch);
	struct gpu_rm_free before = unmapped;

	if (!w || !argument) {
		return;
	}
	unmapped.object = 0;
	if (request == UVM_FREE || request == UVM_UNMAP_EXTERNAL) {
		unmapping(argument, request == UVM_UNMAP_EXTERNAL);
	} else if (_IOC_TYPE(request) == 'F' && _IOC_NR(request) == GPU_RM_NR_FREE &&
		   _IOC_SIZE(request) == sizeof(struct gpu_rm_free)) {
		freed(w, argument, &before);
	}
}

void gpu_ranges_after(unsigned long request, const void *argument, int result)
{
	if (request == UVM_MAP_EXTERNAL && result >= 0 && argument && load_acquire(&watch)) {
		mapped(argument);
	}
}

void gpu_ranges_made(const struct gpu_learn_object *o)
{
	if (o->class_id == GPU_RM_CLASS_MEMORY || o->class_id == GPU_RM_CLASS_HOST_MEMORY ||
	    o->class_id == GPU_RM_CLASS_HOST_PAGES) {
		last = *o;
	}
}

/* ---- queries ---- */

void gpu_ranges_begin(const struct gpu_ranges_watch *w)
{
	store_release(&watch, w);
}

bool gpu_ranges_find(uint64_t address, struct gpu_range *ret)
{
	const struct node *n;
	bool found;

	lock_take(&lock);
	n = find(address, 1);
	found = n && n->range.memory;
	if (found) {
		*ret = n->range;
	}
	lock_release(&lock);
	return found;
}

bool gpu_ranges_touch(uint64_t address, uint64_t bytes)
{
	bool touch;

	lock_take(&lock);
	touch = find(address, bytes) != NULL;
	lock_release(&lock);
	return touch;
}

/* Not analysed: the child of a fork has no other thread. */
void gpu_ranges_forget_all(void) UNCHECKED
{
	lock_init(&lock, LOCK_NV_RANGES); /* another thread of the parent may have held it */
	store_release(&watch, (const struct gpu_ranges_watch *)NULL);
	tree = NULL;
}
