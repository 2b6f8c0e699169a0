/* Copies larger than the caches: non-temporal stores avoid reading memory that is about to be
 * overwritten and evicting the data of others. */
#ifndef GBPF_SOFT_BULK_H
#define GBPF_SOFT_BULK_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define SOFT_BULK_MIN_BYTES (24u << 20) /* smallest copy for which this pays off */

#ifdef __SSE2__
static inline void soft_bulk_copy_lines(uint8_t *to, const uint8_t *from, uint64_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

		_mm_prefetch((const char *)(from + 768), _MM_HINT_NTA);
		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)(to + 16), b);
		_mm_stream_si128((__m128i *)(void *)(to + 32), c);
		_mm_stream_si128((__m128i *)(void *)(to + 48), d);
	}
	_mm_sfence();
}
#endif

/* As memmove. */
static inline void soft_bulk_copy(uint8_t *to, const uint8_t *from, uint64_t n)
{
#ifdef __SSE2__
	uint64_t head = -(uintptr_t)to % 64;

	if (n >= 4096 && (to + n <= from || from + n <= to)) {
		memcpy(to, from, head);
		soft_bulk_copy_lines(to + head, from + head, (n - head) / 64);
		head += (n - head) / 64 * 64;
		memcpy(to + head, from + head, n - head);
		return;
	}
#endif
	memmove(to, from, n);
}

#endif
