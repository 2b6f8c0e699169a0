/* The other half. */
#include <gbpf/gbpf.bpf.h>

int too_much(u64 n)
{
	return n > 4;
}
