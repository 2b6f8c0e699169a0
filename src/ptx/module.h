/* PTX as data: a module is an ordered list of items; a function's body is another. Passes rewrite
 * the lists and print the result. Names are not resolved here: an operand holds what is written,
 * and the module's reader gives it a meaning. The module's arena owns everything. */
#ifndef GBPF_PTX_MODULE_H
#define GBPF_PTX_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/report.h"
#include "ptx/arena.h"

#define PTX_TEXT_MAX ((size_t)64 << 20) /* bytes of one module's text */
#define PTX_NAME_MAX 65535u
#define PTX_NESTING_MAX 64u	   /* { } scopes in a body */
#define PTX_OPERAND_NESTING_MAX 8u /* { }, ( ), [ ] in an operand or an initializer */
#define PTX_MODIFIERS_MAX 24u
#define PTX_WARP_SIZE 32u
#define PTX_OPERANDS_MAX 4096u /* of one instruction, and of one parenthesis */
#define PTX_PARAMS_MAX 4096u
#define PTX_DIMS_MAX 8u
#define PTX_EXPANDED_MAX 16384u	 /* variables of a module from ranges other than registers */
#define PTX_RANGE_NAME_MAX 1024u /* bytes of such a range's name */

enum ptx_item_kind {
	PTX_DIRECTIVE, /* struct ptx_directive */
	PTX_VARIABLE,  /* struct ptx_variable */
	PTX_FUNCTION,  /* struct ptx_function */
	PTX_LABEL,     /* struct ptx_label */
	PTX_INSN,      /* struct ptx_insn */
	PTX_SCOPE,     /* struct ptx_scope */
	PTX_TARGETS,   /* struct ptx_targets */
	PTX_PROTOTYPE, /* struct ptx_prototype */
};

/* The head of every item in a list. line: in the text; 0 for items that a pass has added. */
struct ptx_item {
	struct ptx_item *prev, *next;
	enum ptx_item_kind kind;
	uint32_t line;
};

struct ptx_list {
	struct ptx_item *first, *last;
	size_t n;
};

#define ptx_each(list, it) for (struct ptx_item *it = (list)->first; it; it = it->next)

/* Kept verbatim: .version, .loc, .section, .pragma, and directives unknown to this parser. text
 * begins with the dot and includes a closing ; or } if there was one. */
struct ptx_directive {
	struct ptx_item item;
	const char *text;
};

enum ptx_operand_kind {
	PTX_NAME,    /* name, with its .x if any, and offset: a register, variable, label, function,
			special register */
	PTX_INT,     /* value (two's complement); negative: written with a minus */
	PTX_F32,     /* value: the bits */
	PTX_F64,     /* value: the bits */
	PTX_ADDRESS, /* [name + offset], or [offset] if name is NULL; args: what follows a comma
			within the brackets */
	PTX_VECTOR,  /* {args} */
	PTX_TUPLE,   /* (args) of a call */
	PTX_PAIR,    /* args[0] | args[1] */
	PTX_NOT,     /* !args[0] */
	PTX_MINUS,   /* -args[0], a register: of vmad */
	PTX_GENERIC, /* generic(name) + offset, in initializers */
	PTX_MASK,    /* value(name + offset), in initializers */
	PTX_ELEMENT, /* name[args[0]]: only while the module is parsed */
};

struct ptx_operand {
	enum ptx_operand_kind kind;
	bool negative;
	uint32_t n_args;
	const char *name;
	uint64_t value;
	int64_t offset;
	struct ptx_operand *args;
};

struct ptx_insn {
	struct ptx_item item;
	const char *guard; /* the predicate's name, or NULL */
	bool guard_not;
	uint8_t n_modifiers;
	uint16_t n_operands;
	const char *opcode;	      /* "ld" */
	const char *const *modifiers; /* ".global", ".u32": with their dots, in order */
	struct ptx_operand *operands;
};

enum ptx_space {
	PTX_SPACE_NONE,
	PTX_REG,
	PTX_SREG,
	PTX_CONST,
	PTX_GLOBAL,
	PTX_LOCAL,
	PTX_PARAM,
	PTX_SHARED,
};

/* A declaration: variable, register range or parameter. ".reg .b32 %r<6>" has name "%r" and
 * range 6; in other spaces the parser makes a variable of each name of a range. */
struct ptx_variable {
	struct ptx_item item;
	enum ptx_space space;
	const char *linkage; /* ".visible", ".extern", ".weak", ".common" or "" */
	const char
		*attributes; /* other words between space and name, such as ".ptr .global", or "" */
	uint32_t align;	     /* 0: not written */
	uint32_t ptr_align;  /* alignment of the object that a .ptr parameter points to; 0: not
				written */
	uint8_t vector;	     /* 0, 2 or 4 */
	const char *type;    /* ".u32" */
	const char *name;
	bool has_bank; /* .const[bank] */
	uint8_t bank;
	bool has_range;
	bool open_array; /* the first dimension is [] */
	uint32_t range;
	uint32_t n_dims;
	uint64_t dims[PTX_DIMS_MAX]; /* dims[0] is 0 when open_array */
	struct ptx_operand *init;    /* or NULL; arrays are PTX_VECTOR */
};

struct ptx_function {
	struct ptx_item item;
	const char *linkage;
	bool is_entry;
	bool has_body;
	const char *attributes; /* ".attribute(...)" before the results, or "" */
	const char *name;
	uint32_t n_returns, n_params;
	struct ptx_variable *returns;
	struct ptx_variable *params;
	struct ptx_list
		tuning; /* .maxntid and other directives between the parameters and the body */
	struct ptx_list body;
	uint32_t end_line; /* of the closing brace */
};

struct ptx_label {
	struct ptx_item item;
	const char *name;
};

/* { ... } inside a body. */
struct ptx_scope {
	struct ptx_item item;
	struct ptx_list body;
	uint32_t end_line;
};

/* .branchtargets or .calltargets; the label before it names the table. */
struct ptx_targets {
	struct ptx_item item;
	const char *directive;
	uint32_t n;
	const char **names;
};

/* .callprototype; the label before it names it. function has no body; its name is the placeholder.
 */
struct ptx_prototype {
	struct ptx_item item;
	struct ptx_function function;
};

struct ptx_module {
	struct ptx_arena arena;
	char *name; /* for messages */
	struct ptx_list items;
	uint32_t version_major, version_minor;
	uint32_t address_size; /* 32 or 64 */
	const char *target;    /* "sm_70", without options */
};

/* Parses text, which need not be zero-terminated and is not referenced afterwards. name is for
 * messages. Returns 0; -EINVAL with place "NAME:LINE" and the reason; -EFBIG beyond a limit;
 * -ENOMEM. */
int ptx_module_parse(struct ptx_module **ret, const char *text, size_t len, const char *name,
		     struct report *r);
/* Parses statements and the closing brace behind them, as of a function of m without scopes around
 * it, and appends them to body. Fails as ptx_module_parse(). */
int ptx_body_parse(struct ptx_module *m, const char *text, size_t len, const char *name,
		   struct ptx_list *body, struct report *r);
void ptx_module_free(struct ptx_module *m); /* accepts NULL */

/* Prints the module so that the parser reads an equal module. Returns 0 or -ENOMEM. */
int ptx_module_print(const struct ptx_module *m, struct buf *out);
void ptx_insn_print(const struct ptx_insn *insn,
		    struct buf *out); /* one line, without indent and newline */
void ptx_body_print(const struct ptx_list *body, struct buf *out); /* without its braces */
/* One item of a body; a function up to its body. */
void ptx_item_print(const struct ptx_item *it, struct buf *out);
void ptx_head_print(const struct ptx_function *f, struct buf *out);

/* Returns true if both have the same items in the same order with the same meaning, regardless of
 * lines. */
bool ptx_module_equal(const struct ptx_module *a, const struct ptx_module *b);

/* Lists. All items of a list belong to one module. after NULL: at the front. */
void ptx_list_append(struct ptx_list *l, struct ptx_item *it);
void ptx_list_insert(struct ptx_list *l, struct ptx_item *after, struct ptx_item *it);
void ptx_list_remove(struct ptx_list *l, struct ptx_item *it);

struct ptx_function *ptx_module_function(const struct ptx_module *m,
					 const char *name); /* prefers a definition */

bool ptx_insn_has(const struct ptx_insn *insn, const char *modifier);
/* Returns true if the list, which ends with NULL, has the word. */
bool ptx_is_one_of(const char *word, const char *const *list);
bool ptx_begins_with(const char *text, const char *const *list); /* with a word of it */

/* Reads up to n numbers of a tuning directive such as ".maxntid 256, 1"; the rest is set to 1.
 * Returns the count; -ENOENT. */
int ptx_function_tuning(const struct ptx_function *f, const char *directive, uint32_t *values,
			int n);

/* Returns the size of one element of a type such as ".u32", in bytes (".pred": 1); 0: unknown type.
 */
unsigned ptx_type_bytes(const char *type);
/* Computes the size of a variable in bytes, including vector and dimensions; 0 for open arrays.
 * Returns 0; -EOVERFLOW; -EINVAL for a type without size. */
int ptx_variable_bytes(const struct ptx_variable *v, uint64_t *ret);
/* Returns the alignment in bytes: as written, or its element's. */
uint32_t ptx_variable_align(const struct ptx_variable *v);

#endif
