/* The table of handles. All of it comes from calls that the driver library made and the driver
 * granted; other calls are ignored. Memory objects are not stored here, since a process can have
 * any number of them; watches see them, and ranges.c, which stores what they are mapped at. */
#include "gpu/learn.h"

#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "gpu/control.h"
#include "gpu/ranges.h"
#include "gpu/rm.h"

static struct lock lock = LOCK_INITIALIZER(NV_LEARN);
static struct gpu_learn_object objects[GPU_LEARN_OBJECTS_MAX] GUARDED_BY(lock);
static uint32_t n_objects GUARDED_BY(lock);
static uint32_t generation;
static TLS_FAST struct gpu_learn_watch *watch;

/* Returns true for GPFIFO channels: clb06f.h (Maxwell) and its successors. */
static bool is_channel(uint32_t class_id)
{
	static const uint16_t classes[] = { 0xb06f, 0xc06f, 0xc36f, 0xc46f, 0xc56f,
					    0xc86f, 0xc96f, 0xca6f, 0xcb6f };

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (classes[i] == class_id) {
			return true;
		}
	}
	return false;
}

static bool kept(uint32_t class_id)
{
	return class_id == GPU_RM_CLASS_DEVICE || class_id == GPU_RM_CLASS_SUBDEVICE ||
	       class_id == GPU_RM_CLASS_GROUP || is_channel(class_id);
}

static bool schedules(uint32_t class_id)
{
	return class_id == GPU_RM_CLASS_GROUP || is_channel(class_id);
}

/* ---- the table ---- */

static struct gpu_learn_object *find(uint32_t root, uint32_t object) REQUIRES(lock)
{
	for (uint32_t i = 0; i < n_objects; i++) {
		if (objects[i].object == object && objects[i].root == root) {
			return &objects[i];
		}
	}
	return NULL;
}

static void drop(struct gpu_learn_object *o) REQUIRES(lock)
{
	if (schedules(o->class_id)) {
		(void)add_relaxed(&generation, 1u);
	}
	*o = objects[--n_objects];
}

static void keep(const struct gpu_learn_object *o) REQUIRES(lock)
{
	struct gpu_learn_object *at = find(o->root, o->object);

	if (at) {
		drop(at);
	}
	if (n_objects == GPU_LEARN_OBJECTS_MAX) {
		return;
	}
	objects[n_objects++] = *o;
	if (schedules(o->class_id)) {
		(void)add_relaxed(&generation, 1u);
	}
}

/* Recursion ends after three levels: devices have groups, groups have channels. An object that
 * moves into a removed one's place is examined in turn. */
static void drop_children(uint32_t root, uint32_t parent, int level) REQUIRES(lock)
{
	for (uint32_t i = 0; i < n_objects;) {
		struct gpu_learn_object o = objects[i];

		if (o.root != root || o.parent != parent || o.object == parent) {
			i++;
			continue;
		}
		drop(&objects[i]);
		if (level > 0) {
			drop_children(root, o.object, level - 1);
			i = 0;
		}
	}
}

static void drop_client(uint32_t root) REQUIRES(lock)
{
	for (uint32_t i = 0; i < n_objects;) {
		if (objects[i].root == root) {
			drop(&objects[i]);
		} else {
			i++;
		}
	}
}

static void forget(uint32_t root, uint32_t object) REQUIRES(lock)
{
	struct gpu_learn_object *o;

	if (object == root) {
		drop_client(root);
		return;
	}
	o = find(root, object);
	if (o) {
		drop(o);
		drop_children(root, object, 2);
	}
}

static bool device_of(const struct gpu_learn_object *from, struct gpu_learn_object *ret)
	REQUIRES(lock)
{
	struct gpu_learn_object o = *from;

	for (int level = 0; level < 4; level++) {
		struct gpu_learn_object *up;

		if (o.class_id == GPU_RM_CLASS_DEVICE) {
			*ret = o;
			return true;
		}
		up = find(o.root, o.parent);
		if (!up) {
			return false;
		}
		o = *up;
	}
	return false;
}

/* ---- calls ---- */

/* Reads the parameters with process_vm_readv, so that an invalid address cannot cause a fault. */
static uint32_t device_id(uint64_t params, uint32_t bytes)
{
	uint32_t id = GPU_LEARN_NO_ID;
	struct iovec to = { &id, sizeof(id) }, from = { (void *)(uintptr_t)params, sizeof(id) };

	if (!params || (bytes && bytes < sizeof(id)) ||
	    process_vm_readv(getpid(), &to, 1, &from, 1, 0) != (ssize_t)sizeof(id)) {
		return GPU_LEARN_NO_ID;
	}
	return id;
}

static void made(struct gpu_learn_object *o, uint64_t params, uint32_t bytes)
{
	struct gpu_learn_watch *w = watch;
	struct gpu_learn_object device;

	if (o->class_id == GPU_RM_CLASS_DEVICE) {
		o->id = device_id(params, bytes);
	}
	if (w && w->class_id == o->class_id) {
		w->n++;
		w->last = *o;
		lock_take(&lock);
		w->device_id = device_of(o, &device) ? device.id : GPU_LEARN_NO_ID;
		lock_release(&lock);
	}
	gpu_ranges_made(o);
	if (kept(o->class_id)) {
		lock_take(&lock);
		keep(o);
		lock_release(&lock);
	}
}

static void on_alloc(int fd, const void *argument, uint32_t bytes)
{
	struct gpu_learn_object o = { .fd = fd, .id = GPU_LEARN_NO_ID };
	struct gpu_rm_alloc_rights b;
	struct gpu_rm_alloc a;

	/* Both structures begin with the same members. */
	memcpy(&a, argument, sizeof(a));
	o.root = a.root;
	o.parent = a.parent;
	o.object = a.object;
	o.class_id = a.class_id;
	if (bytes == sizeof(a) && a.status == 0) {
		made(&o, a.params, a.params_bytes);
	} else if (bytes == sizeof(b)) {
		memcpy(&b, argument, sizeof(b));
		if (b.status == 0) {
			made(&o, b.params, b.params_bytes);
		}
	}
}

static void on_free(const void *argument)
{
	struct gpu_rm_free f;

	memcpy(&f, argument, sizeof(f));
	if (f.status == 0) {
		lock_take(&lock);
		forget(f.root, f.object);
		lock_release(&lock);
	}
}

/* The driver library sets slices itself, also of groups whose slice we have set. */
static void on_control(const void *argument)
{
	struct gpu_rm_control c;

	memcpy(&c, argument, sizeof(c));
	if (c.status == 0 && c.command == GPU_RM_GROUP_SLICE_SET) {
		lock_take(&lock);
		if (find(c.client, c.object)) {
			(void)add_relaxed(&generation, 1u);
		}
		lock_release(&lock);
	}
}

static void one_call(int fd, unsigned number, uint32_t bytes, const void *argument)
{
	if (number == GPU_RM_NR_ALLOC &&
	    (bytes == sizeof(struct gpu_rm_alloc) || bytes == sizeof(struct gpu_rm_alloc_rights))) {
		on_alloc(fd, argument, bytes);
	} else if (number == GPU_RM_NR_FREE && bytes == sizeof(struct gpu_rm_free)) {
		on_free(argument);
	} else if (number == GPU_RM_NR_CONTROL && bytes == sizeof(struct gpu_rm_control)) {
		on_control(argument);
	}
}

void gpu_learn_call(int fd, unsigned long request, const void *argument, int result)
{
	if (_IOC_TYPE(request) == 'F' && result >= 0 && argument) {
		one_call(fd, _IOC_NR(request), _IOC_SIZE(request), argument);
	}
	gpu_ranges_after(request, argument, result);
}

/* ---- queries ---- */

void gpu_learn_watch_begin(struct gpu_learn_watch *w)
{
	w->n = 0;
	w->device_id = GPU_LEARN_NO_ID;
	watch = w;
}

void gpu_learn_watch_end(void)
{
	watch = NULL;
}

uint32_t gpu_learn_find(uint32_t class_id, struct gpu_learn_object *ret, uint32_t max)
{
	uint32_t n = 0;

	lock_take(&lock);
	for (uint32_t i = 0; i < n_objects; i++) {
		if (class_id == GPU_LEARN_CHANNELS ? is_channel(objects[i].class_id)
						   : objects[i].class_id == class_id) {
			if (n < max) {
				ret[n] = objects[i];
			}
			n++;
		}
	}
	lock_release(&lock);
	return n;
}

bool gpu_learn_device_of(const struct gpu_learn_object *o, struct gpu_learn_object *ret)
{
	bool found;

	lock_take(&lock);
	found = device_of(o, ret);
	lock_release(&lock);
	return found;
}

void gpu_learn_slice(uint32_t root, uint32_t object, uint32_t slice_us)
{
	struct gpu_learn_object *o;

	lock_take(&lock);
	o = find(root, object);
	if (o && !o->slice_us) {
		o->slice_us = slice_us;
	}
	lock_release(&lock);
}

uint32_t gpu_learn_generation(void)
{
	return load_acquire(&generation);
}

/* In a child after fork: the parent's handles are not valid here, and its threads may have held the
 * lock. Not analysed: the child has no other thread. */
void gpu_learn_forget_all(void) UNCHECKED
{
	lock_init(&lock, LOCK_NV_LEARN);
	n_objects = 0;
	watch = NULL;
	gpu_ranges_forget_all();
	(void)add_relaxed(&generation, 1u);
}
