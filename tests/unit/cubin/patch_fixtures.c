/* patch-fixtures FOLDER: patches the committed cubins, those of which exist in the older ABI too,
 * and some that were changed so that a kernel must stay as it is; writes the results to a folder
 * and prints what came of each. planted-faults compares these results between a right patcher and
 * wrong ones. */
#include <errno.h>
#include <stdio.h>

#include "cubin_files.h"

static const struct {
	const char *name;
	unsigned arch;
} files[] = {
	{ "kernels.sm_75", 75 },   { "kernels.sm_80", 80 },   { "kernels.sm_90", 90 },
	{ "kernels.sm_100", 100 }, { "kernels.sm_120", 120 }, { "hopper.sm_90a", 90 },
	{ "debug.sm_90", 90 },	   { "linked.sm_90", 90 },
};

static void write_result(const char *folder, const char *name, const struct cubin_patched *p)
{
	struct buf path;
	const void *image;
	size_t bytes;
	FILE *f;

	image = cubin_patched_image(p, &bytes);
	buf_init(&path);
	buf_printf(&path, "%s/%s", folder, name);
	f = fopen(buf_text(&path), "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(image, 1, bytes, f), bytes);
	assert_int_equal(fclose(f), 0);
	buf_finish(&path);
}

static void patch_one(const char *folder, const char *name, const struct buf *b, unsigned arch)
{
	struct cubin_stub *s = open_stub(arch);
	struct cubin_patched *p;
	struct buf message;
	int err;

	buf_init(&message);
	err = patch(&p, b, s, &message);
	if (err == 0) {
		write_result(folder, name, p);
		printf("%s: patched\n", name);
	} else {
		printf("%s: %s\n", name, err == -ENOENT ? "nothing to patch" : buf_text(&message));
	}
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&message);
}

static int address_of(void *arg, const char *variable, uint64_t *ret)
{
	(void)arg;
	*ret = 0x7f4200000000 + 256 * strlen(variable) + (uint8_t)variable[0];
	return 0;
}

/* A copy that uses the variables of another module. */
static void copy_one(const char *folder, const char *name, unsigned arch)
{
	struct cubin_stub *s = open_stub(arch);
	struct buf b = read_cubin(name);
	struct cubin_patched *p = NULL;
	struct report r;

	report_init(&r);
	if (cubin_patch_copy(&p, b.data, b.len, "uses_static", s, address_of, NULL, &r) == 0) {
		write_result(folder, name, p);
		printf("%s: copied\n", name);
	} else {
		printf("%s: %s\n", name, buf_text(&r.message));
	}
	report_finish(&r);
	cubin_patched_close(p);
	cubin_stub_close(s);
	buf_finish(&b);
}

/* Kernels that must not be patched: each for a reason that the checker knows, too. */
static void patch_forbidden(const char *folder)
{
	struct changed c = open_changed("linked.sm_90");

	memset(content(&c, ".rela.text.steps"), 0, 8);
	patch_one(folder, "relocated_entry", &c.image, 90);
	close_changed(&c);
	c = open_changed("kernels.sm_90");
	content(&c, ".text.loops")[2] = 2;
	patch_one(folder, "first_instruction", &c.image, 90);
	close_changed(&c);
	c = open_changed("kernels.sm_90");
	for (uint8_t *at = content(&c, ".text.for_ever") + 16;; at += 16) {
		if (at[0] == 0x47 && at[1] == 0x79) { /* BRA to the first instruction */
			size_t back = (size_t)(at - content(&c, ".text.for_ever")) + 16;

			at[2] = (uint8_t)(-(int64_t)back / 4);
			break;
		}
	}
	patch_one(folder, "loop_to_entry", &c.image, 90);
	close_changed(&c);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: patch-fixtures FOLDER\n");
		return 2;
	}
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		struct changed c = open_changed(files[i].name);
		struct buf name;

		patch_one(argv[1], files[i].name, &c.image, files[i].arch);
		if (files[i].arch <= 90) {
			buf_init(&name);
			buf_printf(&name, "old.%s", files[i].name);
			make_old_abi(&c);
			patch_one(argv[1], buf_text(&name), &c.image, files[i].arch);
			buf_finish(&name);
		}
		close_changed(&c);
	}
	patch_forbidden(argv[1]);
	copy_one(argv[1], "variables.sm_75", 75);
	copy_one(argv[1], "variables.sm_90", 90);
	return 0;
}
