// The math library, single and double: what nvcc makes of each function.
extern "C" __global__ void mathFloat(float *out, const float *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n) {
		return;
	}
	float x = in[i], y = in[(i + 7) % n], *o = out + i * 40;
	int e;

	o[0] = sinf(x), o[1] = cosf(x), o[2] = tanf(x), o[3] = asinf(x / 100), o[4] = acosf(x / 100);
	o[5] = atanf(x), o[6] = atan2f(x, y), o[7] = sinhf(x / 10), o[8] = coshf(x / 10), o[9] = tanhf(x);
	o[10] = expf(x), o[11] = exp2f(x), o[12] = exp10f(x / 4), o[13] = expm1f(x), o[14] = logf(fabsf(x));
	o[15] = log2f(fabsf(x)), o[16] = log10f(fabsf(x)), o[17] = log1pf(fabsf(x));
	o[18] = powf(fabsf(x), y / 20), o[19] = sqrtf(fabsf(x)), o[20] = rsqrtf(fabsf(x)), o[21] = cbrtf(x);
	o[22] = erff(x), o[23] = erfcf(x / 10), o[24] = tgammaf(x / 10), o[25] = lgammaf(x), o[26] = x / y;
	o[27] = fmodf(x, y), o[28] = remainderf(x, y), o[29] = hypotf(x, y), o[30] = floorf(x) + ceilf(y);
	o[31] = rintf(x), o[32] = truncf(x), o[33] = roundf(x), o[34] = frexpf(x, &e) + e;
	o[35] = ldexpf(x, 3), o[36] = j0f(x), o[37] = normcdff(x / 10), o[38] = __frcp_rz(x), o[39] = fdimf(x, y);
}

extern "C" __global__ void mathDouble(double *out, const double *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n) {
		return;
	}
	double x = in[i], y = in[(i + 7) % n], *o = out + i * 32;

	o[0] = sin(x), o[1] = cos(x), o[2] = tan(x), o[3] = asin(x / 100), o[4] = acos(x / 100), o[5] = atan(x);
	o[6] = atan2(x, y), o[7] = sinh(x / 10), o[8] = cosh(x / 10), o[9] = tanh(x), o[10] = exp(x);
	o[11] = exp2(x), o[12] = exp10(x / 4), o[13] = expm1(x), o[14] = log(fabs(x)), o[15] = log2(fabs(x));
	o[16] = log10(fabs(x)), o[17] = log1p(fabs(x)), o[18] = pow(fabs(x), y / 20), o[19] = sqrt(fabs(x));
	o[20] = rsqrt(fabs(x)), o[21] = cbrt(x), o[22] = erf(x), o[23] = tgamma(x / 10), o[24] = lgamma(x);
	o[25] = x / y, o[26] = fmod(x, y), o[27] = hypot(x, y), o[28] = floor(x) + ceil(y), o[29] = rint(x);
	o[30] = normcdf(x / 10), o[31] = __drcp_ru(x);
}

// Sines of large angles take the long way, through local memory.
extern "C" __global__ void largeAngles(float *out, double *wide, const float *in, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n) {
		out[i] = sinf(in[i] * 1e7f);
		wide[i] = cos((double)in[i] * 1e12);
	}
}
