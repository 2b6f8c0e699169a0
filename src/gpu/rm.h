/* Calls of NVIDIA's resource manager: the structures that its descriptors take, and the meaning of
 * its statuses. Layouts: nvos.h, nv-ioctl.h, nv-unix-nvos-params-wrappers.h, ctrl*.h of the open
 * kernel modules, 580. No call is made on a descriptor of another driver. */
#ifndef GBPF_GPU_RM_H
#define GBPF_GPU_RM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_RM_MAJOR 195u
#define GPU_RM_LAST_GPU 247u	 /* last minor of /dev/nvidiaN */
#define GPU_RM_CONTROL_MINOR 255 /* minor of /dev/nvidiactl */
#define GPU_RM_ANY_GPU (-1)

/* Request numbers, magic 'F'. */
enum {
	GPU_RM_NR_FREE = 0x29,
	GPU_RM_NR_CONTROL = 0x2a,
	GPU_RM_NR_ALLOC = 0x2b,
	GPU_RM_NR_DUP = 0x34,
	GPU_RM_NR_MAP_MEMORY = 0x4e,
	GPU_RM_NR_UNMAP_MEMORY = 0x4f,
	GPU_RM_NR_CARD_INFO = 200,
	GPU_RM_NR_REGISTER_FD = 201,
	GPU_RM_NR_TRANSFER = 211, /* holds number, size and address of another request */
};

enum {
	GPU_RM_CLASS_CLIENT = 0x41,
	GPU_RM_CLASS_DEVICE = 0x80,
	GPU_RM_CLASS_SUBDEVICE = 0x2080,
	GPU_RM_CLASS_GROUP = 0xa06c,
	GPU_RM_CLASS_MEMORY = 0x40,
	GPU_RM_CLASS_HOST_MEMORY = 0x3e,
	GPU_RM_CLASS_HOST_PAGES = 0x71, /* of the program, registered */
};

/* Controls of a group (ctrla06c.h) that several files use. */
#define GPU_RM_GROUP_SLICE_SET 0xa06c0103u
#define GPU_RM_GROUP_SLICE_GET 0xa06c0104u

struct gpu_rm_free {
	uint32_t root, parent, object, status;
};

struct gpu_rm_alloc { /* NVOS21 */
	uint32_t root, parent, object, class_id;
	uint64_t params;
	uint32_t params_bytes, status;
};

struct gpu_rm_alloc_rights { /* NVOS64 */
	uint32_t root, parent, object, class_id;
	uint64_t params, rights;
	uint32_t params_bytes, flags, status, pad;
};

struct gpu_rm_control {
	uint32_t client, object, command, flags;
	uint64_t params;
	uint32_t params_bytes, status;
};

struct gpu_rm_dup {
	uint32_t client, parent, object, from_client, from_object, flags, status;
};

struct gpu_rm_map {
	uint32_t client, device, memory, pad;
	uint64_t offset, length, address;
	uint32_t status, flags;
	int32_t fd, pad2;
};

struct gpu_rm_unmap {
	uint32_t client, device, memory, pad;
	uint64_t address;
	uint32_t status, flags;
};

struct gpu_rm_transfer {
	uint32_t number, bytes;
	uint64_t params;
};

struct gpu_rm_card {
	uint8_t valid, pad[3];
	uint32_t domain;
	uint8_t bus, slot, function, pad2;
	uint16_t vendor, device;
	uint32_t gpu_id;
	uint16_t interrupt, pad3;
	uint64_t registers, registers_bytes, memory, memory_bytes;
	uint32_t minor;
	uint8_t name[10], pad4[2];
};
#define GPU_RM_CARDS 32

struct gpu_rm_device_params {
	uint32_t device_id, client_share, target_client, target_device, flags, pad;
	uint64_t va_bytes, va_start, va_limit;
	uint32_t va_mode, pad2;
};

/* Calls of the operating system; tests replace them. */
struct gpu_rm_os {
	int (*ioctl)(int fd, unsigned long request, void *argument);
	int (*open)(const char *path); /* returns a close-on-exec descriptor or -errno */
	/* Returns true for a descriptor of that driver's device. minor: GPU_RM_CONTROL_MINOR, a
	 * GPU's number, or GPU_RM_ANY_GPU. */
	bool (*is)(int fd, int minor);
};
extern struct gpu_rm_os gpu_rm_os;

/* Returns 0 or the error for a status: -EPERM, -ENOTSUP, -ENODEV, -ETIMEDOUT, -ENOMEM, -EIO. */
int gpu_rm_errno(uint32_t status);
/* Returns the status of this thread's last call, for messages; 0: success, or the failure was not
 * the driver's. */
uint32_t gpu_rm_last_status(void);

/* Each returns 0 or as gpu_rm_errno; -EBADF: not a descriptor of that driver's control device. */
int gpu_rm_control(int fd, uint32_t client, uint32_t object, uint32_t command, void *params,
		   uint32_t bytes);
int gpu_rm_alloc(int fd, uint32_t root, uint32_t parent, uint32_t *object, uint32_t class_id,
		 void *params, uint32_t bytes);
int gpu_rm_dup(int fd, uint32_t client, uint32_t parent, uint32_t *object, uint32_t from_client,
	       uint32_t from_object);
/* Makes a part of the memory available to mmap of map_fd, at offset 0 there. */
struct gpu_rm_part {
	uint32_t client, device, memory;
	uint64_t offset, bytes;
	uint64_t cookie; /* out */
};
int gpu_rm_map_memory(int fd, struct gpu_rm_part *p, int map_fd);
/* The same with a new descriptor of /dev/nvidia<number>, which it returns (owned), or -errno. */
int gpu_rm_open_part(int number, int fd, struct gpu_rm_part *p);
/* Ends that; the caller has unmapped it. */
int gpu_rm_unmap_memory(int fd, const struct gpu_rm_part *p);
int gpu_rm_register(int device_fd, int control_fd);
/* Opens /dev/nvidia<number>. Returns a descriptor (owned) or -errno. */
int gpu_rm_open_gpu(int number);
int gpu_rm_cards(int fd, struct gpu_rm_card cards[GPU_RM_CARDS]);

#endif
