/* Opens an image: checks everything before use, takes sizes from private copies, and falls back to
 * the interpreter where memory cannot be mapped executable. The image is a private mapping of a
 * sealed memfd, so checked contents cannot change. */
#include "bpf/run/policy_image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/run/decode.h"
#include "bpf/run/map/map_type.h"
#include "bpf/run/exec_mem.h"

#define PAGE 4096u
#define GBPF_CONST(name, value, doc) enum { name = value };
#include "gbpf/hooks.def"

enum side { LOCAL, DAEMON };
static const uint8_t hook_side[EBPF_MAX_HOOKS] = {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) [id] = side,
#include "gbpf/hooks.def"
};

static int map_image(struct ebpf_policy *p, int fd)
{
	long bytes = shm_checked_size(fd, EBPF_MAX_IMAGE_BYTES);

	if (bytes < (long)sizeof(struct ebpf_image_header) || ebpf_exec_check(fd) < 0) {
		return -EINVAL;
	}
	p->image = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	if (p->image == MAP_FAILED) {
		p->image = NULL;
		return -errno;
	}
	p->image_bytes = (size_t)bytes;
	return 0;
}

static int check_header(const struct ebpf_policy *p, const struct ebpf_image_header *h)
{
	uint64_t data_bytes = sizeof(*h) + (uint64_t)h->n_maps * sizeof(struct ebpf_map_def) +
			      (uint64_t)h->n_insns * sizeof(struct ebpf_insn) +
			      (uint64_t)h->n_tails * sizeof(struct ebpf_tail_at) +
			      (uint64_t)h->n_devices * sizeof(struct ebpf_image_device) +
			      h->device_text_bytes;

	if (h->magic != EBPF_IMAGE_MAGIC || h->header_bytes != sizeof(*h) ||
	    h->n_tails > EBPF_MAX_TAILS || h->n_devices > EBPF_MAX_DEVICE_PROGS ||
	    h->device_text_bytes > EBPF_MAX_DEVICE_TEXT || !memchr(h->name, 0, sizeof(h->name)) ||
	    h->n_maps > EBPF_MAX_MAPS || data_bytes > p->image_bytes) {
		return -EINVAL;
	}
	if (!h->code_bytes) {
		return h->code_offset ? -EINVAL : 0;
	}
	if (h->code_offset % PAGE || h->code_offset < data_bytes ||
	    h->code_offset > p->image_bytes || h->code_bytes > p->image_bytes - h->code_offset) {
		return -EINVAL;
	}
	return 0;
}

static int take_maps(struct ebpf_policy *p, const struct ebpf_image_header *h)
{
	memcpy(p->defs, (const char *)p->image + sizeof(*h), h->n_maps * sizeof(p->defs[0]));
	p->env.n_maps = h->n_maps;
	return ebpf_maps_layout(p->defs, h->n_maps, p->env.maps, p->region_bytes) ? -EINVAL : 0;
}

/* Prefaults the pages and sets their accessed and dirty marks, each of which would otherwise cost a
 * call some hundred nanoseconds. Adding 0 atomically is harmless to concurrent writers. */
static void prefault(void *mem, size_t bytes, int writable)
{
	for (size_t i = 0; i < bytes; i += PAGE) {
		if (writable) {
			(void)add_relaxed((uint64_t *)(void *)((char *)mem + i), (uint64_t)0);
		} else {
			(void)load_relaxed((volatile uint8_t *)mem + i);
		}
	}
}

static int map_region(struct ebpf_policy *p, enum ebpf_region region, int fd, int daemon)
{
	size_t bytes = p->region_bytes[region];
	int writable = region != EBPF_REGION_GLOBAL || daemon;
	int of_gbpfd = region == EBPF_REGION_DAEMON || region == EBPF_REGION_ALL_GPUS;
	void *base;

	if (!bytes || (fd < 0 && daemon && region == EBPF_REGION_TENANT) || (!daemon && of_gbpfd)) {
		return 0;
	}
	if (fd < 0 && of_gbpfd) {
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
		base = base == MAP_FAILED ? NULL : base;
	} else if (fd < 0 || shm_check(fd, bytes) < 0) {
		return -EINVAL;
	} else {
		base = shm_map(fd, bytes, writable);
	}
	if (!base) {
		return -errno;
	}
	prefault(base, bytes, writable);
	p->region[region] = base;
	ebpf_maps_bind(p->env.maps, p->env.n_maps, region, base);
	return 0;
}

static int map_regions(struct ebpf_policy *p, const int fds[EBPF_REGIONS], int daemon)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		int err = map_region(p, (enum ebpf_region)r, fds[r], daemon);

		if (err) {
			return err;
		}
	}
	p->epoch = ebpf_maps_epoch(p->env.maps, p->env.n_maps);
	p->epoch_ahead = (uint32_t)daemon;
	/* Mark the maps read-only, so that the update helper returns an error instead of faulting.
	 */
	for (unsigned i = 0; i < p->env.n_maps && !daemon; i++) {
		if (p->env.maps[i].region == EBPF_REGION_GLOBAL) {
			p->env.maps[i].flags |= GBPF_F_RDONLY;
		}
	}
	return 0;
}

static void map_code(struct ebpf_policy *p, const struct ebpf_image_header *h, int fd,
		     unsigned flags)
{
#if defined(__x86_64__)
	if (h->arch == EM_X86_64 && h->code_bytes && !(flags & EBPF_OPEN_NO_JIT) &&
	    ebpf_exec_map(fd, h->code_offset, h->code_bytes, &p->code) == 0) {
		p->code_bytes = h->code_bytes;
	}
#endif
}

/* Returns whether the program of the hook can run in this process. Programs of the other side are
 * not filled in, nor are local ones without the tenant's memory, so no program can run whose maps
 * are absent. */
static int runs_here(const struct ebpf_policy *p, unsigned hook, int daemon)
{
	if (hook_side[hook] == DAEMON) {
		return daemon;
	}
	return !p->region_bytes[EBPF_REGION_TENANT] || p->region[EBPF_REGION_TENANT];
}

/* Returns whether control may begin at insn: it is not a second half, and the instruction before it
 * does not fall through. */
static int may_begin(const struct ebpf_insn *insns, uint32_t n, uint32_t insn)
{
	const struct ebpf_insn *before;

	if (insn == 0 || insn >= n || insns[insn].code == 0) {
		return insn == 0;
	}
	before = &insns[insn - 1];
	return before->code == (EBPF_JMP | EBPF_EXIT) || before->code == (EBPF_JMP | EBPF_JA) ||
	       before->code == (EBPF_JMP32 | EBPF_JA);
}

/* Checks the tail call table. The engines rely on its order. */
static int check_tails(const struct ebpf_policy *p, const struct ebpf_insn *insns, uint32_t n,
		       const struct ebpf_tail_at *tails, uint32_t n_tails)
{
	for (uint32_t i = 0; i < n_tails; i++) {
		const struct ebpf_tail_at *t = &tails[i];

		if (t->map >= p->env.n_maps || p->defs[t->map].type != GBPF_MAP_PROG_ARRAY ||
		    t->index >= p->defs[t->map].max_entries || !may_begin(insns, n, t->insn)) {
			return -EINVAL;
		}
		if (i > 0 &&
		    (t->map < t[-1].map || (t->map == t[-1].map && t->index <= t[-1].index))) {
			return -EINVAL;
		}
	}
	return 0;
}

/* Where the parts of an image begin; the header has been checked. */
struct parts {
	const struct ebpf_insn *insns;
	const struct ebpf_image_device *devices;
	const struct ebpf_tail_at *tails;
	const char *device_text;
};

static struct parts parts_of(const struct ebpf_policy *p, const struct ebpf_image_header *h)
{
	struct parts a;

	a.insns = (const void *)((const char *)p->image + sizeof(*h) +
				 h->n_maps * sizeof(p->defs[0]));
	a.devices = (const void *)(a.insns + h->n_insns);
	a.tails = (const void *)(a.devices + h->n_devices);
	a.device_text = (const char *)(a.tails + h->n_tails);
	return a;
}

static int take_programs(struct ebpf_policy *p, const struct ebpf_image_header *h, int daemon)
{
	const struct parts a = parts_of(p, h);
	const struct ebpf_insn *all = a.insns;
	const struct ebpf_tail_at *tails = a.tails;

	for (unsigned i = 0; i < EBPF_MAX_HOOKS; i++) {
		const struct ebpf_image_prog *prog = &h->progs[i];

		if (!prog->n_insns) {
			continue;
		}
		if (prog->insn_first > h->n_insns ||
		    prog->n_insns > h->n_insns - prog->insn_first ||
		    (prog->code_offset != UINT32_MAX && prog->code_offset >= h->code_bytes) ||
		    ebpf_program_check(all + prog->insn_first, prog->n_insns, h->n_maps, NULL) ||
		    prog->tail_first > h->n_tails ||
		    prog->n_tails > h->n_tails - prog->tail_first ||
		    check_tails(p, all + prog->insn_first, prog->n_insns, tails + prog->tail_first,
				prog->n_tails)) {
			return -EINVAL;
		}
		if (!runs_here(p, i, daemon)) {
			continue;
		}
		p->insns[i] = all + prog->insn_first;
		p->n_insns[i] = prog->n_insns;
		p->tails[i] = tails + prog->tail_first;
		p->n_tails[i] = prog->n_tails;
		if (p->code && prog->code_offset != UINT32_MAX) {
			p->entry[i] = (ebpf_entry)((uintptr_t)p->code + prog->code_offset);
		}
	}
	return 0;
}

static int is_text(const char *text, size_t bytes)
{
	return memchr(text, 0, bytes) != NULL;
}

/* Checks the table of programs inside kernels. Their text is gbpfd's, like machine code. */
static int take_devices(struct ebpf_policy *p, const struct ebpf_image_header *h)
{
	const struct parts a = parts_of(p, h);

	for (uint32_t i = 0; i < h->n_devices; i++) {
		const struct ebpf_image_device *d = &a.devices[i];

		if (d->hook < EBPF_FIRST_DEVICE_HOOK || d->hook >= EBPF_MAX_HOOKS || d->lane > 1 ||
		    d->text_offset > h->device_text_bytes ||
		    d->text_bytes > h->device_text_bytes - d->text_offset ||
		    !is_text(d->prefix, sizeof(d->prefix)) || !is_text(d->name, sizeof(d->name)) ||
		    !is_text(d->kernel, sizeof(d->kernel)) || !is_text(d->site, sizeof(d->site))) {
			return -EINVAL;
		}
	}
	p->devices = a.devices;
	p->n_devices = h->n_devices;
	p->device_text = a.device_text;
	return 0;
}

int ebpf_policy_open(struct ebpf_policy *p, int image_fd, const int region_fds[EBPF_REGIONS],
		     unsigned flags)
{
	int daemon = !!(flags & EBPF_OPEN_DAEMON);
	struct ebpf_image_header h;
	int err;

	memset(p, 0, sizeof(*p));
	ebpf_env_init(&p->env);
	err = map_image(p, image_fd);
	if (err) {
		return err;
	}
	memcpy(&h, p->image, sizeof(h));
	err = check_header(p, &h);
	if (!err) {
		err = take_maps(p, &h);
	}
	if (!err) {
		err = map_regions(p, region_fds, daemon);
	}
	if (!err) {
		p->version = h.version;
		memcpy(p->name, h.name, sizeof(p->name));
		map_code(p, &h, image_fd, flags);
		err = take_programs(p, &h, daemon);
	}
	if (!err) {
		err = take_devices(p, &h);
	}
	if (err) {
		ebpf_policy_close(p);
	}
	return err;
}

void ebpf_policy_close(struct ebpf_policy *p)
{
	for (int r = 0; r < EBPF_REGIONS; r++) {
		shm_unmap(p->region[r], p->region_bytes[r]);
	}
	shm_unmap(p->code, p->code_bytes);
	shm_unmap(p->image, p->image_bytes);
	memset(p, 0, sizeof(*p));
}
