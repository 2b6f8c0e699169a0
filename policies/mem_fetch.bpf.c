/* mem_fetch: what a launch names comes back to the device first, and what is worth least leaves for
 * it.
 *
 * For programs with `gbpf run --swap` whose kernels read their memory again and again, such as
 * matrix products: these are many times slower where their memory lies on the host. A program that
 * uses all of its memory in turn moves all of it in each turn. Without a policy that has mem_fault
 * gBPF decides by what it has measured of the kernel; see "More memory than the limit" in
 * docs/MEMORY.md. */
#include <gbpf/gbpf.bpf.h>

GBPF_LICENSE("Apache-2.0");

enum { FETCHES, BYTES }; /* numbers of gbpf_note(), shown by `gbpf policy show` */

SEC("gbpf/mem_fault")
int GBPF_PROG(mem_fetch_mem_fault, mem_fault)
{
	gbpf_note(FETCHES, 1);
	gbpf_note(BYTES, ctx->missing);
	return GBPF_MEM_FETCH;
}
