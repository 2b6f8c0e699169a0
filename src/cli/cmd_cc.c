/* `gbpf cc`: runs a compiler so that the program uses the shared CUDA runtime library, which gBPF
 * has one of its own for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/verbs.h"

enum { O_PRINT };

static const struct cli_option options[] = {
	[O_PRINT] = { "print", 0, NULL, "print the command line instead of running it" },
	{ NULL, 0, NULL, NULL },
};

/* The command line that is built. */
struct line {
	char **word; /* owned; the words are borrowed */
	int n;
};

static void add(struct line *l, const char *word)
{
	l->word[l->n++] = (char *)(uintptr_t)word; /* execvp does not write to it */
}

static bool is_nvcc(const char *program)
{
	const char *slash = strrchr(program, '/');

	return strcmp(slash ? slash + 1 : program, "nvcc") == 0;
}

/* Whether the word is an option of nvcc that chooses the runtime library; *ret_value: its value is
 * the next word. */
static bool chooses_runtime(const char *word, bool *ret_value)
{
	static const char *const names[] = { "-cudart", "--cudart" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		size_t n = strlen(names[i]);

		if (strncmp(word, names[i], n) == 0 && (word[n] == 0 || word[n] == '=')) {
			*ret_value = word[n] == 0;
			return true;
		}
	}
	return false;
}

/* Whether a word lists code to generate: with it nvcc writes that alone, else PTX, too. */
static bool lists_code(const char *word)
{
	return strncmp(word, "-gencode", 8) == 0 || strncmp(word, "--generate-code", 15) == 0;
}

/* nvcc: the shared library, and PTX where the line lists other code. */
static void nvcc_line(struct line *l, char **word)
{
	bool listed = false;

	add(l, *word++);
	for (; *word; word++) {
		bool value;

		if (chooses_runtime(*word, &value)) {
			word += value && word[1];
			continue;
		}
		listed |= lists_code(*word);
		add(l, *word);
	}
	add(l, "-cudart");
	add(l, "shared");
	if (listed) {
		add(l, "-gencode");
		add(l, "arch=compute_80,code=compute_80");
	}
}

/* A compiler or linker of host code: the static library's name becomes the shared one's. */
static void host_line(struct line *l, char **word)
{
	for (; *word; word++) {
		add(l, strcmp(*word, "-lcudart_static") == 0 ? "-lcudart" : *word);
	}
}

static int print_line(struct cli *c, const struct line *l)
{
	json_t *words = json_array();

	for (int i = 0; c->json && i < l->n; i++) {
		json_array_append_new(words, cli_json_text(l->word[i]));
	}
	if (c->json) {
		return cli_json(c, "cc", json_pack("{s:o}", "command", words));
	}
	json_decref(words);
	for (int i = 0; i < l->n; i++) {
		printf("%s%s", i ? " " : "", l->word[i]);
	}
	putchar('\n');
	return cli_flush(c);
}

static int cmd_cc(struct cli *c)
{
	struct line l = { .word = calloc((size_t)c->n_args + 8, sizeof(*l.word)) };
	int code = CLI_OK, err;

	if (!l.word) {
		return cli_fail(c, CLI_FAILED, "memory", NULL, "cc: %s", strerror(ENOMEM));
	}
	if (is_nvcc(c->arg[0])) {
		nvcc_line(&l, c->arg);
	} else {
		host_line(&l, c->arg);
	}
	if (c->opt[O_PRINT]) {
		code = print_line(c, &l);
	} else {
		execvp(l.word[0], l.word);
		err = errno;
		code = err == ENOENT ? cli_fail(c, CLI_RUN_NO_COMMAND, "no-command",
						"Is it installed, and on the PATH?",
						"cc: '%s' not found", l.word[0])
				     : cli_fail(c, CLI_RUN_CANNOT_EXEC, "exec", NULL,
						"cc: '%s' cannot be executed: %s", l.word[0],
						strerror(err));
	}
	free(l.word);
	return code;
}

const struct cli_verb verb_cc = {
	.name = "cc",
	.args = "[--] COMPILER [ARG...]",
	.doc = "compile a CUDA program for gBPF's runtime library",
	.page = "gbpf-run.1",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.command = true,
	.run = cmd_cc,
};
