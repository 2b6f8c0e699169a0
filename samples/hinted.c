/* hinted: a periodic latency-critical client that announces its next request with gbpf_hint() of
 * libgbpf, so that the GPU is free, and its context in place, when the request arrives. It also
 * runs without gBPF. Prints the number of accepted hints. Exit 0: all right, 1: a wrong result, 2:
 * usage, 3: a CUDA error. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gbpf/gbpf.h"
#include "service.h"

#define ITERATIONS 200
#define FACTOR 0.5f

static bool serve(struct service_kernel *k)
{
	float want = 1.0f;

	for (int i = 0; i < ITERATIONS; i++) {
		want = want * FACTOR + 1.0f;
	}
	service_fill(k, 1.0f);
	service_launch(k, FACTOR, 1.0f, ITERATIONS);
	service_fetch(k);
	for (int i = 0; i < k->n; i++) {
		if (k->host[i] != want) {
			return false;
		}
	}
	return true;
}

static void sleep_until(double when)
{
	double left = when - sample_now();
	struct timespec t = { (time_t)left, (long)((left - (double)(time_t)left) * 1e9) };

	if (left > 0) {
		nanosleep(&t, NULL);
	}
}

int main(int argc, char **argv)
{
	long requests = argc > 1 ? (long)service_number("REQUESTS", argv[1], 1, 1e6) : 100;
	double period = argc > 2 ? service_number("PERIOD_MS", argv[2], 2, 1e4) / 1e3 : 0.02;
	long taken = 0, wrong = 0;
	int last = 0;
	struct service_kernel k;
	double next;

	if (argc > 3) {
		fprintf(stderr, "usage: hinted [REQUESTS [PERIOD_MS]]\n");
		return 2;
	}
	service_begin(&k, 2, 64);
	next = sample_now() + period;
	for (long i = 0; i < requests; i++, next += period) {
		double left = next - sample_now();

		/* The request comes in `left` seconds, and is due before the next one. */
		last = gbpf_hint(left > 0 ? (uint64_t)(left * 1e6) : 0, (uint64_t)(period * 1e6),
				 -1);
		taken += last == 0;
		sleep_until(next);
		wrong += !serve(&k);
	}
	service_end(&k);
	printf("requests %ld  hints taken %ld  last answer %s  wrong %ld\n", requests, taken,
	       last ? strerror(-last) : "ok", wrong);
	return wrong ? 1 : 0;
}
