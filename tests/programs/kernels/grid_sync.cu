// Cooperative groups: a barrier of the whole grid between the steps of a sum, tiles of a warp, and
// groups of the lanes that happen to be here.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void sumOfGrid(long long *sums, const int *in, int n)
{
	extern __shared__ long long part[];
	cg::grid_group grid = cg::this_grid();
	cg::thread_block block = cg::this_thread_block();
	cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
	long long sum = 0;

	for (unsigned long long i = grid.thread_rank(); i < (unsigned)n; i += grid.size()) {
		sum += in[i];
	}
	for (int step = tile.size() / 2; step > 0; step /= 2) {
		sum += tile.shfl_down(sum, step);
	}
	if (tile.thread_rank() == 0) {
		part[tile.meta_group_rank()] = sum;
	}
	cg::sync(block);
	if (block.thread_rank() == 0) {
		for (unsigned i = 1; i < tile.meta_group_size(); i++) {
			sum += part[i];
		}
		sums[blockIdx.x] = sum;
	}
	cg::sync(grid);
	for (unsigned left = gridDim.x; left > 1; left = (left + 1) / 2) {
		if (block.thread_rank() == 0 && blockIdx.x < left / 2) {
			sums[blockIdx.x] += sums[blockIdx.x + (left + 1) / 2];
		}
		cg::sync(grid);
	}
}

extern "C" __global__ void groupsOfLanes(int *out, const int *in, int *counter)
{
	cg::thread_block block = cg::this_thread_block();
	cg::thread_block_tile<8> eight = cg::tiled_partition<8>(cg::tiled_partition<32>(block));
	int i = block.thread_rank(), v = in[i];

	for (int step = 4; step > 0; step /= 2) {
		v += eight.shfl_xor(v, step);
	}
	v += eight.any(in[i] == 5) ? 1000 : 0;
	v += __popc(eight.ballot(in[i] & 1)) * 10000;
	if (in[i] % 3 == 0) {
		cg::coalesced_group here = cg::coalesced_threads();
		int first = 0;

		if (here.thread_rank() == 0) {
			first = atomicAdd(counter, (int)here.size());
		}
		here.shfl(first, 0);
		v += (int)here.size() * 100000 + (int)here.thread_rank() * 10000000;
	}
	out[i] = v;
}
