// Allocation of every kind, attributes of pointers, sets, and copies of every shape.
#include "runtime.h"

__global__ void fill(int *p, size_t pitch, int width, int height)
{
	for (int y = 0; y < height; y++) {
		if (THREAD < width) {
			((int *)((char *)p + y * pitch))[THREAD] = 100 * y + THREAD;
		}
	}
}

static void rows()
{
	int host[6][10], *device;
	size_t pitch;

	OK(cudaMallocPitch((void **)&device, &pitch, 40, 6));
	CHECK(pitch >= 40 && pitch % 32 == 0);
	fill<<<1, 32>>>(device, pitch, 10, 6);
	OK(cudaMemcpy2D(host, 40, device, pitch, 40, 6, cudaMemcpyDeviceToHost));
	CHECK(host[5][9] == 509 && host[2][3] == 203);
	OK(cudaMemset2D(device, pitch, 1, 8, 2));
	OK(cudaMemcpy2DAsync(host, 40, device, pitch, 40, 6, cudaMemcpyDefault, nullptr));
	OK(cudaStreamSynchronize(nullptr));
	CHECK(host[0][0] == 0x01010101 && host[1][1] == 0x01010101 && host[0][2] == 2 && host[2][0] == 200);
	FAILS(cudaErrorInvalidPitchValue, cudaMemcpy2D(host, 20, device, pitch, 40, 6, cudaMemcpyDeviceToHost));
	OK(cudaFree(device));
}

static void boxes()
{
	cudaMemcpy3DParms p = {};
	cudaPitchedPtr box;
	cudaExtent extent = { 40, 4, 3 };
	int in[3][4][10], out[3][4][10] = {};

	for (int i = 0; i < 120; i++) {
		((int *)in)[i] = i;
	}
	OK(cudaMalloc3D(&box, extent));
	CHECK(box.xsize == 40 && box.ysize == 4);
	OK(cudaMemset3D(box, 0xff, extent));
	p.srcPtr = { in, 40, 40, 4 };
	p.dstPtr = box;
	p.extent = { 36, 3, 3 };
	p.srcPos = { 4, 1, 0 };
	p.dstPos = { 4, 1, 0 };
	p.kind = cudaMemcpyHostToDevice;
	OK(cudaMemcpy3D(&p));
	p = {};
	p.srcPtr = box;
	p.dstPtr = { out, 40, 40, 4 };
	p.extent = extent;
	p.kind = cudaMemcpyDeviceToHost;
	OK(cudaMemcpy3DAsync(&p, nullptr));
	OK(cudaDeviceSynchronize());
	CHECK(out[2][3][9] == 119 && out[1][1][1] == in[1][1][1] && out[1][1][0] == -1 && out[2][0][5] == -1);
	// slices further apart than the copied rows, on both sides
	p = {};
	p.srcPtr = { in, 40, 40, 4 };
	p.dstPtr = box;
	p.extent = { 40, 2, 3 };
	p.kind = cudaMemcpyHostToDevice;
	OK(cudaMemset3D(box, 0, extent));
	OK(cudaMemcpy3D(&p));
	p.srcPtr = box;
	p.dstPtr = { out, 40, 40, 4 };
	p.extent = extent;
	p.kind = cudaMemcpyDeviceToHost;
	OK(cudaMemcpy3D(&p));
	CHECK(out[1][0][0] == in[1][0][0] && out[2][1][9] == in[2][1][9] && out[1][2][0] == 0 && out[2][3][9] == 0);
	OK(cudaFree(box.ptr));
}

static void arrays()
{
	cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat), got;
	cudaMemcpy3DParms p = {};
	cudaExtent extent;
	unsigned flags;
	cudaArray_t array, other;
	float in[6][8], out[6][8];

	for (int i = 0; i < 48; i++) {
		((float *)in)[i] = (float)i;
	}
	OK(cudaMallocArray(&array, &desc, 8, 6, 0));
	OK(cudaMallocArray(&other, &desc, 8, 6, 0));
	OK(cudaArrayGetInfo(&got, &extent, &flags, array));
	CHECK(got.x == 32 && got.y == 0 && got.f == cudaChannelFormatKindFloat);
	CHECK(extent.width == 8 && extent.height == 6 && extent.depth == 0 && flags == 0);
	OK(cudaMemcpy2DToArray(array, 0, 0, in, 32, 32, 6, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, 32, 6, cudaMemcpyDeviceToDevice));
	OK(cudaMemcpy2DFromArray(out, 32, other, 0, 0, 32, 6, cudaMemcpyDeviceToHost));
	CHECK(out[0][0] == 0 && out[5][7] == 47);
	// bytes that run over the ends of rows
	OK(cudaMemcpyToArray(array, 24, 1, in, 4 * 20, cudaMemcpyHostToDevice));
	OK(cudaMemcpyFromArray(out, array, 24, 1, 4 * 20, cudaMemcpyDeviceToHost));
	CHECK(((float *)out)[0] == 0 && ((float *)out)[19] == 19);
	OK(cudaMemcpy2DFromArray(out, 32, array, 0, 0, 32, 6, cudaMemcpyDeviceToHost));
	CHECK(out[1][5] == 13 && out[1][6] == 0 && out[2][0] == 2 && out[4][1] == 19 && out[4][2] == 34);
	// elements of an array, not bytes
	p.srcArray = array;
	p.srcPos = { 2, 0, 0 };
	p.dstPtr = { out, 32, 32, 6 };
	p.extent = { 3, 1, 1 };
	p.kind = cudaMemcpyDeviceToHost;
	OK(cudaMemcpy3D(&p));
	CHECK(out[0][0] == 2 && out[0][2] == 4 && out[0][3] == 3);
	OK(cudaFreeArray(array));
	OK(cudaFreeArray(other));
	OK(cudaFreeArray(nullptr));
	desc.y = 16;
	FAILS(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&array, &desc, 8, 6, 0));
}

static void pointers()
{
	cudaPointerAttributes a;
	int on_stack, *device, *pinned, *managed, *mapped;

	OK(cudaMalloc((void **)&device, 64));
	OK(cudaMallocHost((void **)&pinned, 64));
	OK(cudaMallocManaged((void **)&managed, 64, 1));
	OK(cudaPointerGetAttributes(&a, &on_stack));
	CHECK(a.type == cudaMemoryTypeUnregistered);
	OK(cudaPointerGetAttributes(&a, device));
	CHECK(a.type == cudaMemoryTypeDevice && a.device == 0 && a.devicePointer == device && !a.hostPointer);
	OK(cudaPointerGetAttributes(&a, pinned));
	CHECK(a.type == cudaMemoryTypeHost && a.hostPointer == pinned);
	OK(cudaPointerGetAttributes(&a, managed));
	CHECK(a.type == cudaMemoryTypeManaged);
	OK(cudaHostGetDevicePointer((void **)&mapped, pinned, 0));
	fill<<<1, 16>>>(mapped, 0, 16, 1);
	fill<<<1, 16>>>(managed, 0, 16, 1);
	OK(cudaDeviceSynchronize());
	CHECK(pinned[15] == 15 && managed[7] == 7);
	OK(cudaFree(managed));
	OK(cudaFreeHost(pinned));
	OK(cudaFreeHost(nullptr));
	OK(cudaFree(device));
}

static void pools()
{
	cudaMemPool_t pool;
	cudaStream_t stream;
	int *p, value;

	OK(cudaStreamCreate(&stream));
	OK(cudaMallocAsync((void **)&p, 400, stream));
	fill<<<1, 32, 0, stream>>>(p, 0, 20, 1);
	OK(cudaMemcpyAsync(&value, p + 19, 4, cudaMemcpyDeviceToHost, stream));
	OK(cudaFreeAsync(p, stream));
	OK(cudaStreamSynchronize(stream));
	CHECK(value == 19);
	OK(cudaDeviceGetDefaultMemPool(&pool, 0));
	OK(cudaMallocFromPoolAsync((void **)&p, 64, pool, stream));
	OK(cudaFreeAsync(p, stream));
	OK(cudaMemPoolTrimTo(pool, 0));
	OK(cudaStreamDestroy(stream));
	FAILS(cudaErrorInvalidResourceHandle, cudaStreamDestroy(nullptr));
}

int main()
{
	size_t free_bytes, total;

	rows();
	boxes();
	arrays();
	pointers();
	pools();
	OK(cudaMemGetInfo(&free_bytes, &total));
	CHECK(free_bytes > 0 && free_bytes <= total);
	return 0;
}
