/* The driver's side of the resource manager. The test program defines ioctl, so that the library
 * and rm.c call this one; descriptors are anonymous files that a list identifies. */
#include "fake_rm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/compiler.h"
#include "gpu/rm.h"

#define MAX_FDS 1024
#define KIND_UVM (-1)

struct fake_rm fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* held while a call is carried out */
int (*fake_call)(int fd, unsigned long request, void *argument);

static struct {
	int kind; /* 0 none, 1 control, 2 + n device n, KIND_UVM */
	int tied; /* control descriptor it is registered with */
	int mapped;
} fds[MAX_FDS];

static const struct gpu_rm_card cards[FAKE_GPUS] = {
	{ .valid = 1, .domain = 0, .bus = 0x3b, .slot = 0, .gpu_id = 0x3b00, .minor = 4 },
	{ .valid = 1, .domain = 0, .bus = 0x86, .slot = 0, .gpu_id = 0x8600, .minor = 0 },
	{ .valid = 1, .domain = 1, .bus = 0x86, .slot = 2, .gpu_id = 0x18602, .minor = 1 },
};

/* ---- descriptors ---- */

static int open_kind(int kind)
{
	int fd = memfd_create("fake", MFD_CLOEXEC);

	if (fd >= MAX_FDS || fd < 0) {
		abort();
	}
	fds[fd].kind = kind;
	fds[fd].tied = fds[fd].mapped = -1;
	return fd;
}

int fake_control(void)
{
	return open_kind(1);
}

int fake_uvm(void)
{
	return open_kind(KIND_UVM);
}

static int os_open(const char *path)
{
	unsigned n;

	if (strcmp(path, "/dev/nvidiactl") == 0) {
		return fake_control();
	}
	return sscanf(path, "/dev/nvidia%u", &n) == 1 && n < 16 ? open_kind(2 + (int)n) : -ENOENT;
}

static bool os_is(int fd, int number)
{
	int kind = fd >= 0 && fd < MAX_FDS ? fds[fd].kind : 0;

	return number == GPU_RM_CONTROL_MINOR ? kind == 1
	       : number == GPU_RM_ANY_GPU     ? kind >= 2
					      : kind == 2 + number;
}

/* ---- objects ---- */

struct fake_object *fake_find(uint32_t root, uint32_t object)
{
	for (uint32_t i = 0; i < fake.n; i++) {
		if (fake.o[i].root == root && fake.o[i].object == object) {
			return &fake.o[i];
		}
	}
	return NULL;
}

struct fake_object *fake_nth(uint32_t class_id, uint32_t n)
{
	for (uint32_t i = 0; i < fake.n; i++) {
		if (fake.o[i].class_id == class_id && n-- == 0) {
			return &fake.o[i];
		}
	}
	return NULL;
}

static bool has_parts(const struct fake_object *o)
{
	for (uint32_t i = 0; i < fake.n_parts; i++) {
		if (fake.part[i].client == o->root && fake.part[i].memory == o->object) {
			return true;
		}
	}
	return false;
}

/* Closes what no duplicate has. */
static void close_memory(int memory)
{
	for (uint32_t i = 0; i < fake.n; i++) {
		if (fake.o[i].memory == memory) {
			return;
		}
	}
	if (memory >= 0) {
		close(memory);
	}
}

static void free_tree(uint32_t root, uint32_t object)
{
	for (uint32_t i = 0; i < fake.n;) {
		struct fake_object o = fake.o[i];

		if (o.root != root || (o.object != object && o.parent != object)) {
			i++;
			continue;
		}
		fake.freed_with_parts += has_parts(&o);
		fake.o[i] = fake.o[--fake.n];
		close_memory(o.memory);
		if (o.object != object) {
			free_tree(root, o.object);
			i = 0;
		}
	}
}

static bool ours(uint32_t root, int control)
{
	struct fake_object *client = fake_find(root, root);

	return client && client->control == control;
}

static uint32_t add(uint32_t root, uint32_t parent, uint32_t *object, uint32_t class_id,
		    uint32_t gpu, int control)
{
	if (fake.n == FAKE_OBJECTS) {
		return 0x51;
	}
	if (!*object) {
		*object = 0xc1d00000 + fake.next++;
	}
	if (class_id == GPU_RM_CLASS_CLIENT) {
		root = parent = *object;
	} else if (!ours(root, control)) {
		return 0x23;
	} else if (!fake_find(root, parent)) {
		return 0x36;
	}
	fake.o[fake.n++] = (struct fake_object){ .root = root,
						 .parent = parent,
						 .object = *object,
						 .class_id = class_id,
						 .gpu = gpu,
						 .slice_us = 2048,
						 .level = 1,
						 .on = 1,
						 .saves = 7,
						 .control = control,
						 .memory = -1 };
	return 0;
}

static uint32_t on_alloc(int fd, struct gpu_rm_alloc *a)
{
	struct fake_object *parent = fake_find(a->root, a->parent);
	uint32_t gpu = parent ? parent->gpu : 0, status;
	const struct gpu_rm_device_params *p = (const void *)(uintptr_t)a->params;

	if (a->class_id == fake.refuse_class) {
		return fake.refuse_status;
	}
	if (a->class_id == GPU_RM_CLASS_DEVICE && (!p || p->device_id >= FAKE_GPUS)) {
		return 0x1f;
	}
	gpu = a->class_id == GPU_RM_CLASS_DEVICE ? p->device_id : gpu;
	status = add(a->root, a->parent, &a->object, a->class_id, gpu, fd);
	if (!status && a->class_id == GPU_RM_CLASS_MEMORY) {
		fake.o[fake.n - 1].memory = memfd_create("memory", MFD_CLOEXEC);
		(void)!ftruncate(fake.o[fake.n - 1].memory, (off_t)FAKE_MEMORY_BYTES);
	}
	return status;
}

static uint32_t on_dup(int fd, struct gpu_rm_dup *d)
{
	struct fake_object *from = fake_find(d->from_client, d->from_object);
	int memory = from ? from->memory : -1;
	uint32_t status;

	if (!from) {
		return 0x57;
	}
	status = add(d->client, d->parent, &d->object, from->class_id, from->gpu, fd);
	if (!status) {
		fake.o[fake.n - 1].memory = memory;
	}
	return status;
}

/* Returns a descriptor whose mapping from offset 0 on is that part. */
static int contents_of(const struct fake_object *o, const struct gpu_rm_map *m)
{
	int fd;

	if (fake.mmap_fails) {
		return eventfd(0, EFD_CLOEXEC);
	}
	if (!m->offset) {
		return fcntl(o->memory, F_DUPFD_CLOEXEC, 0);
	}
	fd = memfd_create("memory", MFD_CLOEXEC);
	(void)!ftruncate(fd, (off_t)m->length);
	return fd;
}

static uint32_t on_map(int fd, struct gpu_rm_map *m)
{
	struct fake_object *o = fake_find(m->client, m->memory);
	struct fake_object *device = fake_find(m->client, m->device);
	int contents;

	if (!o || !device || !ours(m->client, fd) || o->memory < 0) {
		return 0x57;
	}
	if (m->fd < 0 || m->fd >= MAX_FDS || fds[m->fd].kind != 2 + (int)cards[o->gpu].minor ||
	    fds[m->fd].tied < 0 || !m->length || (m->offset | m->length) % 4096 ||
	    m->offset > FAKE_MEMORY_BYTES || m->length > FAKE_MEMORY_BYTES - m->offset) {
		return 0x1f;
	}
	if (fake.n_parts == FAKE_PARTS) {
		return 0x1a;
	}
	contents = contents_of(o, m);
	/* From now on a mapping maps the memory itself. */
	if (!fake.stores_are_lost && dup3(contents, m->fd, O_CLOEXEC) < 0) {
		close(contents);
		return 0x59;
	}
	(void)!ftruncate(m->fd, (off_t)FAKE_MEMORY_BYTES);
	fds[m->fd].mapped = 1;
	m->address = UINT64_C(0x700000000000) + 4096 * (uint64_t)fake.parts_made++;
	fake.part[fake.n_parts++] = (struct fake_part){ m->client, m->device,  m->memory, m->offset,
							m->length, m->address, contents };
	return 0;
}

static uint32_t on_unmap(int fd, const struct gpu_rm_unmap *u)
{
	if (!ours(u->client, fd)) {
		return 0x23;
	}
	for (uint32_t i = 0; i < fake.n_parts; i++) {
		struct fake_part p = fake.part[i];

		if (p.client == u->client && p.device == u->device && p.memory == u->memory &&
		    p.cookie == u->address) {
			close(p.contents);
			fake.part[i] = fake.part[--fake.n_parts];
			return 0;
		}
	}
	return 0x57;
}

/* ---- controls ---- */

static uint32_t on_channels(uint32_t client, const uint8_t *p, uint32_t bytes)
{
	uint32_t n, clients[64], channels[64];

	if (bytes != 536) {
		return 0x1f;
	}
	memcpy(&n, p + 4, 4);
	memcpy(clients, p + 24, sizeof(clients));
	memcpy(channels, p + 24 + 256, sizeof(channels));
	for (uint32_t i = 0; i < n; i++) {
		struct fake_object *o = fake_find(client, channels[i]);

		if (clients[i] != client || !o) {
			return 0x21;
		}
		o->on = !p[0];
	}
	fake.disabled_calls++;
	return 0;
}

static uint32_t on_group(struct fake_object *o, uint32_t command, uint8_t *p, uint32_t bytes)
{
	switch (command) {
	case 0xa06c0101:
		fake.group_schedules++;
		for (uint32_t i = 0; i < fake.n; i++) {
			if (fake.o[i].root == o->root && fake.o[i].parent == o->object) {
				fake.o[i].on = p[0];
			}
		}
		return bytes == 3 ? 0 : 0x1f;
	case 0xa06c0103:
		memcpy(&o->slice_us, p, 8);
		return bytes == 8 ? 0 : 0x1f;
	case 0xa06c0104:
		memcpy(p, &o->slice_us, 8);
		return 0;
	case 0xa06c0105:
		fake.preempts++;
		memcpy(&fake.preempt_wait_us, p + 4, 4);
		return bytes != 8 || p[0] > 1 || p[1] > 1 ? 0x1f : 0;
	case 0xa06c0107:
		memcpy(&o->level, p, 4);
		return bytes == 4 ? 0 : 0x1f;
	default:
		return 0x56;
	}
}

static uint32_t on_control(int fd, struct gpu_rm_control *c)
{
	struct fake_object *o = fake_find(c->client, c->object), *g;
	uint8_t *p = (uint8_t *)(uintptr_t)c->params;
	uint32_t group;

	if (c->command == fake.refuse_command) {
		return fake.refuse_status;
	}
	if (!ours(c->client, fd)) {
		return 0x23;
	}
	if (!o) {
		return 0x57;
	}
	if (c->command >> 16 == 0xa06c) {
		return o->class_id == 0xa06c ? on_group(o, c->command, p, c->params_bytes) : 0x58;
	}
	if (o->class_id != GPU_RM_CLASS_SUBDEVICE) {
		return 0x58;
	}
	switch (c->command) {
	case 0x20800142:
		memcpy(p, &cards[o->gpu].gpu_id, 4);
		return 0;
	case 0x2080110b:
		return on_channels(c->client, p, c->params_bytes);
	case 0x20801210: /* the second group is for copies: it has no modes */
		memcpy(&group, p + 4, 4);
		g = fake_nth(0xa06c, 0);
		return c->params_bytes != 32 || !g ? 0x1f : g->object == group ? 0 : 0x56;
	case 0x20801215:
		memcpy(&group, p, 4);
		g = fake_find(c->client, group);
		if (g) {
			memcpy(p + 8, &g->saves, 4);
		}
		return g && c->params_bytes == 32 ? 0 : 0x57;
	default:
		return 0x56;
	}
}

static int on_register(int fd, const int32_t *control)
{
	if (!os_is(fd, GPU_RM_ANY_GPU) || !os_is(*control, GPU_RM_CONTROL_MINOR) ||
	    fds[fd].tied >= 0) {
		errno = EINVAL;
		return -1;
	}
	fds[fd].tied = *control;
	return 0;
}

static void on_card_info(struct gpu_rm_card *ret, unsigned bytes)
{
	for (uint32_t i = 0; i < FAKE_GPUS && (i + 1) * sizeof(*ret) <= bytes; i++) {
		ret[i] = cards[i];
		ret[i].memory_bytes = fake.shown_bytes;
	}
}

static int answer(int fd, unsigned number, unsigned bytes, void *argument)
{
	struct gpu_rm_alloc_rights *b = argument;
	struct gpu_rm_alloc *a = argument;
	struct gpu_rm_free *f = argument;

	if (number == fake.refuse_number) {
		errno = EINVAL;
		return -1;
	}
	switch (number) {
	case GPU_RM_NR_ALLOC:
		if (bytes == sizeof(*a)) {
			a->status = on_alloc(fd, a);
		} else {
			b->status = on_alloc(fd, a); /* both begin alike */
		}
		return 0;
	case GPU_RM_NR_FREE:
		f->status = fake_find(f->root, f->object) ? 0 : 0x57;
		free_tree(f->root, f->object);
		return 0;
	case GPU_RM_NR_CONTROL:
		((struct gpu_rm_control *)argument)->status = on_control(fd, argument);
		return 0;
	case GPU_RM_NR_DUP:
		((struct gpu_rm_dup *)argument)->status = on_dup(fd, argument);
		return 0;
	case GPU_RM_NR_MAP_MEMORY:
		((struct gpu_rm_map *)argument)->status = on_map(fd, argument);
		return 0;
	case GPU_RM_NR_UNMAP_MEMORY:
		((struct gpu_rm_unmap *)argument)->status = on_unmap(fd, argument);
		return 0;
	case GPU_RM_NR_CARD_INFO:
		on_card_info(argument, bytes);
		return 0;
	case GPU_RM_NR_REGISTER_FD:
		return on_register(fd, argument);
	default:
		errno = ENOTTY;
		return -1;
	}
}

static int carry_out(int fd, unsigned long request, void *argument)
{
	int ret = 0, err = errno;

	if (fake.before) {
		fake.before(fd, request, argument);
	}
	pthread_mutex_lock(&lock);
	fake.errno_seen = err;
	fake.calls++;
	errno = 1234; /* a caller that does not save errno would see it */
	if (fds[fd].kind != KIND_UVM) {
		ret = answer(fd, _IOC_NR(request), _IOC_SIZE(request), argument);
	} else if (request == fake.refuse_number) {
		errno = EINVAL;
		ret = -1;
	}
	err = errno;
	pthread_mutex_unlock(&lock);
	if (fake.after) {
		fake.after(fd, request, argument);
	}
	errno = err;
	return ret;
}

/* Takes precedence over the C library's ioctl, for the test program and the library. */
__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	void *argument;
	va_list ap;

	va_start(ap, request);
	argument = va_arg(ap, void *);
	va_end(ap);
	if (fd < 0 || fd >= MAX_FDS || !fds[fd].kind ||
	    (_IOC_TYPE(request) != 'F' && fds[fd].kind != KIND_UVM)) {
		return (int)syscall(SYS_ioctl, fd, request, argument);
	}
	return carry_out(fd, request, argument);
}

/* ---- set-up ---- */

static struct gpu_rm_os own;

void fake_reset(void)
{
	own = own.ioctl ? own : gpu_rm_os;
	while (fake.n) {
		close_memory(fake.o[--fake.n].memory);
	}
	for (uint32_t i = 0; i < fake.n_parts; i++) {
		close(fake.part[i].contents);
	}
	memset(&fake, 0, sizeof(fake));
	memset(fds, 0, sizeof(fds));
	fake.refuse_class = fake.refuse_command = fake.refuse_number = UINT32_MAX;
	gpu_rm_os = (struct gpu_rm_os){ own.ioctl, os_open, os_is };
}

void *fake_library(const char *variable)
{
	void *lib = dlopen(getenv(variable), RTLD_LAZY | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "%s: %s\n", variable, dlerror());
		abort();
	}
	fake_call = (int (*)(int, unsigned long, void *))(uintptr_t)dlsym(lib, "library_ioctl");
	return lib;
}

uint32_t fake_make(int control, uint32_t root, uint32_t parent, uint32_t class_id, uint32_t gpu)
{
	struct gpu_rm_device_params p = { .device_id = gpu };
	struct gpu_rm_alloc_rights b = {
		.root = root,
		.parent = parent,
		.class_id = class_id,
		.params = class_id == GPU_RM_CLASS_DEVICE ? (uintptr_t)&p : 0,
		.params_bytes = class_id == GPU_RM_CLASS_DEVICE ? sizeof(p) : 0
	};
	unsigned long request = _IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_ALLOC, sizeof(b));

	if (fake_call(control, request, &b) != 0 || b.status) {
		abort();
	}
	return b.object;
}

uint32_t fake_context(int control, uint32_t client, uint32_t gpu)
{
	uint32_t device, group;

	client = client ? client : fake_make(control, 0, 0, GPU_RM_CLASS_CLIENT, 0);
	device = fake_make(control, client, client, GPU_RM_CLASS_DEVICE, gpu);
	fake_make(control, client, device, GPU_RM_CLASS_SUBDEVICE, 0);
	for (int i = 0; i < 2; i++) {
		group = fake_make(control, client, device, GPU_RM_CLASS_GROUP, 0);
		fake_make(control, client, group, 0xc86f, 0);
		fake_make(control, client, group, 0xc86f, 0);
	}
	return client;
}

/* ---- the driver table ---- */

static struct {
	uint32_t gpu, client;
	int control, memory;
	bool gone; /* the memory was released */
} cuda;

static CUresult get_device(CUdevice *d, int ordinal)
{
	*d = ordinal;
	return ordinal < (int)FAKE_GPUS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult get_count(int *n)
{
	*n = FAKE_GPUS;
	return CUDA_SUCCESS;
}

/* Ordinals are in the reverse order of the driver's numbers. */
static CUresult get_attribute(int *value, CUdevice_attribute what, CUdevice d)
{
	const struct gpu_rm_card *c = &cards[FAKE_GPUS - 1 - (uint32_t)d];

	*value = what == CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID   ? (int)c->domain
		 : what == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID    ? c->bus
		 : what == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? c->slot
							     : -1;
	return CUDA_SUCCESS;
}

static CUresult export_table(const void **ret, const CUuuid *id)
{
	(void)id;
	*ret = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult get_current(CUcontext *ret)
{
	*ret = (CUcontext)(uintptr_t)0x1000;
	return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *d)
{
	*d = (int)(FAKE_GPUS - 1 - cuda.gpu);
	return CUDA_SUCCESS;
}

static CUresult capture_mode(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

static CUresult mem_create(CUmemGenericAllocationHandle *h, size_t bytes,
			   const CUmemAllocationProp *p, unsigned long long flags)
{
	uint32_t device = 0, object;

	(void)bytes, (void)p, (void)flags;
	for (uint32_t i = 0; i < fake.n; i++) {
		if (fake.o[i].root == cuda.client && fake.o[i].class_id == GPU_RM_CLASS_DEVICE &&
		    fake.o[i].gpu == cuda.gpu) {
			device = fake.o[i].object;
		}
	}
	object = fake_make(cuda.control, cuda.client, device, GPU_RM_CLASS_MEMORY, 0);
	cuda.memory = dup(fake_find(cuda.client, object)->memory);
	cuda.gone = false;
	*h = 1;
	return CUDA_SUCCESS;
}

static CUresult mem_release(CUmemGenericAllocationHandle h)
{
	(void)h;
	cuda.gone = true;
	close(cuda.memory);
	return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *p, size_t bytes, size_t align, CUdeviceptr at,
			unsigned long long flags)
{
	(void)bytes, (void)align, (void)at, (void)flags;
	*p = 0x10000000;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle h,
		    unsigned long long flags)
{
	(void)p, (void)bytes, (void)offset, (void)h, (void)flags;
	return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *d, size_t n)
{
	(void)p, (void)bytes, (void)d, (void)n;
	return CUDA_SUCCESS;
}

static CUresult range(CUdeviceptr p, size_t bytes)
{
	(void)p, (void)bytes;
	return CUDA_SUCCESS;
}

static CUresult priorities(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *s, unsigned flags, int priority)
{
	(void)flags, (void)priority;
	*s = (CUstream)(uintptr_t)0x2000;
	return CUDA_SUCCESS;
}

static CUresult nothing_runs(void)
{
	return CUDA_SUCCESS;
}

static CUresult stream_any(CUstream s)
{
	(void)s;
	return CUDA_SUCCESS;
}

static CUresult set32(CUdeviceptr p, unsigned value, size_t n, CUstream s)
{
	(void)s;
	for (size_t i = 0; i < n; i++) {
		(void)!pwrite(cuda.memory, &value, 4, (off_t)(p - 0x10000000 + 4 * i));
	}
	return CUDA_SUCCESS;
}

static CUresult write32(CUstream s, CUdeviceptr p, uint32_t value, unsigned flags)
{
	(void)flags;
	return set32(p, value, 1, s);
}

static CUresult to_host(void *to, CUdeviceptr p, size_t bytes, CUstream s)
{
	(void)s;
	return pread(cuda.memory, to, bytes, (off_t)(p - 0x10000000)) == (ssize_t)bytes
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_UNKNOWN;
}

void fake_table(struct cuabi_table *t, uint32_t gpu, int control, uint32_t client)
{
	memset(t, 0, sizeof(*t));
	cuda.gpu = gpu;
	cuda.control = control;
	cuda.client = client;
	t->cuDeviceGet = get_device;
	t->cuDeviceGetCount = get_count;
	t->cuDeviceGetAttribute = get_attribute;
	t->cuGetExportTable = export_table;
	t->cuCtxGetCurrent = get_current;
	t->cuCtxGetDevice = current_device;
	t->cuThreadExchangeStreamCaptureMode = capture_mode;
	t->cuMemCreate = mem_create;
	t->cuMemRelease = mem_release;
	t->cuMemAddressReserve = reserve;
	t->cuMemMap = map;
	t->cuMemSetAccess = set_access;
	t->cuMemUnmap = range;
	t->cuMemAddressFree = range;
	t->cuCtxGetStreamPriorityRange = priorities;
	t->cuStreamCreateWithPriority = stream_create;
	t->cuStreamDestroy_v2 = stream_any;
	t->cuStreamSynchronize = stream_any;
	t->cuCtxSynchronize = nothing_runs;
	t->cuMemsetD32Async = set32;
	t->cuStreamWriteValue32_v2 = write32;
	t->cuMemcpyDtoHAsync_v2 = to_host;
}
