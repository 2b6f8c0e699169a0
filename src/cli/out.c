/* Messages, errors and documents. All verbs print through this file, so that their output is
 * uniform. */
#include "cli/cli.h"

#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

const char *cli_sign(const char *utf8, const char *ascii)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? utf8 : ascii;
}

const char *cli_style(bool on, enum cli_style style)
{
	static const char *const codes[] = { "\033[0m", "\033[1m", "\033[32m", "\033[31m",
					     "\033[2m" };

	return on ? codes[style] : "";
}

/* standard output belongs to the child of `run` */
static FILE *document_stream(const struct cli *c)
{
	return c->verb && c->verb->command ? stderr : stdout;
}

static void print_document(FILE *to, json_t *document)
{
	if (json_dumpf(document, to, JSON_INDENT(2)) == 0) {
		fputc('\n', to);
	}
}

json_t *cli_json_text(const char *s)
{
	json_t *v = s ? json_string(s) : json_null();

	if (!v) { /* not UTF-8, for example a file name */
		char *fit = strdup(s);

		for (char *c = fit; c && *c; c++) {
			*c = (unsigned char)*c < 0x80 ? *c : '?';
		}
		v = fit ? json_string(fit) : NULL;
		free(fit);
	}
	return v ? v : json_null();
}

static int fail_json(struct cli *c, int exit_code, const char *code, const char *message,
		     const char *hint, const char *place, const char *detail)
{
	json_t *e = json_pack("{s:s, s:i, s:o, s:o}", "code", code, "exit", exit_code, "message",
			      cli_json_text(message), "hint", cli_json_text(hint ? hint : ""));
	json_t *d;

	if (e && place && place[0]) {
		json_object_set_new(e, "place", cli_json_text(place));
	}
	if (e && detail && detail[0]) {
		json_object_set_new(e, "detail", cli_json_text(detail));
	}
	d = json_pack("{s:s, s:o}", "schema", "gbpf.error/1", "error", e ? e : json_null());
	if (d) {
		print_document(document_stream(c), d);
		json_decref(d);
	}
	return exit_code;
}

static void print_sentence(FILE *to, const char *text)
{
	size_t n = strlen(text);

	fputs(text, to);
	if (n && !strchr(".?!:", text[n - 1])) {
		fputc('.', to);
	}
}

void cli_print_hint(FILE *to, const char *hint)
{
	/* A hint is a sentence of its own; names (GBPF_X, x.bpf.c) keep their case. */
	bool word = hint[0] >= 'a' && hint[0] <= 'z' &&
		    (hint[1] == ' ' || (hint[1] >= 'a' && hint[1] <= 'z'));
	size_t first = strcspn(hint, " ");

	if (word && !memchr(hint, '.', first) && !memchr(hint, '_', first)) {
		fputc(hint[0] - 'a' + 'A', to);
		hint++;
	}
	cli_put_safe(to, hint); /* it may quote names of an object */
}

static void fail_text(struct cli *c, const char *message, const char *hint, const char *detail)
{
	struct buf safe = { 0 };

	cli_safe_text(&safe, message);
	fprintf(stderr, "%sgbpf:%s ", cli_style(c->color_err, CLI_RED),
		cli_style(c->color_err, CLI_PLAIN));
	if (hint && hint[0]) {
		print_sentence(stderr, buf_text(&safe));
		fputc(' ', stderr);
		cli_print_hint(stderr, hint);
		fputc('\n', stderr);
	} else {
		fprintf(stderr, "%s\n", buf_text(&safe));
	}
	if (detail && detail[0]) {
		cli_put_safe(stderr, detail);
		fputs(detail[strlen(detail) - 1] == '\n' ? "" : "\n", stderr);
	}
	buf_finish(&safe);
}

/* `run` returns the child's exit code, so its own failures have one code that programs do not use.
 */
static int code_of(const struct cli *c, int exit_code)
{
	return c->verb && c->verb->command && exit_code < CLI_RUN_FAILED ? CLI_RUN_FAILED
									 : exit_code;
}

int cli_fail(struct cli *c, int exit_code, const char *code, const char *hint, const char *fmt, ...)
{
	struct buf text = { 0 };
	va_list ap;

	exit_code = code_of(c, exit_code);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	if (c->json) {
		fail_json(c, exit_code, code, buf_text(&text), hint, NULL, NULL);
	} else {
		fail_text(c, buf_text(&text), hint, NULL);
	}
	buf_finish(&text);
	return exit_code;
}

int cli_fail_report(struct cli *c, int exit_code, const char *what, const struct report *r)
{
	struct buf text = { 0 };

	exit_code = code_of(c, exit_code);
	buf_printf(&text, "%s: %s%s%s", what, buf_text(&r->place), r->place.len ? ": " : "",
		   buf_text(&r->message));
	if (c->json) {
		fail_json(c, exit_code, r->code, buf_text(&text), buf_text(&r->hint),
			  buf_text(&r->place), buf_text(&r->detail));
	} else {
		fail_text(c, buf_text(&text), buf_text(&r->hint), buf_text(&r->detail));
	}
	buf_finish(&text);
	return exit_code;
}

void cli_note(struct cli *c, const char *fmt, ...)
{
	va_list ap;

	/* `run --json` has standard error for the document of a failure. */
	if (c->quiet || (c->json && document_stream(c) == stderr)) {
		return;
	}
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

int cli_json(struct cli *c, const char *verb, json_t *document)
{
	char schema[64];
	json_t *out;

	snprintf(schema, sizeof(schema), "gbpf.%s/1", verb);
	for (char *blank = schema; (blank = strchr(blank, ' '));) {
		*blank = '.';
	}
	out = json_pack("{s:s}", "schema", schema);
	if (!out || !document || json_object_update(out, document) < 0) {
		json_decref(out);
		json_decref(document);
		return cli_fail(c, CLI_FAILED, "memory", NULL, "%s: out of memory", verb);
	}
	print_document(stdout, out);
	json_decref(out);
	json_decref(document);
	return CLI_OK;
}

/* Returns true if the reader of the pipe has closed it. An earlier write may have failed, so errno
 * does not say it. */
static bool is_closed_pipe(void)
{
	struct pollfd p = { .fd = STDOUT_FILENO, .events = POLLOUT };

	/* POLLHUP: a socket */
	return poll(&p, 1, 0) > 0 && p.revents & (POLLERR | POLLHUP);
}

int cli_flush(struct cli *c)
{
	int err = fflush(stdout) == 0 ? 0 : errno;

	if (!err && !ferror(stdout)) {
		return 0;
	}
	if (is_closed_pipe()) { /* deliberately: quiet, as programs that SIGPIPE ends */
		return 128 + SIGPIPE;
	}
	fprintf(stderr, "gbpf: standard output: %s\n",
		err ? strerror(err) : "an earlier write has failed");
	return CLI_FAILED;
}
