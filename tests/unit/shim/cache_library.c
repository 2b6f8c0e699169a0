/* cache-library [-a ARCH] FOLDER FILE...
 *
 * Measures the cache of patched images, in a folder, with the cubins in the fat binaries of
 * libraries: processor time for unpacking, patching and checking, storing, and finding them again,
 * by the size of the entry as the fat binary has it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/disk_cache.h"
#include "ptx/fatbin.h"
#include "shim/code/cache_file.h"

#define CUBIN_MAX ((size_t)1 << 31)
#define KIND_CUBIN 2u
#define CLASSES 16u

enum { UNPACK, PATCH, STORE, KEY, READ, TIMES };
static const char *const labels[] = { "unpack", "patch+check", "store", "key", "read" };

/* By size: class i has entries below 4 KiB << i. */
static struct totals {
	uint64_t images, kernels, packed, bytes, ns[TIMES];
} totals[CLASSES];

static struct cubin_stub *stub;
static struct disk_cache cache = { .max_bytes = (uint64_t)1 << 40 };

static struct buf read_gate(unsigned pad, unsigned arch)
{
	struct buf path, b;

	buf_init(&path);
	buf_init(&b);
	buf_printf(&path, "%s/gate_%u.sm_%u.cubin", CUBINS, pad, arch);
	if (buf_read_file(&b, buf_text(&path), 1u << 20) < 0) {
		fprintf(stderr, "cannot read %s\n", buf_text(&path));
		exit(1);
	}
	buf_finish(&path);
	return b;
}

static void open_stub(unsigned arch)
{
	struct buf a = read_gate(64, arch), b = read_gate(1024, arch);

	if (cubin_stub_open(&stub, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64, NULL) <
	    0) {
		fprintf(stderr, "cannot use the stub for sm_%u\n", arch);
		exit(1);
	}
	buf_finish(&a);
	buf_finish(&b);
}

static struct totals *class_of(size_t bytes)
{
	unsigned i = 0;

	while (i < CLASSES - 1 && bytes >= (size_t)4096 << i) {
		i++;
	}
	return &totals[i];
}

/* Adds the processor time since *from, which becomes now. */
static void took(struct totals *t, unsigned what, uint64_t *from)
{
	uint64_t now = clock_cpu_ns();

	t->ns[what] += now - *from;
	*from = now;
}

static void fail(const char *what)
{
	fprintf(stderr, "cannot %s an image\n", what);
	exit(1);
}

static void store(struct totals *t, const struct shim_cache_key *key, const char *name,
		  const struct cubin_patched *p)
{
	uint64_t from = clock_cpu_ns();
	struct buf table;
	size_t bytes;
	const void *image = cubin_patched_image(p, &bytes);
	int fd;

	buf_init(&table);
	if (cubin_table_write(p, &table) < 0) {
		fail("store");
	}
	fd = shim_cache_file_put(&cache, name, key, image, bytes, &table);
	if (fd < 0) {
		fail("store");
	}
	close(fd);
	took(t, STORE, &from);
	buf_finish(&table);
}

static void find(struct totals *t, const struct shim_cache_key *key, const char *name,
		 const struct cubin_patched *p)
{
	struct cubin_patched *again = NULL;
	uint64_t from = clock_cpu_ns();
	size_t bytes, same;
	const void *image;
	int fd = disk_cache_get(&cache, name);

	if (fd < 0 || shim_cache_file_read(fd, key, &again) < 0) {
		fail("read");
	}
	close(fd);
	disk_cache_count(&cache, true);
	took(t, READ, &from);
	image = cubin_patched_image(p, &bytes);
	if (memcmp(cubin_patched_image(again, &same), image, bytes) != 0 || same != bytes) {
		fail("compare");
	}
	cubin_patched_close(again);
}

static void store_and_find(struct totals *t, const struct ptx_fatbin_entry *e, unsigned arch,
			   const struct cubin_patched *p)
{
	uint64_t from = clock_cpu_ns();
	struct shim_cache_key key = shim_cache_key_of(e->data, e->bytes, arch, stub);
	char name[SHIM_CACHE_NAME];

	shim_cache_name(&key, name);
	took(t, KEY, &from);
	store(t, &key, name, p);
	find(t, &key, name, p);
}

static void measure(const struct ptx_fatbin_entry *e, unsigned arch)
{
	struct totals *t = class_of(e->bytes);
	struct cubin_patched *p = NULL;
	uint64_t from = clock_cpu_ns();
	size_t bytes;
	char *image;

	if (ptx_fatbin_unpack(e, CUBIN_MAX, &image, &bytes) < 0) {
		return;
	}
	took(t, UNPACK, &from);
	if (cubin_patch(&p, image, bytes, stub, NULL) == 0) {
		took(t, PATCH, &from);
		t->images++;
		t->kernels += cubin_patched_kernels(p);
		t->packed += e->bytes;
		t->bytes += bytes;
		store_and_find(t, e, arch, p);
	}
	cubin_patched_close(p);
	free(image);
}

static size_t measure_container(const uint8_t *at, size_t len, unsigned arch)
{
	struct ptx_fatbin_entry e;
	struct ptx_fatbin_walk w;
	size_t bytes;

	if (ptx_fatbin_open(&w, at, len, &bytes) < 0) {
		return 0;
	}
	while (ptx_fatbin_next(&w, &e) == 1) {
		if (e.kind == KIND_CUBIN && e.arch == arch) {
			measure(&e, arch);
		}
	}
	return bytes;
}

static int measure_file(const char *path, unsigned arch)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st = { 0 };
	const uint8_t *data;
	size_t size;

	if (fd < 0 || fstat(fd, &st) < 0) {
		fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
		return -1;
	}
	size = (size_t)st.st_size;
	data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (data == MAP_FAILED) {
		fprintf(stderr, "cannot map %s: %s\n", path, strerror(errno));
		return -1;
	}
	for (size_t at = 0; at + PTX_FATBIN_HEADER_BYTES <= size;) {
		size_t bytes = measure_container(data + at, size - at, arch);

		at += bytes ? ROUND_UP(bytes, 8u) : 8;
	}
	munmap(unqual(data), size);
	return 0;
}

static void print_row(const char *name, const struct totals *t)
{
	printf("%s: %" PRIu64 " images, %" PRIu64 " kernels, %.1f MB, unpacked %.1f MB; ms per MB "
	       "unpacked:",
	       name, t->images, t->kernels, (double)t->packed / 1e6, (double)t->bytes / 1e6);
	for (unsigned i = 0; i < TIMES; i++) {
		printf(" %s %.2f", labels[i], (double)t->ns[i] / (double)t->bytes);
	}
	printf("; us per image:");
	for (unsigned i = 0; i < TIMES; i++) {
		printf(" %s %.0f", labels[i], (double)t->ns[i] / 1e3 / (double)t->images);
	}
	printf("\n");
}

static void print_all(void)
{
	struct totals all = { 0 };

	for (unsigned i = 0; i < CLASSES; i++) {
		const struct totals *t = &totals[i];
		char name[32];

		if (!t->images) {
			continue;
		}
		snprintf(name, sizeof(name), "below %u KiB", 4u << i);
		print_row(name, t);
		all.images += t->images;
		all.kernels += t->kernels;
		all.packed += t->packed;
		all.bytes += t->bytes;
		for (unsigned n = 0; n < TIMES; n++) {
			all.ns[n] += t->ns[n];
		}
	}
	if (all.images) {
		print_row("all", &all);
	}
}

int main(int argc, char **argv)
{
	unsigned arch = 90;
	int option, failed = 0;

	while ((option = getopt(argc, argv, "a:")) != -1) {
		if (option != 'a') {
			return 2;
		}
		arch = (unsigned)strtoul(optarg, NULL, 10);
	}
	if (optind == argc) {
		return 2;
	}
	snprintf(cache.dir, sizeof(cache.dir), "%s", argv[optind++]);
	open_stub(arch);
	for (int i = optind; i < argc; i++) {
		failed |= measure_file(argv[i], arch) < 0;
	}
	print_all();
	cubin_stub_close(stub);
	return failed;
}
