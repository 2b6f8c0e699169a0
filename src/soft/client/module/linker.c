/* Linking: merges the PTX of several inputs into one text. The result is machine code of the soft
 * GPU, which contains that text; it is compiled on loading, as any PTX. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/fatbin.h"
#include "ptx/image.h"
#include "ptx/merge.h"
#include "soft/client/module/module_image.h"
#include "soft/client/process.h"
#include "soft/client/strict.h"
#include "soft/code/code.h"

struct CUlinkState_st {
	struct soft_object object;
	struct soft_jit jit;
	struct report report;
	struct ptx_merge merge;
	struct ptx_image_text first; /* text of the first input, to whose lines messages refer if it
					is the only one */
	struct buf out;		     /* the machine code */
	CUresult failed;	     /* result of the first input that was refused */
	unsigned inputs;
	bool complete;
};

static CUresult check(CUlinkState s)
{
	CUcontext ctx;
	CUresult e = soft_context_current(&ctx);

	return e				       ? e
	       : soft_handle_is(s, SOFT_OBJECT_LINKER) ? CUDA_SUCCESS
						       : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult create(unsigned n, CUjit_option *options, void **values, CUlinkState *ret)
{
	CUcontext ctx;
	struct soft_jit j;
	CUlinkState s;
	CUresult e = soft_context_current(&ctx);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_jit_read(&j, n, options, values);
	if (e) {
		return e;
	}
	lock_take(&soft.lock);
	s = soft_object_create(SOFT_OBJECT_LINKER, sizeof(*s));
	lock_release(&soft.lock);
	if (!s) {
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	s->jit = j;
	report_init(&s->report);
	ptx_merge_init(&s->merge, &s->report);
	buf_init(&s->out);
	*ret = s;
	return CUDA_SUCCESS;
}

/* Writes a reason to the log; the link cannot be completed any more. */
static CUresult refuse(CUlinkState s, CUresult e, const char *text)
{
	struct buf line;

	buf_init(&line);
	if (text) {
		buf_puts(&line, text);
	} else {
		report_text(&s->report, &line);
	}
	soft_jit_error(&s->jit, buf_text(&line));
	soft_jit_finish(&s->jit);
	buf_finish(&line);
	s->failed = s->failed ? s->failed : e;
	return e;
}

static CUresult result_of(int err)
{
	switch (err) {
	case 0:
		return CUDA_SUCCESS;
	case -ENOMEM:
		return CUDA_ERROR_OUT_OF_MEMORY;
	case -ENOENT:
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	case -EEXIST: /* result of NVIDIA's linker for a name that is defined twice */
		return CUDA_ERROR_INVALID_SOURCE;
	case -EOPNOTSUPP:
		return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
	case -EFBIG:
		return CUDA_ERROR_INVALID_IMAGE;
	default:
		return CUDA_ERROR_INVALID_PTX;
	}
}

static CUresult add_image(CUlinkState s, const struct soft_image *i, const char *name)
{
	struct ptx_device device = { SOFT_ARCH, PTX_RULE_SOFT, s->jit.target };
	struct ptx_image_text text;
	int err = ptx_image_open(&text, i->data, i->bytes, device, SOFT_MAX_PTX_BYTES, name,
				 &s->report);

	if (err == 0) {
		err = ptx_merge_add(&s->merge, text.text, text.bytes, name);
		if (err == 0 && s->inputs++ == 0) {
			s->first = text;
			text = (struct ptx_image_text){ 0 };
		}
		ptx_image_close(&text);
	}
	return err ? refuse(s, result_of(err), NULL) : CUDA_SUCCESS;
}

/* Refuses inputs of unsupported kinds; returns CUDA_SUCCESS for PTX and fatbinaries. */
static CUresult check_type(CUlinkState s, CUjitInputType type, const char *name)
{
	char line[256];

	if (type == CU_JIT_INPUT_PTX || type == CU_JIT_INPUT_FATBINARY) {
		return CUDA_SUCCESS;
	}
	if ((unsigned)type > CU_JIT_INPUT_NVVM) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	snprintf(line, sizeof(line),
		 "%s: %s cannot be linked here, only PTX and fat binaries with PTX can", name,
		 type == CU_JIT_INPUT_CUBIN    ? "a cubin (machine code)"
		 : type == CU_JIT_INPUT_OBJECT ? "a host object"
		 : type == CU_JIT_INPUT_NVVM   ? "NVVM code"
					       : "a library of host objects");
	return refuse(s,
		      type == CU_JIT_INPUT_CUBIN ? CUDA_ERROR_NO_BINARY_FOR_GPU
						 : CUDA_ERROR_NOT_SUPPORTED,
		      line);
}

static CUresult begin_input(CUlinkState s, CUjitInputType type, const char *name, unsigned n,
			    CUjit_option *options, void **values)
{
	struct soft_jit unused; /* per-input options concern only code generation */
	CUresult e = check(s);

	e = e ? e : soft_jit_read(&unused, n, options, values);
	e = e ? e : s->complete ? CUDA_ERROR_INVALID_HANDLE : s->failed;
	return e ? e : check_type(s, type, name);
}

static CUresult add_data(CUlinkState s, CUjitInputType type, void *data, size_t bytes,
			 const char *name, unsigned n, CUjit_option *options, void **values)
{
	struct soft_image i = { .data = data, .bytes = bytes };
	char number[32] = "input";
	uint32_t magic;
	CUresult e;

	if (soft_object_is(s, SOFT_OBJECT_LINKER)) {
		snprintf(number, sizeof(number), "input %u", s->inputs + 1);
	}
	name = name && *name ? name : number;
	e = begin_input(s, type, name, n, options, values);
	if (e) {
		return e;
	}
	if (!data || bytes < sizeof(magic)) {
		return CUDA_ERROR_INVALID_VALUE;
	}
	memcpy(&magic, data, sizeof(magic));
	if (magic == PTX_FATBIN_WRAPPER_MAGIC) {
		e = soft_image_open(&i, data);
	} else if (bytes > SOFT_MAX_PTX_BYTES) {
		e = CUDA_ERROR_INVALID_IMAGE;
	}
	e = e ? refuse(s, e, "the fat binary's header is broken, or it is too large")
	      : add_image(s, &i, name);
	soft_image_close(&i);
	return e;
}

static CUresult add_file(CUlinkState s, CUjitInputType type, const char *path, unsigned n,
			 CUjit_option *options, void **values)
{
	const char *leaf = path ? strrchr(path, '/') : NULL;
	const char *name = leaf ? leaf + 1 : path;
	struct soft_image i;
	CUresult e = begin_input(s, type, path ? name : "input", n, options, values);

	if (e || !path) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = soft_image_read(&i, path);
	if (!e) {
		e = add_image(s, &i, name);
	} else if (e != CUDA_ERROR_FILE_NOT_FOUND) {
		e = refuse(s, e, "the file holds neither PTX nor a fat binary with PTX");
	}
	soft_image_close(&i);
	return e;
}

CUresult cuLinkCreate(unsigned int n, CUjit_option *options, void **values, CUlinkState *ret)
{
	return create(n, options, values, ret);
}

CUresult cuLinkCreate_v2(unsigned int n, CUjit_option *options, void **values, CUlinkState *ret)
{
	return create(n, options, values, ret);
}

CUresult cuLinkAddData(CUlinkState s, CUjitInputType type, void *data, size_t bytes,
		       const char *name, unsigned int n, CUjit_option *options, void **values)
{
	return add_data(s, type, data, bytes, name, n, options, values);
}

CUresult cuLinkAddData_v2(CUlinkState s, CUjitInputType type, void *data, size_t bytes,
			  const char *name, unsigned int n, CUjit_option *options, void **values)
{
	return add_data(s, type, data, bytes, name, n, options, values);
}

CUresult cuLinkAddFile(CUlinkState s, CUjitInputType type, const char *path, unsigned int n,
		       CUjit_option *options, void **values)
{
	return add_file(s, type, path, n, options, values);
}

CUresult cuLinkAddFile_v2(CUlinkState s, CUjitInputType type, const char *path, unsigned int n,
			  CUjit_option *options, void **values)
{
	return add_file(s, type, path, n, options, values);
}

/* Completes the link. A single input is checked too, but its text, and so its line numbers, remain.
 */
static CUresult complete(CUlinkState s)
{
	struct buf text;
	int err;

	buf_init(&text);
	err = s->inputs ? ptx_merge_finish(&s->merge, &text) : -EINVAL;
	if (err == 0 && s->inputs == 1) {
		buf_clear(&text);
		err = buf_add(&text, s->first.text, s->first.bytes);
	}
	if (err == 0 && text.len >= SOFT_MAX_PTX_BYTES) {
		err = report_set(&s->report, -EFBIG, "link", "the linked PTX is too long");
	}
	err = err ? err
		  : soft_code_assemble(&s->out, buf_text(&text), text.len, "linked", &s->report);
	buf_finish(&text);
	if (err) {
		return refuse(s, err == -ENOENT ? CUDA_ERROR_UNKNOWN : result_of(err), NULL);
	}
	s->complete = true;
	return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState s, void **ret, size_t *ret_bytes)
{
	CUresult e = check(s);

	if (e || !ret) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	e = s->failed ? s->failed : s->complete ? CUDA_SUCCESS : complete(s);
	if (e) {
		return e;
	}
	*ret = s->out.data;
	if (ret_bytes) {
		*ret_bytes = s->out.len;
	}
	soft_jit_finish(&s->jit);
	return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState s)
{
	CUresult e = soft_check();

	if (e || !soft_handle_is(s, SOFT_OBJECT_LINKER)) {
		return e ? e : CUDA_ERROR_INVALID_HANDLE;
	}
	ptx_merge_free(&s->merge);
	ptx_image_close(&s->first);
	buf_finish(&s->out);
	report_finish(&s->report);
	lock_take(&soft.lock);
	soft_object_destroy(s);
	lock_release(&soft.lock);
	return CUDA_SUCCESS;
}
