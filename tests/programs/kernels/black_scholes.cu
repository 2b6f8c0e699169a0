// European options by the formula of Black and Scholes: fast and accurate math of the library.
extern "C" {
static __device__ float cumulative(float d)
{
	const float a1 = 0.31938153f, a2 = -0.356563782f, a3 = 1.781477937f, a4 = -1.821255978f,
		    a5 = 1.330274429f;
	float k = __fdividef(1.0f, 1.0f + 0.2316419f * fabsf(d));
	float c = 0.39894228040143267793994605993438f * __expf(-0.5f * d * d) *
		  (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));

	return d > 0 ? 1.0f - c : c;
}

__global__ __launch_bounds__(128) void blackScholes(float2 *call, float2 *put, const float2 *price,
						   const float2 *strike, const float2 *years,
						   float rate, float volatility, int n)
{
	int i = blockDim.x * blockIdx.x + threadIdx.x;

	if (i < n) {
		float s[2] = { price[i].x, price[i].y }, x[2] = { strike[i].x, strike[i].y };
		float t[2] = { years[i].x, years[i].y }, c[2], p[2];

		for (int k = 0; k < 2; k++) {
			float root = __fdividef(1.0f, rsqrtf(t[k]));
			float d1 = __fdividef(__logf(s[k] / x[k]) +
						      (rate + 0.5f * volatility * volatility) * t[k],
					      volatility * root);
			float d2 = d1 - volatility * root, n1 = cumulative(d1), n2 = cumulative(d2);
			float e = __expf(-rate * t[k]);

			c[k] = s[k] * n1 - x[k] * e * n2;
			p[k] = x[k] * e * (1.0f - n2) - s[k] * (1.0f - n1);
		}
		call[i] = make_float2(c[0], c[1]);
		put[i] = make_float2(p[0], p[1]);
	}
}

__global__ void blackScholesExact(double *call, const float2 *price, const float2 *strike,
				  const float2 *years, double rate, double volatility, int n)
{
	int i = blockDim.x * blockIdx.x + threadIdx.x;

	if (i < n) {
		double s = price[i].x, x = strike[i].x, t = years[i].x, root = sqrt(t);
		double d1 = (log(s / x) + (rate + 0.5 * volatility * volatility) * t) /
			    (volatility * root);
		double d2 = d1 - volatility * root;

		call[i] = s * normcdf(d1) - x * exp(-rate * t) * normcdf(d2);
	}
}
}
