/* two IMAGE SEED OPERATIONS: a random program on two GPUs: kernels, copies between the GPUs in all
 * available ways, and events of one that streams of the other await. Two threads alternate, so that
 * contexts move between threads. Word i of a buffer is always c * (i + 1), with known c. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../programs/program.h"

#define WORDS (64u * 192u)
#define GPUS 2
#define BUFFERS 5
#define STREAMS 3

struct place {
	int gpu, stream;
};

struct buffer {
	CUdeviceptr data;
	struct place at; /* the stream that owns it at present */
	uint32_t c;
};

static CUcontext contexts[GPUS];
static CUfunction step[GPUS];
static CUstream streams[GPUS][STREAMS];
static CUdeviceptr counter[GPUS];
static struct buffer buffers[GPUS][BUFFERS];
static uint64_t seed;
static unsigned long operations;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static uintptr_t turn;

static uint32_t below(uint32_t n)
{
	return program_random(&seed) % n;
}

static CUstream stream(struct place p)
{
	return streams[p.gpu][p.stream];
}

/* Orders the work enqueued on one stream before later work on the other. */
static void order(struct place from, struct place to)
{
	CUevent e;

	if (from.gpu == to.gpu && from.stream == to.stream) {
		return;
	}
	CU(cuCtxSetCurrent(contexts[from.gpu]));
	if (below(4) == 0) {
		CU(cuStreamSynchronize(stream(from)));
		return;
	}
	CU(cuEventCreate(&e, 0));
	CU(cuEventRecord(e, stream(from)));
	if (below(2)) {
		CU(cuCtxSetCurrent(contexts[to.gpu]));
	}
	CU(cuStreamWaitEvent(stream(to), e, 0));
	CU(cuEventDestroy(e));
}

static void hand_over(struct buffer *b, struct place to)
{
	order(b->at, to);
	b->at = to;
}

static void check(const struct buffer *b)
{
	uint32_t *words = malloc(WORDS * sizeof(*words));

	CU(cuCtxSetCurrent(contexts[b->at.gpu]));
	CU(cuMemcpyDtoHAsync(words, b->data, WORDS * sizeof(*words), stream(b->at)));
	CU(cuStreamSynchronize(stream(b->at)));
	for (uint32_t i = 0; i < WORDS; i++) {
		if (words[i] != b->c * (i + 1)) {
			fprintf(stderr, "GPU %d, word %u is wrong: %08x instead of %08x\n",
				b->at.gpu, i, words[i], b->c * (i + 1));
			_exit(1);
		}
	}
	free(words);
}

/* Copies on a stream of either GPU; afterwards both buffers are returned to their owners. */
static void copy(struct buffer *to, int to_gpu, struct buffer *from, int from_gpu)
{
	struct place on = { .gpu = (int)below(GPUS), .stream = (int)below(STREAMS) };

	hand_over(to, on);
	hand_over(from, on);
	CU(cuCtxSetCurrent(contexts[on.gpu]));
	switch (below(3)) {
	case 0:
		CU(cuMemcpyPeerAsync(to->data, contexts[to_gpu], from->data, contexts[from_gpu],
				     WORDS * 4, stream(on)));
		break;
	case 1:
		CU(cuMemcpyAsync(to->data, from->data, WORDS * 4, stream(on)));
		break;
	default:
		CU(cuMemcpyDtoDAsync(to->data, from->data, WORDS * 4, stream(on)));
		break;
	}
	to->c = from->c;
	hand_over(to, (struct place){ to_gpu, (int)below(STREAMS) });
	hand_over(from, (struct place){ from_gpu, (int)below(STREAMS) });
}

static void launch(struct buffer *b, int gpu)
{
	uint32_t n = WORDS, a = below(1000) * 2 + 1, salt = below(1u << 30), k = 0,
		 spin = below(8) ? below(50) : below(1000);
	void *params[] = { &b->data, &n, &a, &salt, &k, &counter[gpu], &spin };

	hand_over(b, (struct place){ gpu, (int)below(STREAMS) });
	CU(cuCtxSetCurrent(contexts[gpu]));
	CU(cuLaunchKernel(step[gpu], WORDS / 64, 1, 1, 64, 1, 1, 0, stream(b->at), params, NULL));
	b->c = b->c * a + salt;
}

static void operate(void)
{
	int gpu = (int)below(GPUS);
	struct buffer *b = &buffers[gpu][below(BUFFERS)];

	switch (below(8)) {
	case 0:
		check(b);
		break;
	case 1:
	case 2:
		copy(&buffers[1 - gpu][below(BUFFERS)], 1 - gpu, b, gpu);
		break;
	default:
		launch(b, gpu);
		break;
	}
}

static void *run(void *self)
{
	pthread_mutex_lock(&mutex);
	while (operations) {
		if (turn != (uintptr_t)self) {
			pthread_cond_wait(&turned, &mutex);
			continue;
		}
		operate();
		operations--;
		turn = below(2);
		pthread_cond_broadcast(&turned);
	}
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static void open_gpu(int gpu, const char *image)
{
	CUmodule module;

	CU(cuDevicePrimaryCtxRetain(&contexts[gpu], gpu));
	CU(cuCtxSetCurrent(contexts[gpu]));
	CU(cuModuleLoad(&module, image));
	CU(cuModuleGetFunction(&step[gpu], module, "step"));
	counter[gpu] = program_zeros(4);
	for (int i = 0; i < STREAMS; i++) {
		CU(cuStreamCreate(&streams[gpu][i], i ? CU_STREAM_NON_BLOCKING : 0));
	}
	for (int i = 0; i < BUFFERS; i++) {
		buffers[gpu][i] =
			(struct buffer){ .data = program_zeros(WORDS * 4), .at.gpu = gpu };
	}
	CU(cuCtxSynchronize());
}

int main(int argc, char **argv)
{
	pthread_t other;

	if (argc != 4) {
		fputs("usage: two IMAGE SEED OPERATIONS\n", stderr);
		return 2;
	}
	seed = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
	operations = strtoul(argv[3], NULL, 10);
	CU(cuInit(0));
	for (int gpu = 0; gpu < GPUS; gpu++) {
		open_gpu(gpu, argv[1]);
	}
	if (pthread_create(&other, NULL, run, (void *)1)) {
		return 1;
	}
	run(NULL);
	pthread_join(other, NULL);
	for (int i = 0; i < GPUS * BUFFERS; i++) {
		check(&buffers[i / BUFFERS][i % BUFFERS]);
	}
	return 0;
}
