/* Compares strings: finds which of eight names of eight bytes a text begins with, ignoring case. */
#include "input.h"

GBPF_LICENSE("Apache-2.0");
INPUT_MAP(texts);

const volatile char names[8][8] = { "wgt=", "lim=", "class=", "quota=", "wgt=1", "lim=22", "x", "wgt=9" };

SEC("gbpf/tick")
int GBPF_PROG(compare, tick)
{
	struct input *in = INPUT_OF(texts, ctx);
	u64 found = 0;

	if (!in) {
		return 0;
	}
	for (u32 n = 0; n < 8; n++) {
		u32 i = 0;

		for (; i < 8; i++) {
			u8 want = names[n][i], have = in->b[i];

			if (have >= 'A' && have <= 'Z') {
				have += 'a' - 'A';
			}
			if (!want || want != have) {
				break;
			}
		}
		found = found * 9 + i;
	}
	in->out = found;
	return 0;
}
