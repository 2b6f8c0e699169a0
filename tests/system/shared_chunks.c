/* shared_chunks serve: shares memory of cuMemAlloc with other processes by cuIpcGetMemHandle, for
 * shared_chunks.bats. It knows nothing of gBPF. Carries out commands of its standard input, one a
 * line, each with a line as its answer: "ok", an error's name, or a text. The first line of the
 * output is the process's number.
 *
 *   alloc BYTES     allocates, and writes words that depend on the process
 *   grow BYTES      allocates what nothing else uses
 *   share OFFSET    stores the handle of the allocation that this address of it is in
 *   free            frees the allocation
 *   open            opens the handle that is stored, and compares it with what is open
 *   forget          does not compare the next one
 *   keep            forgets, but keeps the address for close-kept
 *   close-kept
 *   open-elsewhere  opens it in another context, in which it has another address
 *   end-elsewhere   destroys that context
 *   close
 *   read            which process has written what is open
 *   write           writes words of its own to it
 *   read-own        as read, of the allocation
 *   answers         checks what the driver says about what is open
 *   capable         whether the driver says that the allocation can be shared
 *   work            begins a kernel that waits, which finish ends
 *   finish
 *   capture         begins to capture, which end-capture ends
 *   end-capture
 *   forge KIND      changes the handle that is stored: magic, key, device, zeros, process (there
 *                   is none with that id), own (of the process that changes it), between and
 *                   behind (an offset where no allocation in a pack begins, or behind the pack)
 *   used            what the virtual GPU has in use, in MiB */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemGetAddressRange cuMemGetAddressRange_v2

static CUdevice device;
static CUcontext context, second;
static CUdeviceptr own, opened, elsewhere, kept;
static size_t own_bytes, opened_bytes;
static CUstream capturing;
static unsigned *flag; /* in memory of the host: the kernel ends when it is set */

static const char waiting[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
			      ".visible .entry await(.param .u64 at)\n"
			      "{\n"
			      ".reg .pred %p;\n"
			      ".reg .b32 %v;\n"
			      ".reg .b64 %a;\n"
			      "ld.param.u64 %a, [at];\n"
			      "again:\n"
			      "ld.volatile.global.u32 %v, [%a];\n"
			      "setp.eq.u32 %p, %v, 0;\n"
			      "@%p bra again;\n"
			      "ret;\n"
			      "}\n";

/* What one process stores for the others: a handle, and the size of the memory. */
struct stored {
	CUipcMemHandle handle;
	size_t bytes;
};

static void store(struct stored *s, const char *mode)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof(path), "%s/shared", getenv("GBPF_RUNTIME_DIR"));
	f = fopen(path, mode);
	CHECK(f, "%s", path);
	CHECK((mode[0] == 'r' ? fread(s, sizeof(*s), 1, f) : fwrite(s, sizeof(*s), 1, f)) == 1,
	      "%s", path);
	fclose(f);
}

/* Sets return before they are made. */
static CUresult fill(CUdeviceptr at, size_t bytes)
{
	CUresult r = cuMemsetD32(at, (unsigned)getpid(), bytes / sizeof(unsigned));

	return r != CUDA_SUCCESS ? r : cuCtxSynchronize();
}

static CUresult allocate(size_t bytes)
{
	CUresult r = cuMemAlloc(&own, bytes);

	own_bytes = bytes;
	return r != CUDA_SUCCESS ? r : fill(own, bytes);
}

static CUresult share(size_t offset)
{
	struct stored s = { .bytes = own_bytes };
	CUresult r = cuIpcGetMemHandle(&s.handle, own + offset);

	if (r == CUDA_SUCCESS) {
		store(&s, "w");
	}
	return r;
}

static CUresult open_stored(CUdeviceptr *ret)
{
	CUdeviceptr at = 0;
	struct stored s;
	CUresult r;

	store(&s, "r");
	r = cuIpcOpenMemHandle_v2(&at, s.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	if (r == CUDA_SUCCESS) {
		CHECK(!*ret || *ret == at, "opened at two addresses");
		*ret = at;
		opened_bytes = s.bytes;
	}
	return r;
}

static CUresult open_elsewhere(void)
{
	CUcontext before;
	CUresult r;

	if (!second) {
		CU(cuCtxCreate(&second, 0, device));
	} else {
		CU(cuCtxPushCurrent_v2(second));
	}
	r = open_stored(&elsewhere);
	CU(cuCtxPopCurrent_v2(&before));
	CHECK(r != CUDA_SUCCESS || elsewhere != opened, "one address in two contexts");
	return r;
}

/* Copies all of an allocation from it, or to it if words is not NULL. Returns the number of words;
 * 0: there is no such memory. */
static size_t copy_all(CUdeviceptr at, unsigned **words)
{
	size_t bytes = at == own ? own_bytes : opened_bytes, of_all;
	CUdeviceptr base;

	if (cuMemGetAddressRange(&base, &of_all, at) != CUDA_SUCCESS) {
		return 0;
	}
	CHECK(bytes <= of_all - (at - base), "%zu bytes in %zu", bytes, of_all);
	if (*words) {
		CU(cuMemcpyHtoD(at, *words, bytes));
	} else {
		*words = malloc(bytes);
		CHECK(*words, "no memory");
		CU(cuMemcpyDtoH(*words, at, bytes));
	}
	return bytes / sizeof(unsigned);
}

/* Names the process whose words are in memory, all of them. */
static const char *read_words(CUdeviceptr at, char *out)
{
	unsigned *words = NULL;
	size_t n = copy_all(at, &words), i = 1;

	while (i < n && words[i] == words[0]) {
		i++;
	}
	if (!n) {
		return "no memory";
	}
	if (i < n) {
		snprintf(out, 64, "%u, then %u", words[0], words[i]);
	} else {
		snprintf(out, 64, "%u", words[0]);
	}
	free(words);
	return out;
}

/* Writes by one long copy of pageable memory. */
static CUresult write_words(void)
{
	unsigned *words = NULL;
	size_t n = copy_all(opened, &words);

	for (size_t i = 0; i < n; i++) {
		words[i] = (unsigned)getpid();
	}
	(void)copy_all(opened, &words);
	free(words);
	return cuCtxSynchronize();
}

static int number(CUpointer_attribute what, CUdeviceptr at)
{
	int n = -1;

	CU(cuPointerGetAttribute(&n, what, at));
	return n;
}

/* As of any memory that was opened by a handle. */
static const char *answers(void)
{
	CUdeviceptr base, inside = opened + own_bytes / 2, start = 0;
	CUpointer_attribute many[] = { CU_POINTER_ATTRIBUTE_CONTEXT,
				       CU_POINTER_ATTRIBUTE_RANGE_START_ADDR };
	CUcontext ctx = NULL;
	void *to[] = { &ctx, &start };
	CUipcMemHandle h;
	struct stored s;
	size_t bytes;

	store(&s, "r");
	CU(cuMemGetAddressRange(&base, &bytes, inside));
	CHECK(base == opened && bytes == s.bytes, "%llu of %zu bytes", base, bytes);
	CHECK(number(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE, "a type");
	CHECK(number(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == 0, "a device");
	CHECK(number(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside) == 0, "it can be");
	CU(cuPointerGetAttributes(2, many, to, inside));
	CHECK(ctx == context && start == opened, "context %p", (void *)ctx);
	CHECK(cuIpcGetMemHandle(&h, inside) == CUDA_ERROR_INVALID_VALUE, "shared again");
	CHECK(cuMemFree(opened) == CUDA_ERROR_INVALID_VALUE, "freed");
	CHECK(cuIpcCloseMemHandle(opened + MIB) == CUDA_ERROR_INVALID_VALUE, "closed inside");
	CHECK(cuIpcOpenMemHandle_v2(&base, s.handle, 6) == CUDA_ERROR_INVALID_VALUE, "flags");
	CHECK(cuIpcOpenMemHandle_v2(NULL, s.handle, 1) == CUDA_ERROR_INVALID_VALUE, "nowhere");
	return "ok";
}

static CUresult work(void)
{
	CUdeviceptr at;
	void *params[] = { &at };
	CUfunction f;
	CUmodule m;
	CUstream s;

	CU(cuMemHostAlloc((void **)&flag, sizeof(*flag), CU_MEMHOSTALLOC_DEVICEMAP));
	*flag = 0;
	CU(cuMemHostGetDevicePointer_v2(&at, flag, 0));
	CU(cuModuleLoadData(&m, waiting));
	CU(cuModuleGetFunction(&f, m, "await"));
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	return cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, s, params, NULL);
}

static CUresult begin_capture(void)
{
	CU(cuStreamCreate(&capturing, CU_STREAM_NON_BLOCKING));
	return cuStreamBeginCapture_v2(capturing, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static CUresult end_capture(void)
{
	CUgraph g;

	CU(cuStreamEndCapture(capturing, &g));
	CU(cuGraphDestroy(g));
	return cuStreamDestroy_v2(capturing);
}

static CUresult finish(void)
{
	__atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
	return cuCtxSynchronize();
}

/* Byte of a handle by what it is part of. */
static CUresult forge(const char *kind)
{
	struct stored s;
	int32_t pid;

	store(&s, "r");
	memcpy(&pid, &s.handle.reserved[24], sizeof(pid));
	if (strcmp(kind, "process") == 0) {
		pid |= 1 << 30; /* greater than any that Linux gives */
	} else if (strcmp(kind, "own") == 0) {
		pid = getpid();
	} else if (strcmp(kind, "between") == 0) {
		s.handle.reserved[44] ^= 4;
	} else if (strcmp(kind, "behind") == 0) {
		s.handle.reserved[46] ^= 32;
	} else {
		s.handle.reserved[strcmp(kind, "magic") == 0	? 3
				  : strcmp(kind, "key") == 0	? 20
				  : strcmp(kind, "device") == 0 ? 30
								: 50] ^= 1;
	}
	memcpy(&s.handle.reserved[24], &pid, sizeof(pid));
	store(&s, "w");
	return CUDA_SUCCESS;
}

static size_t used(void)
{
	size_t available, total;

	CU(cuMemGetInfo(&available, &total));
	return (total - available) / MIB;
}

static const char *answer(const char *verb, const char *word, char *out)
{
	size_t n = strtoull(word, NULL, 0);
	const char *name = "ok";
	CUdeviceptr other;
	CUresult r;

	if (strcmp(verb, "alloc") == 0) {
		r = allocate(n);
	} else if (strcmp(verb, "grow") == 0) {
		r = cuMemAlloc(&other, n);
	} else if (strcmp(verb, "share") == 0) {
		r = share(n);
	} else if (strcmp(verb, "free") == 0) {
		r = cuMemFree(own);
	} else if (strcmp(verb, "open") == 0) {
		r = open_stored(&opened);
	} else if (strcmp(verb, "open-elsewhere") == 0) {
		r = open_elsewhere();
	} else if (strcmp(verb, "end-elsewhere") == 0) {
		r = cuCtxDestroy(second);
	} else if (strcmp(verb, "close") == 0) {
		r = cuIpcCloseMemHandle(opened);
	} else if (strcmp(verb, "forget") == 0 || strcmp(verb, "keep") == 0) {
		kept = verb[0] == 'k' ? opened : kept;
		opened = 0;
		r = CUDA_SUCCESS;
	} else if (strcmp(verb, "close-kept") == 0) {
		r = cuIpcCloseMemHandle(kept);
	} else if (strcmp(verb, "read") == 0) {
		return read_words(opened, out);
	} else if (strcmp(verb, "read-own") == 0) {
		return read_words(own, out);
	} else if (strcmp(verb, "write") == 0) {
		r = write_words();
	} else if (strcmp(verb, "answers") == 0) {
		return answers();
	} else if (strcmp(verb, "capable") == 0) {
		snprintf(out, 64, "%d",
			 number(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, own));
		return out;
	} else if (strcmp(verb, "work") == 0) {
		r = work();
	} else if (strcmp(verb, "finish") == 0) {
		r = finish();
	} else if (strcmp(verb, "capture") == 0) {
		r = begin_capture();
	} else if (strcmp(verb, "end-capture") == 0) {
		r = end_capture();
	} else if (strcmp(verb, "forge") == 0) {
		r = forge(word);
	} else {
		snprintf(out, 64, "%zu", used());
		return out;
	}
	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
	}
	return name;
}

int main(void)
{
	char line[64], verb[32], word[32], text[64];

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuCtxCreate(&context, 0, device));
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		word[0] = 0;
		if (sscanf(line, "%31s %31s", verb, word) < 1) {
			return 2;
		}
		puts(answer(verb, word, text));
		fflush(stdout);
	}
	return 0;
}
