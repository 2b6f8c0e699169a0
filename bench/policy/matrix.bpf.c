/* Fixed point (16.16): a 4x4 matrix times itself, and its trace. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

SEC("gbpf/tick")
int GBPF_PROG(matrix, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 sum = 0;

	if (!in) {
		return 0;
	}
	for (u32 r = 0; r < 4; r++) {
		for (u32 c = 0; c < 4; c++) {
			u64 dot = 0;

			for (u32 k = 0; k < 4; k++) {
				dot += ((u64)in->h[r * 4 + k] * in->h[k * 4 + c]) >> 16;
			}
			sum = sum * 31 + dot;
		}
	}
	in->out = sum;
	return 0;
}
