/* Generates the tree of a random kernel from a seed. */
#include <stdlib.h>
#include <string.h>

#include "tree.h"

struct growth {
	struct kernel *k;
	uint64_t state;
	int depth, loops; /* nesting depth and number of open loops */
	unsigned left;	  /* number of statements left to generate */
	bool in_function;
};

static uint32_t draw(struct growth *g)
{
	uint64_t z = g->state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((z ^ z >> 31) >> 32);
}

static unsigned below(struct growth *g, unsigned n)
{
	return draw(g) % n;
}

static struct stmt *new_stmt(struct growth *g, enum kind kind)
{
	struct stmt *s = calloc(1, sizeof(*s));

	if (!s) {
		abort();
	}
	s->kind = kind;
	s->guard = -1;
	g->k->all[g->k->n_all++] = s;
	return s;
}

static unsigned class_size(char class)
{
	switch (class) {
	case 'r':
		return N_R;
	case 'w':
		return N_W;
	case 'h':
		return N_H;
	case 'f':
	case 'g':
		return N_F;
	case 'd':
	case 'e':
		return N_D;
	case 'p':
		return N_P;
	default:
		return class == 'k' ? 64 : 16;
	}
}

/* ptxas of CUDA 13.0 executes the last step of these for lanes whose guard is false. */
static bool may_guard(const struct form *f)
{
	static const char *const not_those[] = { "{", "set.", "testp.", "div.", "sqrt.", "rcp." };

	for (unsigned i = 0; i < sizeof(not_those) / sizeof(*not_those); i++) {
		if (strncmp(f->text, not_those[i], strlen(not_those[i])) == 0) {
			return false;
		}
	}
	return true;
}

static struct stmt *insn(struct growth *g)
{
	struct stmt *s = new_stmt(g, INSN);

	s->form = &forms[below(g, n_forms)];
	for (unsigned i = 0; s->form->operands[i]; i++) {
		s->reg[i] = (uint8_t)below(g, class_size(s->form->operands[i]));
	}
	if (below(g, 4) == 0 && may_guard(s->form)) {
		s->guard = (int)below(g, N_P);
		s->guard_not = below(g, 2);
	}
	return s;
}

/* Generates loads and stores in the lane's own memory, and sums. */
static struct stmt *memory(struct growth *g, enum kind kind)
{
	static const unsigned widths[] = { 1, 2, 4, 8, 16 };
	struct stmt *s = new_stmt(g, kind);

	s->space = (enum space)below(g, SPACES);
	s->width = widths[below(g, 5)];
	s->reg[0] = (uint8_t)below(g, N_R);
	s->reg[1] = (uint8_t)below(g, N_R); /* register of the offset in mode 1 */
	s->reg[2] = (uint8_t)below(g, N_W);
	s->mode = below(g, 2);
	s->number = below(g, PRIVATE_BYTES / s->width) * s->width;
	s->generic = below(g, 2);
	s->is_signed = below(g, 2);
	if (kind == SUM) {
		s->number = below(g, SUM_KINDS);
	}
	if (below(g, 4) == 0) {
		s->guard = (int)below(g, N_P);
		s->guard_not = below(g, 2);
	}
	return s;
}

static struct stmt *list(struct growth *g, unsigned n, bool outermost);

static struct stmt *branch(struct growth *g, enum kind kind)
{
	struct stmt *s = new_stmt(g, kind);
	bool loop = kind == LOOP || kind == REPEAT;
	unsigned bodies = kind == SWITCH ? 4 : kind == IF ? 1 + below(g, 2) : 1;

	s->reg[0] = (uint8_t)below(g, N_R);
	s->guard = (int)below(g, N_P);
	s->guard_not = below(g, 2);
	s->mask = below(g, 2) ? 7 : 3;
	s->number = loop ? g->k->loops++ : 0;
	g->depth++;
	g->loops += loop;
	for (unsigned i = 0; i < bodies; i++) {
		s->body[i] = list(g, 1 + below(g, 5), false);
	}
	g->loops -= loop;
	g->depth--;
	return s;
}

static struct stmt *leave(struct growth *g)
{
	struct stmt *s = new_stmt(g, LEAVE);

	s->guard = (int)below(g, N_P);
	s->guard_not = below(g, 2);
	s->number = 1 + below(g, (unsigned)g->loops);
	return s;
}

static struct stmt *call(struct growth *g)
{
	struct stmt *s = new_stmt(g, CALL);

	s->number = below(g, FUNCTIONS);
	s->reg[0] = (uint8_t)below(g, N_R);
	s->reg[1] = (uint8_t)below(g, N_R);
	s->reg[2] = (uint8_t)below(g, N_W);
	s->reg[3] = (uint8_t)below(g, N_F);
	return s;
}

static struct stmt *together(struct growth *g)
{
	static const char modes[KINDS] = {
		[SHUFFLE] = 4, [VOTE] = 4, [MATCH] = 2, [REDUX] = 6, [EXCHANGE] = 1, [BAR_RED] = 3
	};
	struct stmt *s =
		new_stmt(g, (enum kind)(LAST_LOCAL + 1 + below(g, KINDS - LAST_LOCAL - 1)));

	s->mode = below(g, (unsigned)modes[s->kind]);
	s->is_signed = below(g, 2);
	for (int i = 0; i < 3; i++) {
		s->reg[i] = (uint8_t)below(g, N_R);
	}
	s->reg[3] = (uint8_t)below(g, N_P);
	s->reg[4] = (uint8_t)below(g, N_P);
	s->number = below(g, 256);
	s->mask = below(g, 4) * 8 << 8 | (s->mode == 0 ? 0 : 31); /* of shuffles: segments */
	s->generic = below(g, 3) == 0;				  /* only the lower half warps */
	return s;
}

static struct stmt *statement(struct growth *g, bool outermost)
{
	unsigned what = below(g, 100);

	if (outermost && what < 18) {
		return together(g);
	}
	if (g->depth < DEPTH_MAX && what < 30) {
		static const enum kind kinds[] = { IF, IF, LOOP, REPEAT, SWITCH };

		return branch(g, kinds[below(g, 5)]);
	}
	if (g->loops > 0 && what < 35) {
		return leave(g);
	}
	if (!g->in_function && what < 55) {
		static const enum kind kinds[] = { LOAD, STORE, SUM };

		return what < 38 ? call(g) : memory(g, kinds[below(g, 3)]);
	}
	return insn(g);
}

static struct stmt *list(struct growth *g, unsigned n, bool outermost)
{
	struct stmt *first = NULL, **at = &first;

	for (unsigned i = 0; i < n && g->k->n_all + 64 < sizeof(g->k->all) / sizeof(*g->k->all);
	     i++) {
		*at = statement(g, outermost);
		at = &(*at)->next;
	}
	return first;
}

struct kernel *kernel_create(uint64_t seed, unsigned size)
{
	struct growth g = { .state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1 };

	g.k = calloc(1, sizeof(*g.k));
	if (!g.k) {
		abort();
	}
	g.k->seed = seed;
	g.k->threads = 32 * (1 + below(&g, THREADS_MAX / 32));
	g.in_function = true;
	g.depth = 2;
	for (int i = 0; i < FUNCTIONS; i++) {
		g.k->functions[i] = list(&g, 6, false);
	}
	g.in_function = false;
	g.depth = 0;
	g.k->body = list(&g, size, true);
	return g.k;
}

struct kernel *kernel_of_form(unsigned form, uint64_t seed)
{
	struct growth g = { .state = seed * 977 + form };
	struct stmt *s;

	if (form >= n_forms) {
		return NULL;
	}
	g.k = calloc(1, sizeof(*g.k));
	if (!g.k) {
		abort();
	}
	g.k->seed = seed * 100000 + form;
	g.k->threads = THREADS_MAX;
	s = new_stmt(&g, INSN);
	s->form = &forms[form];
	for (unsigned i = 0; s->form->operands[i]; i++) {
		s->reg[i] = (uint8_t)below(&g, class_size(s->form->operands[i]));
	}
	if (seed % 2 && s->form->text[0] != '{') {
		s->guard = (int)below(&g, N_P);
	}
	g.k->body = s;
	return g.k;
}

const char *kernel_form(unsigned form)
{
	return forms[form].text;
}

void kernel_destroy(struct kernel *k)
{
	for (unsigned i = 0; i < k->n_all; i++) {
		free(k->all[i]);
	}
	free(k);
}

uint64_t kernel_seed(const struct kernel *k)
{
	return k->seed;
}

unsigned kernel_threads(const struct kernel *k)
{
	return k->threads;
}
