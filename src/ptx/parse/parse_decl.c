/* Declarations: variables, register ranges, parameters, initializers. */
#include "ptx/parse/parse_int.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *word;
	enum ptx_space space;
} spaces[] = {
	{ ".reg", PTX_REG },	   { ".sreg", PTX_SREG },   { ".const", PTX_CONST },
	{ ".global", PTX_GLOBAL }, { ".local", PTX_LOCAL }, { ".param", PTX_PARAM },
	{ ".shared", PTX_SHARED },
};

static enum ptx_space space_of(const struct ptx_parser *p)
{
	for (size_t i = 0; i < ARRAY_SIZE(spaces); i++) {
		if (ptx_parse_is_dot(p, spaces[i].word)) {
			return spaces[i].space;
		}
	}
	return PTX_SPACE_NONE;
}

bool ptx_parse_at_space(const struct ptx_parser *p)
{
	return space_of(p) != PTX_SPACE_NONE;
}

bool ptx_parse_at_linkage(const struct ptx_parser *p)
{
	return ptx_parse_is_dot(p, ".visible") || ptx_parse_is_dot(p, ".extern") ||
	       ptx_parse_is_dot(p, ".weak") || ptx_parse_is_dot(p, ".common");
}

int ptx_parse_attribute(struct ptx_parser *p, struct buf *text)
{
	unsigned depth = 0;

	buf_puts(text, text->len ? " .attribute" : ".attribute");
	ptx_parse_next(p);
	do {
		if (p->token.kind == PTX_TOK_END || p->token.kind == PTX_TOK_BAD ||
		    (depth == 0 && !ptx_parse_is(p, '('))) {
			return ptx_parse_unexpected(p, "'(' or ')' of an attribute");
		}
		if (depth && !p->token.glued) {
			buf_puts(text, " "); /* "8.5 .b" is two tokens, "8.5.b" is none */
		}
		depth += ptx_parse_is(p, '(');
		depth -= ptx_parse_is(p, ')');
		buf_add(text, p->token.text, p->token.len);
		ptx_parse_next(p);
	} while (depth > 0);
	return 0;
}

/* Parses words between space and name: alignment, vector, type; others are kept as attributes. */
static int parse_qualifier(struct ptx_parser *p, struct ptx_variable *v, struct buf *attributes,
			   bool *in_ptr)
{
	struct ptx_token t = p->token;
	char word[16] = "";

	if (t.len < sizeof(word)) {
		memcpy(word, t.text, t.len);
	}
	ptx_parse_next(p);
	if (strcmp(word, ".align") == 0) {
		uint32_t *align = *in_ptr ? &v->ptr_align : &v->align;
		int err = ptx_parse_u32(p, "an alignment", align);

		if (err == 0 && (*align == 0 || (*align & (*align - 1)) || *align > 65536)) {
			return ptx_parse_fail(p, -EINVAL, "%u is no alignment", *align);
		}
		return err;
	}
	if (strcmp(word, ".v2") == 0 || strcmp(word, ".v4") == 0) {
		v->vector = (uint8_t)(word[2] - '0');
		return 0;
	}
	if (ptx_type_bytes(word)) {
		v->type = ptx_arena_text(&p->module->arena, word, t.len);
		return v->type ? 0 : ptx_parse_no_memory(p);
	}
	*in_ptr = *in_ptr || strcmp(word, ".ptr") == 0;
	if (attributes->len) {
		buf_puts(attributes, " ");
	}
	buf_add(attributes, t.text, t.len);
	return 0;
}

/* "bank]": obsolete; since PTX 2.2 there is one bank. */
static int parse_bank(struct ptx_parser *p, struct ptx_variable *v)
{
	uint32_t bank;
	int err = ptx_parse_u32(p, "a bank's number", &bank);

	if (err == 0 && bank > 10) {
		return ptx_parse_fail(p, -EINVAL, "banks have the numbers 0 to 10");
	}
	v->has_bank = true;
	v->bank = (uint8_t)bank;
	return err < 0 ? err : ptx_parse_expect(p, ']');
}

/* Parses ".space qualifiers": all but the name. */
static int parse_head(struct ptx_parser *p, struct ptx_variable *v)
{
	bool in_ptr = false;
	struct buf attributes;
	int err = 0;

	v->space = space_of(p);
	if (v->space == PTX_SPACE_NONE) {
		return ptx_parse_unexpected(p, "a state space such as .param");
	}
	ptx_parse_next(p);
	if (v->space == PTX_CONST && ptx_parse_take(p, '[')) {
		err = parse_bank(p, v);
	}
	buf_init(&attributes);
	while (err == 0 && p->token.kind == PTX_TOK_DOT) {
		err = ptx_parse_is_dot(p, ".attribute")
			      ? ptx_parse_attribute(p, &attributes)
			      : parse_qualifier(p, v, &attributes, &in_ptr);
	}
	v->attributes = ptx_arena_text(&p->module->arena, buf_text(&attributes), attributes.len);
	if (err == 0 && (!v->attributes || attributes.failed)) {
		err = ptx_parse_no_memory(p);
	}
	buf_finish(&attributes);
	if (err == 0 && !v->type) {
		err = ptx_parse_unexpected(p, "a type such as .u32");
	}
	return err;
}

static int parse_dims(struct ptx_parser *p, struct ptx_variable *v)
{
	while (ptx_parse_take(p, '[')) {
		if (v->n_dims == PTX_DIMS_MAX) {
			return ptx_parse_fail(p, -EFBIG, "more than %u dimensions", PTX_DIMS_MAX);
		}
		if (ptx_parse_is(p, ']') && v->n_dims == 0) {
			v->open_array = true;
		} else {
			struct ptx_operand size;
			int err = ptx_parse_constant(p, &size);

			if (err < 0) {
				return err;
			}
			if (size.kind != PTX_INT || size.negative) {
				return ptx_parse_fail(p, -EINVAL,
						      "an array's size is a whole number");
			}
			v->dims[v->n_dims] = size.value;
		}
		v->n_dims++;
		if (!ptx_parse_take(p, ']')) {
			return ptx_parse_unexpected(p, "']'");
		}
	}
	return 0;
}

static int parse_declarator(struct ptx_parser *p, struct ptx_variable *v)
{
	int err = 0;

	if (v->space == PTX_PARAM && (ptx_parse_is(p, ',') || ptx_parse_is(p, ')'))) {
		v->name = "_"; /* of a prototype */
	} else {
		err = ptx_parse_word(p, "a name", &v->name);
	}
	if (err == 0 && ptx_parse_take(p, '<')) {
		v->has_range = true;
		err = ptx_parse_u32(p, "a count of names", &v->range);
		if (err == 0) {
			err = ptx_parse_expect(p, '>');
		}
		if (err < 0 || v->space != PTX_REG) {
			return err;
		}
	}
	if (err == 0) {
		err = parse_dims(p, v);
	}
	if (err == 0 && ptx_parse_take(p, '=')) {
		v->init = ptx_arena_alloc(&p->module->arena, sizeof(*v->init));
		if (!v->init) {
			return ptx_parse_no_memory(p);
		}
		err = ptx_parse_operand(p, v->init, 0);
	}
	return err;
}

/* Appends the variables of ".param .u64 p<2>": p0 and p1. Only ranges of registers, which may be
 * large, are kept as one item; every other name can be looked up as it is written. */
static int expand_range(struct ptx_parser *p, const struct ptx_variable *range,
			struct ptx_list *list)
{
	char name[PTX_RANGE_NAME_MAX + 12];

	if (strlen(range->name) > PTX_RANGE_NAME_MAX) {
		return ptx_parse_fail(p, -EFBIG, "a range's name is longer than %u bytes",
				      PTX_RANGE_NAME_MAX);
	}
	if (range->range > PTX_EXPANDED_MAX - p->expanded) {
		return ptx_parse_fail(p, -EFBIG, "%s<%u>: the module's ranges exceed %u variables",
				      range->name, range->range, PTX_EXPANDED_MAX);
	}
	p->expanded += range->range;
	for (uint32_t i = 0; i < range->range; i++) {
		struct ptx_variable *v = ptx_arena_alloc(&p->module->arena, sizeof(*v));
		int len = snprintf(name, sizeof(name), "%s%u", range->name, i);

		if (!v) {
			return ptx_parse_no_memory(p);
		}
		*v = *range;
		v->has_range = false;
		v->range = 0;
		v->name = ptx_arena_text(&p->module->arena, name, (size_t)len);
		if (!v->name) {
			return ptx_parse_no_memory(p);
		}
		ptx_list_append(list, &v->item);
	}
	return 0;
}

int ptx_parse_variables(struct ptx_parser *p, const char *linkage, struct ptx_list *list)
{
	struct ptx_variable head = { .item.kind = PTX_VARIABLE, .linkage = linkage };
	int err = parse_head(p, &head);

	while (err == 0) {
		struct ptx_variable *v = ptx_parse_item(p, PTX_VARIABLE, sizeof(*v));

		if (!v) {
			return ptx_parse_no_memory(p);
		}
		head.item.line = v->item.line;
		*v = head;
		err = parse_declarator(p, v);
		if (err == 0 && v->has_range && v->space != PTX_REG) {
			err = expand_range(p, v, list);
		} else if (err == 0) {
			ptx_list_append(list, &v->item);
		}
		if (err < 0) {
			return err;
		}
		if (!ptx_parse_take(p, ',')) {
			return ptx_parse_expect(p, ';');
		}
	}
	return err;
}

int ptx_parse_params(struct ptx_parser *p, struct ptx_variable **ret, uint32_t *ret_n)
{
	struct ptx_variable *list = NULL;
	uint32_t n = 0, cap = 0;
	int err = 0;

	if (!ptx_parse_take(p, '(')) {
		return 0;
	}
	while (err == 0 && !ptx_parse_is(p, ')')) {
		if (n == PTX_PARAMS_MAX) {
			return ptx_parse_fail(p, -EFBIG, "more than %u parameters", PTX_PARAMS_MAX);
		}
		if (n == cap) {
			struct ptx_variable *more;

			cap = cap ? cap * 2 : 8;
			more = ptx_arena_array(&p->module->arena, cap, sizeof(*more));
			if (!more) {
				return ptx_parse_no_memory(p);
			}
			if (n) {
				memcpy(more, list, n * sizeof(*more));
			}
			list = more;
		}
		list[n] = (struct ptx_variable){
			.item = { .kind = PTX_VARIABLE, .line = p->token.line }, .linkage = ""
		};
		err = parse_head(p, &list[n]);
		if (err == 0) {
			err = parse_declarator(p, &list[n]);
		}
		if (err == 0 && list[n].has_range && list[n].space != PTX_REG) {
			err = ptx_parse_unexpected(p, "a parameter without <n>");
		}
		n++;
		if (err == 0 && !ptx_parse_take(p, ',') && !ptx_parse_is(p, ')')) {
			return ptx_parse_unexpected(p, "',' or ')'");
		}
	}
	*ret = list;
	*ret_n = n;
	return err < 0 ? err : ptx_parse_expect(p, ')');
}
