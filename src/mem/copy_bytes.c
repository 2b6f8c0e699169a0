/* Moving bytes between a pinned piece and the program's memory. The pages of the program's memory
 * are populated first: madvise() reports a page that cannot be accessed, where a load or store
 * would end the process, and it pays the first touch here, in several threads. It cannot report
 * what another thread unmaps or protects in between. Anonymous memory that may be read, or written,
 * as a whole is used without that; for writing only where it is there already, since populating is
 * the faster first touch.
 *
 * Downwards the stores bypass the caches, because a large destination would only evict the pieces,
 * which the device writes again at once. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/fd.h"
#include "mem/copy_int.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static int populate(uintptr_t begin, size_t bytes, int advice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = begin & ~(page - 1);
	int saved = errno, err;

	do {
		err = madvise((void *)first, begin + bytes - first, advice);
	} while (err && (errno == EINTR || errno == EAGAIN));
	errno = saved;
	return err ? -EFAULT : 0;
}

/* The kernel's struct procmap_query of PROCMAP_QUERY, which the system's headers may lack. */
struct mapping_query {
	uint64_t size, flags, address; /* asked for */
	uint64_t begin, end, rights;   /* answer: the mapping that contains the address */
	uint64_t page_bytes, offset, inode;
	uint32_t major, minor, name_bytes, build_id_bytes;
	uint64_t name, build_id; /* none wanted */
};
#define MAPPING_QUERY _IOWR('f', 17, struct mapping_query)
#define MAPPING_READABLE 1u
#define MAPPING_WRITABLE 2u

bool mem_copy_is_plain(const void *program, size_t bytes, bool write)
{
	uint64_t needed = write ? MAPPING_WRITABLE : MAPPING_READABLE;
	uint64_t at = (uintptr_t)program, end = at + bytes;
	int saved = errno, fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	bool plain = fd >= 0;

	while (plain && at < end) {
		struct mapping_query q = { .size = sizeof(q), .address = at };

		plain = ioctl(fd, MAPPING_QUERY, &q) == 0 && q.begin <= at && q.end > at &&
			(q.rights & needed) && !q.inode;
		at = q.end;
	}
	fd_close(fd);
	errno = saved;
	return plain;
}

#if defined(__x86_64__)

/* Both copy whole lines of 64 bytes to an address that is a multiple of 64. */

static void lines_sse2(unsigned char *to, const unsigned char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m128i a = _mm_loadu_si128((const void *)from);
		__m128i b = _mm_loadu_si128((const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const void *)(from + 48));

		_mm_stream_si128((void *)to, a);
		_mm_stream_si128((void *)(to + 16), b);
		_mm_stream_si128((void *)(to + 32), c);
		_mm_stream_si128((void *)(to + 48), d);
	}
}

TARGET("avx2")
static void lines_avx2(unsigned char *to, const unsigned char *from, size_t lines)
{
	for (; lines; lines--, to += 64, from += 64) {
		__m256i a = _mm256_loadu_si256((const void *)from);
		__m256i b = _mm256_loadu_si256((const void *)(from + 32));

		_mm256_stream_si256((void *)to, a);
		_mm256_stream_si256((void *)(to + 32), b);
	}
}

static void copy_past_caches(unsigned char *to, const unsigned char *from, size_t bytes)
{
	size_t head = MIN(-(uintptr_t)to % 64, bytes), lines = (bytes - head) / 64;

	memcpy(to, from, head);
	if (__builtin_cpu_supports("avx2")) {
		lines_avx2(to + head, from + head, lines);
	} else {
		lines_sse2(to + head, from + head, lines);
	}
	head += lines * 64;
	memcpy(to + head, from + head, bytes - head);
	/* Non-temporal stores are not ordered by a release: the thread that sees this unit as moved
	 * returns to the program, which may read the bytes in any thread. */
	_mm_sfence();
}

#else

static void copy_past_caches(unsigned char *to, const unsigned char *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

#endif

int mem_copy_from_program(void *piece, const void *program, size_t bytes, bool plain)
{
	int err = plain ? 0 : populate((uintptr_t)program, bytes, MADV_POPULATE_READ);

	if (!err) {
		memcpy(piece, program, bytes);
	}
	return err;
}

/* Returns true if all pages of a unit are in memory. mincore() costs a hundredth of copying them,
 * MADV_POPULATE_WRITE of pages that are there more than that. */
static bool is_resident(const void *program, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)program & ~(page - 1);
	size_t pages = ((uintptr_t)program + bytes - first + page - 1) / page;
	unsigned char there[MEM_COPY_UNIT / 4096 + 2];
	int saved = errno;
	bool all = pages <= sizeof(there) && mincore((void *)first, pages * page, there) == 0;

	errno = saved;
	for (size_t i = 0; all && i < pages; i++) {
		all = there[i] & 1;
	}
	return all;
}

int mem_copy_to_program(void *program, const void *piece, size_t bytes, bool plain)
{
	int err = plain && is_resident(program, bytes)
			  ? 0
			  : populate((uintptr_t)program, bytes, MADV_POPULATE_WRITE);

	if (!err) {
		copy_past_caches(program, piece, bytes);
	}
	return err;
}
