/* nvml serve: a program that carries out commands of its standard input, for nvml.bats: it shows
 * what the libnvidia-ml.so.1 that the dynamic linker finds says of the first GPU, and what CUDA
 * says. One command a line, one line as the answer. The first line of the output is the process's
 * number. CUDA is not initialized before `init`.
 *
 *   init          a context
 *   alloc MIB     cuMemAlloc; tiny: of 1000 bytes; free: frees what was allocated last; drop: frees
 *                 it in stream order, and waits for that without a call that synchronizes
 *   memory        "USED used, FREE free of TOTAL" by NVML, MiB; both versions are equal
 *   agree         "ok" if NVML and CUDA have the same figures
 *   watch         compares NVML and CUDA until nothing is free, while another process allocates
 *   processes     "PID:MIB ..." by all versions of the call, which are equal
 *   rates         "idle" or "busy", by the device's rates
 *   samples       "PID ..." that nvmlDeviceGetProcessUtilization lists
 *   fork          `memory` in a child
 *   errors        results of calls with invalid arguments */
#include <dlfcn.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"
#include "nvml/nvml_types.h"

#define MIB ((size_t)1 << 20)
#define LIST_MAX 64u

#define cuMemGetInfo cuMemGetInfo_v2
#define cuDeviceTotalMem cuDeviceTotalMem_v2

static void *library;
static nvmlDevice_t device;

/* A call of the library, by name: NVML(nvmlInit_v2, void)(). */
static void *find(const char *name)
{
	void *f = dlsym(library, name);

	CHECK(f, "%s", name);
	return f;
}
#define NVML(name, ...)                                                                            \
	((union {                                                                                  \
		 void *p;                                                                          \
		 enum nvml_return (*f)(__VA_ARGS__);                                               \
	 }){ .p = find(name) }                                                                     \
		 .f)

static void open_library(void)
{
	enum nvml_return r;

	library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
	CHECK(library, "%s", dlerror());
	r = NVML("nvmlInit_v2", void)();
	CHECK(r == NVML_SUCCESS, "error %d", (int)r);
	r = NVML("nvmlDeviceGetHandleByIndex_v2", unsigned, nvmlDevice_t *)(0, &device);
	CHECK(r == NVML_SUCCESS, "error %d", (int)r);
}

/* ---- memory ---- */

static enum nvml_return memory_v2(struct nvml_memory_v2 *ret)
{
	*ret = (struct nvml_memory_v2){ .version = NVML_VERSION(*ret, 2u) };
	return NVML("nvmlDeviceGetMemoryInfo_v2", nvmlDevice_t, struct nvml_memory_v2 *)(device,
											 ret);
}

static enum nvml_return memory_v1(struct nvml_memory *ret)
{
	return NVML("nvmlDeviceGetMemoryInfo", nvmlDevice_t, struct nvml_memory *)(device, ret);
}

/* Both versions at one moment: the first one's figures are the same before and after the second,
 * for other processes may allocate and end meanwhile. */
static enum nvml_return memory_both(struct nvml_memory *a, struct nvml_memory_v2 *b)
{
	enum nvml_return r, r2;
	struct nvml_memory before;

	do {
		r = memory_v1(&before);
		r2 = memory_v2(b);
		CHECK(r == r2, "%d and %d", (int)r, (int)r2);
		if (r)
			return r;
		r = memory_v1(a);
		CHECK(!r, "%d", (int)r);
	} while (before.used != a->used);
	return NVML_SUCCESS;
}

static const char *memory(char *out, size_t room)
{
	struct nvml_memory_v2 b;
	struct nvml_memory a;
	enum nvml_return r = memory_both(&a, &b);

	if (r) {
		snprintf(out, room, "error %d", (int)r);
		return out;
	}
	CHECK(a.total == b.total && a.free == b.free && a.used == b.used && !b.reserved,
	      "total %llu and %llu, free %llu and %llu, used %llu and %llu, reserved %llu", a.total,
	      b.total, a.free, b.free, a.used, b.used, b.reserved);
	snprintf(out, room, "%llu used, %llu free of %llu", a.used / MIB, a.free / MIB,
		 a.total / MIB);
	return out;
}

/* While no other process allocates. */
static const char *agree(void)
{
	struct nvml_memory_v2 b;
	struct nvml_memory a;
	size_t available, total, of_device;

	CHECK(!memory_v1(&a) && !memory_v2(&b), "NVML");
	CU(cuMemGetInfo(&available, &total));
	CU(cuDeviceTotalMem(&of_device, 0));
	CHECK(a.total == total && b.total == total && of_device == total, "%llu, %llu, %zu, %zu",
	      a.total, b.total, total, of_device);
	CHECK(a.free == available && b.free == available, "%llu, %llu, %zu", a.free, b.free,
	      available);
	return "ok";
}

/* Another process allocates and frees nothing, so what is free only decreases: NVML's figure lies
 * between CUDA's before and after it. */
static const char *watch(void)
{
	size_t before, after, total;
	struct nvml_memory_v2 b;
	struct nvml_memory a;

	do {
		CU(cuMemGetInfo(&before, &total));
		CHECK(!memory_v1(&a) && !memory_v2(&b), "NVML");
		CU(cuMemGetInfo(&after, &total));
		CHECK(before >= a.free && a.free >= b.free && b.free >= after,
		      "%zu, %llu, %llu, %zu", before, a.free, b.free, after);
		CHECK(a.total == total && b.total == total, "%llu, %llu, %zu", a.total, b.total,
		      total);
		CHECK(a.used <= b.used && b.used <= total - after, "%llu, %llu, %zu", a.used,
		      b.used, total - after);
	} while (after);
	return "ok";
}

/* ---- processes ---- */

static int compare(const void *a, const void *b)
{
	const struct nvml_process *x = a, *y = b;

	return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Fetches by the second or third version. Returns the number of processes. */
static unsigned list(const char *name, struct nvml_process *out)
{
	enum nvml_return (*call)(nvmlDevice_t, unsigned *, struct nvml_process *) =
		NVML(name, nvmlDevice_t, unsigned *, struct nvml_process *);
	unsigned n = 0, more = LIST_MAX;
	enum nvml_return r = call(device, &n, NULL);

	CHECK(r == (n ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS), "error %d of %u", (int)r, n);
	if (n > 1) {
		unsigned less = n - 1;

		CHECK(call(device, &less, out) == NVML_ERROR_INSUFFICIENT_SIZE && less == n,
		      "%u of %u", less, n);
	}
	r = call(device, &more, out);
	CHECK(r == NVML_SUCCESS && more == n, "error %d, %u of %u", (int)r, more, n);
	qsort(out, n, sizeof(*out), compare);
	return n;
}

static void compare_v1(const struct nvml_process *as, unsigned n)
{
	struct nvml_process_v1 out[LIST_MAX];
	unsigned have = LIST_MAX;
	enum nvml_return r = NVML("nvmlDeviceGetComputeRunningProcesses", nvmlDevice_t, unsigned *,
				  struct nvml_process_v1 *)(device, &have, out);

	CHECK(r == NVML_SUCCESS && have == n, "error %d, %u of %u", (int)r, have, n);
	for (unsigned i = 0; i < n; i++) {
		unsigned k = 0;

		while (k < n && out[k].pid != as[i].pid) {
			k++;
		}
		CHECK(k < n && out[k].used == as[i].used, "process %u", as[i].pid);
	}
}

static const char *processes(char *out, size_t room)
{
	struct nvml_process third[LIST_MAX], second[LIST_MAX];
	unsigned n = list("nvmlDeviceGetComputeRunningProcesses_v3", third);
	size_t at = 0;

	CHECK(list("nvmlDeviceGetComputeRunningProcesses_v2", second) == n, "%u", n);
	compare_v1(third, n);
	out[0] = 0;
	for (unsigned i = 0; i < n && at < room; i++) {
		CHECK(second[i].pid == third[i].pid && second[i].used == third[i].used &&
			      third[i].gpu_instance == UINT32_MAX,
		      "process %u", third[i].pid);
		at += (size_t)snprintf(out + at, room - at, "%s%u:%llu", i ? " " : "", third[i].pid,
				       third[i].used / MIB);
	}
	return out;
}

/* ---- utilization ---- */

static const char *rates(char *out, size_t room)
{
	struct nvml_utilization u;
	enum nvml_return r = NVML("nvmlDeviceGetUtilizationRates", nvmlDevice_t,
				  struct nvml_utilization *)(device, &u);

	if (r) {
		snprintf(out, room, "error %d", (int)r);
		return out;
	}
	CHECK(u.gpu <= 100 && u.memory <= 100, "%u, %u", u.gpu, u.memory);
	return u.gpu ? "busy" : "idle";
}

static const char *samples(char *out, size_t room)
{
	struct nvml_process_sample s[LIST_MAX];
	unsigned n = LIST_MAX, needed = 0;
	size_t at = 0;
	enum nvml_return (*call)(nvmlDevice_t, struct nvml_process_sample *, unsigned *,
				 unsigned long long) =
		NVML("nvmlDeviceGetProcessUtilization", nvmlDevice_t, struct nvml_process_sample *,
		     unsigned *, unsigned long long);
	enum nvml_return r = call(device, s, &n, 0);

	if (r) {
		snprintf(out, room, "error %d", (int)r);
		return out;
	}
	r = call(device, NULL, &needed, 0);
	CHECK(r == NVML_ERROR_INSUFFICIENT_SIZE && needed == n, "error %d, %u of %u", (int)r,
	      needed, n);
	out[0] = 0;
	for (unsigned i = 0; i < n && at < room; i++) {
		at += (size_t)snprintf(out + at, room - at, "%s%u", i ? " " : "", s[i].pid);
	}
	return out;
}

/* ---- others ---- */

static const char *in_child(char *out, size_t room)
{
	int p[2], status;
	ssize_t n;
	pid_t child;

	CHECK(pipe(p) == 0, "pipe");
	child = fork();
	if (child == 0) {
		char text[128];

		memory(text, sizeof(text));
		_exit(write(p[1], text, strlen(text)) < 0);
	}
	close(p[1]);
	n = read(p[0], out, room - 1);
	out[n < 0 ? 0 : n] = 0;
	CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
	close(p[0]);
	return out;
}

/* Invalid arguments, which the driver's library refuses in its way. */
static const char *errors(void)
{
	struct nvml_memory_v2 m = { .version = 1 };
	unsigned n = 1;

	CHECK(NVML("nvmlDeviceGetMemoryInfo", nvmlDevice_t, void *)(device, NULL) ==
		      NVML_ERROR_INVALID_ARGUMENT,
	      "no result");
	CHECK(NVML("nvmlDeviceGetMemoryInfo_v2", nvmlDevice_t, void *)(device, &m) ==
		      NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
	      "version");
	CHECK(NVML("nvmlDeviceGetMemoryInfo", nvmlDevice_t,
		   void *)((nvmlDevice_t)(uintptr_t)8, &m) == NVML_ERROR_INVALID_ARGUMENT,
	      "device");
	CHECK(NVML("nvmlDeviceGetComputeRunningProcesses_v3", nvmlDevice_t, void *,
		   void *)(device, &n, NULL) == NVML_ERROR_INVALID_ARGUMENT,
	      "no list");
	CHECK(NVML("nvmlDeviceGetComputeRunningProcesses_v3", nvmlDevice_t, void *,
		   void *)(device, NULL, NULL) == NVML_ERROR_INVALID_ARGUMENT,
	      "no count");
	CHECK(NVML("nvmlDeviceGetComputeRunningProcesses_v3", nvmlDevice_t, void *,
		   void *)((nvmlDevice_t)(uintptr_t)8, &n, &m) == NVML_ERROR_INVALID_ARGUMENT,
	      "device of a list");
	CHECK(NVML("nvmlDeviceGetProcessUtilization", nvmlDevice_t, void *, void *,
		   unsigned long long)(device, NULL, NULL, 0) == NVML_ERROR_INVALID_ARGUMENT,
	      "no count of samples");
	CHECK(NVML("nvmlDeviceGetMPSComputeRunningProcesses_v3", nvmlDevice_t, void *,
		   void *)(device, &n, &m) == NVML_ERROR_FUNCTION_NOT_FOUND,
	      "the soft GPU has no MPS");
	return "ok";
}

static CUdeviceptr stack[4096];
static size_t depth;

/* Returns once the memory is free. */
static CUresult drop(CUdeviceptr at)
{
	CUresult r = cuMemFreeAsync(at, NULL);

	while (r == CUDA_SUCCESS && (r = cuStreamQuery(NULL)) == CUDA_ERROR_NOT_READY) {
		r = CUDA_SUCCESS;
		sched_yield();
	}
	return r;
}

static const char *cuda(const char *verb, size_t mib)
{
	const char *name = "ok";
	CUresult r = CUDA_SUCCESS;
	CUcontext context;

	if (strcmp(verb, "init") == 0) {
		r = cuInit(0);
		r = r ? r : cuCtxCreate(&context, 0, 0);
	} else if (strcmp(verb, "alloc") == 0 || strcmp(verb, "tiny") == 0) {
		r = cuMemAlloc(&stack[depth], verb[0] == 't' ? 1000 : mib * MIB);
		depth += r == CUDA_SUCCESS;
	} else if (strcmp(verb, "drop") == 0) {
		r = drop(stack[--depth]);
	} else {
		r = cuMemFree(stack[--depth]);
	}
	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
	}
	return name;
}

static const char *answer(const char *verb, size_t mib, char *out, size_t room)
{
	bool takes = strcmp(verb, "alloc") == 0 || strcmp(verb, "tiny") == 0;
	bool frees = strcmp(verb, "free") == 0 || strcmp(verb, "drop") == 0;

	if (strcmp(verb, "init") == 0 || (takes && depth < 4096) || (frees && depth)) {
		return cuda(verb, mib);
	}
	return strcmp(verb, "memory") == 0	? memory(out, room)
	       : strcmp(verb, "agree") == 0	? agree()
	       : strcmp(verb, "watch") == 0	? watch()
	       : strcmp(verb, "processes") == 0 ? processes(out, room)
	       : strcmp(verb, "rates") == 0	? rates(out, room)
	       : strcmp(verb, "samples") == 0	? samples(out, room)
	       : strcmp(verb, "fork") == 0	? in_child(out, room)
	       : strcmp(verb, "errors") == 0	? errors()
						: "unknown command";
}

int main(int argc, char **argv)
{
	char line[64], verb[32], text[1024];

	if (argc != 2 || strcmp(argv[1], "serve") != 0) {
		fprintf(stderr, "usage: %s serve\n", argv[0]);
		return 2;
	}
	open_library();
	printf("%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		size_t mib = 0;

		if (sscanf(line, "%31s %zu", verb, &mib) < 1) {
			return 2;
		}
		puts(answer(verb, mib, text, sizeof(text)));
		fflush(stdout);
	}
	return 0;
}
