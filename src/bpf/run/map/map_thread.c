/* Arrays with one instance per thread. User space cannot disable preemption, so instances belong to
 * threads instead of processors: a thread takes a number at its first use and releases it at its
 * end; the next thread continues with the same counts. All threads that found no free number share
 * the last one: their plain additions may lose counts, atomic ones do not. */
#include "bpf/run/map/map_int.h"

#include <errno.h>
#include <pthread.h>

static TLS_FAST uint32_t mine; /* 1 + number of this thread */
static uint64_t taken;	       /* bit mask of numbers taken in this process */
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int key_made;

static void thread_gone(void *arg)
{
	uint32_t slot = mine - 1;

	(void)arg;
	mine = 0;
	(void)and_acqrel(&taken, ~(UINT64_C(1) << slot));
}

static void forked(void)
{
	taken = mine && mine <= EBPF_THREAD_SLOTS - 1 ? UINT64_C(1) << (mine - 1) : 0;
}

static void setup(void)
{
	key_made = pthread_key_create(&key, thread_gone) == 0 &&
		   pthread_atfork(NULL, NULL, forked) == 0;
}

static NOINLINE uint32_t take_slot(void)
{
	int saved = errno;

	(void)pthread_once(&once, setup);
	mine = EBPF_THREAD_SLOTS; /* the shared number, in case a signal handler runs now */
	for (uint32_t i = 0; key_made && i < EBPF_THREAD_SLOTS - 1; i++) {
		if (!(or_acqrel(&taken, UINT64_C(1) << i) >> i & 1)) {
			mine = i + 1;
			if (pthread_setspecific(key, &mine) != 0) {
				thread_gone(NULL);
				mine = EBPF_THREAD_SLOTS;
			}
			break;
		}
	}
	errno = saved;
	return mine - 1;
}

uint32_t ebpf_thread_slot(void)
{
	return likely(mine) ? mine - 1 : take_slot();
}

void *ebpf_thread_lookup(const struct ebpf_map *m, const void *k)
{
	uint32_t index = ebpf_map_index(k);

	if (index >= m->max_entries || !m->data) {
		return NULL;
	}
	return m->data + (size_t)ebpf_thread_slot() * m->copy_bytes + (size_t)index * m->stride;
}

uint64_t ebpf_thread_sum(const struct ebpf_map *m, uint32_t index, uint32_t word)
{
	uint8_t *at = m->data + (size_t)index * m->stride + (size_t)word * 8;
	uint64_t sum = 0;

	for (uint32_t t = 0; t < ebpf_map_copies(m); t++, at += m->copy_bytes) {
		sum += load_relaxed((uint64_t *)(void *)at);
	}
	return sum;
}

void ebpf_thread_read(const struct ebpf_map *m, uint32_t index, void *value)
{
	for (uint32_t w = 0; w < m->value_bytes / 8; w++) {
		uint64_t sum = ebpf_thread_sum(m, index, w);

		memcpy((uint8_t *)value + (size_t)w * 8, &sum, 8);
	}
}
