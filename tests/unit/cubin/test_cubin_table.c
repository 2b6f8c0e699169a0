/* The stored form of a patched image's kernels: what is read equals what was written, and each
 * damage is refused. */
#include "cubin_files.h"

#include <errno.h>

/* Places in a table: the head, then the first record. */
#define KERNELS 4u
#define PARAMS 8u
#define NAME_BYTES 12u
#define WHY 16u
#define FLAGS 20u
#define FIRST_NAME_BYTES 24u
#define N_PARAMS 28u
#define PARAM_BYTES 32u
#define ARG_OFFSET 36u
#define RECORD_BYTES 80u

static struct cubin_stub *stub;

static struct cubin_patched *open_patched(const char *name)
{
	struct buf image = read_cubin(name);
	struct cubin_patched *p;

	assert_int_equal(patch(&p, &image, stub, NULL), 0);
	buf_finish(&image);
	return p;
}

static struct buf table_of(const char *name)
{
	struct cubin_patched *p = open_patched(name);
	struct buf b;

	buf_init(&b);
	assert_int_equal(cubin_table_write(p, &b), 0);
	cubin_patched_close(p);
	return b;
}

/* Reads from memory of exactly that size, so that valgrind and ASan see reads beyond it. */
static int read_table(const void *table, size_t bytes, struct cubin_patched **ret)
{
	void *copy = malloc(bytes ? bytes : 1);
	int err;

	*ret = NULL;
	assert_non_null(copy);
	memcpy(copy, table, bytes);
	err = cubin_table_read(ret, copy, bytes);
	free(copy);
	return err;
}

static void assert_same(const struct cubin_kernel *a, const struct cubin_kernel *b)
{
	struct cubin_kernel x = *a, y = *b;

	assert_string_equal(a->name, b->name);
	for (uint32_t i = 0; i < a->n_params; i++) {
		assert_memory_equal(&a->params[i], &b->params[i], sizeof(a->params[i]));
	}
	x.name = y.name = NULL;
	x.params = y.params = NULL;
	assert_memory_equal(&x, &y, sizeof(x));
}

static void kernels_survive(void **state)
{
	static const char *const names[] = { "kernels.sm_90", "linked.sm_90", "gate_64.sm_90" };

	for (size_t n = 0; n < ARRAY_SIZE(names); n++) {
		struct cubin_patched *p = open_patched(names[n]), *q = NULL;
		struct buf b;

		buf_init(&b);
		assert_int_equal(cubin_table_write(p, &b), 0);
		assert_int_equal(read_table(b.data, b.len, &q), 0);
		assert_int_equal(cubin_patched_kernels(p), cubin_patched_kernels(q));
		assert_int_equal(cubin_patched_count(p), cubin_patched_count(q));
		for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
			const struct cubin_kernel *k = cubin_patched_kernel(p, i);

			assert_same(k, cubin_patched_kernel(q, i));
			assert_ptr_equal(cubin_patched_find(q, k->name),
					 cubin_patched_kernel(q, i));
		}
		cubin_patched_close(p);
		cubin_patched_close(q);
		buf_finish(&b);
	}
}

static void every_other_length_is_refused(void **state)
{
	struct buf b = table_of("kernels.sm_90");
	struct cubin_patched *p;

	for (size_t n = 0; n < b.len; n++) {
		assert_int_equal(read_table(b.data, n, &p), -EBADMSG);
		assert_null(p);
	}
	buf_add(&b, "", 1);
	assert_int_equal(read_table(b.data, b.len, &p), -EBADMSG);
	buf_finish(&b);
}

/* Stores a number at a place and expects the table to be refused. */
static void refused(size_t at, uint32_t value)
{
	struct buf b = table_of("kernels.sm_90");
	struct cubin_patched *p = NULL;

	memcpy(b.data + at, &value, sizeof(value));
	assert_int_equal(read_table(b.data, b.len, &p), -EBADMSG);
	buf_finish(&b);
}

static uint32_t number_at(size_t at)
{
	struct buf b = table_of("kernels.sm_90");
	uint32_t n;

	memcpy(&n, b.data + at, sizeof(n));
	buf_finish(&b);
	return n;
}

static void wrong_counts_are_refused(void **state)
{
	static const size_t counts[] = {
		KERNELS, PARAMS, NAME_BYTES, FIRST_NAME_BYTES, N_PARAMS, 0
	};

	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		refused(counts[i], number_at(counts[i]) + 1);
		refused(counts[i], number_at(counts[i]) - 1);
		refused(counts[i], UINT32_MAX);
		refused(counts[i], UINT32_MAX / RECORD_BYTES + 1);
		refused(counts[i], 0);
	}
}

static void unknown_values_are_refused(void **state)
{
	refused(WHY, CUBIN_WHY_COUNT);
	refused(WHY, UINT32_MAX);
	refused(FLAGS, 0x100);
	refused(FLAGS, UINT32_MAX);
}

static void parameters_behind_the_argument_are_refused(void **state)
{
	assert_int_equal(number_at(WHY), CUBIN_OK);
	assert_true(number_at(N_PARAMS) > 0);
	refused(PARAM_BYTES, number_at(ARG_OFFSET) + 1);
	refused(PARAM_BYTES, 0);
	refused(ARG_OFFSET, 32768);
	refused(ARG_OFFSET, number_at(ARG_OFFSET) + 4);
	refused(16 + number_at(KERNELS) * RECORD_BYTES, number_at(PARAM_BYTES) + 1);
	refused(16 + number_at(KERNELS) * RECORD_BYTES + 4, UINT32_MAX);
}

static void wrong_names_are_refused(void **state)
{
	struct buf b = table_of("kernels.sm_90");
	uint32_t names = number_at(NAME_BYTES);
	char *first = b.data + b.len - names;
	struct cubin_patched *p;
	char kept = first[1];

	first[1] = 0; /* ends early */
	assert_int_equal(read_table(b.data, b.len, &p), -EBADMSG);
	first[1] = kept;
	b.data[b.len - 1] = 'x'; /* does not end */
	assert_int_equal(read_table(b.data, b.len, &p), -EBADMSG);
	b.data[b.len - 1] = 0;
	assert_int_equal(read_table(b.data, b.len, &p), 0);
	cubin_patched_close(p);
	buf_finish(&b);
}

/* Two kernels without parameters, of one name. */
static void a_name_that_stands_twice_is_refused(void **state)
{
	unsigned char t[16 + 2 * RECORD_BYTES + 4] = { 0 };
	uint32_t head[4] = { 0, 2, 0, 4 }, two = 2, refusal = CUBIN_DEVICE_RUNTIME;
	struct buf b = table_of("kernels.sm_90");
	struct cubin_patched *p;

	memcpy(head, b.data, 4);
	memcpy(t, head, sizeof(head));
	for (size_t i = 0; i < 2; i++) {
		memcpy(t + WHY + i * RECORD_BYTES, &refusal, 4);
		memcpy(t + FIRST_NAME_BYTES + i * RECORD_BYTES, &two, 4);
	}
	memcpy(t + 16 + 2 * RECORD_BYTES, "a\0b", 4);
	assert_int_equal(read_table(t, sizeof(t), &p), 0);
	assert_int_equal(cubin_patched_count(p), 0);
	cubin_patched_close(p);
	memcpy(t + 16 + 2 * RECORD_BYTES, "a\0a", 4);
	assert_int_equal(read_table(t, sizeof(t), &p), -EBADMSG);
	buf_finish(&b);
}

/* Whatever bit changes, the table is refused or has kernels that can be used. */
static void changed_bits_do_no_harm(void **state)
{
	struct buf b = table_of("kernels.sm_90");
	struct cubin_patched *p;

	for (size_t bit = 0; bit < b.len * 8; bit++) {
		b.data[bit / 8] ^= (char)(1 << bit % 8);
		if (read_table(b.data, b.len, &p) == 0) {
			for (size_t i = 0; i < cubin_patched_kernels(p); i++) {
				const struct cubin_kernel *k = cubin_patched_kernel(p, i);

				assert_ptr_equal(cubin_patched_find(p, k->name), k);
				assert_true(k->why < CUBIN_WHY_COUNT);
			}
			cubin_patched_close(p);
		}
		b.data[bit / 8] ^= (char)(1 << bit % 8);
	}
	buf_finish(&b);
}

/* ---- images elsewhere ---- */

static unsigned released;

static void release(void *image, size_t bytes)
{
	released++;
}

static void an_image_can_be_elsewhere(void **state)
{
	static const char image[] = "image";
	struct cubin_patched *p = open_patched("kernels.sm_90");
	size_t bytes;

	assert_false(cubin_patched_image_is_set(p));
	cubin_patched_set_image(p, image, sizeof(image), release);
	assert_true(cubin_patched_image_is_set(p));
	assert_ptr_equal(cubin_patched_image(p, &bytes), image);
	assert_int_equal(bytes, sizeof(image));
	cubin_patched_drop_image(p);
	assert_int_equal(released, 1);
	assert_false(cubin_patched_image_is_set(p));
	cubin_patched_set_image(p, image, sizeof(image), release);
	cubin_patched_close(p);
	assert_int_equal(released, 2);
}

static void a_stub_has_an_identity(void **state)
{
	struct cubin_stub *same = open_stub(90), *other = open_stub(80);

	assert_int_equal(cubin_stub_hash(stub), cubin_stub_hash(same));
	assert_int_not_equal(cubin_stub_hash(stub), cubin_stub_hash(other));
	assert_int_not_equal(cubin_version(), 0);
	cubin_stub_close(same);
	cubin_stub_close(other);
}

static int setup(void **state)
{
	stub = open_stub(90);
	return 0;
}

static int teardown(void **state)
{
	cubin_stub_close(stub);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_survive),
		cmocka_unit_test(every_other_length_is_refused),
		cmocka_unit_test(wrong_counts_are_refused),
		cmocka_unit_test(unknown_values_are_refused),
		cmocka_unit_test(parameters_behind_the_argument_are_refused),
		cmocka_unit_test(wrong_names_are_refused),
		cmocka_unit_test(a_name_that_stands_twice_is_refused),
		cmocka_unit_test(changed_bits_do_no_harm),
		cmocka_unit_test(an_image_can_be_elsewhere),
		cmocka_unit_test(a_stub_has_an_identity),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
