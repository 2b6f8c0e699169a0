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

// Each field of a description is the one it was made with, and sRGB decodes.
static void descriptions()
{
	cudaChannelFormatDesc desc = cudaCreateChannelDesc(8, 8, 8, 8, cudaChannelFormatKindUnsigned);
	cudaResourceDesc r = {};
	cudaTextureDesc t = {}, got;
	cudaArray_t array;
	CUtexObject texture;
	unsigned texel = 188u << 24 | 188u << 16 | 188u << 8 | 188u;

	OK(cudaMallocArray(&array, &desc, 1, 1, 0));
	OK(cudaMemcpy2DToArray(array, 0, 0, &texel, 4, 4, 1, cudaMemcpyHostToDevice));
	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	t.addressMode[0] = (CUaddress_mode)3; // border
	t.addressMode[1] = (CUaddress_mode)1;
	t.addressMode[2] = (CUaddress_mode)2; // mirror
	t.readMode = cudaReadModeNormalizedFloat;
	t.sRGB = 1;
	t.normalizedCoords = 1;
	t.borderColor[0] = 0.25f;
	t.borderColor[3] = 0.75f;
	t.maxAnisotropy = 4;
	t.mipmapFilterMode = (CUfilter_mode)1;
	t.mipmapLevelBias = 0.5f;
	t.minMipmapLevelClamp = 1.0f;
	t.maxMipmapLevelClamp = 2.0f;
	OK(cudaCreateTextureObject(&texture, &r, &t, nullptr));
	OK(cudaGetTextureObjectTextureDesc(&got, texture));
	CHECK(got.addressMode[0] == 3 && got.addressMode[1] == 1 && got.addressMode[2] == 2);
	CHECK(got.readMode == cudaReadModeNormalizedFloat && got.sRGB == 1 && got.normalizedCoords == 1);
	CHECK(got.borderColor[0] == 0.25f && got.borderColor[1] == 0 && got.borderColor[3] == 0.75f);
	CHECK(got.maxAnisotropy == 4 && got.mipmapFilterMode == 1 && got.mipmapLevelBias == 0.5f);
	CHECK(got.minMipmapLevelClamp == 1.0f && got.maxMipmapLevelClamp == 2.0f);
	fetch<<<1, 1>>>(texture, 0.5f, 0.5f, out);
	CHECK(value() > 0.49f && value() < 0.52f); // 0.737 without sRGB
	OK(cudaDestroyTextureObject(texture));
	OK(cudaFreeArray(array));

	desc = cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned);
	FAILS(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&array, &desc, 1, 1, 0));
	desc = cudaCreateChannelDesc(8, 0, 8, 0, cudaChannelFormatKindUnsigned);
	FAILS(cudaErrorInvalidChannelDescriptor, cudaMallocArray(&array, &desc, 1, 1, 0));
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
	descriptions();
	return 0;
}
