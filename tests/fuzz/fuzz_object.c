/* Opens any bytes as an object and, if that succeeds, verifies every program. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "bpf/load/verify/verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ebpf_object o;
	struct report r;
	struct buf text;
	int err;

	report_init(&r);
	buf_init(&text);
	err = ebpf_object_open(&o, data, size, "fuzz.bpf.o", &r);
	if (err) {
		/* a refusal must have a message */
		if (!r.message.len) {
			abort();
		}
	} else {
		for (uint32_t i = 0; i < o.n_progs; i++) {
			struct ebpf_verify_stats stats;

			/* skip hooks with large budgets, which cost the fuzzer too much time */
			if (o.progs[i].hook != 0 && o.progs[i].hook != 6) {
				ebpf_verify(&o.progs[i], o.maps, o.n_maps, 0, &stats, &r);
			}
		}
		ebpf_object_finish(&o);
	}
	report_text(&r, &text);
	report_finish(&r);
	buf_finish(&text);
	return 0;
}
