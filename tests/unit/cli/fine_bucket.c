/* The function of tracers/fine.h for the host. */
#include <stdint.h>

typedef uint32_t u32;
typedef uint64_t u64;

#include "../../../tracers/fine.h"

u32 fine_bucket_of(u64 v);

u32 fine_bucket_of(u64 v)
{
	return fine_bucket(v);
}
