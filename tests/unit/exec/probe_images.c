/* Probes every kernel of PTX files at all sites and writes the forms: probe_images DIR MIN FILE...;
 * with --clones their preemptible clones, too. A kernel is refused with a reason or its form
 * parses; at least MIN forms. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "probe_form.h"
#include "ptx/block.h"

static const uint32_t hooks[] = { 34, 32,  33,	35,  36,  37,  38,  39,	 40,  41,
				  42, 132, 133, 136, 137, 138, 139, 140, 141, 142 };

struct totals {
	const char *dir;
	unsigned forms, refused, wrong, files;
	bool clones;
};

static void write_text(struct totals *t, const struct buf *text)
{
	char path[4096];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%u.ptx", t->dir, t->files++);
	out = fopen(path, "w");
	if (!out || fwrite(text->data, 1, text->len, out) != text->len || fclose(out)) {
		perror(path);
		exit(EXIT_FAILURE);
	}
}

/* Returns false if the form is no module that the block pass accepts. */
static bool check(struct totals *t, const struct probe_form *f, struct report *r)
{
	const struct ptx_block_entry *e;
	struct ptx_module *m = NULL;
	struct buf out;
	uint32_t n = 0;
	bool ok;

	buf_init(&out);
	ok = ptx_module_parse(&m, f->probed.text.data, f->probed.text.len, f->entry, r) == 0 &&
	     ptx_block_run(m, &e, &n, r) == 0 && n == 1 && ptx_module_print(m, &out) == 0;
	write_text(t, &f->probed.text);
	if (ok && t->clones && e[0].why == PROTO_BLOCK_OK) {
		write_text(t, &out);
	}
	buf_finish(&out);
	ptx_module_free(m);
	return ok;
}

static void probe(struct totals *t, const struct ptx_module *m, const char *entry)
{
	static struct probe_form f;
	struct report r;
	int err;

	report_init(&r);
	err = probe_form_of(&f, m, entry, hooks, ARRAY_SIZE(hooks), &r);
	if (err == 0 && check(t, &f, &r)) {
		t->forms++;
	} else if (err == -ENOTSUP && r.message.len) {
		t->refused++;
		printf("%s: %s: %s\n", buf_text(&r.place), entry, buf_text(&r.message));
	} else {
		t->wrong++;
		printf("WRONG: %s: %d: %s\n", entry, err, buf_text(&r.message));
	}
	probe_form_finish(&f);
	report_finish(&r);
}

static void probe_file(struct totals *t, const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct ptx_module *m = NULL;
	struct report r;
	struct buf text;

	buf_init(&text);
	report_init(&r);
	if (buf_read_file(&text, path, PTX_TEXT_MAX) < 0 ||
	    ptx_module_parse(&m, buf_text(&text), text.len, name, &r) < 0) {
		printf("WRONG: %s: %s\n", path, buf_text(&r.message));
		t->wrong++;
	} else {
		ptx_each (&m->items, it) {
			const struct ptx_function *f = (const struct ptx_function *)it;

			if (it->kind == PTX_FUNCTION && f->is_entry && f->has_body) {
				probe(t, m, f->name);
			}
		}
	}
	ptx_module_free(m);
	report_finish(&r);
	buf_finish(&text);
}

int main(int argc, char **argv)
{
	struct totals t = { 0 };
	int i = 1;

	if (i < argc && strcmp(argv[i], "--clones") == 0) {
		t.clones = true;
		i++;
	}
	if (argc - i < 3) {
		fprintf(stderr, "usage: probe_images [--clones] DIR MIN FILE...\n");
		return EXIT_FAILURE;
	}
	t.dir = argv[i];
	for (int k = i + 2; k < argc; k++) {
		probe_file(&t, argv[k]);
	}
	printf("%u forms, %u refused, %u wrong\n", t.forms, t.refused, t.wrong);
	return t.wrong || t.forms < (unsigned)atol(argv[i + 1]) ? EXIT_FAILURE : EXIT_SUCCESS;
}
