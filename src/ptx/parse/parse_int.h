/* What the parser's files share. Functions return 0 or a negative error that has been reported. */
#ifndef GBPF_PTX_PARSE_PARSE_INT_H
#define GBPF_PTX_PARSE_PARSE_INT_H

#include "base/compiler.h"
#include "ptx/lex.h"
#include "ptx/module.h"

struct ptx_parser {
	struct ptx_lexer lexer;
	struct ptx_token token; /* the next one, not taken yet */
	struct ptx_module *module;
	const char *name;
	struct report *report;
	struct buf scratch; /* an operand stack: groups of operands grow here before they move to
			       the arena */
};

int ptx_parse_fail(struct ptx_parser *p, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);
int ptx_parse_unexpected(struct ptx_parser *p, const char *wanted); /* "X expected, found Y" */
int ptx_parse_no_memory(struct ptx_parser *p);

void ptx_parse_next(struct ptx_parser *p);
bool ptx_parse_is(const struct ptx_parser *p, char punct);
bool ptx_parse_is_dot(const struct ptx_parser *p, const char *word);
bool ptx_parse_take(struct ptx_parser *p, char punct);
int ptx_parse_expect(struct ptx_parser *p, char punct);

/* The token's text as a string of the module; NULL: no memory. */
char *ptx_parse_text(struct ptx_parser *p, const struct ptx_token *t);
int ptx_parse_word(struct ptx_parser *p, const char *what, const char **ret);
int ptx_parse_u32(struct ptx_parser *p, const char *what, uint32_t *ret);
/* A zeroed item at the token's line; NULL: no memory. */
void *ptx_parse_item(struct ptx_parser *p, enum ptx_item_kind kind, size_t bytes);

/* parse_decl.c */
bool ptx_parse_at_space(const struct ptx_parser *p);
bool ptx_parse_at_linkage(const struct ptx_parser *p);
/* ".reg .b32 %r<6>, %x;": appends one variable for each declarator. */
int ptx_parse_variables(struct ptx_parser *p, const char *linkage, struct ptx_list *list);
/* "( .param .u32 a, ... )" when a parenthesis comes; nothing otherwise. */
int ptx_parse_params(struct ptx_parser *p, struct ptx_variable **ret, uint32_t *ret_n);

/* ".attribute(...)" at the token: appended to text, with a blank before it. */
int ptx_parse_attribute(struct ptx_parser *p, struct buf *text);

/* parse.c: results, name, parameters and tuning of a function or prototype. */
int ptx_parse_signature(struct ptx_parser *p, struct ptx_function *f);

/* parse_operand.c */
int ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *ret, unsigned depth);
/* operand, operand, ... up to the closing character, which is taken. */
int ptx_parse_operands(struct ptx_parser *p, char close, unsigned depth, struct ptx_operand **ret,
		       uint32_t *ret_n);

/* parse_expr.c: o is a whole number; what follows it of a constant expression is folded into it. */
int ptx_parse_fold(struct ptx_parser *p, struct ptx_operand *o, unsigned depth);
/* One that begins with !, ~, - or + before a parenthesis or a number. */
int ptx_parse_constant(struct ptx_parser *p, struct ptx_operand *o, unsigned depth);

/* parse_body.c: the statements up to the closing brace, which is taken. */
int ptx_parse_body(struct ptx_parser *p, struct ptx_list *list, unsigned depth, uint32_t *end_line);
int ptx_parse_directive(struct ptx_parser *p, struct ptx_list *list);

#endif
