/* The compiler of the benches' machine code: the driver's own linker, in a process without gBPF, so
 * that no CUDA SDK is needed and the code is what a program built for this device contains. */
#include "bench/client/load_client.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

struct linker {
	CUresult (*create)(unsigned, CUjit_option *, void **, CUlinkState *);
	CUresult (*add)(CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned,
			CUjit_option *, void **);
	CUresult (*complete)(CUlinkState, void **, size_t *);
	CUresult (*destroy)(CUlinkState);
};

static void find_linker(struct bench_client *c, struct linker *ret)
{
	const struct {
		const char *name;
		void *slot;
	} calls[] = { { "cuLinkCreate_v2", &ret->create },
		      { "cuLinkAddData_v2", &ret->add },
		      { "cuLinkComplete", &ret->complete },
		      { "cuLinkDestroy", &ret->destroy } };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		void *p = dlsym(c->lib, calls[i].name);

		if (!p) {
			c->page->unavailable = 1;
			bench_client_fail("the driver library lacks %s", calls[i].name);
		}
		memcpy(calls[i].slot, &p, sizeof(p));
	}
}

static void write_image(const char *path, const void *image, size_t bytes)
{
	FILE *f = fopen(path, "wbe");
	bool whole = f && fwrite(image, 1, bytes, f) == bytes;

	if ((f && fclose(f) != 0) || !whole) {
		bench_client_fail("%.150s: cannot write the machine code", path);
	}
}

void bench_client_compile(struct bench_client *c)
{
	size_t ptx_bytes = strlen(ptx_bench_kernels) + 1, bytes = 0;
	struct linker l = { .create = NULL };
	CUlinkState state;
	void *image = NULL;

	find_linker(c, &l);
	bench_client_check(l.create(0, NULL, NULL, &state), "cuLinkCreate");
	bench_client_check(l.add(state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx_bench_kernels,
				 ptx_bytes, "bench_kernels", 0, NULL, NULL),
			   "cuLinkAddData");
	bench_client_check(l.complete(state, &image, &bytes), "cuLinkComplete");
	if (bytes < sizeof(Elf64_Ehdr) || memcmp(image, ELFMAG, SELFMAG) != 0) {
		c->page->unavailable = 1;
		bench_client_fail("the driver's linker returns no machine code");
	}
	write_image(c->image, image, bytes);
	bench_client_check(l.destroy(state), "cuLinkDestroy");
	bench_client_ready(c);
	(void)bench_client_next(c);
}
