/* copy_shares WAY KIND MIB: copies of that size one after another, for copy_shares.bats.
 *
 *   WAY   up, down
 *   KIND  pageable, or pinned (asynchronous, on a stream, synchronized after each)
 *
 * Prints its process number, then a line after each copy whose bytes it has checked: its number,
 * and for how many ms the call itself blocked. Ends when its standard input has ended. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../programs/program.h"

#define BLOCK ((size_t)65536)	    /* its first and last words are marked */
#define WARM_UP ((size_t)512 << 20) /* bytes after which a context has all of its pieces */

static size_t bytes;
static int up, pinned;
static unsigned char *host;
static CUdeviceptr device;
static CUstream stream;

/* Marks each block of the buffer, which is otherwise constant, as of that copy. */
static void mark(unsigned char *at, uint64_t n)
{
	for (size_t i = 0; i < bytes; i += BLOCK) {
		uint64_t v = n * 0x9e3779b97f4a7c15u + i;

		memcpy(at + i, &v, sizeof(v));
		memcpy(at + i + BLOCK - sizeof(v), &v, sizeof(v));
	}
}

static void check_marks(const unsigned char *at, uint64_t n)
{
	for (size_t i = 0; i < bytes; i += BLOCK) {
		uint64_t v = n * 0x9e3779b97f4a7c15u + i;

		if (memcmp(at + i, &v, sizeof(v)) != 0 ||
		    memcmp(at + i + BLOCK - sizeof(v), &v, sizeof(v)) != 0) {
			printf("wrong bytes at %zu of copy %llu\n", i, (unsigned long long)n);
			exit(EXIT_FAILURE);
		}
	}
}

static unsigned char *memory(void)
{
	void *p = NULL;

	if (pinned) {
		CU(cuMemHostAlloc(&p, bytes, 0));
	} else {
		p = aligned_alloc(4096, bytes);
	}
	if (!p) {
		exit(EXIT_FAILURE);
	}
	memset(p, 1, bytes);
	return p;
}

static void copy(int to_device)
{
	if (pinned && to_device) {
		CU(cuMemcpyHtoDAsync(device, host, bytes, stream));
	} else if (pinned) {
		CU(cuMemcpyDtoHAsync(host, device, bytes, stream));
	} else if (to_device) {
		CU(cuMemcpyHtoD(device, host, bytes));
	} else {
		CU(cuMemcpyDtoH(host, device, bytes));
	}
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* One copy the wanted way, and what it takes to check it, the other way. A copy up is read back
 * only sometimes, in small parts: what is measured is the copy. */
static double one(uint64_t n)
{
	double before, took;

	if (!up) {
		/* The marks of the first copy stay in device memory; the host's are destroyed. */
		mark(host, n + 1);
	} else {
		mark(host, n);
	}
	before = now_ms();
	copy(up);
	took = now_ms() - before;
	CU(cuStreamSynchronize(stream));
	if (!up) {
		check_marks(host, 0);
		return took;
	}
	for (size_t i = 0; i < bytes; i += bytes / 4) {
		uint64_t is[2], v = n * 0x9e3779b97f4a7c15u + i;

		CU(cuMemcpyDtoH(&is[0], device + i, sizeof(is[0])));
		CU(cuMemcpyDtoH(&is[1], device + i + BLOCK - sizeof(v), sizeof(is[1])));
		if (is[0] != v || is[1] != v) {
			printf("wrong bytes at %zu of copy %llu\n", i, (unsigned long long)n);
			exit(EXIT_FAILURE);
		}
	}
	return took;
}

int main(int argc, char **argv)
{
	struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
	CUcontext ctx;
	CUdevice gpu;
	uint64_t n;

	if (argc != 4) {
		return 2;
	}
	up = strcmp(argv[1], "up") == 0;
	pinned = strcmp(argv[2], "pinned") == 0;
	bytes = strtoul(argv[3], NULL, 10) << 20;
	CU(cuInit(0));
	CU(cuDeviceGet(&gpu, 0));
	CU(cuDevicePrimaryCtxRetain(&ctx, gpu));
	CU(cuCtxSetCurrent(ctx));
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&device, bytes));
	host = memory();
	printf("%d\n", (int)getpid());
	fflush(stdout);
	for (n = 0; n * bytes < WARM_UP && !pinned; n++) {
		copy(1);
	}
	mark(host, 0);
	copy(1);
	CU(cuStreamSynchronize(stream));
	for (n = 1; poll(&in, 1, 0) == 0; n++) {
		printf("%llu %.1f\n", (unsigned long long)n, one(n));
		fflush(stdout);
	}
	/* The last copy in full, by another buffer. */
	if (up) {
		unsigned char *back = malloc(bytes);

		if (!back) {
			return EXIT_FAILURE;
		}
		CU(cuMemcpyDtoH(back, device, bytes));
		check_marks(back, n - 1);
		free(back);
	}
	puts("right");
	return 0;
}
