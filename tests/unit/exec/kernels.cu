/* Kernels as clang compiles them, for the engine's tests. Compiled without the CUDA SDK. */
#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device))
#define SHARED __attribute__((shared))
#define CONSTANT __attribute__((constant))
#define tid() __nvvm_read_ptx_sreg_tid_x()
#define ctaid() __nvvm_read_ptx_sreg_ctaid_x()
#define ntid() __nvvm_read_ptx_sreg_ntid_x()
#define nctaid() __nvvm_read_ptx_sreg_nctaid_x()
#define tidy() __nvvm_read_ptx_sreg_tid_y()
#define ctaidy() __nvvm_read_ptx_sreg_ctaid_y()
#define barrier() __nvvm_bar_sync(0)
#define index() (ctaid() * ntid() + tid())

KERNEL vecadd(const float *a, const float *b, float *c, int n)
{
	int i = index();

	if (i < n) {
		c[i] = a[i] + b[i];
	}
}

KERNEL reduce(const int *a, int *out, int n)
{
	SHARED int s[256];
	int t = tid(), sum = 0;

	for (int i = index(); i < n; i += ntid() * nctaid()) {
		sum += a[i];
	}
	s[t] = sum;
	barrier();
	for (int k = 128; k > 0; k >>= 1) {
		if (t < k) {
			s[t] += s[t + k];
		}
		barrier();
	}
	if (t == 0) {
		__nvvm_atom_add_gen_i(out, s[0]);
	}
}

KERNEL scan(const int *a, int *out, int n)
{
	extern SHARED int dyn[];
	int t = tid(), from = 0;

	dyn[t] = t < n ? a[t] : 0;
	barrier();
	for (int step = 1; step < ntid(); step *= 2) {
		int to = ntid() - from;
		int v = dyn[from + t];

		if (t >= step) {
			v += dyn[from + t - step];
		}
		dyn[to + t] = v;
		from = to;
		barrier();
	}
	if (t < n) {
		out[t] = dyn[from + t];
	}
}

KERNEL histogram(const unsigned char *data, int *bins, int n)
{
	SHARED int local[256];

	for (int i = tid(); i < 256; i += ntid()) {
		local[i] = 0;
	}
	barrier();
	for (int i = index(); i < n; i += ntid() * nctaid()) {
		__nvvm_atom_add_gen_i(&local[data[i]], 1);
	}
	barrier();
	for (int i = tid(); i < 256; i += ntid()) {
		__nvvm_atom_add_gen_i(&bins[i], local[i]);
	}
}

KERNEL matmul(const float *a, const float *b, float *c, int n)
{
	SHARED float ta[16][16], tb[16][16];
	int x = tid(), y = tidy(), col = ctaid() * 16 + x, row = ctaidy() * 16 + y;
	float sum = 0;

	for (int k = 0; k < n; k += 16) {
		ta[y][x] = a[row * n + k + x];
		tb[y][x] = b[(k + y) * n + col];
		barrier();
		for (int i = 0; i < 16; i++) {
			sum = __builtin_fmaf(ta[y][i], tb[i][x], sum);
		}
		barrier();
	}
	c[row * n + col] = sum;
}

KERNEL collatz(const unsigned *a, int *steps, int n)
{
	int i = index();

	if (i < n) {
		unsigned long long v = a[i];
		int k = 0;

		while (v != 1) {
			if (v % 2 == 0) {
				v /= 2;
			} else {
				v = 3 * v + 1;
				if (v > 1000000000000ull) {
					break;
				}
			}
			k++;
		}
		steps[i] = k;
	}
}

KERNEL warp_sum(const int *a, int *out)
{
	int v = a[index()];

	for (int k = 16; k > 0; k /= 2) {
		v += __nvvm_shfl_sync_down_i32(-1, v, k, 31);
	}
	if (tid() % 32 == 0) {
		out[index() / 32] = v;
	}
}

KERNEL doubles(const double *a, const double *b, double *out, int n)
{
	int i = index();

	if (i < n) {
		double x = a[i], y = b[i];

		out[i] = __builtin_sqrt(x * x + y * y) / (1.0 + __builtin_fabs(x - y)) - (double)(long long)x +
			 (double)(float)y;
	}
}

struct box {
	int count;
	double scale;
	float values[4];
};

DEVICE __attribute__((noinline)) double weigh(struct box b, int which, int *touched)
{
	double r = b.scale * b.values[which & 3];

	*touched += b.count;
	return which > 20 ? r : r + 1;
}

KERNEL calls(const int *a, double *out, int *count, struct box b, int n)
{
	int i = index(), touched = i;

	if (i < n) {
		out[i] = weigh(b, a[i], &touched);
		count[i] = touched;
	}
}

DEVICE __attribute__((noinline)) int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

KERNEL recursive(int *out)
{
	out[index()] = fib(index() % 12);
}

CONSTANT int weights[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
DEVICE int total;

KERNEL switches(const int *a, int *out, int n)
{
	int i = index(), v, local[8];

	if (i >= n) {
		return;
	}
	for (int k = 0; k < 8; k++) {
		local[k] = a[(i + k) % n] * 2;
	}
	v = a[i];
	switch (v & 15) {
	case 0:
		v = 100;
		break;
	case 1:
		v = weights[a[(i + 1) % n] & 7];
		break;
	case 2:
		v *= 3;
		break;
	case 3:
		v = local[a[(i + 2) % n] & 7];
		/* on purpose: goes on */
	case 4:
		v += 7;
		break;
	case 5:
		for (int k = 0; k < (a[i] >> 4); k++) {
			v += k ^ i;
		}
		break;
	case 9:
		v = -v;
		break;
	case 14:
		return;
	default:
		v = v << 3 | v >> 29;
		break;
	}
	out[i] = v;
	__nvvm_atom_add_gen_i(&total, 1);
}

KERNEL narrow(unsigned char *a, short *b, long long *c, int n)
{
	int i = index();

	if (i < n) {
		b[i] += a[i];
		c[i] = c[i] / (b[i] | 1) + c[i] % 7;
		a[i] = (a[i] >> 3) + (c[i] > 5);
	}
}

/* The flag of a 128-bit subtraction, read by an addition, as nvcc's division of __int128 does:
 * r -= d where r >= d. Returns whether it was.
 */
DEVICE static unsigned subtract_if(unsigned *r, const unsigned *d)
{
	unsigned t0, t1, t2, t3, no_borrow;

	asm("sub.cc.u32 %0, %5, %9;\n\t"
	    "subc.cc.u32 %1, %6, %10;\n\t"
	    "subc.cc.u32 %2, %7, %11;\n\t"
	    "subc.cc.u32 %3, %8, %12;\n\t"
	    "addc.u32 %4, 0, 0;"
	    : "=&r"(t0), "=&r"(t1), "=&r"(t2), "=&r"(t3), "=&r"(no_borrow)
	    : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(d[0]), "r"(d[1]), "r"(d[2]),
	      "r"(d[3]));
	if (no_borrow) {
		r[0] = t0;
		r[1] = t1;
		r[2] = t2;
		r[3] = t3;
	}
	return no_borrow;
}

/* v = v * 2 + bit; returns the bit that leaves, as subc reads the carry of an addition: -1 or 0. */
DEVICE static unsigned shift_in(unsigned *v, unsigned bit)
{
	unsigned no_carry;

	asm("add.cc.u32 %0, %0, %0;\n\t"
	    "addc.cc.u32 %1, %1, %1;\n\t"
	    "addc.cc.u32 %2, %2, %2;\n\t"
	    "addc.cc.u32 %3, %3, %3;\n\t"
	    "subc.u32 %4, 0, 0;"
	    : "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3]), "=r"(no_carry));
	v[0] |= bit;
	return no_carry + 1;
}

/* Quotients and remainders of 128-bit numbers, divisors below 1 << 127. */
KERNEL divide128(const unsigned *a, const unsigned *b, unsigned *quotient, unsigned *remainder)
{
	int i = index() * 4;
	unsigned q[4], r[4] = { 0, 0, 0, 0 }, d[4];

	for (int k = 0; k < 4; k++) {
		q[k] = a[i + k];
		d[k] = b[i + k];
	}
	for (int k = 0; k < 128; k++) {
		shift_in(r, shift_in(q, 0));
		q[0] |= subtract_if(r, d);
	}
	for (int k = 0; k < 4; k++) {
		quotient[i + k] = q[k];
		remainder[i + k] = r[k];
	}
}
