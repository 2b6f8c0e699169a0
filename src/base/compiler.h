/* Compiler attributes and a few macros. No other file spells out attributes. */
#ifndef GBPF_BASE_COMPILER_H
#define GBPF_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
/* For a function that scans raw memory, including the gaps that AddressSanitizer poisons. */
#define NO_SANITIZE_ADDRESS __attribute__((no_sanitize("address")))
#define EXPORT __attribute__((visibility("default")))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))
#define MUST_CHECK __attribute__((warn_unused_result))
#define NORETURN __attribute__((noreturn))
#define NOINLINE __attribute__((noinline))
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define COLD __attribute__((cold))
#define ALIGNED(n) __attribute__((aligned(n)))
#define PACKED __attribute__((packed))
#define UNUSED __attribute__((unused))
#define FALLTHROUGH __attribute__((fallthrough))
/* Compiles a function for processors that have that feature; callers test for it. */
#define TARGET(feature) __attribute__((target(feature)))
#define TLS_FAST __thread __attribute__((tls_model("initial-exec")))

/* A pointer without const and volatile: for objects that are known to be writable, and for callees
 * that do not write but take a pointer without const. */
#define unqual(p) ((void *)(uintptr_t)(p))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)unqual((const char *)(ptr)-offsetof(type, member)))

/* The products of 64-bit factors. */
__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

#define PLURAL(n) ((n) == 1 ? "" : "s") /* suffix for a noun after its count */
/* These evaluate one argument twice: it has no effects and reads nothing that another process may
 * change meanwhile. */
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
/* The lesser, each read once: for words that a hostile process may change between two reads. */
static inline uint64_t min_once(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}
#define ROUND_UP(x, to) (((x) + (to)-1) / (to) * (to))

/* True if a*b or a+b does not fit; *out is then meaningless. */
#define checked_mul(a, b, out) __builtin_mul_overflow(a, b, out)
#define checked_add(a, b, out) __builtin_add_overflow(a, b, out)

#endif
