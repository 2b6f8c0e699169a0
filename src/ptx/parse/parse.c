/* The parser's basis: tokens, errors, and the module's top level. */
#include "ptx/parse/parse_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ptx_parse_fail(struct ptx_parser *p, int err, const char *fmt, ...)
{
	va_list ap;
	struct buf text;

	buf_init(&text);
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	report_place(p->report, "%s:%u", p->name, p->token.line);
	report_set(p->report, err, "ptx", "%s", buf_text(&text));
	buf_finish(&text);
	return err;
}

int ptx_parse_no_memory(struct ptx_parser *p)
{
	return ptx_parse_fail(p, -ENOMEM, "no memory for this module");
}

int ptx_parse_unexpected(struct ptx_parser *p, const char *wanted)
{
	const struct ptx_token *t = &p->token;

	if (t->kind == PTX_TOK_BAD) {
		return ptx_parse_fail(p, -EINVAL, "%s", t->error);
	}
	if (t->kind == PTX_TOK_END) {
		return ptx_parse_fail(p, -EINVAL, "%s expected, found the end of the text", wanted);
	}
	return ptx_parse_fail(p, -EINVAL, "%s expected, found '%.*s'", wanted,
			      (int)MIN(t->len, (size_t)60), t->text);
}

void ptx_parse_next(struct ptx_parser *p)
{
	ptx_lexer_next(&p->lexer, &p->token);
}

bool ptx_parse_is(const struct ptx_parser *p, char punct)
{
	return p->token.punct == punct;
}

bool ptx_parse_is_dot(const struct ptx_parser *p, const char *word)
{
	return p->token.kind == PTX_TOK_DOT && p->token.len == strlen(word) &&
	       memcmp(p->token.text, word, p->token.len) == 0;
}

bool ptx_parse_take(struct ptx_parser *p, char punct)
{
	if (p->token.punct != punct) {
		return false;
	}
	ptx_parse_next(p);
	return true;
}

int ptx_parse_expect(struct ptx_parser *p, char punct)
{
	const char wanted[] = { '\'', punct, '\'', '\0' };

	return ptx_parse_take(p, punct) ? 0 : ptx_parse_unexpected(p, wanted);
}

char *ptx_parse_text(struct ptx_parser *p, const struct ptx_token *t)
{
	return ptx_arena_text(&p->module->arena, t->text, t->len);
}

int ptx_parse_word(struct ptx_parser *p, const char *what, const char **ret)
{
	if (p->token.kind != PTX_TOK_WORD) {
		return ptx_parse_unexpected(p, what);
	}
	if (p->token.len > PTX_NAME_MAX) {
		return ptx_parse_fail(p, -EFBIG, "a name is longer than %u bytes", PTX_NAME_MAX);
	}
	*ret = ptx_parse_text(p, &p->token);
	if (!*ret) {
		return ptx_parse_no_memory(p);
	}
	ptx_parse_next(p);
	return 0;
}

int ptx_parse_u32(struct ptx_parser *p, const char *what, uint32_t *ret)
{
	if (p->token.kind != PTX_TOK_INT || p->token.value > UINT32_MAX) {
		return ptx_parse_unexpected(p, what);
	}
	*ret = (uint32_t)p->token.value;
	ptx_parse_next(p);
	return 0;
}

void *ptx_parse_item(struct ptx_parser *p, enum ptx_item_kind kind, size_t bytes)
{
	struct ptx_item *it = ptx_arena_alloc(&p->module->arena, bytes);

	if (it) {
		it->kind = kind;
		it->line = p->token.line;
	}
	return it;
}

static int parse_tuning(struct ptx_parser *p, struct ptx_function *f)
{
	while (p->token.kind == PTX_TOK_DOT) {
		struct ptx_directive *d = ptx_parse_item(p, PTX_DIRECTIVE, sizeof(*d));
		struct buf text;
		bool word = ptx_parse_is_dot(p, ".pragma");

		if (!d) {
			return ptx_parse_no_memory(p);
		}
		buf_init(&text);
		buf_add(&text, p->token.text, p->token.len);
		ptx_parse_next(p);
		while (p->token.kind == PTX_TOK_INT || p->token.kind == PTX_TOK_STRING ||
		       (word && p->token.kind == PTX_TOK_WORD)) {
			buf_puts(&text, " ");
			buf_add(&text, p->token.text, p->token.len);
			ptx_parse_next(p);
			if (ptx_parse_is(p, ',')) {
				buf_puts(&text, ",");
				ptx_parse_next(p);
			}
		}
		/* A pragma ends with a semicolon; a prototype's semicolon ends the function. */
		if (word && ptx_parse_take(p, ';')) {
			buf_puts(&text, ";");
		}
		d->text = ptx_arena_text(&p->module->arena, buf_text(&text), text.len);
		buf_finish(&text);
		if (!d->text) {
			return ptx_parse_no_memory(p);
		}
		ptx_list_append(&f->tuning, &d->item);
	}
	return 0;
}

int ptx_parse_signature(struct ptx_parser *p, struct ptx_function *f)
{
	int err = f->is_entry ? 0 : ptx_parse_params(p, &f->returns, &f->n_returns);

	if (err == 0) {
		err = ptx_parse_word(p, "the function's name", &f->name);
	}
	if (err == 0) {
		err = ptx_parse_params(p, &f->params, &f->n_params);
	}
	return err < 0 ? err : parse_tuning(p, f);
}

static int parse_attributes(struct ptx_parser *p, struct ptx_function *f)
{
	struct buf text;
	int err = 0;

	buf_init(&text);
	while (err == 0 && ptx_parse_is_dot(p, ".attribute")) {
		err = ptx_parse_attribute(p, &text);
	}
	f->attributes = ptx_arena_text(&p->module->arena, buf_text(&text), text.len);
	if (err == 0 && (!f->attributes || text.failed)) {
		err = ptx_parse_no_memory(p);
	}
	buf_finish(&text);
	return err;
}

static int parse_function(struct ptx_parser *p, const char *linkage)
{
	struct ptx_function *f = ptx_parse_item(p, PTX_FUNCTION, sizeof(*f));
	int err;

	if (!f) {
		return ptx_parse_no_memory(p);
	}
	f->linkage = linkage;
	f->is_entry = ptx_parse_is_dot(p, ".entry");
	ptx_parse_next(p);
	err = parse_attributes(p, f);
	if (err == 0) {
		err = ptx_parse_signature(p, f);
	}
	if (err < 0) {
		return err;
	}
	f->has_body = ptx_parse_is(p, '{');
	if (!f->has_body && !ptx_parse_is(p, ';')) {
		return ptx_parse_unexpected(p, "'{' or ';' after a function's head");
	}
	ptx_parse_next(p);
	ptx_list_append(&p->module->items, &f->item);
	return f->has_body ? ptx_parse_body(p, &f->body, 1, &f->end_line) : 0;
}

/* .version, .target and .address_size stay in the list as directives; their values are noted as
 * well. */
static int note_directive(struct ptx_parser *p, const struct ptx_directive *d)
{
	struct ptx_module *m = p->module;
	const char *t = d->text;
	size_t n;

	p->token.line = d->item.line;
	if (strncmp(t, ".version", 8) == 0) {
		char *end;

		m->version_major = (uint32_t)strtoul(t + 8, &end, 10);
		if (*end != '.' || m->version_major == 0) {
			return ptx_parse_fail(p, -EINVAL, ".version needs a number such as 6.0");
		}
		m->version_minor = (uint32_t)strtoul(end + 1, &end, 10);
	} else if (strncmp(t, ".address_size", 13) == 0) {
		m->address_size = (uint32_t)strtoul(t + 13, NULL, 10);
		if (m->address_size != 32 && m->address_size != 64) {
			return ptx_parse_fail(p, -EINVAL, ".address_size is 32 or 64");
		}
	} else if (strncmp(t, ".target", 7) == 0) {
		t += 7 + strspn(t + 7, " \t");
		n = strcspn(t, ", \t");
		m->target = ptx_arena_text(&m->arena, t, n);
		if (!m->target) {
			return ptx_parse_no_memory(p);
		}
	}
	return 0;
}

static int parse_top(struct ptx_parser *p)
{
	const char *linkage = "";
	struct ptx_token after;
	int err;

	if (p->token.kind != PTX_TOK_DOT) {
		return ptx_parse_unexpected(p, "a directive");
	}
	if (ptx_parse_at_linkage(p)) {
		linkage = ptx_parse_text(p, &p->token);
		if (!linkage) {
			return ptx_parse_no_memory(p);
		}
		ptx_parse_next(p);
	}
	if (ptx_parse_is_dot(p, ".entry") || ptx_parse_is_dot(p, ".func")) {
		return parse_function(p, linkage);
	}
	if (ptx_parse_at_space(p)) {
		return ptx_parse_variables(p, linkage, &p->module->items);
	}
	if (*linkage) {
		return ptx_parse_unexpected(p, "a function or a variable");
	}
	err = ptx_parse_directive(p, &p->module->items);
	if (err < 0) {
		return err;
	}
	after = p->token;
	err = note_directive(p, (struct ptx_directive *)p->module->items.last);
	p->token = err < 0 ? p->token : after;
	return err;
}

/* The module's strings are zero-terminated, so the text must not contain zeros. */
static int check_bytes(struct ptx_parser *p)
{
	const char *zero = memchr(p->lexer.pos, 0, (size_t)(p->lexer.end - p->lexer.pos));

	p->token.line = 1;
	for (const char *c = p->lexer.pos; zero && c < zero; c++) {
		p->token.line += *c == '\n';
	}
	return zero ? ptx_parse_fail(p, -EINVAL, "a zero byte in the text") : 0;
}

static int parse_module(struct ptx_parser *p)
{
	int err = check_bytes(p);

	if (err < 0) {
		return err;
	}
	ptx_parse_next(p);
	while (err == 0 && p->token.kind != PTX_TOK_END) {
		err = parse_top(p);
	}
	if (err == 0 && p->module->version_major == 0) {
		p->token.line = 1;
		err = ptx_parse_fail(p, -EINVAL, "no .version: this is not PTX");
	}
	return err < 0 ? err : ptx_parse_elements(p);
}

int ptx_module_parse(struct ptx_module **ret, const char *text, size_t len, const char *name,
		     struct report *r)
{
	struct ptx_parser p = { .name = name, .report = r };
	int err;

	if (len > PTX_TEXT_MAX) {
		report_place(r, "%s", name);
		return report_set(r, -EFBIG, "ptx", "the text is longer than %zu bytes",
				  PTX_TEXT_MAX);
	}
	/* Callers may include the terminating zero in the length. */
	while (len > 0 && text[len - 1] == '\0') {
		len--;
	}
	text = len ? text : "";
	p.module = calloc(1, sizeof(*p.module));
	if (!p.module) {
		return -ENOMEM;
	}
	ptx_arena_init(&p.module->arena);
	p.module->address_size = 64;
	p.module->target = "";
	p.module->name = strdup(name);
	ptx_lexer_init(&p.lexer, text, len);
	buf_init(&p.scratch);
	err = p.module->name ? parse_module(&p) : -ENOMEM;
	buf_finish(&p.scratch);
	if (err < 0) {
		ptx_module_free(p.module);
		return err;
	}
	*ret = p.module;
	return 0;
}
