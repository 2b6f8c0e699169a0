/* assemble PTX OUTPUT: writes the soft GPU's machine code for a text, as its cuLinkComplete makes
 * it. */
#include <stdio.h>

#include "soft/code/code.h"

int main(int argc, char **argv)
{
	struct buf text, code;
	struct report r;
	FILE *out;
	int err;

	if (argc != 3) {
		return 2;
	}
	buf_init(&text);
	buf_init(&code);
	report_init(&r);
	err = buf_read_file(&text, argv[1], 1 << 20);
	err = err ? err : soft_code_assemble(&code, text.data, text.len, argv[1], &r);
	if (err) {
		struct buf why;

		buf_init(&why);
		report_text(&r, &why);
		fprintf(stderr, "assemble: %s: %s\n", argv[1], buf_text(&why));
		buf_finish(&why);
		return 1;
	}
	out = fopen(argv[2], "wb");
	err = !out || fwrite(code.data, 1, code.len, out) != code.len || fclose(out) != 0;
	buf_finish(&text);
	buf_finish(&code);
	report_finish(&r);
	return err;
}
