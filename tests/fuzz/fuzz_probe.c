/* Slices and probes the kernels of any readable module: a kernel is refused with a reason, or its
 * form is a module that parses, that the engine accepts if it accepts the original, and that the
 * block pass accepts. The first byte selects hooks and filter. With -DFIXED_SEEDS it is a program,
 * fuzz_probe FIRST COUNT FILE...: damaged texts from fixed seeds. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/block.h"
#include "ptx/prepare.h"
#include "ptx/probe.h"
#include "ptx/probe_shared.h"
#include "soft/server/exec/exec.h"

#define LANES (UINT64_C(1) << 21)
#define LAUNCH (UINT64_C(1) << 24)	   /* of block_enter */
#define LAUNCH_OF_CALL (UINT64_C(1) << 25) /* of probe */
#define ACCESS_FIELDS (UINT64_C(0xff) << 24)

static const struct ptx_probe edges[] = {
	{ .hook = 34,
	  .name = "a",
	  .fields = LAUNCH,
	  .text = ".func a_f0 (.param .b64 e, .param .b64 l) { ret; }" },
	{ .hook = 35, .name = "b", .text = ".func b_f0 (.param .b64 e) { ret; }" },
	{ .hook = 33,
	  .name = "c",
	  .fields = LANES,
	  .text = ".func c_f0 (.param .b64 e, .param .b32 l) { ret; }" },
	{ .hook = 32, .lanes = true, .name = "d", .text = ".func d_f0 (.param .b64 e) { ret; }" },
};

#define WITH(n, h, filter, mode)                                                                   \
	{                                                                                          \
		.hook = h, .name = n, .sites = filter, .lanes = mode,                              \
		.text = ".func " n "_f0 (.param .b64 e) { ret; }"                                  \
	}

static const struct ptx_probe inside[] = {
	{ .hook = 38,
	  .name = "a",
	  .fields = ACCESS_FIELDS,
	  .text = ".func a_f0 (.param .b64 e, .param .b64 f, .param .b64 g, .param .b32 h, "
		  ".param .b32 i, .param .b32 j, .param .b32 k, .param .b32 l, .param .b32 m) { "
		  "ret; }" },
	WITH("b", 38, "shared.load", true),
	{ .hook = 36,
	  .name = "c",
	  .sites = "*",
	  .fields = LAUNCH_OF_CALL,
	  .text = ".func c_f0 (.param .b64 e, .param .b64 l) { ret; }" },
	WITH("d", 37, "", true),
	WITH("g", 39, "gpu", false),
	WITH("h", 40, "", false),
	WITH("i", 41, "#1", true),
	WITH("j", 42, "a.cu:12", false),
	WITH("k", 42, "", false),
};

static void die(const char *what, const struct report *r, const char *text)
{
	fprintf(stderr, "%s: %s: %s\n%s\n", what, buf_text(&r->place), buf_text(&r->message), text);
	abort();
}

static int load(const char *text, size_t bytes)
{
	struct exec_module *m = NULL;
	struct report r;
	int err;

	report_init(&r);
	err = exec_module_load(&m, text, bytes, "fuzz", &r);
	if (err == 0) {
		exec_module_unref(m);
	}
	report_finish(&r);
	return err;
}

/* The form must be a module that the block pass accepts. */
static void check_form(const struct ptx_probed *p)
{
	const struct ptx_block_entry *e;
	struct ptx_module *m = NULL;
	struct report r;
	uint32_t n = 0;

	report_init(&r);
	if (ptx_module_parse(&m, p->text.data, p->text.len, "form", &r) < 0 ||
	    ptx_block_run(m, &e, &n, &r) < 0 || n != 1) {
		die("the form is no module", &r, buf_text(&p->text));
	}
	ptx_module_free(m);
	report_finish(&r);
}

/* As `gbpf run --probes` loads it: the result must be a module that is loaded as the original is.
 */
static void prepare(struct ptx_module *m, int whole, const char *text)
{
	int err = ptx_prepare(m, 1);
	struct report r;
	struct buf out;

	report_init(&r);
	buf_init(&out);
	if (err < 0 || (err > 0 && ptx_module_print(m, &out) < 0)) {
		die("no memory", &r, text);
	}
	if (err > 0 && whole == 0 && load(buf_text(&out), out.len) == -EINVAL) {
		die("the engine refuses the prepared module", &r, buf_text(&out));
	}
	report_finish(&r);
	buf_finish(&out);
}

static unsigned rewrite(const char *text, size_t bytes, unsigned how)
{
	const struct ptx_probe *probes = how % 2 ? inside : edges;
	uint32_t n =
		how % 2 ? sizeof(inside) / sizeof(inside[0]) : sizeof(edges) / sizeof(edges[0]);
	int whole = load(text, bytes);
	struct ptx_module *m = NULL;
	struct ptx_probed p;
	unsigned forms = 0;
	uint32_t merged = 0;
	struct report r;

	report_init(&r);
	if (ptx_module_parse(&m, text, bytes, "fuzz", &r) < 0) {
		report_finish(&r);
		return 0;
	}
	if (how & 8) {
		prepare(m, whole, text);
	}
	ptx_each (&m->items, it) {
		const struct ptx_function *f = (const struct ptx_function *)it;
		struct report why;
		int err;

		if (it->kind != PTX_FUNCTION || !f->is_entry) {
			continue;
		}
		report_init(&why);
		if (how & 16) {
			(void)ptx_shared_merge(m, f->name, &merged, &why);
		}
		err = ptx_probe_rewrite(m, f->name, probes + how / 2 % n, n - how / 2 % n, &p,
					&why);
		if (err < 0 && !why.message.len) {
			die("no reason", &why, text);
		}
		if (err == 0) {
			forms++;
			check_form(&p);
			if (whole == 0 && load(p.text.data, p.text.len) == -EINVAL) {
				die("the engine refuses the form", &why, buf_text(&p.text));
			}
		}
		ptx_probed_finish(&p);
		report_finish(&why);
		if (merged) {
			break; /* the module serves for this entry only */
		}
	}
	ptx_module_free(m);
	report_finish(&r);
	return forms;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size) {
		rewrite((const char *)data + 1, size - 1, data[0]);
	}
	return 0;
}

#ifdef FIXED_SEEDS
static uint64_t state;

static uint32_t draw(uint32_t n)
{
	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return n ? (uint32_t)(state >> 33) % n : 0;
}

/* Replaces a part of the text by another part, by nothing, or by a few characters of PTX. */
static void damage(char *text, size_t *len, size_t room)
{
	static const char *const parts[] = {
		"{",	   "}",		  ";",	    "%p1",   ".const", "@%p0 ",
		"[16]",	   "+4294967296", ".func ", "exit;", "ret;",   ".alias",
		".shared", "bra",	  ",",	    "\n",    "v",      ".loc 1 12 1\n"
	};
	uint32_t at = draw((uint32_t)*len), n = draw(40);
	char piece[64];
	size_t bytes;

	n = at + n > *len ? (uint32_t)*len - at : n;
	if (draw(2)) {
		const char *part = parts[draw(sizeof(parts) / sizeof(parts[0]))];

		bytes = strlen(part);
		memcpy(piece, part, bytes);
		n = draw(3) ? 0 : n;
	} else {
		uint32_t from = draw((uint32_t)*len);

		bytes = draw(40);
		bytes = from + bytes > *len ? *len - from : bytes;
		memcpy(piece, text + from, bytes);
	}
	if (*len - n + bytes >= room) {
		return;
	}
	memmove(text + at + bytes, text + at + n, *len - at - n);
	memcpy(text + at, piece, bytes);
	*len = *len - n + bytes;
}

static unsigned fuzz_file(const char *path, uint64_t first, uint64_t count)
{
	struct buf original;
	unsigned forms = 0;
	size_t room;
	char *text;

	buf_init(&original);
	if (buf_read_file(&original, path, 1 << 20) < 0) {
		perror(path);
		exit(EXIT_FAILURE);
	}
	room = original.len + 4096;
	text = malloc(room);
	if (!text) {
		abort();
	}
	for (uint64_t seed = first; seed < first + count; seed++) {
		size_t len = original.len;

		state = seed * UINT64_C(0x9e3779b97f4a7c15) + original.len;
		memcpy(text, original.data, len);
		for (uint32_t k = draw(4); k > 0; k--) {
			damage(text, &len, room);
		}
		forms += rewrite(text, len, draw(32));
	}
	free(text);
	buf_finish(&original);
	return forms;
}

int main(int argc, char **argv)
{
	unsigned forms = 0;

	if (argc < 4) {
		fprintf(stderr, "usage: fuzz_probe FIRST COUNT FILE...\n");
		return EXIT_FAILURE;
	}
	for (int i = 3; i < argc; i++) {
		forms += fuzz_file(argv[i], strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0));
	}
	printf("%u forms\n", forms);
	return forms ? EXIT_SUCCESS : EXIT_FAILURE;
}
#endif
