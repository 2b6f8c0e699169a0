/* The lines of a scenario: matches blocks before anything runs, moves within a line, and reports
 * errors with a caret. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "sim/sim_int.h"

/* Returns the length without comment and trailing blanks. A # within quotation marks starts no
 * comment. */
static size_t meat(const char *text, size_t len)
{
	bool quoted = false;
	size_t n;

	for (n = 0; n < len && (quoted || text[n] != '#'); n++) {
		quoted ^= text[n] == '"';
	}
	while (n && isspace((unsigned char)text[n - 1])) {
		n--;
	}
	return n;
}

static bool has_text(const char *text, size_t len)
{
	while (len && isspace((unsigned char)*text)) {
		text++;
		len--;
	}
	return len != 0;
}

static int split(struct sim *s)
{
	const char *p = s->copy, *end = s->copy + strlen(s->copy);

	s->lines = calloc(SIM_MAX_LINES, sizeof(*s->lines));
	if (!s->lines) {
		return report_set(s->r, -ENOMEM, "memory", "out of memory");
	}
	while (p < end) {
		const char *stop = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((stop ? stop : end) - p);
		struct sim_line *l = &s->lines[s->n_lines++];

		l->text = p;
		l->len = meat(p, len);
		p += len + 1;
		if (s->n_lines == SIM_MAX_LINES || l->len >= sizeof(s->current)) {
			report_place(s->r, "%s:%u", s->o->scenario, s->n_lines);
			return report_set(s->r, -EINVAL, "scenario",
					  s->n_lines == SIM_MAX_LINES ? "too many lines"
								      : "the line is too long");
		}
	}
	return 0;
}

/* Matches blocks. A block begins with `repeat ... {` or `if ... {` at the end of a line and ends
 * with a line `}`. */
static int match_blocks(struct sim *s)
{
	uint32_t open[SIM_MAX_DEPTH], depth = 0;

	for (uint32_t i = 0; i < s->n_lines; i++) {
		struct sim_line *l = &s->lines[i];
		bool repeats;

		if (!has_text(l->text, l->len)) {
			continue;
		}
		sim_text_open(s, i);
		repeats = sim_take_word(s, "repeat") || sim_take_word(s, "for") ||
			  sim_take_word(s, "if");
		if (repeats && l->text[l->len - 1] == '{') {
			if (depth == SIM_MAX_DEPTH) {
				return sim_wrong(s, s->at, NULL, "more than %u blocks in blocks",
						 SIM_MAX_DEPTH);
			}
			l->opens = true;
			open[depth++] = i;
		} else if (*s->at == '}') {
			if (!depth) {
				return sim_wrong(s, s->at, NULL, "there is no block to end here");
			}
			l->closes = true;
			l->partner = open[--depth];
			s->lines[l->partner].partner = i;
		} else if (repeats) {
			return sim_wrong(s, s->current + l->len,
					 "The body follows in lines of its own, then a line }",
					 "here '{' is needed");
		}
	}
	if (depth) {
		sim_text_open(s, open[depth - 1]);
		return sim_wrong(s, s->at, "End it with a line }", "this block has no end");
	}
	return 0;
}

int sim_text_init(struct sim *s)
{
	int err;

	s->copy = strdup(s->o->text);
	if (!s->copy) {
		return report_set(s->r, -ENOMEM, "memory", "out of memory");
	}
	err = split(s);
	return err ? err : match_blocks(s);
}

void sim_text_open(struct sim *s, uint32_t line)
{
	const struct sim_line *l = &s->lines[line];

	s->line = line;
	memcpy(s->current, l->text, l->len);
	s->current[l->len] = 0;
	s->at = s->current;
	sim_blanks(s);
}

static int wrong(struct sim *s, const char *at, const char *hint, const char *fmt, va_list ap)
{
	struct buf text = { 0 }, pad = { 0 };

	buf_vprintf(&text, fmt, ap);
	/* Copy tabs, so that the caret appears below its place. */
	for (const char *c = s->current; c < at; c++) {
		buf_puts(&pad, *c == '\t' ? "\t" : " ");
	}
	if (!s->r->message.len) {
		report_place(s->r, "%s:%u", s->o->scenario, s->line + 1);
		if (hint) {
			report_hint(s->r, "%s", hint);
		}
		buf_printf(&s->r->detail, "  %s\n  %s^\n", s->current, buf_text(&pad));
	}
	report_set(s->r, -EINVAL, "scenario", "%s", buf_text(&text));
	buf_finish(&text);
	buf_finish(&pad);
	return -EINVAL;
}

int sim_wrong(struct sim *s, const char *at, const char *hint, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	wrong(s, at, hint, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

int sim_unknown(struct sim *s, const char *at, const struct nearest *n, const struct buf *all,
		const char *fmt, ...)
{
	const char *best = nearest_best(n);
	struct buf hint = { 0 };
	va_list ap;

	if (best) {
		buf_printf(&hint, "Did you mean '%s'?", best);
	} else {
		buf_printf(&hint, "There are: %s", all->len ? buf_text(all) : "none");
	}
	va_start(ap, fmt);
	wrong(s, at, buf_text(&hint), fmt, ap);
	va_end(ap);
	buf_finish(&hint);
	return -EINVAL;
}

void sim_blanks(struct sim *s)
{
	while (isspace((unsigned char)*s->at)) {
		s->at++;
	}
}

bool sim_take(struct sim *s, const char *token)
{
	size_t n = strlen(token);

	sim_blanks(s);
	if (strncmp(s->at, token, n) != 0) {
		return false;
	}
	s->at += n;
	return true;
}

size_t sim_word(const struct sim *s)
{
	size_t n = 0;

	while (isalnum((unsigned char)s->at[n]) || s->at[n] == '_') {
		n++;
	}
	return n;
}

bool sim_take_word(struct sim *s, const char *word)
{
	size_t n;

	sim_blanks(s);
	n = sim_word(s);
	if (n != strlen(word) || strncmp(s->at, word, n) != 0) {
		return false;
	}
	s->at += n;
	return true;
}

int sim_end(struct sim *s)
{
	sim_blanks(s);
	return *s->at ? sim_wrong(s, s->at, NULL, "nothing more can follow here") : 0;
}
