/* bfs, spmv as workloads: irregular data in compressed rows. n is the number of rows. */
#include <stdlib.h>

#include "bench/probe/bench_sample.h"

#define EDGES_MAX 15u /* of a row */

extern const char ptx_bfs[], ptx_spmv[];

static unsigned degree_of(uint64_t row)
{
	return bench_sample_number(17, row, EDGES_MAX + 1);
}

static int target_of(const struct bench_sample *s, uint64_t edge)
{
	return (int)bench_sample_number(18, edge, s->n);
}

/* Adds the beginnings of rows, and the rows' targets. */
static int add_rows(struct bench_probe *p, struct bench_sample *s)
{
	int *row = calloc((size_t)s->n + 1, sizeof(*row)), err = 0;
	int *col = calloc((size_t)s->n * EDGES_MAX, sizeof(*col));
	int edges = 0;

	for (unsigned v = 0; row && col && v < s->n; v++) {
		row[v] = edges;
		for (unsigned k = degree_of(v); k; k--, edges++) {
			col[edges] = target_of(s, (uint64_t)edges);
		}
	}
	if (row && col) {
		row[s->n] = edges;
		err = bench_sample_add(p, s, row, (size_t)4 * (s->n + 1), false) ||
		      bench_sample_add(p, s, col, (size_t)4 * EDGES_MAX * s->n, false);
	} else {
		err = bench_testbed_fail(&p->testbed, "out of memory");
	}
	free(row);
	free(col);
	return err;
}

/* ---- bfs: one level of a search that has come to every third vertex ---- */

static int level_of(uint64_t v)
{
	return v % 3 ? -1 : 0;
}

static int set_up_bfs(struct bench_probe *p, struct bench_sample *s)
{
	int *level = calloc(s->n, sizeof(*level)), err;
	struct bench_sample_buffer *b = s->buffer;

	for (unsigned v = 0; level && v < s->n; v++) {
		level[v] = level_of(v);
	}
	s->number[0] = 0;
	s->number[1] = (int)s->n;
	s->result = 2;
	bench_sample_launch(s, (s->n + 127) / 128, 1, 128, 1, &b[0].at, &b[1].at, &b[2].at,
			    &s->number[0], &b[3].at, &s->number[1], NULL);
	err = !level ? bench_testbed_fail(&p->testbed, "out of memory")
		     : add_rows(p, s) || bench_sample_add(p, s, level, (size_t)4 * s->n, true) ||
			       bench_sample_add(p, s, NULL, 4, true);
	free(level);
	return err;
}

static bool is_right_bfs(const struct bench_sample *s, const void *result)
{
	int *want = calloc(s->n, sizeof(*want));
	const int *level = result;
	bool right = want != NULL;
	uint64_t edge = 0;

	for (unsigned v = 0; want && v < s->n; v++) {
		want[v] = want[v] ? want[v] : level_of(v);
		for (unsigned k = degree_of(v); k; k--, edge++) {
			int to = target_of(s, edge);

			if (level_of(v) == 0 && level_of((uint64_t)to) < 0) {
				want[to] = 1;
			}
		}
	}
	for (unsigned v = 0; right && v < s->n; v++) {
		right = level[v] == want[v];
	}
	free(want);
	return right;
}

/* ---- spmv ---- */

static int add_doubles(struct bench_probe *p, struct bench_sample *s, unsigned seed, size_t n)
{
	double *v = calloc(n, sizeof(*v));
	int err;

	for (size_t i = 0; v && i < n; i++) {
		v[i] = (double)bench_sample_float(seed, i);
	}
	err = v ? bench_sample_add(p, s, v, n * sizeof(*v), false)
		: bench_testbed_fail(&p->testbed, "out of memory");
	free(v);
	return err;
}

static int set_up_spmv(struct bench_probe *p, struct bench_sample *s)
{
	struct bench_sample_buffer *b = s->buffer;

	s->number[0] = (int)s->n;
	s->result = 4;
	bench_sample_launch(s, (s->n + 3) / 4, 1, 128, 1, &b[0].at, &b[1].at, &b[2].at, &b[3].at,
			    &b[4].at, &s->number[0], NULL);
	return add_rows(p, s) || add_doubles(p, s, 19, (size_t)EDGES_MAX * s->n) ||
	       add_doubles(p, s, 20, s->n) || bench_sample_add(p, s, NULL, (size_t)8 * s->n, true);
}

static bool is_right_spmv(const struct bench_sample *s, const void *result)
{
	const double *y = result;
	uint64_t edge = 0;
	bool right = true;

	for (unsigned v = 0; v < s->n; v++) {
		double sum = 0;

		for (unsigned k = degree_of(v); k; k--, edge++) {
			sum += (double)bench_sample_float(19, edge) *
			       (double)bench_sample_float(20, (uint64_t)target_of(s, edge));
		}
		right = right && bench_sample_close(y[v], sum, 1e-12);
	}
	return right;
}

const struct bench_sample_kind bench_sample_sparse[] = {
	{ .name = "bfs",
	  .pattern = "bfs_level",
	  .ptx = ptx_bfs,
	  .kernels = { "bfs_level" },
	  .n = { 1u << 18, 128 },
	  .n_soft = 1024,
	  .set_up = set_up_bfs,
	  .is_right = is_right_bfs,
	  .is_sample = true,
	  .is_racy = true },
	{ .name = "spmv",
	  .pattern = "spmv",
	  .ptx = ptx_spmv,
	  .kernels = { "spmv" },
	  .n = { 1u << 17, 4 },
	  .n_soft = 64,
	  .set_up = set_up_spmv,
	  .is_right = is_right_spmv,
	  .is_sample = true },
	{ .name = NULL },
};
