/* Simulations from a counter-based generator: its words, pi by counting, the price of an option. */
#include "program.h"

#include <math.h>

#define N 1024
#define BLOCKS 16
#define THREADS 128

static unsigned words[4 * N];

static void philox(unsigned c[4], unsigned k0, unsigned k1)
{
	for (int i = 0; i < 10; i++) {
		uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
		unsigned n[4] = { (unsigned)(b >> 32) ^ c[1] ^ k0, (unsigned)b,
				  (unsigned)(a >> 32) ^ c[3] ^ k1, (unsigned)a };

		for (int k = 0; k < 4; k++) {
			c[k] = n[k];
		}
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

static unsigned long long circle(unsigned seed, int rounds)
{
	unsigned long long hits = 0;

	for (unsigned i = 0; i < BLOCKS * THREADS; i++) {
		for (int r = 0; r < rounds; r++) {
			unsigned c[4] = { i, (unsigned)r, 0, 0 };

			philox(c, seed, 1);
			for (int k = 0; k < 4; k += 2) {
				uint64_t x = c[k] >> 1, y = c[k + 1] >> 1;

				hits += x * x + y * y < (UINT64_C(1) << 62);
			}
		}
	}
	return hits;
}

static double unit(unsigned v)
{
	return ((v >> 8) + 0.5) / 16777216.0;
}

static double option(double spot, double strike, double drift, double spread, int steps,
		     unsigned seed)
{
	double pay = 0;

	for (unsigned i = 0; i < BLOCKS * THREADS; i++) {
		double price = spot, total = 0;

		for (int s = 0; s < steps; s += 4) {
			unsigned c[4] = { i, (unsigned)s, 0, 1 };

			philox(c, seed, 2);
			for (int k = 0; k < 4; k += 2) {
				double r = sqrt(-2 * log(unit(c[k]))),
				       w = 6.28318530717958647692 * unit(c[k + 1]);

				price *= exp(drift + spread * r * cos(w));
				total += price;
				price *= exp(drift + spread * r * sin(w));
				total += price;
			}
		}
		pay += fmax(total / steps - strike, 0);
	}
	return pay;
}

int main(int argc, char **argv)
{
	float spot = 40, strike = 35, drift = 0.0001f, spread = 0.02f;
	unsigned seed = 12345;
	unsigned long long hits;
	int n = N, rounds = 8, steps = 32;
	double sums[BLOCKS], pay = 0, want;
	bool right = true;
	CUdeviceptr o;
	struct program p;

	program_open(&p, "MonteCarlo", argc, argv);
	o = program_zeros(sizeof(words));
	LAUNCH(program_kernel(&p, "drawWords"), N / 128, 128, 0, &o, &seed, &n);
	program_get(words, o, sizeof(words));
	for (unsigned i = 0; i < N; i++) {
		unsigned c[4] = { i, 0, 0, 0 };

		philox(c, seed, 0);
		for (int k = 0; k < 4; k++) {
			right = right && words[4 * i + (unsigned)k] == c[k];
		}
	}
	program_check(&p, right, "a random word");
	program_exact(&p, "words", words, sizeof(words));
	o = program_zeros(sizeof(hits));
	LAUNCH(program_kernel(&p, "countInCircle"), BLOCKS, THREADS, 0, &o, &seed, &rounds);
	program_get(&hits, o, sizeof(hits));
	program_check(&p, hits == circle(seed, rounds), "the number in the circle");
	program_exact(&p, "circle", &hits, sizeof(hits));
	o = program_zeros(sizeof(sums));
	LAUNCH(program_kernel(&p, "asianOption"), BLOCKS, THREADS, 0, &o, &spot, &strike, &drift,
	       &spread, &steps, &seed);
	program_get(sums, o, sizeof(sums));
	for (int i = 0; i < BLOCKS; i++) {
		pay += sums[i];
	}
	want = option(spot, strike, drift, spread, steps, seed);
	program_check(&p, fabs(pay - want) < want * 1e-5, "the price");
	program_about(&p, "price", pay / (BLOCKS * THREADS), 1e-6);
	return program_close(&p);
}
