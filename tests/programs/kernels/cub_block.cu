// Templates of a real library: block scan, block reduction and block radix sort of CUB.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>

extern "C" __global__ __launch_bounds__(128) void cubSort(int *out, const int *in)
{
	typedef cub::BlockRadixSort<int, 128, 4> Sort;
	typedef cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_TRANSPOSE> Load;
	typedef cub::BlockStore<int, 128, 4, cub::BLOCK_STORE_TRANSPOSE> Store;
	__shared__ union {
		typename Sort::TempStorage sort;
		typename Load::TempStorage load;
		typename Store::TempStorage store;
	} room;
	int v[4];

	Load(room.load).Load(in + blockIdx.x * 512, v);
	__syncthreads();
	Sort(room.sort).Sort(v);
	__syncthreads();
	Store(room.store).Store(out + blockIdx.x * 512, v);
}

extern "C" __global__ __launch_bounds__(128) void cubScan(int *out, int *sums, const int *in)
{
	typedef cub::BlockScan<int, 128> Scan;
	typedef cub::BlockReduce<int, 128, cub::BLOCK_REDUCE_WARP_REDUCTIONS> Reduce;
	__shared__ typename Scan::TempStorage scan;
	__shared__ typename Reduce::TempStorage reduce;
	int v[4], total, at = blockIdx.x * 512 + threadIdx.x * 4;

	for (int i = 0; i < 4; i++) {
		v[i] = in[at + i];
	}
	int largest = Reduce(reduce).Reduce(max(max(v[0], v[1]), max(v[2], v[3])),
					    [](int a, int b) { return a > b ? a : b; });
	Scan(scan).ExclusiveSum(v, v, total);
	for (int i = 0; i < 4; i++) {
		out[at + i] = v[i];
	}
	if (threadIdx.x == 0) {
		sums[2 * blockIdx.x] = total;
		sums[2 * blockIdx.x + 1] = largest;
	}
}
