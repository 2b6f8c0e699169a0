/* Splits PTX text into tokens, one at a time. Tokens point into the text, which is not copied. */
#ifndef GBPF_PTX_LEX_H
#define GBPF_PTX_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
	PTX_TOK_END,
	PTX_TOK_WORD,	/* identifier or register: foo, $L1, %r1 */
	PTX_TOK_DOT,	/* .word, the dot included, :: allowed inside */
	PTX_TOK_INT,	/* value */
	PTX_TOK_F32,	/* value: bits */
	PTX_TOK_F64,	/* value: bits */
	PTX_TOK_STRING, /* with its quotes */
	PTX_TOK_PUNCT,	/* one character */
	PTX_TOK_BAD,	/* error has the reason */
};

struct ptx_token {
	enum ptx_token_kind kind;
	char punct; /* of PTX_TOK_PUNCT, else 0 */
	bool glued; /* no space before it */
	uint32_t line;
	const char *text;
	size_t len;
	uint64_t value;
	const char *error; /* static text */
};

struct ptx_lexer {
	const char *pos, *end;
	uint32_t line;
};

void ptx_lexer_init(struct ptx_lexer *x, const char *text, size_t len);
void ptx_lexer_next(struct ptx_lexer *x, struct ptx_token *ret);

/* Skips to the end of the line or to a comment; returns the length skipped without trailing space.
 */
size_t ptx_lexer_line(struct ptx_lexer *x);
/* Skips an unknown directive: to a ; or a closed { } group, or to the end of a line that is
 * followed by a dot, a closing brace or the end. Returns the length skipped, or 0 if a string,
 * comment or group is not closed. */
size_t ptx_lexer_unknown(struct ptx_lexer *x);

#endif
