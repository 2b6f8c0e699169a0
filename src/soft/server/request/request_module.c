/* Requests about modules: an image is copied, unpacked, compiled and placed without the lock;
 * functions and globals are looked up under it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/report.h"
#include "base/shm.h"
#include "ptx/fatbin.h"
#include "ptx/image.h"
#include "ptx/module.h"
#include "soft/server/connection.h"
#include "soft/server/machine.h"
#include "soft/server/request/client_request.h"
#include "soft/server/run/context_group.h"
#include "soft/server/memory/device_memory.h"

/* Reading PTX takes up to twenty times its size in memory. To bound the total, images from
 * LARGE_IMAGE_BYTES on wait in order of arrival until the images being read, including theirs, take
 * at most READING_BYTES. A waiting thread holds none of this budget. */
#define LARGE_IMAGE_BYTES ((size_t)1 << 20)
#define READING_BYTES ((size_t)96 << 20)

static struct {
	struct lock lock;
	pthread_cond_t less;
	size_t bytes;
	uint64_t next, serving; /* tickets */
} reading = { .lock = LOCK_INITIALIZER(SOFTD_READING), .less = PTHREAD_COND_INITIALIZER };

static void reading_begin(size_t bytes)
{
	uint64_t ticket;

	lock_take(&reading.lock);
	ticket = reading.next++;
	while (ticket != reading.serving ||
	       (reading.bytes && reading.bytes + bytes > READING_BYTES)) {
		lock_wait(&reading.lock, &reading.less);
	}
	reading.serving++;
	reading.bytes += bytes;
	pthread_cond_broadcast(&reading.less);
	lock_release(&reading.lock);
}

static void reading_end(size_t bytes)
{
	if (bytes) {
		lock_take(&reading.lock);
		reading.bytes -= bytes;
		pthread_cond_broadcast(&reading.less);
		lock_release(&reading.lock);
	}
}

/* Returns a private copy of an image or a long name, because the client could modify the shared one
 * while it is read. */
static char *copy_shared(int fd, size_t max, size_t *ret_bytes)
{
	long bytes = fd < 0 ? -EBADF : shm_checked_size(fd, max);
	const char *shared;
	char *text;

	if (bytes < 0) {
		return NULL;
	}
	shared = shm_map(fd, (size_t)bytes, 0);
	text = malloc((size_t)bytes);
	if (shared && text) {
		memcpy(text, shared, (size_t)bytes);
		*ret_bytes = (size_t)bytes;
	} else {
		free(text);
		text = NULL;
	}
	shm_unmap((void *)(uintptr_t)shared, (size_t)bytes);
	return text;
}

static uint32_t free_module_slot(struct softd_client *c)
{
	struct softd_module **grown;

	for (uint32_t i = 0; i < c->n_modules; i++) {
		if (!c->modules[i]) {
			return i;
		}
	}
	if (c->n_modules >= SOFT_MAX_MODULES) {
		return UINT32_MAX;
	}
	grown = realloc(c->modules, (c->n_modules + 16) * sizeof(*grown));
	if (!grown) {
		return UINT32_MAX;
	}
	memset(grown + c->n_modules, 0, 16 * sizeof(*grown));
	c->modules = grown;
	c->n_modules += 16;
	return c->n_modules - 16;
}

/* Allocates the variables of a module that has .managed ones in pinned memory. The reply carries
 * the descriptor, and the address in reply.bytes. */
static CUresult pin_globals(struct softd_client *c, const struct soft_request *q, uint64_t bytes,
			    struct softd_answer *a)
{
	struct soft_request alloc = { .op = SOFT_REQ_ALLOC,
				      .context = q->context,
				      .object = SOFT_MEMORY_PINNED,
				      .value = bytes };
	CUresult e = softd_request_memory(c, &alloc, -1, a);

	a->reply.bytes = e ? 0 : a->reply.value;
	return e;
}

/* Allocates the module's variables unless they are pinned. Returns their address in the server, or
 * NULL. */
static void *place_globals(struct softd_module *m, struct softd_machine *machine, uint64_t bytes,
			   uint64_t pinned) REQUIRES(softd_lock)
{
	void *host;

	m->globals = pinned ? pinned
			    : softd_memory_alloc(m->group->memory, machine, m->group->slot, bytes,
						 SOFT_MEMORY_DEVICE, -1);
	host = m->globals ? softd_memory_at(m->group->memory, m->globals, bytes, 2) : NULL;
	if (m->globals && !host) {
		softd_memory_free(m->group->memory, machine, m->globals);
	}
	return host;
}

/* Allocates and initializes the module's globals and assigns its number. */
static CUresult module_place(struct softd_client *c, const struct soft_request *q,
			     struct exec_module *exec, uint64_t code_bytes, struct softd_answer *a)
{
	size_t bytes = exec_module_global_bytes(exec);
	struct softd_module *m = calloc(1, sizeof(*m));
	struct softd_machine *machine = c->machine;
	uint32_t slot = UINT32_MAX;
	void *host = NULL;

	if (bytes && exec_module_managed(exec, NULL)) {
		CUresult e = pin_globals(c, q, bytes, a);

		if (e) {
			free(m);
			return e;
		}
	}
	softd_machine_lock(machine);
	if (m) {
		m->group = softd_request_group(c, q);
		m->exec = exec;
		m->code_bytes = code_bytes;
		m->functions = SOFTD_NO_FUNCTION;
		slot = m->group ? free_module_slot(c) : UINT32_MAX;
	}
	if (slot != UINT32_MAX && bytes) {
		host = place_globals(m, machine, bytes, a->reply.bytes);
		slot = host ? slot : UINT32_MAX;
	}
	softd_machine_unlock(machine);
	if (slot == UINT32_MAX) { /* pinned globals are freed with the context */
		free(m);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (host) { /* safe unlocked: only this thread destroys the context */
		exec_module_bind(exec, m->globals, host);
	}
	softd_machine_lock(machine);
	c->modules[slot] = m;
	c->code_bytes += code_bytes;
	machine->code_bytes += code_bytes;
	machine->modules++;
	softd_machine_unlock(machine);
	a->reply.value32 = slot;
	return CUDA_SUCCESS;
}

static CUresult image_result(int err)
{
	return err == -ENOMEM	    ? CUDA_ERROR_OUT_OF_MEMORY
	       : err == -ENOENT	    ? CUDA_ERROR_NO_BINARY_FOR_GPU
	       : err == -EOPNOTSUPP ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	       : err == -EBADMSG    ? CUDA_ERROR_INVALID_PTX
				    : CUDA_ERROR_INVALID_IMAGE;
}

/* The bytes that count against a program's module limit: the text, or the decoded code where that
 * is out of proportion, as with a large function called by a thousand kernels. */
static uint64_t weight_of(const struct exec_module *m, const struct ptx_image_text *text)
{
	return MAX((uint64_t)text->bytes, exec_module_code_bytes(m) / SOFT_CODE_DECODED);
}

static CUresult code_too_large(struct report *rep)
{
	report_set(rep, -ENOMEM, "image", "the program's modules are too large together");
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult compile(struct softd_client *c, const struct soft_request *q,
			const struct ptx_image_text *text, struct report *rep,
			struct softd_answer *a)
{
	const char *name = q->name[0] ? q->name : "ptx";
	struct exec_module *exec = NULL;
	CUresult result;
	uint64_t all, weight;
	int err;

	softd_machine_lock(c->machine);
	all = c->machine->code_bytes;
	softd_machine_unlock(c->machine);
	/* Only this thread adds to its client's sum. The global sum may be exceeded by one module
	 * per concurrent client. */
	if (c->code_bytes + text->bytes > SOFT_MAX_CODE_BYTES ||
	    all + text->bytes > SOFT_MAX_CODE_ALL) {
		return code_too_large(rep);
	}
	err = exec_module_load(&exec, text->text, text->bytes, name, rep);
	if (err) {
		return err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
	}
	weight = weight_of(exec, text);
	if (c->code_bytes + weight > SOFT_MAX_CODE_BYTES || all + weight > SOFT_MAX_CODE_ALL) {
		exec_module_unref(exec);
		return code_too_large(rep);
	}
	result = module_place(c, q, exec, weight, a);
	if (result) {
		exec_module_unref(exec);
	}
	a->reply.value = ptx_text_arch(text->text, text->bytes);
	return result;
}

/* The unpacked size of a fat binary is unknown beforehand: callers first try it with the limit of a
 * small image. */
static int open_image(struct ptx_image_text *ret, const struct soft_request *q, const char *image,
		      size_t bytes, size_t max, struct report *rep)
{
	struct ptx_device device = { SOFT_ARCH, PTX_RULE_SOFT, q->index };

	report_finish(rep);
	report_init(rep);
	return ptx_image_open(ret, image, bytes, device, max, q->name[0] ? q->name : "image", rep);
}

/* held: the bytes passed to reading_begin. */
static CUresult load(struct softd_client *c, const struct soft_request *q, const char *image,
		     size_t bytes, size_t held, struct report *rep, struct softd_answer *a)
{
	/* the client may have grown the file since */
	size_t max = MAX(held, LARGE_IMAGE_BYTES), keep;
	struct ptx_image_text text;
	CUresult result;
	int err = open_image(&text, q, image, bytes, max, rep);

	if (err == -EFBIG && !held) {
		held = SOFT_MAX_PTX_BYTES;
		reading_begin(held);
		err = open_image(&text, q, image, bytes, held, rep);
	}
	keep = err || text.bytes < LARGE_IMAGE_BYTES ? 0 : MIN(text.bytes, held);
	reading_end(held - keep);
	result = err ? image_result(err) : compile(c, q, &text, rep, a);
	reading_end(keep);
	ptx_image_close(&text);
	return result;
}

/* Returns the bytes to reserve before the image is opened: the size of text, the maximum for a
 * container, 0 for a small image. */
static size_t bytes_to_hold(int fd)
{
	long bytes = fd < 0 ? -EBADF : shm_checked_size(fd, SOFT_MAX_PTX_BYTES);
	uint32_t magic = 0;

	if (bytes < (long)LARGE_IMAGE_BYTES) {
		return 0;
	}
	return pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == PTX_FATBIN_MAGIC
		       ? SOFT_MAX_PTX_BYTES
		       : (size_t)bytes;
}

CUresult softd_request_module_load(struct softd_client *c, const struct soft_request *q, int fd,
				   struct softd_answer *a)
{
	size_t bytes = 0, held = bytes_to_hold(fd);
	CUresult result = CUDA_ERROR_INVALID_IMAGE;
	struct report rep;
	struct buf text;
	char *image;

	if (held) {
		reading_begin(held);
	}
	image = load_relaxed(&c->dead) ? NULL : copy_shared(fd, SOFT_MAX_PTX_BYTES, &bytes);
	if (!image) {
		reading_end(held);
		return result;
	}
	report_init(&rep);
	buf_init(&text);
	result = load(c, q, image, bytes, held, &rep, a);
	free(image);
	if (result) {
		report_text(&rep, &text);
		strncpy(a->reply.text, buf_text(&text), sizeof(a->reply.text) - 1);
		a->len += strlen(a->reply.text) + 1;
	}
	buf_finish(&text);
	report_finish(&rep);
	return result;
}

static struct softd_module *module_of(struct softd_client *c, const struct soft_request *q)
{
	return q->object < c->n_modules ? c->modules[q->object] : NULL;
}

void softd_module_drop(struct softd_client *c, uint32_t slot)
{
	struct softd_module *m = c->modules[slot];

	for (uint32_t i = m->functions; i != SOFTD_NO_FUNCTION; i = c->functions[i].next) {
		c->functions[i].exec = NULL;
	}
	if (m->globals) {
		softd_memory_free(m->group->memory, c->machine, m->globals);
	}
	c->code_bytes -= m->code_bytes;
	c->machine->code_bytes -= m->code_bytes;
	c->modules[slot] = NULL;
	c->machine->modules--;
	exec_module_unref(m->exec);
	free(m);
}

CUresult softd_request_module_unload(struct softd_client *c, const struct soft_request *q)
{
	struct softd_module *m = module_of(c, q);

	if (!m) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	softd_module_drop(c, q->object);
	return CUDA_SUCCESS;
}

static uint32_t function_id(struct softd_client *c, uint32_t module, const struct exec_function *f)
{
	uint32_t free_id = c->n_functions;

	for (uint32_t i = 0; i < c->n_functions; i++) {
		if (c->functions[i].exec == f && c->functions[i].module == module) {
			return i;
		}
		if (!c->functions[i].exec) {
			free_id = i;
		}
	}
	if (free_id == c->n_functions) {
		if (c->n_functions >= SOFT_MAX_FUNCTIONS) {
			return UINT32_MAX;
		}
		if (c->n_functions == c->functions_cap) {
			uint32_t cap = c->functions_cap ? c->functions_cap * 2 : 64;
			struct softd_function *grown = realloc(c->functions, cap * sizeof(*grown));

			if (!grown) {
				return UINT32_MAX;
			}
			c->functions = grown;
			c->functions_cap = cap;
		}
		c->n_functions++;
	}
	c->functions[free_id] = (struct softd_function){ f, module, c->modules[module]->functions };
	c->modules[module]->functions = free_id;
	return free_id;
}

const char *softd_request_name(const struct soft_request *q, int fd, char **ret_held)
{
	size_t bytes = 0;

	*ret_held = NULL;
	if (fd < 0 || (q->op != SOFT_REQ_FUNCTION && q->op != SOFT_REQ_GLOBAL)) {
		return q->name;
	}
	*ret_held = copy_shared(fd, PTX_NAME_MAX + 1, &bytes);
	return bytes && !memchr(*ret_held, 0, bytes - 1) && !(*ret_held)[bytes - 1] ? *ret_held
										    : NULL;
}

CUresult softd_request_function_get(struct softd_client *c, const struct soft_request *q,
				    const char *name, struct softd_answer *a)
{
	struct softd_module *m = module_of(c, q);
	const struct exec_function *f = m && name ? exec_module_function(m->exec, name) : NULL;
	struct soft_function_info *out = &a->reply.function;
	const struct exec_function_info *info;

	if (!f) {
		return m ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
	}
	info = exec_function_info(f);
	if (info->n_params > SOFT_PARAMS_MAX || info->param_bytes > SOFT_MAX_PARAM_BYTES) {
		return CUDA_ERROR_NOT_SUPPORTED;
	}
	*out = (struct soft_function_info){ .id = function_id(c, q->object, f),
					    .n_params = info->n_params,
					    .param_bytes = info->param_bytes,
					    .shared_bytes = info->shared_bytes,
					    .local_bytes = info->local_bytes,
					    .const_bytes = info->const_bytes,
					    .registers = info->registers,
					    .max_threads = info->max_threads };
	if (out->id == UINT32_MAX) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < info->n_params; i++) {
		out->params[i].offset = info->params[i].offset;
		out->params[i].bytes = info->params[i].bytes;
	}
	a->len += offsetof(struct soft_function_info, params) +
		  info->n_params * sizeof(out->params[0]);
	return CUDA_SUCCESS;
}

CUresult softd_request_function_at(struct softd_client *c, const struct soft_request *q,
				   struct softd_answer *a)
{
	struct softd_module *m = module_of(c, q);
	const struct exec_function *f;

	if (!m) {
		return CUDA_ERROR_INVALID_HANDLE;
	}
	a->reply.value32 = exec_module_functions(m->exec);
	f = q->index < a->reply.value32 ? exec_module_function_at(m->exec, q->index) : NULL;
	if (f) {
		const char *name = exec_function_info(f)->name;

		strncpy(a->reply.text, name + MIN(q->value, (uint64_t)strlen(name)),
			sizeof(a->reply.text) - 1);
		a->len += strlen(a->reply.text) + 1;
	}
	return CUDA_SUCCESS;
}

static CUresult variable(const struct exec_module *m, const char *name, struct softd_answer *a)
{
	uint64_t address, bytes;

	if (exec_module_global(m, name, &address, &bytes) < 0) {
		return CUDA_ERROR_NOT_FOUND;
	}
	a->reply.value = address;
	a->reply.bytes = bytes;
	a->reply.value32 =
		exec_module_managed(m, name) ? SOFT_VARIABLE_MANAGED : SOFT_VARIABLE_PLAIN;
	if (exec_module_reference(m, name, ".texref")) {
		a->reply.value32 = SOFT_VARIABLE_TEXREF;
	} else if (exec_module_reference(m, name, ".surfref")) {
		a->reply.value32 = SOFT_VARIABLE_SURFREF;
	}
	return CUDA_SUCCESS;
}

CUresult softd_request_global_get(struct softd_client *c, const struct soft_request *q,
				  const char *name, struct softd_answer *a)
{
	struct softd_module *m = module_of(c, q);

	return !m     ? CUDA_ERROR_INVALID_HANDLE
	       : name ? variable(m->exec, name, a)
		      : CUDA_ERROR_NOT_FOUND;
}
