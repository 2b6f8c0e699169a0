// Pointers to device functions in memory, calls of virtual functions, recursion, votes, a switch.
#include "words.h"

typedef int (*Operation)(int, int);
static __device__ int sum(int a, int b) { return a + b; }
static __device__ int difference(int a, int b) { return a - b; }
static __device__ __attribute__((noinline)) int product(int a, int b) { return a * b; }
__device__ Operation table[3] = { sum, difference, product };
__device__ Operation chosen;

struct Shape {
	__device__ virtual int area() const = 0;
	__device__ virtual int corners() const { return 0; }
};
struct Square : Shape {
	int side;
	__device__ Square(int s) : side(s) {}
	__device__ int area() const override { return side * side; }
	__device__ int corners() const override { return 4; }
};
struct Rectangle : Shape {
	int a, b;
	__device__ Rectangle(int x, int y) : a(x), b(y) {}
	__device__ int area() const override { return a * b; }
};

static __device__ __attribute__((noinline)) int fibonacci(int n)
{
	return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

extern "C" __global__ void choose(int which)
{
	chosen = table[which % 3];
}

extern "C" __global__ void throughPointers(int *out, const int *in)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = table[i % 3](in[i], i) * 16 + chosen(i, 3);
}

extern "C" __global__ void throughObjects(int *out, const int *in)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	Square square(in[i]);
	Rectangle rectangle(in[i], i);
	Shape *shape = in[i] & 1 ? (Shape *)&square : (Shape *)&rectangle;

	out[i] = shape->area() * 8 + shape->corners();
}

extern "C" __global__ void recursion(int *out, const int *in)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	out[i] = fibonacci(in[i] % 11);
}

extern "C" __global__ void votes(unsigned *out, const int *in)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	unsigned ballot = __ballot_sync(0xffffffffu, in[i] > 40);

	out[i] = ballot ^ (__any_sync(0xffffffffu, in[i] > 98) ? 0x10000u : 0) ^
		 (__all_sync(0xffffffffu, in[i] >= 0) ? 0x20000000u : 0);
}

extern "C" __global__ void manyWays(int *out, const int *in)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i], r;

	switch (v % 13) {
	case 0: r = v + 1; break;
	case 1: r = v * 3; break;
	case 2: r = v ^ 0x55; break;
	case 3: r = v << 3; break;
	case 4: r = -v; break;
	case 5: r = v % 7; break;
	case 6: r = ~v; break;
	case 7: v /= 3; /* falls through */
	case 8: r = v & 0xf0; break;
	case 9: for (r = 0; v > 1; r++) { v = v & 1 ? 3 * v + 1 : v / 2; } break;
	case 10: r = v | 0x80; break;
	default: r = 1000 - v;
	}
	out[i] = r;
}
