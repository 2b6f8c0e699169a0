/* Calls of NVIDIA's resource manager, and the meaning of its statuses. */
#include "gpu/rm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/compiler.h"

_Static_assert(sizeof(struct gpu_rm_alloc) == 32 && sizeof(struct gpu_rm_alloc_rights) == 48,
	       "nvos.h");
_Static_assert(sizeof(struct gpu_rm_control) == 32 && sizeof(struct gpu_rm_dup) == 28, "nvos.h");
_Static_assert(sizeof(struct gpu_rm_unmap) == 32, "nvos.h");
_Static_assert(sizeof(struct gpu_rm_map) == 56 && sizeof(struct gpu_rm_transfer) == 16, "wrappers");
_Static_assert(sizeof(struct gpu_rm_card) == 72 && offsetof(struct gpu_rm_card, gpu_id) == 16 &&
		       offsetof(struct gpu_rm_card, registers) == 24 &&
		       offsetof(struct gpu_rm_card, minor) == 56,
	       "nv-ioctl.h");
_Static_assert(sizeof(struct gpu_rm_device_params) == 56, "cl0080.h");

#define REQUEST(number, bytes) _IOC(_IOC_READ | _IOC_WRITE, 'F', number, bytes)

#define MAX_TRIES 100

static TLS_FAST uint32_t last_status;

static int os_ioctl(int fd, unsigned long request, void *argument)
{
	return ioctl(fd, request, argument);
}

static int os_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Uses statx without synchronization: fstat could block in a file system that another user
 * implements. */
static bool os_is(int fd, int number)
{
	struct statx st;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
	       S_ISCHR(st.stx_mode) && st.stx_rdev_major == GPU_RM_MAJOR &&
	       (number == GPU_RM_ANY_GPU ? st.stx_rdev_minor <= GPU_RM_LAST_GPU
					 : st.stx_rdev_minor == (unsigned)number);
}

struct gpu_rm_os gpu_rm_os = { os_ioctl, os_open, os_is };

/* nvstatuscodes.h. A handle that no longer exists and one of another client give the same status.
 */
int gpu_rm_errno(uint32_t status)
{
	switch (status) {
	case 0x00:
		return 0;
	case 0x1b: /* insufficient permissions */
	case 0x6b: /* security violation */
	case 0x16: /* illegal action */
		return -EPERM;
	case 0x24: /* invalid command */
	case 0x2a: /* invalid function */
	case 0x22: /* invalid class */
	case 0x30: /* invalid method */
	case 0x56: /* not supported */
	case 0x6d: /* feature not enabled */
		return -ENOTSUP;
	case 0x05: /* card not present */
	case 0x0f: /* GPU is lost */
	case 0x12: /* GPU not found */
	case 0x21: /* invalid channel */
	case 0x23: /* invalid client: ended, or of another descriptor */
	case 0x26: /* invalid device */
	case 0x31: /* invalid object */
	case 0x33: /* invalid object handle */
	case 0x35: /* invalid object, old */
	case 0x36: /* invalid parent */
	case 0x57: /* object not found */
	case 0x6e: /* resource lost */
		return -ENODEV;
	case 0x65: /* timeout */
	case 0x66: /* timeout, try again */
		return -ETIMEDOUT;
	case 0x1a: /* insufficient resources */
	case 0x51: /* no memory */
		return -ENOMEM;
	default:
		return -EIO;
	}
}

uint32_t gpu_rm_last_status(void)
{
	return last_status;
}

/* Makes the call. status is a member of the argument. */
static int call(int fd, unsigned number, void *argument, unsigned bytes, const uint32_t *status)
{
	last_status = 0;
	if (!gpu_rm_os.is(fd, GPU_RM_CONTROL_MINOR)) {
		return -EBADF;
	}
	for (int tries = 0; gpu_rm_os.ioctl(fd, REQUEST(number, bytes), argument) < 0; tries++) {
		if ((errno != EINTR && errno != EAGAIN) || tries == MAX_TRIES) {
			return errno == EACCES || errno == EPERM ? -EPERM : -EIO;
		}
	}
	last_status = status ? *status : 0;
	return gpu_rm_errno(last_status);
}

int gpu_rm_control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params,
		   uint32_t bytes)
{
	struct gpu_rm_control c = { .client = client,
				    .object = object,
				    .command = command,
				    .params = (uintptr_t)params,
				    .params_bytes = bytes,
				    .status = UINT32_MAX };

	return call(fd, GPU_RM_NR_CONTROL, &c, sizeof(c), &c.status);
}

int gpu_rm_alloc(int fd, uint32_t root, uint32_t parent, uint32_t *object, uint32_t class_id,
		 void *params, uint32_t bytes)
{
	struct gpu_rm_alloc a = { .root = root,
				  .parent = parent,
				  .object = *object,
				  .class_id = class_id,
				  .params = (uintptr_t)params,
				  .params_bytes = bytes,
				  .status = UINT32_MAX };
	int err = call(fd, GPU_RM_NR_ALLOC, &a, sizeof(a), &a.status);

	*object = a.object;
	return err;
}

int gpu_rm_dup(int fd, uint32_t client, uint32_t parent, uint32_t *object, uint32_t from_client,
	       uint32_t from_object)
{
	struct gpu_rm_dup d = { .client = client,
				.parent = parent,
				.object = *object,
				.from_client = from_client,
				.from_object = from_object,
				.status = UINT32_MAX };
	int err = call(fd, GPU_RM_NR_DUP, &d, sizeof(d), &d.status);

	*object = d.object;
	return err;
}

int gpu_rm_map_memory(int fd, struct gpu_rm_part *p, int map_fd)
{
	struct gpu_rm_map m = { .client = p->client,
				.device = p->device,
				.memory = p->memory,
				.offset = p->offset,
				.length = p->bytes,
				.status = UINT32_MAX,
				.fd = map_fd };
	int err = call(fd, GPU_RM_NR_MAP_MEMORY, &m, sizeof(m), &m.status);

	p->cookie = m.address;
	return err;
}

int gpu_rm_unmap_memory(int fd, const struct gpu_rm_part *p)
{
	struct gpu_rm_unmap u = { .client = p->client,
				  .device = p->device,
				  .memory = p->memory,
				  .address = p->cookie,
				  .status = UINT32_MAX };

	return call(fd, GPU_RM_NR_UNMAP_MEMORY, &u, sizeof(u), &u.status);
}

int gpu_rm_register(int device_fd, int control_fd)
{
	int32_t fd = control_fd;

	last_status = 0;
	if (!gpu_rm_os.is(device_fd, GPU_RM_ANY_GPU) ||
	    !gpu_rm_os.is(control_fd, GPU_RM_CONTROL_MINOR)) {
		return -EBADF;
	}
	return gpu_rm_os.ioctl(device_fd, REQUEST(GPU_RM_NR_REGISTER_FD, sizeof(fd)), &fd) < 0
		       ? -EIO
		       : 0;
}

int gpu_rm_open_gpu(int number)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/dev/nvidia%d", number);
	fd = gpu_rm_os.open(path);
	if (fd >= 0 && !gpu_rm_os.is(fd, number)) {
		close(fd);
		return -ENODEV;
	}
	return fd;
}

int gpu_rm_open_part(int number, int fd, struct gpu_rm_part *p)
{
	int device_fd = gpu_rm_open_gpu(number), err;

	if (device_fd < 0) {
		return device_fd;
	}
	err = gpu_rm_register(device_fd, fd);
	err = err ? err : gpu_rm_map_memory(fd, p, device_fd);
	if (err) {
		close(device_fd);
	}
	return err ? err : device_fd;
}

int gpu_rm_cards(int fd, struct gpu_rm_card cards[GPU_RM_CARDS])
{
	memset(cards, 0, sizeof(*cards) * GPU_RM_CARDS);
	return call(fd, GPU_RM_NR_CARD_INFO, cards, sizeof(*cards) * GPU_RM_CARDS, NULL);
}
