/* Finds the learned handles that belong to a GPU of the process. Groups belong to a device object;
 * the driver reports that device's PCI address, and CUDA reports the ordinal's. */
#include <errno.h>

#include "base/compiler.h"
#include "gpu/control_int.h"
#include "gpu/learn.h"
#include "gpu/rm.h"

#define SUBDEVICE_GPU_ID 0x20800142u
#define MAX_SUBDEVICES 64u
#define MAX_FOUND 256u

struct place {
	int domain, bus, slot;
};

static bool place_of(const struct cuabi_table *real, CUdevice d, struct place *p)
{
	return real->cuDeviceGetAttribute(&p->domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, d) ==
		       CUDA_SUCCESS &&
	       real->cuDeviceGetAttribute(&p->bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, d) ==
		       CUDA_SUCCESS &&
	       real->cuDeviceGetAttribute(&p->slot, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, d) ==
		       CUDA_SUCCESS;
}

static bool card_at(const struct gpu_rm_card *c, const struct place *p)
{
	return c->valid && c->domain == (uint32_t)p->domain && c->bus == p->bus &&
	       c->slot == p->slot;
}

int gpu_learn_minor(const struct cuabi_table *real, CUdevice d, int fd)
{
	struct gpu_rm_card cards[GPU_RM_CARDS];
	struct place p;
	int err = place_of(real, d, &p) ? gpu_rm_cards(fd, cards) : -ENOTSUP;

	for (int i = 0; !err && i < GPU_RM_CARDS; i++) {
		if (card_at(&cards[i], &p)) {
			return cards[i].minor <= GPU_RM_LAST_GPU ? (int)cards[i].minor : -EPROTO;
		}
	}
	return err ? err : -ENODEV;
}

static uint32_t subdevice_of(const struct gpu_learn_object *device)
{
	struct gpu_learn_object s[MAX_SUBDEVICES];
	uint32_t n = MIN(gpu_learn_find(GPU_RM_CLASS_SUBDEVICE, s, MAX_SUBDEVICES), MAX_SUBDEVICES);

	for (uint32_t i = 0; i < n; i++) {
		if (s[i].root == device->root && s[i].parent == device->object) {
			return s[i].object;
		}
	}
	return 0;
}

int gpu_learn_card(const struct gpu_learn_object *device, struct gpu_rm_card *ret)
{
	struct gpu_rm_card cards[GPU_RM_CARDS];
	uint32_t id = 0, subdevice = subdevice_of(device);
	int err = subdevice ? gpu_rm_control(device->fd, device->root, subdevice, SUBDEVICE_GPU_ID,
					     &id, sizeof(id))
			    : -ENODEV;

	err = err ? err : gpu_rm_cards(device->fd, cards);
	for (int i = 0; !err && i < GPU_RM_CARDS; i++) {
		if (cards[i].valid && cards[i].gpu_id == id) {
			*ret = cards[i];
			return 0;
		}
	}
	return err ? err : -ENODEV;
}

/* Returns 1 if the device object is that GPU, 0 if not, -errno if unknown. */
static int same_gpu(const struct gpu_learn_object *device, const struct place *p)
{
	struct gpu_rm_card card;
	int err = gpu_learn_card(device, &card);

	return err ? err : card_at(&card, p);
}

static bool only_gpu(const struct cuabi_table *real)
{
	int n = 0;

	return real->cuDeviceGetCount(&n) == CUDA_SUCCESS && n == 1;
}

static uint32_t under(const struct gpu_learn_object *all, uint32_t n,
		      const struct gpu_learn_object *device)
{
	struct gpu_learn_object d;
	uint32_t found = 0;

	for (uint32_t i = 0; i < n; i++) {
		found += gpu_learn_device_of(&all[i], &d) && d.root == device->root &&
			 d.object == device->object;
	}
	return found;
}

/* Chooses the device object of the GPU that has the most groups: the driver library may have others
 * that it only queries. */
static int choose(const struct cuabi_table *real, uint32_t gpu,
		  const struct gpu_learn_object *groups, uint32_t n, struct gpu_learn_object *ret)
{
	uint32_t best = 0, count;
	struct gpu_learn_object d;
	CUdevice ordinal;
	struct place p;
	int err = -EAGAIN, same;

	if (real->cuDeviceGet(&ordinal, (int)gpu) != CUDA_SUCCESS || !place_of(real, ordinal, &p)) {
		return -ENOTSUP;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!gpu_learn_device_of(&groups[i], &d) ||
		    (best && d.root == ret->root && d.object == ret->object)) {
			continue;
		}
		same = same_gpu(&d, &p);
		if (same < 0) {
			same = only_gpu(real);
			err = same ? err : -ENOTSUP;
		}
		count = same ? under(groups, n, &d) : 0;
		if (count > best) {
			best = count;
			*ret = d;
		}
	}
	return best ? 0 : err;
}

static void read_slice(struct gpu_learn_object *group)
{
	uint64_t us = 0;

	if (!group->slice_us && gpu_rm_control(group->fd, group->root, group->object,
					       GPU_RM_GROUP_SLICE_GET, &us, sizeof(us)) == 0) {
		group->slice_us = us < UINT16_MAX ? (uint32_t)us : 0;
		gpu_learn_slice(group->root, group->object, group->slice_us);
	}
}

static bool belongs(const struct gpu_learn_object *o, const struct gpu_learn_object *device)
{
	struct gpu_learn_object d;

	return gpu_learn_device_of(o, &d) && d.root == device->root && d.object == device->object;
}

static void fill_groups(struct gpu_handles *h, struct gpu_learn_object *groups, uint32_t n,
			const struct gpu_learn_object *device)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!belongs(&groups[i], device)) {
			continue;
		}
		if (h->n_groups == GPU_MAX_GROUPS) {
			h->more |= GPU_MORE_GROUPS;
			return;
		}
		read_slice(&groups[i]);
		h->slice_us[h->n_groups] = (uint16_t)groups[i].slice_us;
		h->group[h->n_groups++] = groups[i].object;
	}
}

static void fill_channels(struct gpu_handles *h, const struct gpu_learn_object *device)
{
	struct gpu_learn_object c[MAX_FOUND];
	uint32_t n = gpu_learn_find(GPU_LEARN_CHANNELS, c, MAX_FOUND);

	if (n > MAX_FOUND) {
		h->more |= GPU_MORE_CHANNELS;
		n = MAX_FOUND;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!belongs(&c[i], device)) {
			continue;
		}
		if (h->n_channels == GPU_MAX_CHANNELS) {
			h->more |= GPU_MORE_CHANNELS;
			return;
		}
		h->channel[h->n_channels++] = c[i].object;
	}
}

int gpu_control_nvidia_learn(const struct cuabi_table *real, uint32_t gpu, struct gpu_handles *ret,
			     int *ret_fd)
{
	struct gpu_learn_object groups[MAX_FOUND], device;
	uint32_t all = gpu_learn_find(GPU_RM_CLASS_GROUP, groups, MAX_FOUND),
		 n = MIN(all, MAX_FOUND);
	int err = choose(real, gpu, groups, n, &device);

	if (err) {
		return err;
	}
	ret->kind = GPU_KIND_NVIDIA;
	ret->client = device.root;
	ret->subdevice = subdevice_of(&device);
	ret->more |= all > MAX_FOUND ? GPU_MORE_GROUPS : 0;
	fill_groups(ret, groups, n, &device);
	fill_channels(ret, &device);
	*ret_fd = device.fd;
	return 0;
}
