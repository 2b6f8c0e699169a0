/* Functions that the programs share. */
#include "program.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void program_cu(CUresult r, const char *call, int line)
{
	const char *name = "an unknown error";

	if (r == CUDA_SUCCESS) {
		return;
	}
	cuGetErrorName(r, &name);
	fprintf(stderr, "line %d: %s: %s\n", line, call, name);
	fflush(NULL);
	_exit(EXIT_FAILURE); /* other threads may be in the driver, which its exit handlers shut
				down */
}

void program_open(struct program *p, const char *name, int argc, char **argv)
{
	*p = (struct program){ .name = name, .argc = argc, .argv = argv };
	if (argc < 2) {
		fprintf(stderr, "usage: %s IMAGE...\n", argv[0]);
		exit(2);
	}
	CU(cuInit(0));
	CU(cuDeviceGet(&p->device, 0));
	CU(cuCtxCreate(&p->context, 0, p->device));
	CU(cuModuleLoad(&p->module, argv[1]));
	if (getenv("PROGRAM_SETTLE")) {
		CUdeviceptr word = program_zeros(4);

		program_settle(word);
		CU(cuMemFree(word));
	}
}

int program_close(struct program *p)
{
	CU(cuModuleUnload(p->module));
	CU(cuCtxDestroy(p->context));
	printf("%s: %s%s\n", p->name, p->wrong ? "WRONG" : "ok", p->line);
	return p->wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

CUfunction program_kernel(struct program *p, const char *name)
{
	CUfunction f;

	CU(cuModuleGetFunction(&f, p->module, name));
	return f;
}

CUdeviceptr program_put(const void *data, size_t bytes)
{
	CUdeviceptr d;

	CU(cuMemAlloc(&d, bytes));
	CU(cuMemcpyHtoD(d, data, bytes));
	return d;
}

CUdeviceptr program_zeros(size_t bytes)
{
	CUdeviceptr d;

	CU(cuMemAlloc(&d, bytes));
	CU(cuMemsetD8(d, 0, bytes));
	return d;
}

void program_get(void *to, CUdeviceptr from, size_t bytes)
{
	CU(cuMemcpyDtoH(to, from, bytes));
}

uint64_t program_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void program_settle(CUdeviceptr word)
{
	uint64_t begin = program_ns();

	while (program_ns() - begin < 200000000u) {
		CU(cuMemsetD8(word, 0, 4));
	}
}

void *program_room(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p) {
		fputs("no memory\n", stderr);
		exit(EXIT_FAILURE);
	}
	return p;
}

char *program_read(const char *path, size_t *ret_bytes)
{
	FILE *f = fopen(path, "rb");
	char *text = program_room((size_t)16 << 20);

	if (!f) {
		perror(path);
		exit(2);
	}
	*ret_bytes = fread(text, 1, ((size_t)16 << 20) - 1, f);
	fclose(f);
	return text;
}

static void say(struct program *p, const char *fmt, ...)
{
	size_t n = strlen(p->line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(p->line + n, sizeof(p->line) - n, fmt, ap);
	va_end(ap);
}

void program_check(struct program *p, bool right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s is wrong\n", p->name, what);
		p->wrong = true;
	}
}

/* FNV-1a. */
void program_exact(struct program *p, const char *what, const void *data, size_t bytes)
{
	const unsigned char *b = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < bytes; i++) {
		h = (h ^ b[i]) * UINT64_C(0x100000001b3);
	}
	say(p, " %s=%016llx", what, (unsigned long long)h);
}

void program_about(struct program *p, const char *what, double value, double within)
{
	say(p, " %s~%.9g/%g", what, value, within);
}

/* splitmix64 */
uint32_t program_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) >> 32);
}

float program_uniform(uint64_t *state, float from, float to)
{
	return from + (float)(program_random(state) >> 8) * (1.0f / 16777216.0f) * (to - from);
}
