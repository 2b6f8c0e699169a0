/* Patches cubins. Whatever the input, nothing outside of it is read; a refusal has a message, the
 * checker accepts what the patcher writes, and a patched image has nothing left to patch. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const unsigned archs[] = { 75, 80, 90, 120 };
static struct cubin_stub *stubs[ARRAY_SIZE(archs)];
static struct cubin_stub *programs[ARRAY_SIZE(archs)]; /* stubs that run programs */
static struct buf gates[ARRAY_SIZE(archs)][2], probes[ARRAY_SIZE(archs)][2];
static struct buf original;

static size_t random_below(size_t n)
{
	return (size_t)random() % n;
}

static void load(struct buf *b, const char *name, unsigned arch)
{
	struct buf path;

	buf_init(&path);
	buf_init(b);
	buf_printf(&path, "%s/%s.sm_%u.cubin", CUBINS, name, arch);
	if (buf_read_file(b, buf_text(&path), 1u << 20) < 0) {
		abort();
	}
	buf_finish(&path);
}

static struct cubin_stub *open_both(const struct buf *b, struct report *r)
{
	struct cubin_stub *s = NULL;

	if (cubin_stub_open(&s, b[0].data, b[0].len, 64, b[1].data, b[1].len, 1024, "gbpf_stub", 64,
			    r) < 0) {
		abort();
	}
	return s;
}

static void load_all(void)
{
	struct report r;

	report_init(&r);
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		load(&gates[i][0], "gate_64", archs[i]);
		load(&gates[i][1], "gate_1024", archs[i]);
		load(&probes[i][0], "probe_64", archs[i]);
		load(&probes[i][1], "probe_1024", archs[i]);
		stubs[i] = open_both(gates[i], &r);
		programs[i] = open_both(probes[i], &r);
		if (cubin_stub_check_programs(programs[i], &r) < 0) {
			abort();
		}
	}
	load(&original, "linked", 90);
	report_finish(&r);
}

/* Patches; returns what cubin_patch does. */
static int patch(const void *data, size_t size, const struct cubin_stub *s,
		 struct cubin_patched **ret)
{
	struct report r;
	int err;

	report_init(&r);
	err = cubin_patch(ret, data, size, s, &r);
	if (err == -ENOEXEC &&
	    (!r.message.len || !strncmp(buf_text(&r.message), "check:", strlen("check:")))) {
		fprintf(stderr, "%s\n", buf_text(&r.message));
		abort();
	}
	report_finish(&r);
	return err;
}

static void use(const struct cubin_patched *p)
{
	for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
		const struct cubin_kernel *k = cubin_patched_kernel(p, i);

		for (uint32_t n = 0; n < k->n_params; n++) {
			if (k->why == CUBIN_OK &&
			    k->params[n].offset + k->params[n].bytes > k->arg_offset) {
				abort();
			}
		}
		if (cubin_patched_find(p, k->name) != k) {
			abort();
		}
	}
}

/* Some names have no address. */
static int address_of(void *arg, const char *variable, uint64_t *ret)
{
	*ret = 0x7f0000000000 + strlen(variable);
	return strlen(variable) % 16 == 15 ? -ENOENT : 0;
}

/* A copy for one kernel: nothing else of it is patched, and it cannot be patched again. */
static void try_copy(const uint8_t *data, size_t size, size_t which, const char *kernel)
{
	struct cubin_patched *p = NULL, *again = NULL;
	struct report r;
	const void *image;
	size_t bytes;
	int err;

	report_init(&r);
	err = cubin_patch_copy(&p, data, size, kernel, programs[which], address_of, NULL, &r);
	if ((err && err != -ENOMEM && !r.message.len) || (err != 0) != (p == NULL)) {
		abort();
	}
	if (p) {
		image = cubin_patched_image(p, &bytes);
		if (!image || cubin_patched_count(p) != 1 ||
		    cubin_patched_find(p, kernel)->why != CUBIN_OK ||
		    cubin_patch_copy(&again, image, bytes, kernel, programs[which], address_of,
				     NULL, NULL) == 0) {
			abort();
		}
	}
	cubin_patched_close(p);
	report_finish(&r);
}

static void try_stub(const uint8_t *data, size_t size, const struct buf *other)
{
	struct cubin_stub *s = NULL;
	struct report r;

	report_init(&r);
	if (cubin_stub_open(&s, data, size, 64, other->data, other->len, 1024, "gbpf_stub", 64,
			    &r) < 0) {
		if (!r.message.len) {
			abort();
		}
	} else if (cubin_stub_check_programs(s, &r) < 0 && !r.message.len) {
		abort();
	}
	cubin_stub_close(s);
	report_finish(&r);
}

static void try_check(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	struct report r;

	report_init(&r);
	if (cubin_check(a, a_bytes, b, b_bytes, stubs[2], &r) < 0 && !r.message.len) {
		abort();
	}
	report_finish(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cubin_patched *p = NULL, *again = NULL;
	size_t which = 2, bytes;

	if (!stubs[0]) {
		load_all();
	}
	for (size_t i = 0; i < ARRAY_SIZE(archs); i++) {
		which = cubin_arch(data, size) / 10 == archs[i] / 10 ? i : which;
	}
	if (cubin_bytes(data, size, &bytes) == 0 && bytes > size) {
		abort();
	}
	if (patch(data, size, stubs[which], &p) == 0) {
		const void *image = cubin_patched_image(p, &bytes);

		if (!image || bytes > 64 * size + (1u << 20)) {
			abort();
		}
		if (patch(image, bytes, stubs[which], &again) == 0) {
			abort();
		}
		cubin_patched_close(again);
	}
	if (p) {
		use(p);
		for (size_t i = 0; i < MIN(cubin_patched_kernels(p), (size_t)3); i++) {
			try_copy(data, size, which, cubin_patched_kernel(p, i)->name);
		}
	}
	cubin_patched_close(p);
	try_copy(data, size, which, "none");
	try_stub(data, size, &gates[which][1]);
	try_stub(data, size, &probes[which][1]);
	try_check(original.data, original.len, data, size);
	try_check(data, size, data, size);
	return 0;
}

/* Half of the mutations change one aligned number to one that is found elsewhere, is near its old
 * value, or is an extreme: offsets, sizes, links and counts become wrong in interesting ways. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	static const uint32_t extremes[] = { 0,		 1,	     0xffff, 0x7fffffff,
					     0xffffffff, 0x80000000, 16,     64 };
	uint32_t value;
	size_t at, from;

	if (size < 64 || seed % 2) {
		return LLVMFuzzerMutate(data, size, max_size);
	}
	srandom(seed);
	at = random_below(size / 4 - 1) * 4;
	from = random_below(size / 4 - 1) * 4;
	memcpy(&value, data + from, sizeof(value));
	if (random_below(3) == 0) {
		value = extremes[random_below(ARRAY_SIZE(extremes))];
	} else if (random_below(2) == 0) {
		memcpy(&value, data + at, sizeof(value));
		value += (uint32_t)random_below(33) - 16;
	}
	memcpy(data + at, &value, sizeof(value));
	return size;
}
