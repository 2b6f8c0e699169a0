/* Finds the soft GPU's machine code in an image and reads it back to PTX, which the server
 * executes. The server never sees machine code. */
#include "soft/client/module/module_code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "ptx/fatbin.h"
#include "soft/code/code.h"

static struct lock users_lock = LOCK_INITIALIZER(SOFT_CODE_USERS);

struct soft_registers {
	unsigned users; /* users_lock */
	struct strmap map;
};

struct soft_registers *soft_registers_ref(struct soft_registers *r)
{
	if (r) {
		lock_take(&users_lock);
		r->users++;
		lock_release(&users_lock);
	}
	return r;
}

void soft_registers_unref(struct soft_registers *r)
{
	unsigned users;

	if (!r) {
		return;
	}
	lock_take(&users_lock);
	users = --r->users;
	lock_release(&users_lock);
	if (!users) {
		strmap_finish(&r->map);
		free(r);
	}
}

uint32_t soft_registers_of(const struct soft_registers *r, const char *kernel)
{
	return r ? (uint32_t)(uintptr_t)strmap_get(&r->map, kernel) : 0;
}

static CUresult result_of(int err)
{
	return err == 0		? CUDA_SUCCESS
	       : err == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
	       : err == -ENOENT ? CUDA_ERROR_NO_BINARY_FOR_GPU
				: CUDA_ERROR_INVALID_IMAGE;
}

static CUresult read_code(struct soft_image *i, const void *code, size_t bytes, const char *name,
			  struct soft_jit *j)
{
	struct soft_registers *registers = calloc(1, sizeof(*registers));
	struct report rep;
	struct buf text, why;
	int err;

	if (!registers) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	registers->users = 1;
	strmap_init(&registers->map);
	report_init(&rep);
	buf_init(&text);
	buf_init(&why);
	err = soft_code_read(&text, &registers->map, code, bytes, name, &rep);
	if (err) {
		report_text(&rep, &why);
		soft_jit_error(j, buf_text(&why));
	} else {
		free(i->owned);
		i->bytes = text.len;
		i->data = i->owned = buf_steal(&text);
		i->registers = soft_registers_ref(registers);
	}
	soft_registers_unref(registers);
	buf_finish(&why);
	buf_finish(&text);
	report_finish(&rep);
	return result_of(err);
}

/* Unpacks an entry if it is machine code of the soft GPU; else *ret is NULL. */
static CUresult unpack(const struct ptx_fatbin_entry *e, char **ret, size_t *ret_bytes)
{
	int err;

	*ret = NULL;
	if (e->kind != PTX_FATBIN_CUBIN || e->arch != SOFT_ARCH) {
		return CUDA_SUCCESS;
	}
	err = ptx_fatbin_unpack(e, SOFT_CODE_BYTES_MAX, ret, ret_bytes);
	if (err == -ENOMEM) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (err == 0 && !soft_code_is_own(*ret, *ret_bytes)) {
		free(*ret);
		*ret = NULL;
	}
	return CUDA_SUCCESS;
}

/* Containers in sequence are parts of one program, of which the PTX is merged. */
static CUresult resolve_container(struct soft_image *i, const char *name, struct soft_jit *j)
{
	struct ptx_fatbin_walk w;
	struct ptx_fatbin_entry entry;
	CUresult e = CUDA_SUCCESS;
	char *code = NULL;
	size_t bytes;

	if (ptx_fatbin_open(&w, i->data, i->bytes, &bytes) < 0 ||
	    i->bytes - bytes >= PTX_FATBIN_HEADER_BYTES) {
		return CUDA_SUCCESS; /* refused or merged by the server */
	}
	while (!e && !code && ptx_fatbin_next(&w, &entry) == 1) {
		e = unpack(&entry, &code, &bytes);
	}
	if (code) {
		e = read_code(i, code, bytes, name, j);
		free(code);
	}
	return e;
}

CUresult soft_image_resolve(struct soft_image *i, const char *name, struct soft_jit *j)
{
	uint32_t magic = 0;

	memcpy(&magic, i->data, MIN(i->bytes, sizeof(magic)));
	if (magic == PTX_FATBIN_MAGIC) {
		return resolve_container(i, name, j);
	}
	return i->bytes >= SOFT_CODE_HEAD_BYTES && soft_code_is_cubin(i->data)
		       ? read_code(i, i->data, i->bytes, name, j)
		       : CUDA_SUCCESS;
}
