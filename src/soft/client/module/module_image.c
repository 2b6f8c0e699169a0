/* Images of programs: finds their length and parses the options of loading. Does not interpret
 * their contents, which is left to the server. */
#include "soft/client/module/module_image.h"
#include "soft/client/module/module_code.h"
#include "soft/client/server_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "ptx/fatbin.h"
#include "soft/code/code.h"

#define MAGIC_ELF 0x464c457fu
#define MACHINE_CUDA 190u
#define PARTS_MAX 256u

/* Distinguishes the soft GPU's own machine code, that of other devices, and data that is no image.
 */
static CUresult check_elf(const void *p, size_t bytes)
{
	uint16_t machine;

	memcpy(&machine, (const uint8_t *)p + 18, sizeof(machine));
	return machine != MACHINE_CUDA		     ? CUDA_ERROR_INVALID_IMAGE
	       : bytes && soft_code_is_own(p, bytes) ? CUDA_SUCCESS
						     : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult container_bytes(const void *p, size_t *ret)
{
	uint64_t bytes;

	if (!p || ptx_fatbin_bytes(p, &bytes) < 0 || bytes > SOFT_MAX_PTX_BYTES) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	*ret = (size_t)bytes;
	return CUDA_SUCCESS;
}

/* Concatenates a list of linked containers, each aligned to 8 bytes. */
static CUresult open_list(struct soft_image *ret, const void *const *list)
{
	size_t total = 0, bytes, at = 0;
	unsigned n = 0;

	for (; list[n]; n++) {
		if (n == PARTS_MAX || container_bytes(list[n], &bytes) ||
		    total + bytes > SOFT_MAX_PTX_BYTES) {
			return CUDA_ERROR_INVALID_IMAGE;
		}
		total += ROUND_UP(bytes, (size_t)8);
	}
	ret->owned = calloc(1, MAX(total, (size_t)1));
	if (!ret->owned) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (unsigned i = 0; i < n; i++) {
		if (container_bytes(list[i], &bytes) || bytes > total - at) {
			soft_image_close(ret);
			return CUDA_ERROR_INVALID_IMAGE;
		}
		memcpy((uint8_t *)ret->owned + at, list[i], bytes);
		at += ROUND_UP(bytes, (size_t)8);
	}
	ret->data = ret->owned;
	ret->bytes = total;
	return CUDA_SUCCESS;
}

static CUresult open_wrapper(struct soft_image *ret, const void *p)
{
	const struct ptx_fatbin_wrapper *w = p;

	if (w->version == 2 && w->more && *(const void *const *)w->more) {
		return open_list(ret, w->more);
	}
	ret->data = w->data;
	return container_bytes(w->data, &ret->bytes);
}

CUresult soft_image_open(struct soft_image *ret, const void *p)
{
	uint32_t magic;

	*ret = (struct soft_image){ .data = p };
	if (!p) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (strnlen(p, sizeof(magic)) < sizeof(magic)) { /* a short text may end here */
		return CUDA_ERROR_INVALID_IMAGE;
	}
	memcpy(&magic, p, sizeof(magic));
	switch (magic) {
	case MAGIC_ELF:
		ret->bytes = soft_code_is_cubin(p) ? soft_code_bytes(p) : 0;
		return check_elf(p, ret->bytes);
	case PTX_FATBIN_MAGIC:
		return container_bytes(p, &ret->bytes);
	case PTX_FATBIN_WRAPPER_MAGIC:
		return open_wrapper(ret, p);
	default:
		ret->bytes = strnlen(p, SOFT_MAX_PTX_BYTES + 1u);
		return ret->bytes > SOFT_MAX_PTX_BYTES ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
	}
}

static CUresult check_bytes(const struct soft_image *i)
{
	uint32_t magic = 0;

	memcpy(&magic, i->data, MIN(i->bytes, sizeof(magic)));
	if (i->bytes < sizeof(magic) || magic == PTX_FATBIN_WRAPPER_MAGIC) {
		return CUDA_ERROR_INVALID_IMAGE;
	}
	if (magic == MAGIC_ELF && i->bytes >= SOFT_CODE_HEAD_BYTES) {
		return check_elf(i->data, i->bytes);
	}
	return magic == MAGIC_ELF || i->bytes > SOFT_MAX_PTX_BYTES ? CUDA_ERROR_INVALID_IMAGE
								   : CUDA_SUCCESS;
}

CUresult soft_image_read(struct soft_image *ret, const char *path)
{
	struct buf b;
	int err;
	CUresult e;

	*ret = (struct soft_image){ 0 };
	if (!path) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	buf_init(&b);
	err = buf_read_file(&b, path, SOFT_CODE_BYTES_MAX);
	ret->bytes = b.len;
	ret->data = ret->owned = buf_steal(&b);
	buf_finish(&b);
	if (err) {
		e = err == -ENOMEM  ? CUDA_ERROR_OUT_OF_MEMORY
		    : err == -EFBIG ? CUDA_ERROR_INVALID_IMAGE
				    : CUDA_ERROR_FILE_NOT_FOUND;
	} else {
		e = ret->data ? check_bytes(ret) : CUDA_ERROR_INVALID_IMAGE;
	}
	if (e) {
		soft_image_close(ret);
	}
	return e;
}

void soft_image_close(struct soft_image *i)
{
	free(i->owned);
	soft_registers_unref(i->registers);
	*i = (struct soft_image){ 0 };
}

/* Sizes are passed in the low half of a pointer. */
static size_t size_of(const void *value)
{
	return (size_t)(uint32_t)(uintptr_t)value;
}

CUresult soft_jit_read(struct soft_jit *j, unsigned n, const CUjit_option *options, void **values)
{
	*j = (struct soft_jit){ .start_ns = clock_now_ns() };
	if (n && (!options || !values)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (unsigned i = 0; i < n; i++) {
		switch ((int)options[i]) {
		case CU_JIT_ERROR_LOG_BUFFER:
			j->error = values[i];
			break;
		case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
			j->error_bytes = size_of(values[i]);
			j->error_used = &values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER:
			j->info = values[i];
			break;
		case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
			j->info_bytes = size_of(values[i]);
			j->info_used = &values[i];
			break;
		case CU_JIT_TARGET: /* bits from 0x10000 on mark variants such as sm_90a */
			j->target = (unsigned)size_of(values[i]) & 0xffffu;
			break;
		case CU_JIT_LOG_VERBOSE:
			j->verbose = size_of(values[i]) != 0;
			break;
		case CU_JIT_WALL_TIME:
			j->wall_time = &values[i];
			break;
		default:
			break;
		}
	}
	if (j->error && j->error_bytes) {
		j->error[0] = 0;
	}
	if (j->info && j->info_bytes) {
		j->info[0] = 0;
	}
	return CUDA_SUCCESS;
}

static void append(char *out, size_t cap, size_t *len, const char *text)
{
	int n;

	if (!out || *len + 1 >= cap || !*text) {
		return;
	}
	n = snprintf(out + *len, cap - *len, "%s%s", *len ? "\n" : "", text);
	*len = MIN(*len + (size_t)MAX(n, 0), cap - 1);
}

/* Without a buffer, as in most programs, the text goes to GBPF_SOFT_LOG. */
void soft_jit_error(struct soft_jit *j, const char *text)
{
	if (!j || !j->error || !j->error_bytes) {
		soft_log(text);
	} else {
		append(j->error, j->error_bytes, &j->error_len, text);
	}
}

void soft_jit_info(struct soft_jit *j, const char *text)
{
	if (j) {
		append(j->info, j->info_bytes, &j->info_len, text);
	}
}

void soft_jit_finish(struct soft_jit *j)
{
	float ms = (float)(clock_now_ns() - j->start_ns) / 1e6f;
	uint32_t bits;

	if (j->error_used && j->error) {
		*j->error_used = (void *)(uintptr_t)j->error_len;
	}
	if (j->info_used && j->info) {
		*j->info_used = (void *)(uintptr_t)j->info_len;
	}
	if (j->wall_time) {
		memcpy(&bits, &ms, sizeof(bits));
		*j->wall_time = (void *)(uintptr_t)bits;
	}
}
