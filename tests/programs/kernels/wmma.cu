// A product of matrices of halves through nvcuda::wmma: 16x16x16 tiles, one warp a tile.
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void wmmaProduct(float *d, const __half *a, const __half *b, int m, int n, int k)
{
	int row = blockIdx.y * 16, col = blockIdx.x * 16;
	wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> fa;
	wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> fb;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;

	wmma::fill_fragment(sum, 0.0f);
	for (int i = 0; i < k; i += 16) {
		wmma::load_matrix_sync(fa, a + row * k + i, k);
		wmma::load_matrix_sync(fb, b + col * k + i, k);
		wmma::mma_sync(sum, fa, fb, sum);
	}
	wmma::store_matrix_sync(d + row * n + col, sum, n, wmma::mem_row_major);
}
