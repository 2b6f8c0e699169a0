/* y = A x in double precision, A in compressed rows, one warp per row. */
#include "cuda_words.h"

KERNEL spmv(const int *row, const int *col, const double *val, const double *x, double *y, int n)
{
	int warp = GLOBAL_INDEX / 32, lane = threadIdx_x % 32;
	double sum = 0;

	if (warp >= n) {
		return;
	}
	for (int e = row[warp] + lane; e < row[warp + 1]; e += 32) {
		sum = __builtin_fma(val[e], x[col[e]], sum);
	}
	for (int d = 16; d > 0; d /= 2) {
		long long bits = __builtin_bit_cast(long long, sum);
		int lo = __nvvm_shfl_sync_down_i32(-1, (int)bits, d, 31);
		int hi = __nvvm_shfl_sync_down_i32(-1, (int)(bits >> 32), d, 31);

		sum += __builtin_bit_cast(double, (long long)(((unsigned long long)(unsigned)hi << 32) | (unsigned)lo));
	}
	if (lane == 0) {
		y[warp] = sum;
	}
}
