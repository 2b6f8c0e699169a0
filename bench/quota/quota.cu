/* The kernels of `gbpf bench memory`, which use memory that may have left the device. stride: they
 * use one word in that many, so that the soft GPU, too, touches all pages of much memory. Built by
 * clang without the CUDA SDK. */
#define GLOBAL extern "C" __attribute__((global)) void

typedef unsigned long long u64;

static __attribute__((device)) u64 first(void)
{
	return (u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

static __attribute__((device)) u64 threads(void)
{
	return (u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
}

/* a[i] = a[i] * 1664525 + i + seed */
GLOBAL quota_mix(unsigned *a, u64 words, u64 stride, unsigned seed)
{
	u64 step = threads() * stride;

	for (u64 i = first() * stride; i < words; i += step) {
		a[i] = a[i] * 1664525u + (unsigned)i + seed;
	}
}

/* A layer of a cycle: reads it, and with `change` writes it, and adds what it has read to the sum of
 * each thread. */
GLOBAL quota_layer(unsigned *a, u64 words, u64 stride, unsigned reads, unsigned change, unsigned *sums)
{
	u64 step = threads() * stride;
	unsigned sum = sums[first()];

	for (unsigned r = 1; r <= reads; r++) {
		for (u64 i = first() * stride; i < words; i += step) {
			unsigned v = a[i];

			sum += v * r;
			if (change) {
				a[i] = v * 1664525u + (unsigned)i;
			}
		}
	}
	sums[first()] = sum;
}

/* The programs of a pair. They compute in integers, so that results are exact in any order. A cell is one word in `stride`. */

/* b[i] = 2 a[i] + a[i - 1] + a[i + 1] + a[i - row] + a[i + row], on a torus. */
GLOBAL quota_stencil(const unsigned *a, unsigned *b, u64 cells, u64 stride, u64 row)
{
	u64 step = threads();

	for (u64 i = first(); i < cells; i += step) {
		u64 west = i ? i - 1 : cells - 1, east = i + 1 < cells ? i + 1 : 0;
		u64 north = i >= row ? i - row : i + cells - row, south = i + row < cells ? i + row : i + row - cells;

		b[i * stride] = 2 * a[i * stride] + a[west * stride] + a[east * stride] + a[north * stride] + a[south * stride];
	}
}

#define TILE 8 /* rows that a thread computes of a column */

/* Rows from..from + rows of c = a b, of matrices of n x n; rows: a multiple of TILE. */
GLOBAL quota_product(const unsigned *a, const unsigned *b, unsigned *c, u64 n, u64 stride, u64 from, u64 rows)
{
	u64 step = threads(), items = rows / TILE * n;

	for (u64 t = first(); t < items; t += step) {
		u64 row = from + t / n * TILE, column = t % n;
		unsigned sum[TILE] = {};

		for (u64 k = 0; k < n; k++) {
			unsigned v = b[(k * n + column) * stride];

#pragma unroll
			for (unsigned r = 0; r < TILE; r++) {
				sum[r] += a[((row + r) * n + k) * stride] * v;
			}
		}
#pragma unroll
		for (unsigned r = 0; r < TILE; r++) {
			c[((row + r) * n + column) * stride] = sum[r];
		}
	}
}

#define CENTRES 16
#define DIMENSIONS 3
#define SPREAD 256 /* rows of partial sums, so that threads seldom add to the same ones */
#define BATCH 16   /* one point in that many moves its centre, as in k-means by mini-batches */

/* Labels each point with the nearest centre, by the sum of absolute differences, and adds points to the sums of theirs.
 * points: DIMENSIONS planes; sums: SPREAD rows with a count and DIMENSIONS sums for each centre. */
GLOBAL quota_assign(const unsigned *points, unsigned *labels, const unsigned *centres, u64 *sums, u64 n, u64 stride)
{
	u64 step = threads(), *mine = sums + first() % SPREAD * CENTRES * (DIMENSIONS + 1);

	for (u64 i = first(); i < n; i += step) {
		unsigned v[DIMENSIONS], best = 0, least = ~0u;

#pragma unroll
		for (unsigned d = 0; d < DIMENSIONS; d++) {
			v[d] = points[(d * n + i) * stride] >> 16;
		}
		for (unsigned k = 0; k < CENTRES; k++) {
			unsigned away = 0;

#pragma unroll
			for (unsigned d = 0; d < DIMENSIONS; d++) {
				unsigned c = centres[k * DIMENSIONS + d];

				away += v[d] > c ? v[d] - c : c - v[d];
			}
			if (away < least) {
				least = away;
				best = k;
			}
		}
		labels[i * stride] = best;
		if (i % BATCH == 0) {
			u64 *at = mine + best * (DIMENSIONS + 1);

			__sync_fetch_and_add(at, 1ull);
#pragma unroll
			for (unsigned d = 0; d < DIMENSIONS; d++) {
				__sync_fetch_and_add(at + 1 + d, (u64)v[d]);
			}
		}
	}
}

/* Moves each centre to the mean of its points, and clears the sums. Launched with a thread for each centre. */
GLOBAL quota_centres(unsigned *centres, u64 *sums)
{
	u64 k = first(), total[DIMENSIONS + 1] = {};

	for (unsigned row = 0; row < SPREAD; row++) {
		u64 *at = sums + (row * CENTRES + k) * (DIMENSIONS + 1);

#pragma unroll
		for (unsigned d = 0; d <= DIMENSIONS; d++) {
			total[d] += at[d];
			at[d] = 0;
		}
	}
#pragma unroll
	for (unsigned d = 0; d < DIMENSIONS; d++) {
		if (total[0]) {
			centres[k * DIMENSIONS + d] = (unsigned)(total[d + 1] / total[0]);
		}
	}
}
