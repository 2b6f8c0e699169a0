/* Texts of the reason codes. */
#include "proto/block_why.h"

#include <string.h>

bool proto_communicates(const char *kernel)
{
	return strstr(kernel, "ncclDevKernel") || strstr(kernel, "ncclKernel") ||
	       strstr(kernel, "nvshmem");
}

const char *proto_block_why_text(enum proto_block_why why)
{
	static const char *const texts[PROTO_BLOCK_WHYS] = {
		[PROTO_BLOCK_UNKNOWN] = "not looked at",
		[PROTO_BLOCK_OK] = "block level",
		[PROTO_BLOCK_NO_PTX] = "no PTX of this kernel",
		[PROTO_BLOCK_UNREADABLE] = "its PTX cannot be read",
		[PROTO_BLOCK_CLUSTER] = "uses clusters of blocks",
		[PROTO_BLOCK_DEPENDENT] = "uses griddepcontrol",
		[PROTO_BLOCK_GRID_ID] = "reads %gridid, %envreg or the like",
		[PROTO_BLOCK_DEVICE_RUNTIME] = "uses the device runtime",
		[PROTO_BLOCK_CALL] = "calls, through a pointer, code that may know its block",
		[PROTO_BLOCK_EXTERN] = "calls a function of another module",
		[PROTO_BLOCK_PARAMETERS] = "no room behind its parameters",
		[PROTO_BLOCK_SHARED] = "no room in shared memory, or reads its size",
		[PROTO_BLOCK_OCCUPANCY] = "fewer blocks would be resident",
		[PROTO_BLOCK_COOPERATIVE] = "cooperative launch",
		[PROTO_BLOCK_ATTRIBUTE] = "a launch attribute",
		[PROTO_BLOCK_CAPTURE] = "in a graph",
		[PROTO_BLOCK_HUNG] = "waited for later blocks",
		[PROTO_BLOCK_SHORT] = "too short",
		[PROTO_BLOCK_REJECTED] = "the driver did not take the rewritten module",
		[PROTO_BLOCK_CLASS] = "of class latency when it was loaded",
		[PROTO_BLOCK_SOURCE] = "uses something that is not known",
		[PROTO_BLOCK_NATIVE] = "machine code kept: PTX differs or is long (GBPF_BLOCK=1)",
		[PROTO_BLOCK_COLLECTIVE] = "communicates with other GPUs",
		[PROTO_BLOCK_CODE] = "machine code that cannot be patched",
		[PROTO_BLOCK_CODE_OFF] = "machine code is not patched (GBPF_BLOCK=ptx)",
		[PROTO_BLOCK_STUB] = "the driver does not compile the entry stub as expected",
		[PROTO_BLOCK_NO_CONTEXT] = "loaded without a context, or for unlike devices",
		[PROTO_BLOCK_ONLY_ONE] = "PTX of cuFFT, whose modules have one function each",
		[PROTO_BLOCK_WAITED] = "waited for later blocks in an earlier run",
		[PROTO_BLOCK_TOOL] = "loaded under a debugger or tool, so as it is",
		[PROTO_BLOCK_TEST_FAILED] = "patched machine code failed its test on this device",
		[PROTO_BLOCK_TEST_TIME] = "the test of patched machine code did not end in time",
		[PROTO_BLOCK_OLD_DRIVER] = "machine code is patched from CUDA 12.5 on",
		[PROTO_BLOCK_THREAD] = "on a thread's own default stream",
		[PROTO_BLOCK_PROBED] = "probed: its probed form cannot be stopped yet",
		[PROTO_BLOCK_OTHER_PTX] = "PTX for other devices only",
	};

	return (unsigned)why < PROTO_BLOCK_WHYS && texts[why] ? texts[why]
							      : texts[PROTO_BLOCK_UNKNOWN];
}
