// Words of four bytes and two halves: dot products and the video instructions.
extern "C" __global__ void simd(unsigned *out, const unsigned *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n) {
		return;
	}
	unsigned a = in[i], b = in[(i + 1) % n], c = in[(i + 2) % n], *o = out + i * 32;

	o[0] = __dp4a((int)a, (int)b, (int)c), o[1] = __dp4a(a, b, c);
	o[2] = __dp2a_lo((int)a, (int)b, (int)c), o[3] = __dp2a_hi(a, b, c);
	o[4] = __vadd4(a, b), o[5] = __vsub4(a, b), o[6] = __vabsdiffs4(a, b), o[7] = __vabsdiffu4(a, b);
	o[8] = __vsads4(a, b), o[9] = __vsadu4(a, b), o[10] = __vmaxs2(a, b), o[11] = __vminu2(a, b);
	o[12] = __vavgu4(a, b), o[13] = __vaddss2(a, b), o[14] = __vsubus4(a, b), o[15] = __vcmpgts4(a, b);
	o[16] = __byte_perm(a, b, c & 0x7777), o[17] = __funnelshift_l(a, b, c), o[18] = __funnelshift_rc(a, b, c);
	o[19] = __brev(a), o[20] = __clz(a), o[21] = __ffs(a), o[22] = __popc(a), o[23] = __fns(a, 0, 3);
	o[24] = __sad((int)a, (int)b, c), o[25] = __mulhi((int)a, (int)b), o[26] = __umul24(a, b);
	o[27] = __hadd((int)a, (int)b), o[28] = __rhadd((int)a, (int)b), o[29] = __uhadd(a, b);
	o[30] = (unsigned)((unsigned long long)a * b % (c | 1)), o[31] = (unsigned)__mul64hi((long long)a << 20, b);
}
