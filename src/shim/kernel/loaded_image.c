/* Table of owners by handle. Entries and texts belong to the pass (ptx/block_image.h), which shares
 * them between images that are loaded several times. */
#include "shim/kernel/loaded_image.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strmap.h"
#include "gpu/ptx_rule.h"
#include "shim/fork_lock.h"
#include "shim/object/driver_device.h"
#include "shim/object/handle_set.h"
#include "ptx/image.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/kernel/kernel_pointers.h"
#include "shim/mem/swap_region.h"
#include "shim/shim.h"
#include "shim/tool.h"

#define MAX_OWNERS 65536u
#define MAX_NATIVE_BYTES ((size_t)4 << 20) /* maximum text that replaces machine code */
#define MAX_FILE_BYTES ((off_t)64 << 20)   /* a longer file is loaded as it is */

struct shim_image_owner {
	const void *of; /* the library, for a library's module; else NULL */
	uint64_t load;	/* number of its load in the process */
	CUcontext ctx;	/* of a module; NULL: of a library */
	enum proto_block_why why;
	struct shim_kept_image *kept; /* owned; NULL: none, for kept_why */
	struct shim_kept_reason kept_why;
	struct shim_code_kept *code;	       /* owned; NULL: none */
	struct shim_kernel_pointers *pointers; /* owned; NULL: none */
	unsigned n;
	const struct ptx_block_image *parts[]; /* references, owned */
};

static struct lock owners_mutex = LOCK_INITIALIZER(OWNERS);
/* Handle in hexadecimal > struct shim_image_owner. */
static struct strmap owners GUARDED_BY(owners_mutex);
static uint64_t loads GUARDED_BY(owners_mutex);

bool shim_image_wanted(void)
{
	const char *v;

	if (!shim_attached() || !sched_block_wanted(shim.sched)) {
		return false;
	}
	v = getenv("GBPF_BLOCK");
	return !v || (strcmp(v, "0") != 0 && strcmp(v, "off") != 0);
}

/* Returns true and the text if the device executes PTX of the image and no machine code. */
static bool pick(struct ptx_image_text *ret, const struct shim_image_source *s, struct ptx_device d)
{
	struct ptx_image_rest rest;
	struct report r;
	int err;

	report_init(&r);
	err = ptx_image_pick(ret, s->image, s->bytes, d, PTX_BLOCK_IMAGE_MAX, "image", &rest, &r);
	report_finish(&r);
	return err == 0 && !rest.native;
}

/* Returns true if two devices execute the same PTX of the image. */
static bool is_same(const struct shim_image_source *s, struct ptx_device a, struct ptx_device b)
{
	struct ptx_image_text x = { 0 }, y = { 0 };
	bool same = pick(&x, s, a) && pick(&y, s, b) && x.bytes == y.bytes &&
		    memcmp(x.text, y.text, x.bytes) == 0;

	ptx_image_close(&x);
	ptx_image_close(&y);
	return same;
}

/* Returns the architecture of all devices, or of the first one if all execute the same PTX of the
 * image; otherwise 0. d: the rule and the target that is asked for. */
static unsigned arch_of_all(const struct shim_image_source *s, struct ptx_device d)
{
	unsigned last;
	int n = 0;

	if (shim_driver.cuDeviceGetCount(&n) != CUDA_SUCCESS || n < 1) {
		return 0;
	}
	last = d.arch = shim_device_arch(0);
	for (int i = 1; i < n && d.arch; i++) {
		struct ptx_device other = d;

		other.arch = shim_device_arch(i);
		if (!other.arch ||
		    (other.arch != d.arch && other.arch != last && !is_same(s, d, other))) {
			return 0;
		}
		last = other.arch;
	}
	return d.arch;
}

/* Returns the device that executes the image: a module's is that of the current context. With
 * architecture 0 it is not known, or there are several that do not execute the same PTX: no text
 * could replace the image. */
static struct ptx_device device_of(const struct shim_image_source *s)
{
	struct ptx_device device = { .rule = gpu_ptx_rule(&shim_driver), .target = s->target };
	CUdevice d;

	if (!s->library && shim_driver.cuCtxGetDevice(&d) == CUDA_SUCCESS) {
		device.arch = shim_device_arch(d);
	} else {
		device.arch = arch_of_all(s, device);
	}
	return device;
}

/* Returns true if CU_JIT_TARGET asks for an older architecture than the device's: the driver may
 * take other parts of the image than without it. */
static bool is_lowered(struct ptx_device d)
{
	return ptx_device_target(d) != d.arch;
}

bool shim_image_code_wanted(const struct shim_image_source *s, enum proto_block_why *ret_why)
{
	const char *v = getenv("GBPF_BLOCK");
	bool off = v && strcmp(v, "ptx") == 0;
	bool no_ptx = *ret_why == PROTO_BLOCK_NO_PTX || *ret_why == PROTO_BLOCK_OTHER_PTX;

	if (!shim_image_wanted()) {
		return false;
	}
	if (off) {
		*ret_why = no_ptx ? PROTO_BLOCK_CODE_OFF : *ret_why;
		return false;
	}
	if (shim_tool_attached()) {
		*ret_why = PROTO_BLOCK_TOOL;
		return false;
	}
	if (s->target && is_lowered(device_of(s))) {
		*ret_why = no_ptx ? PROTO_BLOCK_CODE : *ret_why;
		return false;
	}
	return true;
}

/* Returns true if the program's machine code, made for this device, is preferable to its PTX: PTX
 * that differs in features may be compiled from other source, and compiling a long text takes the
 * driver minutes, which the user accepts for a text that is prepared. */
static bool is_second_best(const struct ptx_block_image *i)
{
	const char *v = getenv("GBPF_BLOCK");

	return i->native && i->text && !(v && strcmp(v, "1") == 0) &&
	       (i->differs || (i->bytes > MAX_NATIVE_BYTES && !i->prepared));
}

/* gbpf run --probes: modules are prepared for probes of kernels that could not be sliced. */
static bool prepares(void)
{
	const char *v = getenv("GBPF_PROBES");

	return v && strcmp(v, "1") == 0;
}

/* Memory may leave while kernels are under way that cannot access it, as their PTX proves. */
static bool uses_proofs(void)
{
	const char *v = getenv("GBPF_CLOSED");

	return shim_swap_is_on() && !(v && strcmp(v, "0") == 0);
}

const struct ptx_block_image *shim_image_open(const struct shim_image_source *s,
					      enum proto_block_why *ret_why)
{
	const struct ptx_block_image *i = NULL;
	struct ptx_device device;

	*ret_why = sched_block_wanted(shim.sched) ? PROTO_BLOCK_UNKNOWN : PROTO_BLOCK_CLASS;
	if (!s->image || !shim_image_wanted()) {
		return NULL;
	}
	device = device_of(s);
	if (!device.arch) {
		*ret_why = PROTO_BLOCK_NO_CONTEXT;
		return NULL;
	}
	if ((prepares() ? ptx_block_image_open_prepared
			: ptx_block_image_open)(&i, s->image, s->bytes, device, "image") < 0) {
		return NULL;
	}
	*ret_why = i->why;
	if (is_second_best(i)) {
		*ret_why = PROTO_BLOCK_NATIVE;
		ptx_block_image_close(i);
		return NULL;
	}
	return i;
}

char *shim_image_read_file(const char *path, size_t *ret_bytes)
{
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct stat st;
	char *data = NULL;
	size_t n = 0;
	ssize_t got = 1;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
	    st.st_size <= MAX_FILE_BYTES) {
		data = malloc((size_t)st.st_size + 1);
	}
	while (data && n < (size_t)st.st_size && got > 0) {
		got = read(fd, data + n, (size_t)st.st_size - n);
		n += got > 0 ? (size_t)got : 0;
	}
	fd_close(fd);
	if (data && n != (size_t)st.st_size) {
		free(data);
		return NULL;
	}
	if (data) {
		data[n] = 0;
		*ret_bytes = n;
	}
	return data;
}

/* ---- owners ---- */

void shim_image_code_unref(struct shim_code_kept *k)
{
	size_t bytes = k ? shim_code_kept_bytes(k) : 0;

	if (shim_code_kept_unref(k)) {
		shim_kept_give(bytes);
	}
}

static void close_parts(struct shim_image_owner *o)
{
	for (unsigned i = 0; i < o->n; i++) {
		ptx_block_image_close(o->parts[i]);
	}
	shim_kept_unref(o->kept);
	shim_image_code_unref(o->code);
	shim_kernel_pointers_free(o->pointers);
	free(o);
}

static void put(const void *handle, struct shim_image_owner *o)
{
	struct shim_handle_key k = shim_handle_key(handle);
	struct shim_image_owner *before;

	lock_take(&owners_mutex);
	before = strmap_del(&owners, k.text); /* the handle was reused without an unload */
	o->load = before && o->of && before->of == o->of ? before->load : ++loads;
	if (owners.live < MAX_OWNERS && strmap_add(&owners, k.text, o) == 0) {
		o = NULL;
	}
	lock_release(&owners_mutex);
	if (before) {
		close_parts(before);
	}
	if (o) {
		close_parts(o);
	}
}

void shim_image_note(const void *handle, CUcontext ctx, const struct ptx_block_image *const *parts,
		     unsigned n, enum proto_block_why why)
{
	struct shim_image_owner *o = calloc(1, sizeof(*o) + n * sizeof(o->parts[0]));

	if (!o) {
		for (unsigned i = 0; i < n; i++) {
			ptx_block_image_close(parts[i]);
		}
		return;
	}
	o->ctx = ctx;
	o->why = why;
	o->kept_why.why = SHIM_KEPT_NO_PTX;
	o->n = n;
	if (n) {
		memcpy(o->parts, parts, n * sizeof(parts[0]));
	}
	put(handle, o);
}

/* Returns the number of the newest load if a record of the module is not of the library, else 0. */
static uint64_t loads_until_now(const void *module, const void *library)
{
	const struct shim_image_owner *o;
	uint64_t until;

	lock_take(&owners_mutex);
	o = strmap_get(&owners, shim_handle_key(module).text);
	until = o && o->of != library ? loads : 0;
	lock_release(&owners_mutex);
	return until;
}

/* Several threads may find the former record. Whichever records the module last, the load keeps the
 * number that the first has given it, which is above what the others end. */
void shim_image_note_module(const void *module, const void *library)
{
	struct shim_image_owner *o = calloc(1, sizeof(*o));
	uint64_t until = loads_until_now(module, library);
	CUcontext ctx = NULL;

	(void)shim_real.cuCtxGetCurrent(&ctx);
	if (until) {
		shim_clone_end_load(module, until);
	}
	if (o) {
		o->of = library;
		o->ctx = ctx;
		put(module, o);
	}
}

static void context_forget(CUcontext ctx)
{
	lock_take(&owners_mutex);
	strmap_each (&owners, e) {
		struct shim_image_owner *o = e->value;

		if (o->ctx == ctx) {
			strmap_del(&owners, e->key);
			close_parts(o);
		}
	}
	lock_release(&owners_mutex);
}

uint64_t shim_image_load(const void *handle)
{
	const struct shim_image_owner *o;
	uint64_t load;

	lock_take(&owners_mutex);
	o = strmap_get(&owners, shim_handle_key(handle).text);
	load = o ? o->load : 0;
	lock_release(&owners_mutex);
	return load;
}

bool shim_image_is_of(const void *handle, const void *owner)
{
	const struct shim_image_owner *o;
	bool r = handle == owner;

	if (!r) {
		lock_take(&owners_mutex);
		o = strmap_get(&owners, shim_handle_key(handle).text);
		r = o && o->of == owner;
		lock_release(&owners_mutex);
	}
	return r;
}

/* Returns the record, which stays until the driver has unloaded the owner, since it may read the
 * text until then. */
static uint64_t unloading(const void *handle)
{
	struct shim_image_owner *gone;

	lock_take(&owners_mutex);
	gone = strmap_del(&owners, shim_handle_key(handle).text);
	strmap_each (&owners, e) {
		struct shim_image_owner *o = e->value;

		if (o->of == handle) {
			strmap_del(&owners, e->key);
			free(o);
		}
	}
	lock_release(&owners_mutex);
	return (uintptr_t)gone;
}

static void unloaded(const void *handle, uint64_t before, bool is_gone)
{
	struct shim_image_owner *o = (struct shim_image_owner *)(uintptr_t)before;

	if (o) {
		close_parts(o);
	}
}

/* The records are the parent's, and another thread may have been changing them. */
static void child(void)
{
	shim_lock_after_fork(&owners_mutex, LOCK_OWNERS);
	strmap_init(&owners);
}

const struct shim_part shim_image_part = { .if_attached = true,
					   .unloading = unloading,
					   .unloaded = unloaded,
					   .context_forget = context_forget,
					   .child = child };

static const struct shim_image_owner *owner_of(const void *handle) REQUIRES(owners_mutex)
{
	const struct shim_image_owner *o = strmap_get(&owners, shim_handle_key(handle).text);

	return o && o->of ? strmap_get(&owners, shim_handle_key(o->of).text) : o;
}

enum proto_block_why shim_image_entry(const void *handle, const char *name,
				      const struct ptx_block_entry **ret)
{
	enum proto_block_why why = PROTO_BLOCK_UNKNOWN;
	const struct shim_image_owner *o;

	*ret = NULL;
	lock_take(&owners_mutex);
	o = owner_of(handle);
	if (o) {
		why = o->n ? PROTO_BLOCK_NO_PTX : o->why;
	}
	for (unsigned i = 0; o && i < o->n && !*ret; i++) {
		*ret = ptx_block_image_entry(o->parts[i], name);
		why = *ret ? (*ret)->why : why;
	}
	lock_release(&owners_mutex);
	return why;
}

/* Returns true if rewritten PTX was loaded. */
static bool is_rewritten(const void *handle)
{
	const struct shim_image_owner *o;
	bool r = false;

	lock_take(&owners_mutex);
	o = owner_of(handle);
	for (unsigned i = 0; o && i < o->n; i++) {
		r |= o->parts[i]->text != NULL;
	}
	lock_release(&owners_mutex);
	return r;
}

static struct shim_code_kept *keep_code(const void *image, size_t bytes, unsigned arch, size_t room)
{
	struct shim_code_kept *code = NULL;

	if (shim_code_keep(&code, image, bytes, arch, room) < 0) {
		return NULL;
	}
	shim_kept_take(shim_code_kept_bytes(code));
	return code;
}

void shim_image_keep(const void *handle, const struct shim_image_source *s, bool linked)
{
	struct ptx_device device = s->image ? device_of(s) : (struct ptx_device){ 0 };
	struct shim_kept_reason why = { .why = linked			  ? SHIM_KEPT_LINKED
					       : s->image && !device.arch ? SHIM_KEPT_UNLIKE
									  : SHIM_KEPT_NO_PTX };
	struct shim_kept_image *k =
		device.arch && !linked
			? shim_kept_open(s->image, s->bytes, device, is_rewritten(handle), &why)
			: NULL;
	struct shim_kept_image *before;
	struct shim_code_kept *code =
		device.arch && !is_lowered(device)
			? keep_code(s->image, s->bytes, device.arch, k ? 0 : shim_kept_room())
			: NULL;
	struct shim_kernel_pointers *pointers =
		k && !s->target && uses_proofs() ? shim_kernel_pointers_read(k) : NULL;
	struct shim_kernel_pointers *pointers_before;
	struct shim_code_kept *code_before;
	struct shim_image_owner *o;

	lock_take(&owners_mutex);
	o = strmap_get(&owners, shim_handle_key(handle).text);
	if (o) {
		before = o->kept;
		o->kept = k;
		o->kept_why = why;
		k = before;
		code_before = o->code;
		o->code = code;
		code = code_before; /* to be released */
		pointers_before = o->pointers;
		o->pointers = pointers;
		pointers = pointers_before;
	}
	lock_release(&owners_mutex);
	shim_kept_unref(k);
	shim_image_code_unref(code);
	shim_kernel_pointers_free(pointers);
}

struct ptx_pointers *shim_image_pointers(const void *handle, const char *kernel)
{
	const struct shim_image_owner *o;
	struct ptx_pointers *p;

	lock_take(&owners_mutex);
	o = owner_of(handle);
	p = o ? shim_kernel_pointers_of(o->pointers, kernel) : NULL;
	lock_release(&owners_mutex);
	return p;
}

bool shim_image_outlives(const void *handle, CUcontext ctx)
{
	const struct shim_image_owner *o;
	bool r;

	lock_take(&owners_mutex);
	o = strmap_get(&owners, shim_handle_key(handle).text);
	r = o && o->ctx && o->ctx != ctx;
	lock_release(&owners_mutex);
	return r;
}

struct shim_code_kept *shim_image_code(const void *handle)
{
	struct shim_code_kept *k = NULL;
	const struct shim_image_owner *o;

	lock_take(&owners_mutex);
	o = owner_of(handle);
	if (o) {
		k = shim_code_kept_ref(o->code);
	}
	lock_release(&owners_mutex);
	return k;
}

struct shim_kept_image *shim_image_kept(const void *handle, struct shim_kept_reason *ret_why)
{
	struct shim_kept_image *k = NULL;
	const struct shim_image_owner *o;

	*ret_why = (struct shim_kept_reason){ .why = SHIM_KEPT_NO_PTX };
	lock_take(&owners_mutex);
	o = owner_of(handle);
	if (o) {
		*ret_why = o->kept_why;
		k = shim_kept_ref(o->kept);
	}
	lock_release(&owners_mutex);
	return k;
}

unsigned shim_image_clones(const void *handle)
{
	const struct shim_image_owner *o;
	unsigned n = 0;

	lock_take(&owners_mutex);
	o = owner_of(handle);
	for (unsigned i = 0; o && i < o->n; i++) {
		n += o->parts[i]->n_clones;
	}
	lock_release(&owners_mutex);
	return n;
}

bool shim_image_is_clone_name(const char *name)
{
	size_t len = name ? strlen(name) : 0, suffix = sizeof(PTX_BLOCK_SUFFIX) - 1;

	return len > suffix && strcmp(name + len - suffix, PTX_BLOCK_SUFFIX) == 0;
}

bool shim_image_hides(const void *handle, const char *name)
{
	return shim_image_is_clone_name(name) && shim_image_clones(handle) > 0;
}
