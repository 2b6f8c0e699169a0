/* Statements: labels, instructions, scopes, and directives that are kept verbatim. */
#include "ptx/parse/parse_int.h"

#include <errno.h>
#include <string.h>

/* Returns true for directives that end with their line. */
static bool at_line_directive(const struct ptx_parser *p)
{
	static const char *const words[] = { ".version", ".target", ".address_size", ".file",
					     ".loc" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (ptx_parse_is_dot(p, words[i])) {
			return true;
		}
	}
	return false;
}

int ptx_parse_directive(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_directive *d = ptx_parse_item(p, PTX_DIRECTIVE, sizeof(*d));
	const char *from = p->token.text;
	bool line = at_line_directive(p);
	size_t len;

	if (!d) {
		return ptx_parse_no_memory(p);
	}
	p->lexer.pos = from;
	p->lexer.line = p->token.line;
	len = line ? ptx_lexer_line(&p->lexer) : ptx_lexer_unknown(&p->lexer);
	if (len == 0) {
		return ptx_parse_fail(p, -EINVAL, "this directive is not closed");
	}
	d->text = ptx_arena_text(&p->module->arena, from, len);
	if (!d->text) {
		return ptx_parse_no_memory(p);
	}
	ptx_list_append(list, &d->item);
	ptx_parse_next(p);
	return 0;
}

static int parse_targets(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_targets *t = ptx_parse_item(p, PTX_TARGETS, sizeof(*t));
	struct ptx_operand *names;
	int err;

	if (!t) {
		return ptx_parse_no_memory(p);
	}
	t->directive = ptx_parse_text(p, &p->token);
	ptx_parse_next(p);
	err = ptx_parse_operands(p, ';', 0, &names, &t->n);
	if (err < 0) {
		return err;
	}
	t->names = ptx_arena_array(&p->module->arena, t->n, sizeof(*t->names));
	if (!t->names || !t->directive) {
		return ptx_parse_no_memory(p);
	}
	for (uint32_t i = 0; i < t->n; i++) {
		if (names[i].kind != PTX_NAME || names[i].offset) {
			return ptx_parse_fail(p, -EINVAL, "a table of targets holds names only");
		}
		t->names[i] = names[i].name;
	}
	ptx_list_append(list, &t->item);
	return 0;
}

static int parse_prototype(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_prototype *t = ptx_parse_item(p, PTX_PROTOTYPE, sizeof(*t));
	int err;

	if (!t) {
		return ptx_parse_no_memory(p);
	}
	t->function.item = (struct ptx_item){ .kind = PTX_FUNCTION, .line = t->item.line };
	t->function.linkage = t->function.attributes = "";
	ptx_parse_next(p);
	err = ptx_parse_signature(p, &t->function);
	if (err == 0) {
		err = ptx_parse_expect(p, ';');
	}
	if (err < 0) {
		return err;
	}
	ptx_list_append(list, &t->item);
	return 0;
}

static int parse_modifiers(struct ptx_parser *p, struct ptx_insn *insn)
{
	const char *words[PTX_MODIFIERS_MAX], **copy;

	while (p->token.kind == PTX_TOK_DOT) {
		if (insn->n_modifiers == PTX_MODIFIERS_MAX) {
			return ptx_parse_fail(p, -EFBIG, "more than %u modifiers",
					      PTX_MODIFIERS_MAX);
		}
		words[insn->n_modifiers] = ptx_parse_text(p, &p->token);
		if (!words[insn->n_modifiers++]) {
			return ptx_parse_no_memory(p);
		}
		ptx_parse_next(p);
	}
	copy = ptx_arena_array(&p->module->arena, insn->n_modifiers, sizeof(*copy));
	if (!copy) {
		return ptx_parse_no_memory(p);
	}
	if (insn->n_modifiers) {
		memcpy(copy, words, insn->n_modifiers * sizeof(*copy));
	}
	insn->modifiers = copy;
	return 0;
}

/* The opcode has been taken. */
static int parse_rest(struct ptx_parser *p, struct ptx_insn *insn, struct ptx_list *list)
{
	uint32_t n = 0;
	int err = parse_modifiers(p, insn);

	if (err == 0) {
		p->opcode = insn->opcode;
		err = ptx_parse_operands(p, ';', 0, &insn->operands, &n);
		p->opcode = NULL;
	}
	if (err < 0) {
		return err;
	}
	if (n > PTX_OPERANDS_MAX) {
		return ptx_parse_fail(p, -EFBIG, "more than %u operands", PTX_OPERANDS_MAX);
	}
	insn->n_operands = (uint16_t)n;
	ptx_list_append(list, &insn->item);
	return 0;
}

static int parse_guarded(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_insn *insn = ptx_parse_item(p, PTX_INSN, sizeof(*insn));
	int err;

	if (!insn) {
		return ptx_parse_no_memory(p);
	}
	ptx_parse_next(p);
	insn->guard_not = ptx_parse_take(p, '!');
	err = ptx_parse_word(p, "a predicate", &insn->guard);
	if (err == 0) {
		insn->item.line = p->token.line;
		err = ptx_parse_word(p, "an instruction", &insn->opcode);
	}
	return err < 0 ? err : parse_rest(p, insn, list);
}

/* A label or an instruction without a predicate. */
static int parse_word_statement(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_insn *insn = ptx_parse_item(p, PTX_INSN, sizeof(*insn));
	struct ptx_label *label;
	const char *word;
	int err;

	if (!insn) {
		return ptx_parse_no_memory(p);
	}
	err = ptx_parse_word(p, "an instruction", &word);
	if (err < 0) {
		return err;
	}
	if (!ptx_parse_is(p, ':')) {
		insn->opcode = word;
		return parse_rest(p, insn, list);
	}
	label = ptx_parse_item(p, PTX_LABEL, sizeof(*label));
	if (!label) {
		return ptx_parse_no_memory(p);
	}
	label->item.line = insn->item.line;
	label->name = word;
	ptx_list_append(list, &label->item);
	ptx_parse_next(p);
	return 0;
}

/* In a body the next statement need not begin with a dot. So a directive must end by itself, or
 * with the line if PTX defines it so. */
static int parse_own_end(struct ptx_parser *p, struct ptx_list *list)
{
	struct ptx_token first = p->token;
	bool line = at_line_directive(p);
	int err = ptx_parse_directive(p, list);
	const char *text;

	if (err < 0) {
		return err;
	}
	text = ((struct ptx_directive *)list->last)->text;
	if (!line && !strchr(";}", text[strlen(text) - 1])) {
		p->token = first;
		return ptx_parse_fail(p, -EINVAL, "this directive is not closed");
	}
	return 0;
}

static int parse_dot_statement(struct ptx_parser *p, struct ptx_list *list)
{
	if (ptx_parse_at_space(p)) {
		return ptx_parse_variables(p, "", list);
	}
	if (ptx_parse_at_linkage(p)) {
		const char *linkage = ptx_parse_text(p, &p->token);

		ptx_parse_next(p);
		return linkage ? ptx_parse_variables(p, linkage, list) : ptx_parse_no_memory(p);
	}
	if (ptx_parse_is_dot(p, ".branchtargets") || ptx_parse_is_dot(p, ".calltargets")) {
		return parse_targets(p, list);
	}
	if (ptx_parse_is_dot(p, ".callprototype")) {
		return parse_prototype(p, list);
	}
	return parse_own_end(p, list);
}

static int parse_scope(struct ptx_parser *p, struct ptx_list *list, unsigned depth)
{
	struct ptx_scope *s = ptx_parse_item(p, PTX_SCOPE, sizeof(*s));

	if (!s) {
		return ptx_parse_no_memory(p);
	}
	if (depth == PTX_NESTING_MAX) {
		return ptx_parse_fail(p, -EFBIG, "more than %u scopes inside each other",
				      PTX_NESTING_MAX);
	}
	ptx_list_append(list, &s->item);
	ptx_parse_next(p);
	return ptx_parse_body(p, &s->body, depth + 1, &s->end_line);
}

static int parse_statement(struct ptx_parser *p, struct ptx_list *list, unsigned depth)
{
	if (p->token.kind == PTX_TOK_DOT) {
		return parse_dot_statement(p, list);
	}
	if (p->token.kind == PTX_TOK_WORD) {
		return parse_word_statement(p, list);
	}
	if (ptx_parse_is(p, '@')) {
		return parse_guarded(p, list);
	}
	if (ptx_parse_is(p, '{')) {
		return parse_scope(p, list, depth);
	}
	if (ptx_parse_take(p, ';')) {
		return 0;
	}
	return ptx_parse_unexpected(p, "an instruction, a label, a directive or '}'");
}

int ptx_parse_body(struct ptx_parser *p, struct ptx_list *list, unsigned depth, uint32_t *end_line)
{
	while (!ptx_parse_is(p, '}')) {
		int err = parse_statement(p, list, depth);

		if (err < 0) {
			return err;
		}
	}
	*end_line = p->token.line;
	ptx_parse_next(p);
	return 0;
}

int ptx_body_parse(struct ptx_module *m, const char *text, size_t len, const char *name,
		   struct ptx_list *body, struct report *r)
{
	struct ptx_parser p = { .module = m, .name = name, .report = r };
	uint32_t end;
	int err;

	buf_init(&p.scratch);
	ptx_lexer_init(&p.lexer, text, len);
	ptx_parse_next(&p);
	err = ptx_parse_body(&p, body, 0, &end);
	buf_finish(&p.scratch);
	return err;
}
