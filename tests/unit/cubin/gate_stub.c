/* gate-stub ARCH PAD: prints the entry stub's PTX, which tests/data/cubins/make compiles. */
#include <stdio.h>
#include <stdlib.h>

#include "ptx/block_gate.h"

int main(int argc, char **argv)
{
	struct buf text;
	int status = 1;

	if (argc != 3) {
		fprintf(stderr, "usage: gate-stub ARCH PAD\n");
		return 2;
	}
	buf_init(&text);
	if (ptx_gate_stub(&text, (unsigned)strtoul(argv[1], NULL, 10),
			  (uint32_t)strtoul(argv[2], NULL, 10)) == 0) {
		status = fputs(buf_text(&text), stdout) < 0;
	}
	buf_finish(&text);
	return status;
}
