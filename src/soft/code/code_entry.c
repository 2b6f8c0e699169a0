/* Makes instructions of an entry. An entry with the shape of a stub becomes its text, with the
 * parameters as references, so that its machine code says all about it and two compilations with
 * parameters at other places differ in nothing else. Of any other entry the machine code holds a
 * hash of the text and one reference to each parameter: the PTX in the same file is executed. */
#include "soft/code/code_entry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/strmap.h"
#include "soft/code/code_insn.h"

#define STUB_PARAMS_MAX 8u
#define STUB_EXITS_MAX 4096u /* the list of their offsets has a length of 16 bits */
#define PARAM_BYTES_MAX 32764u
#define DISTANCE_MAX 65536    /* from a parameter, of what an operand mentions */
#define PARAM_ONE_MAX 0x3fffu /* the size of a parameter has 14 bits */
/* In the printed text of a stub: around the offset of a reference, and behind the opcode of an
 * instruction that ends the thread. PTX names contain no such characters. */
#define REFERENCE '\1'
#define LEAVES '\2'
#define LEAVES_GUARDED '\3'

/* ---- parameters, registers ---- */

static int lay_out(struct soft_entry *e, struct ptx_module *m, const struct ptx_function *f)
{
	uint32_t at = 0;

	e->params = ptx_arena_array(&m->arena, f->n_params + 1u, sizeof(*e->params));
	if (!e->params) {
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < f->n_params; i++) {
		const struct ptx_variable *v = &f->params[i];
		uint32_t align = ptx_variable_align(v);
		uint64_t size;

		if (v->open_array || ptx_variable_bytes(v, &size) < 0 || size == 0 || align == 0 ||
		    align > PARAM_BYTES_MAX || size > PARAM_ONE_MAX ||
		    ROUND_UP(at, align) + size > PARAM_BYTES_MAX) {
			return -ENOTSUP;
		}
		e->params[i].offset = ROUND_UP(at, align);
		e->params[i].bytes = (uint32_t)size;
		e->params[i].name = v->name;
		at = e->params[i].offset + e->params[i].bytes;
	}
	e->n_params = f->n_params;
	e->param_bytes = at;
	return 0;
}

static void read_threads(struct soft_entry *e, const struct ptx_function *f)
{
	e->required = ptx_function_tuning(f, ".reqntid", e->threads, 3) > 0;
	if (!e->required && ptx_function_tuning(f, ".maxntid", e->threads, 3) <= 0) {
		memset(e->threads, 0, sizeof(e->threads));
	}
}

/* As many as the register file of an SM has for a block of the stated size. */
static uint32_t registers_max(const struct soft_entry *e)
{
	uint64_t threads = (uint64_t)e->threads[0] * MAX(e->threads[1], 1u);

	threads = MIN(threads, (uint64_t)1024) * MAX(e->threads[2], 1u);
	return threads && threads <= 1024 ? (uint32_t)(65536 / threads) : SOFT_ENTRY_REGISTERS_MAX;
}

/* ---- entries with the shape of a stub ---- */

static struct ptx_insn *insn_before(struct ptx_item *it)
{
	while (it && it->kind == PTX_DIRECTIVE) {
		it = it->prev;
	}
	return it && it->kind == PTX_INSN ? (struct ptx_insn *)it : NULL;
}

/* Finds the last two instructions, "pmevent 13; ret;". */
static bool find_end(const struct ptx_function *f, struct ptx_insn **event, struct ptx_insn **ret)
{
	*ret = insn_before(f->body.last);
	*event = *ret ? insn_before((*ret)->item.prev) : NULL;
	return *event && !(*ret)->guard && strcmp((*ret)->opcode, "ret") == 0 && !(*event)->guard &&
	       strcmp((*event)->opcode, "pmevent") == 0 && (*event)->n_operands == 1 &&
	       (*event)->operands[0].kind == PTX_INT &&
	       (*event)->operands[0].value == SOFT_INSN_EVENT;
}

/* The rewriting of a stub's body, which is done twice: the first time only to find out whether it
 * can be. */
struct shaper {
	struct ptx_module *m;
	const struct ptx_function *f;
	const struct soft_entry *e;
	unsigned exits;
	bool change;
	bool failed; /* no memory */
};

static int param_index(const struct shaper *s, const char *name)
{
	for (uint32_t i = 0; name && i < s->f->n_params; i++) {
		if (strcmp(s->f->params[i].name, name) == 0) {
			return (int)i;
		}
	}
	return -1;
}

static bool shape_name(struct shaper *s, struct ptx_operand *o)
{
	int index = param_index(s, o->name);
	int64_t at;

	if (index < 0) {
		return true;
	}
	if ((o->kind != PTX_NAME && o->kind != PTX_ADDRESS) || o->offset < -DISTANCE_MAX ||
	    o->offset > DISTANCE_MAX) {
		return false;
	}
	at = SOFT_INSN_PARAM_BASE + (int64_t)s->e->params[index].offset + o->offset;
	if (at < 0 || at > UINT16_MAX) {
		return false;
	}
	if (s->change) {
		char text[16];

		snprintf(text, sizeof(text), "%c%u%c", REFERENCE, (unsigned)at, REFERENCE);
		o->name = ptx_arena_text(&s->m->arena, text, strlen(text));
		o->offset = 0;
		s->failed = s->failed || !o->name;
	}
	return !s->failed;
}

/* Recursion is bounded by PTX_OPERAND_NESTING_MAX. */
static bool shape_operand(struct shaper *s, struct ptx_operand *o)
{
	if (!shape_name(s, o)) {
		return false;
	}
	for (uint32_t i = 0; i < o->n_args; i++) {
		if (!shape_operand(s, &o->args[i])) {
			return false;
		}
	}
	return true;
}

static bool shape_insn(struct shaper *s, struct ptx_insn *i)
{
	if (strcmp(i->opcode, "call") == 0 || strcmp(i->opcode, "pmevent") == 0) {
		return false;
	}
	for (uint32_t k = 0; k < i->n_operands; k++) {
		if (!shape_operand(s, &i->operands[k])) {
			return false;
		}
	}
	if (strcmp(i->opcode, "exit") == 0 || strcmp(i->opcode, "ret") == 0) {
		bool is_exit = *i->opcode == 'e';

		s->exits++;
		if (s->change) {
			i->opcode = i->guard ? (is_exit ? "exit\3" : "ret\3")
					     : (is_exit ? "exit\2" : "ret\2");
		}
	}
	return s->change || s->exits < STUB_EXITS_MAX;
}

/* Recursion is bounded by PTX_NESTING_MAX. */
static bool shape_body(struct shaper *s, struct ptx_list *body)
{
	struct ptx_item *next;

	for (struct ptx_item *it = body->first; it; it = next) {
		struct ptx_variable *v = (struct ptx_variable *)it;

		next = it->next;
		if (it->kind == PTX_DIRECTIVE) {
			if (s->change) {
				ptx_list_remove(body, it);
			}
		} else if (it->kind == PTX_INSN	   ? !shape_insn(s, (struct ptx_insn *)it)
			   : it->kind == PTX_SCOPE ? !shape_body(s, &((struct ptx_scope *)it)->body)
			   : it->kind == PTX_VARIABLE
				   ? v->space != PTX_REG || param_index(s, v->name) >= 0
				   : it->kind != PTX_LABEL) {
			return false;
		}
	}
	return true;
}

/* Returns 1 if f has the shape of a stub, whose body is then rewritten, else 0; -ENOMEM. */
static int shape(struct soft_entry *e, struct ptx_module *m, struct ptx_function *f)
{
	struct shaper s = { .m = m, .f = f, .e = e };
	struct ptx_insn *event, *ret;
	bool fits;

	if (!f->n_params || f->n_params > STUB_PARAMS_MAX || !find_end(f, &event, &ret)) {
		return 0;
	}
	ptx_list_remove(&f->body, &event->item);
	ptx_list_remove(&f->body, &ret->item);
	fits = shape_body(&s, &f->body);
	if (fits) {
		s.change = true;
		shape_body(&s, &f->body);
		return s.failed ? -ENOMEM : 1;
	}
	ptx_list_append(&f->body, &event->item);
	ptx_list_append(&f->body, &ret->item);
	return 0;
}

/* Recursion is bounded by PTX_NESTING_MAX. */
bool soft_entry_is_plain(const struct ptx_list *body)
{
	ptx_each (body, it) {
		const struct ptx_variable *v = (const struct ptx_variable *)it;
		const struct ptx_insn *i = (const struct ptx_insn *)it;

		if (it->kind == PTX_INSN ? strcmp(i->opcode, "call") == 0
		    : it->kind == PTX_SCOPE
			    ? !soft_entry_is_plain(&((const struct ptx_scope *)it)->body)
		    : it->kind == PTX_VARIABLE ? v->space != PTX_REG
					       : it->kind != PTX_LABEL) {
			return false;
		}
	}
	return true;
}

/* ---- instructions ---- */

static void flush(struct buf *code, struct soft_carrier *c)
{
	if (c->bytes || c->refers) {
		soft_insn_add(code, soft_insn_carrier(SOFT_INSN_TEXT, c));
	}
	*c = (struct soft_carrier){ .bytes = 0 };
}

static void add_text(struct buf *code, const char *text)
{
	struct soft_carrier c = { .bytes = 0 };
	char *end;

	for (; *text; text++) {
		if (*text == REFERENCE) {
			flush(code, &c);
			c.refers = true;
			c.offset = (uint16_t)strtoul(text + 1, &end, 10);
			text = end;
		} else if (*text == LEAVES || *text == LEAVES_GUARDED) {
			flush(code, &c);
			soft_insn_add(code, soft_insn_exit(*text == LEAVES_GUARDED));
		} else {
			c.text[c.bytes++] = *text;
			if (c.bytes == sizeof(c.text)) {
				flush(code, &c);
			}
		}
	}
	flush(code, &c);
}

static void add_summary(struct soft_entry *e, const struct buf *text)
{
	uint64_t hash = hash_bytes(buf_text(text), text->len);

	for (unsigned half = 0; half < 2; half++) {
		uint32_t word = (uint32_t)(hash >> (32 * half));
		struct soft_carrier c = { .bytes = sizeof(word) };

		memcpy(c.text, &word, sizeof(word));
		soft_insn_add(&e->code, soft_insn_carrier(SOFT_INSN_HASH, &c));
	}
	for (uint32_t i = 0; i < e->n_params; i++) {
		struct soft_carrier c = { .refers = true,
					  .offset = (uint16_t)(SOFT_INSN_PARAM_BASE +
							       e->params[i].offset) };

		soft_insn_add(&e->code, soft_insn_carrier(SOFT_INSN_PARAM, &c));
	}
}

static int add_code(struct soft_entry *e, const struct ptx_function *f, bool stub)
{
	struct buf text;
	int err;

	buf_init(&text);
	ptx_body_print(&f->body, &text);
	soft_insn_add(&e->code, soft_insn_first());
	if (stub) {
		add_text(&e->code, buf_text(&text));
		soft_insn_add(&e->code, soft_insn_mark());
	} else {
		add_summary(e, &text);
	}
	soft_insn_add(&e->code, soft_insn_exit(false));
	soft_insn_add(&e->code, soft_insn_branch(-(int64_t)SOFT_INSN_BYTES));
	while (!e->code.failed && e->code.len % SOFT_INSN_ALIGN) {
		soft_insn_add(&e->code, soft_insn_nop());
	}
	err = text.failed ? text.failed : e->code.failed;
	buf_finish(&text);
	return err;
}

int soft_entry_compile(struct soft_entry *ret, struct ptx_module *m, struct ptx_function *f)
{
	int err;

	*ret = (struct soft_entry){ .name = f->name, .weak = strcmp(f->linkage, ".weak") == 0 };
	buf_init(&ret->code);
	err = lay_out(ret, m, f);
	if (err) {
		return err;
	}
	ret->registers = soft_entry_registers(&f->body, &ret->barriers);
	read_threads(ret, f);
	ret->registers = MIN(ret->registers, registers_max(ret));
	err = shape(ret, m, f);
	return err < 0 ? err : add_code(ret, f, err == 1);
}

void soft_entry_finish(struct soft_entry *e)
{
	buf_finish(&e->code);
}
