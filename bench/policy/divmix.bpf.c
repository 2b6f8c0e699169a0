/* Divisions and remainders: by numbers known only at run time, 64 and 32 bits wide, and by
 * constants. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(inputs);

SEC("gbpf/tick")
int GBPF_PROG(divmix, tick)
{
	struct input *in = INPUT_OF(inputs, ctx);
	u64 sum = 0;

	if (!in) {
		return 0;
	}
	for (u32 i = 0; i < 7; i++) {
		u64 a = in->w[i], b = in->w[i + 1] >> (i * 7 + 3) | 1;

		sum += a / b + (a % b ^ (u32)a / (u32)b);
		sum ^= a / 1000000007 + b % 1000;
	}
	in->out = sum;
	return 0;
}
