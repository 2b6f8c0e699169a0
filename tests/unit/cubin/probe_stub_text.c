/* probe-stub ARCH PAD [argument|late]: prints the PTX of an entry stub with two programs, or with
 * one that reads an argument of the kernel, or with two of which one reports blocks that have
 * ended, which tests/data/cubins/make compiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe_programs.h"

int main(int argc, char **argv)
{
	struct buf text, why;
	static const struct ptx_stub_kernel kernel = { "kernel", NULL };
	struct ptx_stub_form form;
	struct report r;
	bool late = argc == 4 && strcmp(argv[3], "late") == 0;
	int status = 1;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: probe-stub ARCH PAD [argument|late]\n");
		return 2;
	}
	buf_init(&text);
	buf_init(&why);
	report_init(&r);
	if (ptx_probe_stub(&text, (unsigned)strtoul(argv[1], NULL, 10),
			   (uint32_t)strtoul(argv[2], NULL, 10), &kernel,
			   late	       ? probe_late
			   : argc == 4 ? &probe_of_arg
				       : probe_both,
			   probe_envs, argc == 4 && !late ? 1 : ARRAY_SIZE(probe_both), &form,
			   &r) == 0) {
		status = fputs(buf_text(&text), stdout) < 0;
	} else {
		report_text(&r, &why);
		fprintf(stderr, "probe-stub: %s\n", buf_text(&why));
	}
	report_finish(&r);
	buf_finish(&why);
	buf_finish(&text);
	return status;
}
