/* Structures by value, templates, 64-bit arithmetic, wide copies. */
#include "program.h"

#include <string.h>

#define N 300

struct particle {
	double mass;
	int id;
	short kind;
	unsigned char tag[3];
	float place[3];
};

static const long long primes[8] = { 2, 3, 5, 7, 11, 13, 1000000007LL, 4611686018427387847LL };
static int in[N];
static long long out[4 * N];

static int nth(int i, int id)
{
	int items[9], n;

	for (n = 0; n < 9; n++) {
		items[n] = in[(i + n * n) % N];
	}
	for (int a = 1; a < n; a++) {
		for (int b = a; b > 0 && (items[b] ^ id) < (items[b - 1] ^ id); b--) {
			int t = items[b];

			items[b] = items[b - 1];
			items[b - 1] = t;
		}
	}
	return items[in[i] % 9];
}

static bool right_at(int i, const struct particle *q, const int *big)
{
	return out[i * 4] == nth(i, q->id) + q->kind + q->tag[i % 3] + (long long)(q->mass * 2) &&
	       out[i * 4 + 1] ==
		       (long long)((unsigned long long)in[i] * (unsigned long long)primes[7]) %
			       primes[i % 8 == 7 ? 6 : i % 8] &&
	       out[i * 4 + 2] == big[in[i] % 40] + (long long)(q->place[i % 3] * 8) &&
	       out[i * 4 + 3] ==
		       (long long)((uint64_t)primes[7] / (unsigned)(in[i] + 1)) >> (i % 5);
}

int main(int argc, char **argv)
{
	struct particle q = { 12.75, 0x155, -7, { 1, 20, 255 }, { 0.5f, -1.25f, 3 } };
	double pairs[2 * N], pairs_out[2 * N];
	float fours[4 * N], fours_out[4 * N];
	CUdeviceptr d, o, f, g;
	uint64_t seed = 21;
	bool right = true;
	struct program p;
	int n = N, big[40];

	program_open(&p, "containers", argc, argv);
	for (int i = 0; i < N; i++) {
		in[i] = (int)(program_random(&seed) % 1000);
		for (int k = 0; k < 4; k++) {
			fours[4 * i + k] = (float)program_random(&seed);
			pairs[2 * i + k % 2] = (double)program_random(&seed);
		}
	}
	for (int i = 0; i < 40; i++) {
		big[i] = i * i * i;
	}
	d = program_put(in, sizeof(in));
	o = program_zeros(sizeof(out));
	LAUNCH(program_kernel(&p, "structures"), (N + 63) / 64, 64, 0, &o, &q, &d, &n, big);
	program_get(out, o, sizeof(out));
	for (int i = 0; i < N; i++) {
		right = right && right_at(i, &q, big);
	}
	program_check(&p, right, "a structure");
	program_exact(&p, "structures", out, sizeof(out));
	d = program_put(pairs, sizeof(pairs));
	g = program_put(fours, sizeof(fours));
	o = program_zeros(sizeof(pairs));
	f = program_zeros(sizeof(fours));
	LAUNCH(program_kernel(&p, "wideCopies"), (N + 63) / 64, 64, 0, &o, &d, &f, &g, &n);
	program_get(pairs_out, o, sizeof(pairs));
	program_get(fours_out, f, sizeof(fours));
	for (int i = 0; i < N; i++) {
		int at = N - 1 - i;

		right = right && pairs_out[2 * at] == pairs[2 * i + 1] &&
			pairs_out[2 * at + 1] == pairs[2 * i] + 1;
		for (int k = 0; k < 4; k++) {
			right = right && fours_out[4 * at + k] == fours[4 * i + 3 - k];
		}
	}
	program_check(&p, right, "a wide copy");
	program_exact(&p, "fours", fours_out, sizeof(fours_out));
	return program_close(&p);
}
