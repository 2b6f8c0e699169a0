/* A hash of 64 bytes, byte by byte (FNV-1a). */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

SEC("gbpf/tick")
int GBPF_PROG(hash64, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 h = 0xcbf29ce484222325;

	if (!in) {
		return 0;
	}
	for (u32 i = 0; i < 64; i++) {
		h = (h ^ in->b[i]) * 0x100000001b3;
	}
	in->out = h;
	return 0;
}
