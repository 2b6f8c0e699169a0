/* From an image as the program gives it to the driver to the patched ELF that is loaded instead.
 * All or nothing: whatever is not certain leaves the image as it is. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "ptx/fatbin.h"
#include "shim/object/driver_device.h"

#define MAX_ELF_BYTES ((size_t)1 << 30)
#define ELF_MAGIC 0x464c457fu
/* A kernel that gets at most this many registers from the stub keeps its occupancy: every
 * multiprocessor has them for as many threads as it can hold. */
#define SHIM_CODE_REGISTERS_MAX 32u

/* ---- the machine code that the driver would take ---- */

/* Reads no further than to a zero, since an image may be a text. */
static uint32_t magic_of(const void *image)
{
	const unsigned char *p = image;
	uint32_t magic = 0;

	for (unsigned i = 0; i < sizeof(magic) && p[i]; i++) {
		magic |= (uint32_t)p[i] << (8 * i);
	}
	return magic;
}

/* 1: a is preferred; -1: b is; 0: not known. */
static int prefer(const struct ptx_fatbin_entry *a, const struct ptx_fatbin_entry *b)
{
	uint64_t x = a->flags & PTX_FATBIN_ARCH_SPECIFIC;
	uint64_t y = b->flags & PTX_FATBIN_ARCH_SPECIFIC;

	if (a->arch != b->arch) {
		return a->arch > b->arch ? 1 : -1;
	}
	return x == y ? 0 : x ? 1 : -1;
}

/* Takes the best entry of a fat binary that is one container. */
static int find_in_container(struct shim_code_elf *ret, const void *image, size_t bytes,
			     unsigned arch)
{
	struct ptx_fatbin_walk w;
	struct ptx_fatbin_entry e, best = { .kind = 0 };
	bool certain = true;
	size_t length;
	int more;

	if (ptx_fatbin_open(&w, image, bytes, &length) < 0 ||
	    (bytes - length >= PTX_FATBIN_HEADER_BYTES &&
	     magic_of((const char *)image + length) == PTX_FATBIN_MAGIC)) {
		return -ENOENT; /* several containers are linked by the driver */
	}
	while ((more = ptx_fatbin_next(&w, &e)) == 1) {
		int order = !ptx_fatbin_is_code_for(&e, arch) ? -1
			    : best.kind			      ? prefer(&e, &best)
							      : 1;

		if (order > 0) {
			best = e;
			certain = true;
		} else if (order == 0) {
			certain = false;
		}
	}
	if (more < 0 || !best.kind || !certain) {
		return -ENOENT;
	}
	*ret = (struct shim_code_elf){ .given = best.data,
				       .given_bytes = best.bytes,
				       .entry = best };
	return 0;
}

int shim_code_find(struct shim_code_elf *ret, const void *image, size_t bytes, unsigned arch)
{
	struct ptx_fatbin_wrapper w;
	uint64_t length;
	size_t elf;

	if (bytes && bytes < PTX_FATBIN_HEADER_BYTES) {
		return -ENOENT;
	}
	if (!bytes && magic_of(image) == PTX_FATBIN_WRAPPER_MAGIC) {
		memcpy(&w, image, sizeof(w));
		if (w.version != 1 || !w.data) {
			return -ENOENT;
		}
		image = w.data;
	}
	if (magic_of(image) == PTX_FATBIN_MAGIC) {
		if (!bytes && (ptx_fatbin_bytes(image, &length) < 0 || length > MAX_ELF_BYTES)) {
			return -ENOENT;
		}
		return find_in_container(ret, image, bytes ? bytes : (size_t)length, arch);
	}
	if (magic_of(image) != ELF_MAGIC ||
	    cubin_bytes(image, bytes ? bytes : MAX_ELF_BYTES, &elf) < 0) {
		return -ENOENT;
	}
	*ret = (struct shim_code_elf){
		.given = image, .given_bytes = elf, .data = image, .bytes = elf
	};
	return 0;
}

/* Returns false if the entry cannot be unpacked. */
static bool unpack(struct shim_code_elf *elf)
{
	char *unpacked;

	if (!elf->data &&
	    ptx_fatbin_unpack(&elf->entry, MAX_ELF_BYTES, &unpacked, &elf->bytes) == 0) {
		elf->data = elf->owned = unpacked;
	}
	return elf->data != NULL;
}

/* ---- devices ---- */

unsigned shim_code_arch_here(bool library)
{
	CUcontext ctx = NULL;
	CUdevice d = 0;
	unsigned arch;
	int n = 0;

	if (shim_driver.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx ||
	    shim_driver.cuCtxGetDevice(&d) != CUDA_SUCCESS) {
		return 0;
	}
	arch = shim_device_arch(d);
	if (library && shim_driver.cuDeviceGetCount(&n) != CUDA_SUCCESS) {
		return 0;
	}
	for (int i = 0; i < n; i++) {
		if (shim_device_arch(i) != arch) {
			return 0;
		}
	}
	return arch;
}

/* ---- patching ---- */

/* Handles first: launches look them up. No handle names a patched kernel yet. */
static void lead_all(void)
{
	shim_code_lead_handles();
	shim_code_lead_queries();
	shim_code_lead_graphs();
	shim_code_lead_launches();
}

/* Only once: later other threads call through the slots. */
void shim_code_lead(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, lead_all);
}

/* Occupancy is a query that is answered by the driver, for the patched kernel. */
static bool keeps_occupancy(const struct cubin_patched *p)
{
	for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
		const struct cubin_kernel *k = cubin_patched_kernel(p, i);

		if (k->why == CUBIN_OK && k->patched_registers != k->registers &&
		    k->patched_registers > SHIM_CODE_REGISTERS_MAX) {
			return false;
		}
	}
	return true;
}

/* Reports to the operator why an image is loaded as it is. */
static void note_refusal(const struct shim_code_elf *elf, const char *reason)
{
	struct buf text;

	buf_init(&text);
	buf_printf(&text, "machine code of %zu bytes is loaded unpatched: %s", elf->bytes, reason);
	sched_note(shim.sched, "machine-code", buf_text(&text));
	buf_finish(&text);
}

/* The reason of the image's first kernel stands for all; libraries carry many images without one.
 */
static void note_no_kernel(const struct shim_code_elf *elf, const struct cubin_patched *p)
{
	size_t n = cubin_patched_kernels(p);
	struct buf reason;

	if (n) {
		const struct cubin_kernel *k = cubin_patched_kernel(p, 0);

		buf_init(&reason);
		buf_printf(&reason, "none of %zu kernels can be patched; %.200s: %s", n, k->name,
			   cubin_why_text(k->why));
		note_refusal(elf, buf_text(&reason));
		buf_finish(&reason);
	}
}

static struct cubin_patched *patch(const struct shim_code_elf *elf, const struct cubin_stub *s)
{
	struct cubin_patched *p = NULL;
	struct buf reason;
	struct report r;
	int err;

	report_init(&r);
	err = cubin_patch(&p, elf->data, elf->bytes, s, &r);
	if (err == -ENOENT) {
		note_no_kernel(elf, p);
	} else if (err < 0) {
		buf_init(&reason);
		if (err == -ENOEXEC) {
			report_text(&r, &reason);
		} else {
			buf_puts(&reason, strerror(-err));
		}
		note_refusal(elf, buf_text(&reason));
		buf_finish(&reason);
	} else if (!keeps_occupancy(p)) {
		note_refusal(elf, "the entry stub would lower a kernel's occupancy");
		err = -ENOENT;
	}
	if (err < 0) {
		cubin_patched_close(p);
		p = NULL;
	}
	report_finish(&r);
	return p;
}

static bool is_for(const struct shim_code_elf *elf, unsigned arch)
{
	return cubin_arch(elf->data, elf->bytes) / 10 == arch / 10;
}

static struct cubin_patched *patch_new(struct shim_code_elf *elf, unsigned arch,
				       const struct cubin_stub *s, enum proto_block_why *ret_why)
{
	struct cubin_patched *p;

	if (!unpack(elf)) {
		return NULL;
	}
	*ret_why = PROTO_BLOCK_CODE;
	p = is_for(elf, arch) ? patch(elf, s) : NULL;
	if (p) {
		shim_code_cache(elf, arch, s, p);
	}
	return p;
}

static struct cubin_patched *open_elf(struct shim_code_elf *elf, unsigned arch,
				      enum proto_block_why *ret_why)
{
	const struct cubin_stub *s;
	struct cubin_patched *p;

	if (elf->data && !is_for(elf, arch)) {
		*ret_why = PROTO_BLOCK_CODE;
		return NULL;
	}
	s = shim_code_stub(arch, ret_why);
	if (!s) {
		return NULL;
	}
	p = shim_code_cached(elf, arch, s);
	if (p && !keeps_occupancy(p)) { /* stored by a version with another limit */
		cubin_patched_close(p);
		p = NULL;
	}
	return p ? p : patch_new(elf, arch, s, ret_why);
}

struct cubin_patched *shim_code_open(const void *image, size_t bytes, bool library,
				     enum proto_block_why *ret_why)
{
	unsigned arch = shim_code_arch_here(library);
	struct cubin_patched *p = NULL;
	struct shim_code_elf elf;

	if (!image) {
		return NULL;
	}
	if (!arch) {
		*ret_why = PROTO_BLOCK_NO_CONTEXT;
		return NULL;
	}
	if (shim_code_find(&elf, image, bytes, arch) == 0) {
		p = open_elf(&elf, arch, ret_why);
		free(elf.owned);
	}
	if (p) {
		shim_code_lead();
	}
	return p;
}

/* ---- kernels that are never stopped ---- */

enum proto_block_why shim_code_why(const struct cubin_kernel *k)
{
	if (proto_communicates(k->name)) {
		return PROTO_BLOCK_COLLECTIVE;
	}
	if (shim_code_waits(k)) {
		return PROTO_BLOCK_WAITED;
	}
	return k->blocks_are_clusters ? PROTO_BLOCK_CLUSTER : PROTO_BLOCK_OK;
}
