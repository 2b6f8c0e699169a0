/* Stores and loads of memory that is mapped write-combining. Stores go past the caches, a line as
 * one packet if it is filled at once. Loads are streaming loads, which fetch a line at a time and
 * several lines at once; ordinary ones take 1 us each (H200). */
#include "mem/direct.h"

#include "base/compiler.h"

#ifdef __x86_64__
#include <immintrin.h>

bool mem_direct_is_possible(void)
{
	return __builtin_cpu_supports("sse4.1");
}

static void store_bytes(volatile unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		to[i] = from[i];
	}
}

void mem_direct_store(unsigned char *to, const unsigned char *from, size_t bytes)
{
	size_t head = MIN(bytes, -(uintptr_t)to % sizeof(__m128i));

	store_bytes(to, from, head);
	to += head;
	from += head;
	bytes -= head;
	for (; bytes >= sizeof(__m128i); bytes -= sizeof(__m128i)) {
		_mm_stream_si128((__m128i *)(void *)to,
				 _mm_loadu_si128((const __m128i *)(const void *)from));
		to += sizeof(__m128i);
		from += sizeof(__m128i);
	}
	store_bytes(to, from, bytes);
	_mm_sfence();
}

/* A line that takes several loads may be fetched several times. */

TARGET("sse4.1")
static void load_by_16(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(__m128i)) {
		_mm_store_si128((__m128i *)(void *)(to + i),
				_mm_stream_load_si128((__m128i *)(uintptr_t)(from + i)));
	}
}

TARGET("avx2")
static void load_by_32(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(__m256i)) {
		_mm256_store_si256((__m256i *)(void *)(to + i),
				   _mm256_stream_load_si256((__m256i *)(uintptr_t)(from + i)));
	}
}

TARGET("avx512f")
static void load_by_64(unsigned char *to, const unsigned char *from, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += sizeof(__m512i)) {
		_mm512_store_si512(to + i, _mm512_stream_load_si512((void *)(uintptr_t)(from + i)));
	}
}

mem_direct_load_fn *mem_direct_loads_by(unsigned vector_bytes)
{
	switch (vector_bytes) {
	case sizeof(__m512i):
		return __builtin_cpu_supports("avx512f") ? load_by_64 : NULL;
	case sizeof(__m256i):
		return __builtin_cpu_supports("avx2") ? load_by_32 : NULL;
	default:
		return __builtin_cpu_supports("sse4.1") ? load_by_16 : NULL;
	}
}

/* The fence ends what earlier streaming loads have fetched (Intel SDM, MOVNTDQA). */
void mem_direct_load(unsigned char *to, const unsigned char *from, size_t bytes)
{
	size_t before = (uintptr_t)from % MEM_DIRECT_LINE;
	mem_direct_load_fn *load = mem_direct_loads_by(sizeof(__m512i));

	load = load ? load : mem_direct_loads_by(sizeof(__m256i));
	load = load ? load : load_by_16;
	_mm_mfence();
	load(to, from - before, ROUND_UP(bytes + before, MEM_DIRECT_LINE));
}

#else

/* Elsewhere such memory may not be accessed with any alignment, and has not been tried. */
bool mem_direct_is_possible(void)
{
	return false;
}

void mem_direct_store(unsigned char *to, const unsigned char *from, size_t bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
}

void mem_direct_load(unsigned char *to, const unsigned char *from, size_t bytes)
{
	(void)to;
	(void)from;
	(void)bytes;
}

mem_direct_load_fn *mem_direct_loads_by(unsigned vector_bytes)
{
	(void)vector_bytes;
	return NULL;
}

#endif
