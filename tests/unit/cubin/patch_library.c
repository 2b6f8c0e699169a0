/* patch-library [-a ARCH] [-k FOLDER] [-s FOLDER] FILE...
 *
 * Patches cubins, and all cubins in the fat binaries of libraries and programs, with the gate of
 * tests/data/cubins (a copy of which -s names) for their architecture, and prints per architecture
 * how many kernels were patched, why others were not, and the processor time of patching and
 * checking. -k copies the images that are refused, or of which no kernel is patched, to a folder.
 * The exit status is 1 if the checker refused an image that the patcher made. */
#include <elf.h>
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
#include "cubin/cubin.h"
#include "ptx/fatbin.h"

#define ARCHS 256u
#define CUBIN_MAX ((size_t)1 << 31)
#define KIND_CUBIN 2u

static const unsigned stub_archs[] = { 75, 80, 86, 89, 90, 100, 103, 120 };
static struct cubin_stub *stubs[ARCHS]; /* also for other members of a family */

static struct totals {
	uint64_t images, refused, kernels, why[CUBIN_WHY_COUNT], ns, bytes;
} totals[ARCHS];

static const char *gates = CUBINS, *keep;
static unsigned kept;
static int failed;

static struct buf read_gate(unsigned pad, unsigned arch)
{
	struct buf path, b;

	buf_init(&path);
	buf_init(&b);
	buf_printf(&path, "%s/gate_%u.sm_%u.cubin", gates, pad, arch);
	if (buf_read_file(&b, buf_text(&path), 1u << 20) < 0) {
		fprintf(stderr, "cannot read %s\n", buf_text(&path));
		exit(1);
	}
	buf_finish(&path);
	return b;
}

static void open_stubs(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(stub_archs); i++) {
		unsigned arch = stub_archs[i];
		struct buf a = read_gate(64, arch), b = read_gate(1024, arch);

		if (cubin_stub_open(&stubs[arch], a.data, a.len, 64, b.data, b.len, 1024,
				    "gbpf_stub", 64, NULL) < 0) {
			fprintf(stderr, "cannot use the stub for sm_%u\n", arch);
			exit(1);
		}
		buf_finish(&a);
		buf_finish(&b);
		for (unsigned other = arch / 10 * 10; other < arch / 10 * 10 + 10; other++) {
			stubs[other] = stubs[other] ? stubs[other] : stubs[arch];
		}
	}
}

static void count(struct totals *t, const struct cubin_patched *p)
{
	for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
		t->why[cubin_patched_kernel(p, i)->why]++;
	}
	t->kernels += cubin_patched_kernels(p);
}

static void keep_image(unsigned arch, const void *image, size_t bytes)
{
	struct buf path;
	FILE *f;

	if (!keep) {
		return;
	}
	buf_init(&path);
	buf_printf(&path, "%s/refused-%u.sm_%u.cubin", keep, ++kept, arch);
	f = fopen(buf_text(&path), "wbe");
	if (!f || fwrite(image, 1, bytes, f) != bytes || fclose(f)) {
		fprintf(stderr, "cannot write %s: %s\n", buf_text(&path), strerror(errno));
		exit(1);
	}
	buf_finish(&path);
}

static void patch_image(const char *path, const void *image, size_t bytes)
{
	unsigned arch = cubin_arch(image, bytes);
	struct totals *t = &totals[arch % ARCHS];
	struct cubin_patched *p = NULL;
	struct report r;
	uint64_t from;
	int err;

	t->images++;
	if (!stubs[arch % ARCHS]) {
		t->refused++;
		return;
	}
	report_init(&r);
	from = clock_cpu_ns();
	err = cubin_patch(&p, image, bytes, stubs[arch % ARCHS], &r);
	t->ns += clock_cpu_ns() - from;
	t->bytes += bytes;
	if (p) {
		count(t, p);
	} else {
		t->refused++;
		printf("%s: sm_%u, %zu bytes: %s\n", path, arch, bytes, buf_text(&r.message));
		failed |= !strncmp(buf_text(&r.message), "check:", strlen("check:"));
	}
	if (err && (!p || cubin_patched_kernels(p))) {
		keep_image(arch, image, bytes);
	}
	cubin_patched_close(p);
	report_finish(&r);
}

/* Patches the cubins of a container; returns its size, 0 if there is none at `at`. */
static size_t patch_container(const char *path, const uint8_t *at, size_t len, unsigned arch)
{
	struct ptx_fatbin_entry e;
	struct ptx_fatbin_walk w;
	size_t bytes, unpacked;
	char *image;

	if (ptx_fatbin_open(&w, at, len, &bytes) < 0) {
		return 0;
	}
	while (ptx_fatbin_next(&w, &e) == 1) {
		if (e.kind != KIND_CUBIN || (arch && e.arch != arch) ||
		    ptx_fatbin_unpack(&e, CUBIN_MAX, &image, &unpacked) < 0) {
			continue;
		}
		if (cubin_arch(image, unpacked)) {
			patch_image(path, image, unpacked);
		}
		free(image);
	}
	return bytes;
}

static int patch_file(const char *path, unsigned arch)
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
	if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0 && cubin_arch(data, size)) {
		patch_image(path, data, size);
	}
	for (size_t at = 0; at + PTX_FATBIN_HEADER_BYTES <= size;) {
		size_t bytes = patch_container(path, data + at, size - at, arch);

		at += bytes ? ROUND_UP(bytes, 8u) : 8;
	}
	munmap(unqual(data), size);
	return 0;
}

static void print_totals(unsigned arch)
{
	const struct totals *t = &totals[arch];

	printf("sm_%u: %" PRIu64 " images, %" PRIu64 " refused; %" PRIu64 " kernels, %" PRIu64
	       " patched; %.1f us per kernel, %.0f MB/s",
	       arch, t->images, t->refused, t->kernels, t->why[CUBIN_OK],
	       t->kernels ? (double)t->ns / 1e3 / (double)t->kernels : 0,
	       t->ns ? (double)t->bytes * 1e3 / (double)t->ns : 0);
	for (unsigned i = 1; i < CUBIN_WHY_COUNT; i++) {
		if (t->why[i]) {
			printf("; %" PRIu64 ": %s", t->why[i], cubin_why_text((enum cubin_why)i));
		}
	}
	printf("\n");
}

int main(int argc, char **argv)
{
	unsigned arch = 0;
	int option;

	while ((option = getopt(argc, argv, "a:k:s:")) != -1) {
		if (option == 'a') {
			arch = (unsigned)strtoul(optarg, NULL, 10);
		} else if (option == 'k') {
			keep = optarg;
		} else if (option == 's') {
			gates = optarg;
		} else {
			return 2;
		}
	}
	open_stubs();
	for (int i = optind; i < argc; i++) {
		failed |= patch_file(argv[i], arch) < 0;
	}
	for (unsigned i = 0; i < ARCHS; i++) {
		if (totals[i].images) {
			print_totals(i);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(stub_archs); i++) {
		struct cubin_stub *s = stubs[stub_archs[i]];

		for (unsigned q = 0; q < ARCHS; q++) {
			stubs[q] = stubs[q] == s ? NULL : stubs[q];
		}
		cubin_stub_close(s);
	}
	return failed;
}
