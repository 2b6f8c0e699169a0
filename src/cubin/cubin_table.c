/* The kernels of a patched image as bytes, for storing with the image. Numbers are those of the
 * machine: the bytes never leave it. Reading trusts nothing: counts, lengths and places are checked
 * before use, and what no patcher writes is refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin_patched_int.h"

#define TABLE_MAGIC 0x62617463u
#define PARAM_BYTES_MAX 32764u /* CUDA 12.1 and later */

/* The fields of struct cubin_kernel that are stored. */
#define NUMBERS(X)                                                                                 \
	X(n_params)                                                                                \
	X(param_bytes)                                                                             \
	X(arg_offset)                                                                              \
	X(registers)                                                                               \
	X(patched_registers)                                                                       \
	X(barriers)                                                                                \
	X(max_threads)                                                                             \
	X(required_block[0])                                                                       \
	X(required_block[1])                                                                       \
	X(required_block[2])                                                                       \
	X(cluster[0])                                                                              \
	X(cluster[1])                                                                              \
	X(cluster[2])                                                                              \
	X(max_cluster_rank)                                                                        \
	X(code_bytes)
#define FLAGS(X)                                                                                   \
	X(explicit_cluster)                                                                        \
	X(blocks_are_clusters)                                                                     \
	X(sets_registers)                                                                          \
	X(waits_for_launch)                                                                        \
	X(triggers_launch)                                                                         \
	X(group_insns)                                                                             \
	X(indirect)                                                                                \
	X(system_calls)

#define ONE(field) +1
enum { N_NUMBERS = 0 NUMBERS(ONE), N_FLAGS = 0 FLAGS(ONE) };

/* A new field of a kernel must be added above. */
_Static_assert(sizeof(struct cubin_kernel) ==
		       2 * sizeof(void *) + 4 * (N_NUMBERS + 1) + sizeof(uint64_t) + N_FLAGS,
	       "each field of a kernel is stored");

/* The table: head, kernels, parameters of all kernels in their order, names with their zeros. */
struct head {
	uint32_t magic, kernels, params, name_bytes;
};

struct record {
	uint32_t why, flags, name_bytes; /* with the final zero */
	uint32_t numbers[N_NUMBERS];
	uint64_t code_hash;
};

_Static_assert(sizeof(struct record) == 3 * 4 + N_NUMBERS * 4 + 8, "no padding");

/* ---- writing ---- */

static struct record record_of(const struct cubin_kernel *k)
{
	struct record r = { .why = k->why,
			    .name_bytes = (uint32_t)strlen(k->name) + 1,
			    .code_hash = k->code_hash };
	unsigned n = 0, bit = 0;

#define PUT(field) r.numbers[n++] = k->field;
	NUMBERS(PUT)
#undef PUT
#define PUT(field) r.flags |= (uint32_t)k->field << bit++;
	FLAGS(PUT)
#undef PUT
	return r;
}

int cubin_table_write(const struct cubin_patched *p, struct buf *out)
{
	struct head h = { .magic = TABLE_MAGIC, .kernels = (uint32_t)p->n };

	for (size_t i = 0; i < p->n; i++) {
		h.params += p->kernels[i].n_params;
		h.name_bytes += (uint32_t)strlen(p->kernels[i].name) + 1;
	}
	buf_add(out, &h, sizeof(h));
	for (size_t i = 0; i < p->n; i++) {
		struct record r = record_of(&p->kernels[i]);

		buf_add(out, &r, sizeof(r));
	}
	for (size_t i = 0; i < p->n; i++) {
		const struct cubin_kernel *k = &p->kernels[i];

		if (k->n_params) {
			buf_add(out, k->params, k->n_params * sizeof(k->params[0]));
		}
	}
	for (size_t i = 0; i < p->n; i++) {
		buf_add(out, p->kernels[i].name, strlen(p->kernels[i].name) + 1);
	}
	return out->failed;
}

/* ---- reading ---- */

struct reader {
	struct head head;
	const unsigned char *records, *params;
	const char *names;
	uint32_t params_left, names_left;
};

/* Finds the parts, which must fill the table exactly. */
static int read_head(struct reader *r, const unsigned char *table, size_t bytes)
{
	size_t left;

	if (bytes < sizeof(r->head)) {
		return -EBADMSG;
	}
	memcpy(&r->head, table, sizeof(r->head));
	left = bytes - sizeof(r->head);
	if (r->head.magic != TABLE_MAGIC || r->head.kernels > left / sizeof(struct record)) {
		return -EBADMSG;
	}
	left -= r->head.kernels * sizeof(struct record);
	if (r->head.params > left / sizeof(struct cubin_param)) {
		return -EBADMSG;
	}
	left -= r->head.params * sizeof(struct cubin_param);
	if (r->head.name_bytes != left) {
		return -EBADMSG;
	}
	r->records = table + sizeof(r->head);
	r->params = r->records + r->head.kernels * sizeof(struct record);
	r->names = (const char *)r->params + r->head.params * sizeof(struct cubin_param);
	r->params_left = r->head.params;
	r->names_left = r->head.name_bytes;
	return 0;
}

static void fill_kernel(struct cubin_kernel *k, const struct record *r)
{
	unsigned n = 0, bit = 0;

	k->why = (enum cubin_why)r->why;
	k->code_hash = r->code_hash;
#define GET(field) k->field = r->numbers[n++];
	NUMBERS(GET)
#undef GET
#define GET(field) k->field = r->flags >> bit++ & 1;
	FLAGS(GET)
#undef GET
}

/* Checks what launches of a patched kernel rely on: its parameters lie in front of the stub's
 * argument. */
static bool is_sound(const struct cubin_kernel *k)
{
	if (k->why != CUBIN_OK) {
		return true;
	}
	if (k->param_bytes > k->arg_offset || k->arg_offset > PARAM_BYTES_MAX ||
	    k->arg_offset % 8) {
		return false;
	}
	for (uint32_t i = 0; i < k->n_params; i++) {
		if (k->params[i].offset > k->param_bytes ||
		    k->params[i].bytes > k->param_bytes - k->params[i].offset) {
			return false;
		}
	}
	return true;
}

static int add_name(struct cubin_patched *p, struct cubin_kernel *k, struct reader *r,
		    uint32_t bytes)
{
	int err;

	if (bytes < 2 || bytes > r->names_left || strnlen(r->names, bytes) != (size_t)bytes - 1) {
		return -EBADMSG;
	}
	err = strmap_add(&p->names, r->names, k);
	if (err < 0) {
		return err == -EEXIST ? -EBADMSG : err;
	}
	k->name = p->names.entries[p->names.n - 1].key;
	r->names += bytes;
	r->names_left -= bytes;
	return 0;
}

static int read_kernel(struct cubin_patched *p, size_t i, struct reader *r)
{
	struct cubin_kernel *k = &p->kernels[i];
	struct record record;

	memcpy(&record, r->records + i * sizeof(record), sizeof(record));
	if (record.why >= CUBIN_WHY_COUNT || record.flags >> N_FLAGS) {
		return -EBADMSG;
	}
	fill_kernel(k, &record);
	if (k->n_params > r->params_left) {
		return -EBADMSG;
	}
	k->params = p->params + (r->head.params - r->params_left);
	r->params_left -= k->n_params;
	p->patched += k->why == CUBIN_OK;
	return is_sound(k) ? add_name(p, k, r, record.name_bytes) : -EBADMSG;
}

static int read_kernels(struct cubin_patched *p, struct reader *r)
{
	int err = 0;

	p->n = r->head.kernels;
	p->kernels = calloc(p->n ? p->n : 1, sizeof(p->kernels[0]));
	p->params = calloc(r->head.params ? r->head.params : 1, sizeof(p->params[0]));
	if (!p->kernels || !p->params) {
		return -ENOMEM;
	}
	memcpy(p->params, r->params, r->head.params * sizeof(p->params[0]));
	for (size_t i = 0; i < p->n && !err; i++) {
		err = read_kernel(p, i, r);
	}
	return err ? err : r->params_left || r->names_left ? -EBADMSG : 0;
}

int cubin_table_read(struct cubin_patched **ret, const void *table, size_t bytes)
{
	struct cubin_patched *p;
	struct reader r;
	int err = read_head(&r, table, bytes);

	if (err < 0) {
		return err;
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		return -ENOMEM;
	}
	strmap_init(&p->names);
	err = read_kernels(p, &r);
	if (err < 0) {
		cubin_patched_close(p);
		return err;
	}
	*ret = p;
	return 0;
}
