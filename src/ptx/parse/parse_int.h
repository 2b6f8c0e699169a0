/* Shared by the parser's files. Functions return 0 or a negative error that they have reported. */
#ifndef GBPF_PTX_PARSE_PARSE_INT_H
#define GBPF_PTX_PARSE_PARSE_INT_H

#include "base/compiler.h"
#include "ptx/lex.h"
#include "ptx/module.h"

struct ptx_parser {
	struct ptx_lexer lexer;
	struct ptx_token token; /* the next token, not taken yet */
	struct ptx_module *module;
	const char *name;
	struct report *report;
	struct buf scratch; /* an operand stack: groups of operands are collected here before they
			       move to the arena */
	uint32_t expanded;  /* variables that came from ranges */
	const char *opcode; /* of the instruction whose operands are parsed; NULL: none */
	bool has_elements;  /* PTX_ELEMENT, which ptx_parse_elements() replaces */
};

int ptx_parse_fail(struct ptx_parser *p, int err, const char *fmt, ...) PRINTF_LIKE(3, 4);
int ptx_parse_unexpected(struct ptx_parser *p, const char *wanted); /* "X expected, found Y" */
int ptx_parse_no_memory(struct ptx_parser *p);

void ptx_parse_next(struct ptx_parser *p);
bool ptx_parse_is(const struct ptx_parser *p, char punct);
bool ptx_parse_is_dot(const struct ptx_parser *p, const char *word);
bool ptx_parse_take(struct ptx_parser *p, char punct);
int ptx_parse_expect(struct ptx_parser *p, char punct);

/* Returns the token's text as a string of the module; NULL: out of memory. */
char *ptx_parse_text(struct ptx_parser *p, const struct ptx_token *t);
int ptx_parse_word(struct ptx_parser *p, const char *what, const char **ret);
int ptx_parse_u32(struct ptx_parser *p, const char *what, uint32_t *ret);
/* Returns a zeroed item at the token's line; NULL: out of memory. */
void *ptx_parse_item(struct ptx_parser *p, enum ptx_item_kind kind, size_t bytes);

/* parse_decl.c */
bool ptx_parse_at_space(const struct ptx_parser *p);
bool ptx_parse_at_linkage(const struct ptx_parser *p);
/* ".reg .b32 %r<6>, %x;": appends one variable per declarator. */
int ptx_parse_variables(struct ptx_parser *p, const char *linkage, struct ptx_list *list);
/* "( .param .u32 a, ... )" if the token is a parenthesis; else nothing. */
int ptx_parse_params(struct ptx_parser *p, struct ptx_variable **ret, uint32_t *ret_n);

/* ".attribute(...)" at the token: appends it to text, after a blank. */
int ptx_parse_attribute(struct ptx_parser *p, struct buf *text);

/* parse.c: parses results, name, parameters and tuning of a function or prototype. */
int ptx_parse_signature(struct ptx_parser *p, struct ptx_function *f);

/* parse_operand.c */
int ptx_parse_operand(struct ptx_parser *p, struct ptx_operand *ret, unsigned depth);
/* Parses operand, operand, ... up to the closing character, which is taken. */
int ptx_parse_operands(struct ptx_parser *p, char close, unsigned depth, struct ptx_operand **ret,
		       uint32_t *ret_n);

/* parse_expr.c: parses a constant expression; *o becomes a PTX_INT, PTX_F32 or PTX_F64. */
int ptx_parse_constant(struct ptx_parser *p, struct ptx_operand *o);
/* Parses what is added to a name, "+8", "+-8" or "-8 + 2*4", if anything is. */
int ptx_parse_offset(struct ptx_parser *p, int64_t *ret);
/* parse_element.c: replaces elements of arrays in all instructions of the module. */
int ptx_parse_elements(struct ptx_parser *p);
bool ptx_parse_at_warp_size(const struct ptx_parser *p); /* WARP_SZ */

/* parse_body.c: parses the statements up to the closing brace, which is taken. */
int ptx_parse_body(struct ptx_parser *p, struct ptx_list *list, unsigned depth, uint32_t *end_line);
int ptx_parse_directive(struct ptx_parser *p, struct ptx_list *list);

#endif
