/* Warnings of words to which every warp of a kernel adds: by `policy build`, `policy check` and
 * `probe attach`, before a program is slow. */
#include "cli/hot_words.h"

#include "bpf/load/elf/source_line.h"
#include "bpf/load/hot_word.h"
#include "cli/connect.h"

#define MAX_WORDS 16u

static json_t *word_json(const struct ebpf_object *o, const struct ebpf_hot_word *w)
{
	struct buf text, place;
	json_t *j;

	buf_init(&text);
	buf_init(&place);
	ebpf_hot_word_text(o, w, &text);
	if (w->line) {
		const struct ebpf_source_line l = { w->line->file, w->line->text, w->line->line,
						    w->line->column };

		ebpf_source_line_place(&l, &place);
	}
	j = json_pack("{s:o, s:o, s:o, s:o}", "map", cli_json_text(o->maps[w->map].name), "program",
		      cli_json_text(w->prog->name), "place", cli_json_text(buf_text(&place)),
		      "message", cli_json_text(buf_text(&text)));
	buf_finish(&text);
	buf_finish(&place);
	return j;
}

json_t *cli_hot_words_json(const struct ebpf_object *o)
{
	struct ebpf_hot_word words[MAX_WORDS];
	unsigned n = ebpf_hot_words(o, words, MAX_WORDS);
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++) {
		json_array_append_new(list, word_json(o, &words[i]));
	}
	return list;
}

void cli_hot_words_note(struct cli *c, const char *file, const json_t *words)
{
	const json_t *w;
	size_t i;

	json_array_foreach(words, i, w)
	{
		const char *place = cli_text(w, "place");
		struct buf text;

		buf_init(&text);
		cli_safe_text(&text, place[0] ? place : file);
		buf_puts(&text, ": ");
		cli_safe_text(&text, cli_text(w, "message"));
		cli_note(c, "warning: %s", buf_text(&text));
		buf_finish(&text);
	}
}

void cli_hot_words_check(struct cli *c, const char *name, const struct buf *elf)
{
	struct ebpf_built b;
	struct report r;

	report_init(&r);
	if (ebpf_policy_build(&b, elf->data, elf->len, name, 1, EBPF_BUILD_NO_JIT, &r) == 0) {
		json_t *words = cli_hot_words_json(&b.object);

		cli_hot_words_note(c, name, words);
		json_decref(words);
		ebpf_built_finish(&b);
	}
	report_finish(&r);
}
