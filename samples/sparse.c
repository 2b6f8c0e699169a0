/* bfs, spmv: irregular data in compressed rows. */
#include <stdlib.h>

#include "sample.h"

/* Creates a graph of n vertices with 0-15 edges each; row has n + 1 entries. Caller frees both. */
static void random_graph(int n, uint64_t seed, int **ret_row, int **ret_col)
{
	int *row = sample_alloc((size_t)n + 1, 4), *col = sample_alloc((size_t)n * 16, 4),
	    edges = 0;

	for (int v = 0; v < n; v++) {
		int degree = (int)(sample_random(&seed) % 16);

		row[v] = edges;
		for (int k = 0; k < degree; k++) {
			col[edges++] = (int)(sample_random(&seed) % (uint64_t)n);
		}
	}
	row[n] = edges;
	*ret_row = row;
	*ret_col = col;
}

static void bfs_on_cpu(const int *row, const int *col, int *level, int n)
{
	int *queue = sample_alloc((size_t)n, 4), head = 0, tail = 0;

	queue[tail++] = 0;
	level[0] = 0;
	while (head < tail) {
		int v = queue[head++];

		for (int e = row[v]; e < row[v + 1]; e++) {
			if (level[col[e]] < 0) {
				level[col[e]] = level[v] + 1;
				queue[tail++] = col[e];
			}
		}
	}
	free(queue);
}

bool bfs(int n)
{
	CUfunction f = sample_function(sample_module(ptx_bfs), "bfs_level");
	int *row, *col, *want = sample_alloc((size_t)n, 4), *got = sample_alloc((size_t)n, 4),
			found = 1;
	CUdeviceptr drow, dcol, dlevel, dfound = sample_zeros(4);
	bool ok = true;

	random_graph(n, 15, &row, &col);
	for (int v = 0; v < n; v++) {
		want[v] = got[v] = -1;
	}
	got[0] = 0;
	drow = sample_upload(row, ((size_t)n + 1) * 4);
	dcol = sample_upload(col, (size_t)n * 64);
	dlevel = sample_upload(got, (size_t)n * 4);
	for (int now = 0; found && now < n; now++) {
		CHECK(cuMemsetD32(dfound, 0, 1));
		sample_launch(f, (unsigned)(n + 127) / 128, 128,
			      ARGS(&drow, &dcol, &dlevel, &now, &dfound, &n));
		CHECK(cuMemcpyDtoH(&found, dfound, 4));
	}
	sample_download(got, dlevel, (size_t)n * 4);
	bfs_on_cpu(row, col, want, n);
	for (int v = 0; v < n; v++) {
		ok = ok && got[v] == want[v];
	}
	CHECK(cuMemFree(drow));
	CHECK(cuMemFree(dcol));
	CHECK(cuMemFree(dfound));
	free(row);
	free(col);
	free(want);
	free(got);
	return ok;
}

bool spmv(int n)
{
	CUfunction f = sample_function(sample_module(ptx_spmv), "spmv");
	int rows = n / 8 > 0 ? n / 8 : 1, *row, *col;
	double *val = sample_alloc((size_t)rows * 16, 8), *x = sample_alloc((size_t)rows, 8);
	double *y = sample_alloc((size_t)rows, 8);
	uint64_t seed = 16;
	CUdeviceptr drow, dcol, dval, dx, dy = sample_zeros((size_t)rows * 8);
	bool ok = true;

	random_graph(rows, 17, &row, &col);
	for (int i = 0; i < rows * 16; i++) {
		val[i] = (double)sample_random_float(&seed);
	}
	for (int i = 0; i < rows; i++) {
		x[i] = (double)sample_random_float(&seed);
	}
	drow = sample_upload(row, ((size_t)rows + 1) * 4);
	dcol = sample_upload(col, (size_t)rows * 64);
	dval = sample_upload(val, (size_t)rows * 128);
	dx = sample_upload(x, (size_t)rows * 8);
	sample_launch(f, (unsigned)(rows + 3) / 4, 128, ARGS(&drow, &dcol, &dval, &dx, &dy, &rows));
	sample_download(y, dy, (size_t)rows * 8);
	for (int r = 0; r < rows; r++) {
		double sum = 0;

		for (int e = row[r]; e < row[r + 1]; e++) {
			sum += val[e] * x[col[e]];
		}
		ok = ok && sample_close(y[r], sum, 1e-12);
	}
	CHECK(cuMemFree(drow));
	CHECK(cuMemFree(dcol));
	CHECK(cuMemFree(dval));
	CHECK(cuMemFree(dx));
	free(row);
	free(col);
	free(val);
	free(x);
	free(y);
	return ok;
}
