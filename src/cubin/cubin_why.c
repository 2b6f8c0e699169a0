/* Texts of the reasons why a kernel is not patched. */
#include "cubin/cubin.h"

static const char *const texts[CUBIN_WHY_COUNT] = {
	[CUBIN_OK] = "patched",
	[CUBIN_DEVICE_RUNTIME] = "its image launches kernels from the device",
	[CUBIN_REFERENCED] = "its address is taken by device code",
	[CUBIN_NO_PARAM_ROOM] = "no room behind its parameters",
	[CUBIN_PARAM_LAYOUT] = "its parameters have an unknown layout",
	[CUBIN_NO_BANK] = "its constant bank has an unexpected size",
	[CUBIN_NO_INFO] = "it has no attributes or no register count",
	[CUBIN_FIRST_INSN] = "its first instruction is of an unknown kind",
	[CUBIN_RELOCATED] = "its first instruction is relocated",
	[CUBIN_LOOPS_TO_ENTRY] = "it branches back to its first instruction",
	[CUBIN_REGISTERS] = "the stub needs more registers than it may have",
	[CUBIN_BARRIERS] = "its barrier count cannot be raised",
	[CUBIN_CODE_FORM] = "its code has an unexpected form",
	[CUBIN_NOT_CHOSEN] = "another kernel of its image was chosen",
};

const char *cubin_why_text(enum cubin_why why)
{
	return (unsigned)why < CUBIN_WHY_COUNT ? texts[why] : "unknown reason";
}
