// Variables of the device by their host addresses: copies with offsets, addresses, sizes, errors.
#include "runtime.h"

__device__ int counter = 5;
__device__ int table[8];
__constant__ float factors[4];
static __device__ int hidden = 7; // a mangled name of its own

__global__ void use(int *out)
{
	out[0] = counter + hidden;
	out[1] = (int)(factors[0] + factors[3]);
	counter = 100;
	table[3] += 1;
}

int main()
{
	int values[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, out[2], *device, other;
	float f[4] = { 1.5f, 0, 0, 2.5f };
	size_t bytes;
	void *address;

	OK(cudaMalloc((void **)&device, sizeof(out)));
	OK(cudaMemcpyToSymbol(&factors, f, sizeof(f), 0, cudaMemcpyHostToDevice));
	OK(cudaMemcpyToSymbol(&table, values, sizeof(values), 0, cudaMemcpyDefault));
	OK(cudaMemcpyToSymbol(&table, values, 4, 12, cudaMemcpyHostToDevice)); // table[3] = 1
	use<<<1, 1>>>(device);
	OK(cudaMemcpy(out, device, sizeof(out), cudaMemcpyDeviceToHost));
	CHECK(out[0] == 12 && out[1] == 4);
	OK(cudaMemcpyFromSymbol(&other, &counter, 4, 0, cudaMemcpyDeviceToHost));
	CHECK(other == 100);
	OK(cudaMemcpyFromSymbolAsync(values, &table, sizeof(values), 0, cudaMemcpyDeviceToHost, 0));
	OK(cudaDeviceSynchronize());
	CHECK(values[3] == 2 && values[7] == 8);

	OK(cudaGetSymbolSize(&bytes, &table));
	CHECK(bytes == sizeof(table));
	OK(cudaGetSymbolAddress(&address, &table));
	OK(cudaMemset(address, 0, bytes));
	OK(cudaMemcpyFromSymbol(values, &table, sizeof(values), 0, cudaMemcpyDeviceToHost));
	CHECK(values[0] == 0 && values[7] == 0);

	FAILS(cudaErrorInvalidSymbol, cudaGetSymbolAddress(&address, &values));
	FAILS(cudaErrorInvalidValue, cudaMemcpyToSymbol(&counter, values, 8, 0, cudaMemcpyHostToDevice));
	FAILS(cudaErrorInvalidValue, cudaMemcpyToSymbol(&counter, values, 4, 4, cudaMemcpyHostToDevice));
	FAILS(cudaErrorInvalidMemcpyDirection,
	      cudaMemcpyFromSymbol(values, &counter, 4, 0, cudaMemcpyHostToDevice));
	return 0;
}
