// Texture and surface objects over arrays and memory, and what is asked about them.
#include "runtime.h"

__global__ void fetch(CUtexObject texture, float x, float y, float *out)
{
	float a, b, c, d;

	asm volatile("tex.2d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5, %6}];"
		     : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
		     : "l"(texture), "f"(x), "f"(y));
	*out = a;
}

__global__ void fetch_line(CUtexObject texture, int x, float *out)
{
	float a, b, c, d;

	asm volatile("tex.1d.v4.f32.s32 {%0, %1, %2, %3}, [%4, {%5}];"
		     : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
		     : "l"(texture), "r"(x));
	*out = a;
}

__global__ void store(CUsurfObject surface, int x, int y, float value)
{
	asm volatile("sust.b.2d.b32.trap [%0, {%1, %2}], {%3};"
		     :
		     : "l"(surface), "r"(4 * x), "r"(y), "f"(value));
}

static float *out;

static float value()
{
	float v;

	OK(cudaMemcpy(&v, out, 4, cudaMemcpyDeviceToHost));
	return v;
}

int main()
{
	cudaChannelFormatDesc desc = cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
	cudaResourceDesc r = {}, r2;
	cudaTextureDesc t = {}, t2;
	cudaArray_t array;
	CUtexObject texture, line;
	CUsurfObject surface;
	float host[4][8], *device;

	for (int i = 0; i < 32; i++) {
		((float *)host)[i] = (float)i;
	}
	OK(cudaMalloc((void **)&out, 4));
	OK(cudaMallocArray(&array, &desc, 8, 4, CUDA_ARRAY3D_SURFACE_LDST));
	OK(cudaMemcpy2DToArray(array, 0, 0, host, 32, 32, 4, cudaMemcpyHostToDevice));
	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	t.addressMode[0] = t.addressMode[1] = (CUaddress_mode)1; // clamp
	t.filterMode = (CUfilter_mode)1;			   // linear
	OK(cudaCreateTextureObject(&texture, &r, &t, nullptr));
	fetch<<<1, 1>>>(texture, 3.5f, 1.5f, out);
	CHECK(value() == 11.0f);
	fetch<<<1, 1>>>(texture, 4.0f, 2.0f, out); // between four
	CHECK(value() == 15.5f);
	fetch<<<1, 1>>>(texture, -5.0f, 100.0f, out);
	CHECK(value() == 24.0f);
	OK(cudaGetTextureObjectResourceDesc(&r2, texture));
	OK(cudaGetTextureObjectTextureDesc(&t2, texture));
	CHECK(r2.resType == cudaResourceTypeArray && r2.res.array.array == array);
	CHECK(t2.filterMode == t.filterMode && t2.readMode == cudaReadModeElementType && !t2.normalizedCoords);

	OK(cudaCreateSurfaceObject(&surface, &r));
	store<<<1, 1>>>(surface, 3, 1, 0.25f);
	fetch<<<1, 1>>>(texture, 3.5f, 1.5f, out);
	CHECK(value() == 0.25f);
	OK(cudaDestroySurfaceObject(surface));
	OK(cudaDestroyTextureObject(texture));

	OK(cudaMalloc((void **)&device, 128));
	OK(cudaMemcpy(device, host, 128, cudaMemcpyHostToDevice));
	r = {};
	r.resType = cudaResourceTypeLinear;
	r.res.linear.devPtr = device;
	r.res.linear.desc = desc;
	r.res.linear.sizeInBytes = 128;
	t = {};
	OK(cudaCreateTextureObject(&line, &r, &t, nullptr));
	fetch_line<<<1, 1>>>(line, 29, out);
	CHECK(value() == 29.0f);
	OK(cudaGetTextureObjectResourceDesc(&r2, line));
	CHECK(r2.res.linear.devPtr == device && r2.res.linear.desc.x == 32 && r2.res.linear.desc.y == 0);
	OK(cudaDestroyTextureObject(line));
	FAILS(cudaErrorInvalidValue, cudaCreateTextureObject(nullptr, &r, &t, nullptr));
	return 0;
}
