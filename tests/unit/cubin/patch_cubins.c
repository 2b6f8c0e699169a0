/* patch-cubins [-o FOLDER] [-n TIMES] [-v] STUB64 STUB1024 FILE...
 *
 * Patches cubins with an entry stub, given as two compilations of the entry gbpf_stub with 64 and
 * with 1024 bytes of padding and an argument of 64 bytes, writes the results to a folder, so that a
 * disassembler can be run on them, and prints what it took. -v prints each kernel. The exit status
 * is 1 if a file could not be read or written; refusals are results. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cubin/cubin.h"

#define FILE_MAX ((size_t)1 << 31)

struct totals {
	uint64_t files, refused, kernels, patched, ns, bytes;
};

struct options {
	const char *folder;
	unsigned times;
	bool verbose;
};

static int read_file(struct buf *b, const char *path)
{
	int err;

	buf_init(b);
	err = buf_read_file(b, path, FILE_MAX);
	if (err < 0) {
		fprintf(stderr, "cannot read %s: %s\n", path, strerror(-err));
	}
	return err;
}

static int write_file(const char *folder, const char *path, const void *data, size_t bytes)
{
	const char *name = strrchr(path, '/');
	struct buf to;
	FILE *f;
	bool failed;

	buf_init(&to);
	buf_printf(&to, "%s/%s", folder, name ? name + 1 : path);
	f = fopen(buf_text(&to), "wb");
	failed = !f || fwrite(data, 1, bytes, f) != bytes;
	if ((f && fclose(f) != 0) || failed) {
		fprintf(stderr, "cannot write %s\n", buf_text(&to));
		failed = true;
	}
	buf_finish(&to);
	return failed ? -EIO : 0;
}

static void print_kernels(const struct cubin_patched *p)
{
	for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
		const struct cubin_kernel *k = cubin_patched_kernel(p, i);

		printf("  %s: %s; %u parameters of %u bytes, argument at %u, %u registers, hash "
		       "%016" PRIx64 "%s%s%s%s%s%s\n",
		       k->name, cubin_why_text(k->why), k->n_params, k->param_bytes, k->arg_offset,
		       k->registers, k->code_hash, k->cluster[0] ? ", cluster" : "",
		       k->sets_registers ? ", setmaxnreg" : "",
		       k->waits_for_launch ? ", waits for launch" : "",
		       k->triggers_launch ? ", triggers launch" : "",
		       k->indirect ? ", indirect" : "", k->system_calls ? ", system calls" : "");
	}
}

static int patch_file(const char *path, const struct cubin_stub *s, const struct options *o,
		      struct totals *t)
{
	struct cubin_patched *p = NULL;
	struct buf file;
	struct report r;
	int err = read_file(&file, path);

	report_init(&r);
	for (unsigned i = 0; i < o->times && (err == 0 || err == -ENOENT); i++) {
		uint64_t from = clock_now_ns();

		cubin_patched_close(p);
		p = NULL;
		err = cubin_patch(&p, file.data, file.len, s, &r);
		t->ns += clock_now_ns() - from;
	}
	t->files++;
	t->bytes += file.len;
	if (p) {
		t->kernels += cubin_patched_kernels(p);
		t->patched += cubin_patched_count(p);
	} else {
		t->refused++;
	}
	if (!p || o->verbose) {
		printf("%s: %s\n", path,
		       p ? err ? "no kernel patched" : "patched" : buf_text(&r.message));
	}
	if (p && o->verbose) {
		print_kernels(p);
	}
	err = 0;
	if (p && o->folder) {
		size_t bytes;
		const void *image = cubin_patched_image(p, &bytes);

		err = image ? write_file(o->folder, path, image, bytes) : 0;
	}
	cubin_patched_close(p);
	report_finish(&r);
	buf_finish(&file);
	return err;
}

static struct cubin_stub *open_stub(const char *a_path, const char *b_path)
{
	struct cubin_stub *s = NULL;
	struct buf a, b;
	struct report r;

	report_init(&r);
	if (read_file(&a, a_path) == 0) {
		if (read_file(&b, b_path) == 0 &&
		    cubin_stub_open(&s, a.data, a.len, 64, b.data, b.len, 1024, "gbpf_stub", 64,
				    &r) < 0) {
			fprintf(stderr, "cannot use the stubs: %s\n", buf_text(&r.message));
		}
		buf_finish(&b);
	}
	buf_finish(&a);
	report_finish(&r);
	return s;
}

int main(int argc, char **argv)
{
	struct options o = { .times = 1 };
	struct totals t = { 0 };
	struct cubin_stub *s;
	int option, failed = 0;

	while ((option = getopt(argc, argv, "o:n:v")) != -1) {
		if (option == 'o') {
			o.folder = optarg;
		} else if (option == 'n') {
			o.times = (unsigned)strtoul(optarg, NULL, 10);
		} else if (option == 'v') {
			o.verbose = true;
		} else {
			return 2;
		}
	}
	if (argc - optind < 2) {
		fprintf(stderr, "usage: patch-cubins [-o FOLDER] [-n TIMES] [-v] STUB64 STUB1024 "
				"FILE...\n");
		return 2;
	}
	s = open_stub(argv[optind], argv[optind + 1]);
	if (!s) {
		return 1;
	}
	for (int i = optind + 2; i < argc; i++) {
		failed |= patch_file(argv[i], s, &o, &t) < 0;
	}
	cubin_stub_close(s);
	printf("%" PRIu64 " files, %" PRIu64 " refused; %" PRIu64 " kernels, %" PRIu64
	       " patched; %.1f us "
	       "per kernel, %.0f MB/s\n",
	       t.files, t.refused, t.kernels, t.patched,
	       t.kernels ? (double)t.ns / 1e3 / (double)o.times / (double)t.kernels : 0,
	       t.ns ? (double)t.bytes * o.times * 1e3 / (double)t.ns : 0);
	return failed;
}
