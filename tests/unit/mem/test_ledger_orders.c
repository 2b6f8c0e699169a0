/* Charges of 2 and 3 processes in all orders of their accesses (orders.h). In every order
 *
 * - the sum of `used` never exceeds the limit,
 * - a charge is refused only if, at some moment of it, it does not fit in addition to what is
 * granted,
 * - no charge that begins while another one has its turn is granted before that one is decided,
 * - from every state that is reached, all processes can come to their end (no deadlock), and do, if
 * each makes its steps: no cycle of states has a step of each that could make one (no livelock),
 * - in the end, the account has what was granted and not released, and nothing is wanted,
 * - memory that gbpfd moves from one line to another is never missed,
 * - once gbpfd has taken back what was granted and is not used, no more is used than it has
 * counted, by which it grants the rest to other vGPUs.
 *
 * A store that is not sequentially consistent stays in the process's store buffer until it is
 * flushed, at any time or by the next ordered access.
 *
 * A process keeps no state besides what it has read since its operation began. Before a yield and
 * before a store of a charge that is tried again, ledger.c keeps nothing of what it read: histories
 * that lead there are the same, so that waiting does not make new states. It keeps its turn, by
 * which they are told apart. Words that a process alone changes are read with its next access: no
 * other process sees when. */
#include "orders.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "mem/ledger.h"

#define PROCESSES 3u
#define ROW 0u
#define READS 96u
#define TURNS 8u
#define BUFFERED 4u
#define OPERATIONS 4u

/* An operation: bytes to charge, or one of these with a number; 0: the end. */
#define RELEASE 0x80u
#define JOIN 0x40u	      /* gbpfd raises `lines` */
#define TRIM (RELEASE | JOIN) /* gbpfd takes back all but what is reserved, the number */
#define ORPHAN 0x20u
#define DISOWN (RELEASE | ORPHAN) /* closes memory that it has inherited */
#define HAND_OVER (JOIN | ORPHAN) /* gbpfd moves inherited memory from line 1 to line 0 */
#define OPERATION (RELEASE | JOIN | ORPHAN)
#define NUMBER 0x1fu

struct scenario {
	const char *name;
	uint8_t limit, lines;
	uint8_t used[PROCESSES]; /* held in the beginning */
	uint8_t op[PROCESSES][OPERATIONS];
	bool kill;	 /* the last process may die at any time; its line is cleared then */
	bool line_stays; /* the last line is cleared, and not taken off the number of lines */
	bool timeout;	 /* each wait takes too long, so that refusals are no faults */
	uint8_t allowed; /* in the beginning, where memory is reserved; 0: the limit counts */
	/* Processes share memory. */
	bool shares;
	uint8_t inherited[PROCESSES]; /* in the beginning */
	uint8_t heir_gets; /* line 0, of what the last process holds, once that has died */
};

/* Bytes only: states are hashed as memory. */
struct process {
	uint8_t op;	      /* number of the current operation */
	uint8_t reads, dead;  /* reads: its accesses so far */
	uint8_t held, fitted; /* fitted: the charge has fitted at every moment so far */
	uint8_t behind;	      /* bits: processes that had their turn when the operation began */
	uint8_t read[READS];  /* what they returned; stores: 0 */
	uint8_t buffered, buffer[BUFFERED][2]; /* word, value */
};

struct state {
	uint8_t charged[PROCESSES], released[PROCESSES], wanted[PROCESSES], turn[PROCESSES];
	uint8_t inherited[PROCESSES], disowned[PROCESSES];
	uint8_t moving; /* bytes that two lines have */
	uint8_t lines, cleared, allowed;
	uint8_t bound; /* what gbpfd believes that is used at most */
	struct process p[PROCESSES];
};

/* Words of lines: eight of each kind. */
enum { WORD_CHARGED = 0, WORD_RELEASED = 8, WORD_WANTED = 16, WORD_TURN = 24, WORD_LINES = 32 };
enum { WORD_ALLOWED = WORD_LINES + 1, WORD_INHERITED = 40, WORD_DISOWNED = 48 };
#define CLEARS 5u /* steps in which gbpfd clears a line */
enum { STEP_FLUSH = PROCESSES, STEP_KILL = 2 * PROCESSES, STEP_CLEAR, STEPS };

static struct proto_account page; /* for its addresses, and for what never changes */

/* The step that is being made. */
static struct {
	const struct scenario *sc;
	struct state *s;
	struct process *p;
	unsigned at;	/* accesses that were replayed or made */
	bool made;	/* that of this step */
	bool looked;	/* the operation has read the clock */
	bool again;	/* the access was the last one before something is tried again */
	uint8_t number; /* of the process */
	uint8_t wanted; /* last stored by the operation */
	uint64_t now;
	jmp_buf leave;
	const char *violation;
} x;

/* The first history that led to each place where something is tried again. */
static struct {
	uint8_t reads, read[READS];
} canonical[PROCESSES][OPERATIONS][2][2][TURNS];

static void violated(const char *what)
{
	x.violation = x.violation ? x.violation : what;
}

/* ---- accesses ---- */

static uint8_t *word_at(struct state *s, unsigned word)
{
	uint8_t *const words[] = { s->charged, s->released,  s->wanted,	 s->turn,
				   NULL,       s->inherited, s->disowned };

	return word == WORD_LINES     ? &s->lines
	       : word == WORD_ALLOWED ? &s->allowed
				      : &words[word / 8][word % 8];
}

static unsigned word_of(const void *p)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		const struct proto_account_orphans *o = &page.orphans[ROW][i];

		if (p == &o->inherited || p == &o->disowned) {
			return (p == &o->inherited ? WORD_INHERITED : WORD_DISOWNED) + i;
		}
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		const struct proto_account_line *line = &page.line[ROW][i];
		const void *const words[] = { &line->charged, &line->released, &line->wanted,
					      &line->turn };

		for (unsigned k = 0; k < ARRAY_SIZE(words); k++) {
			if (p == words[k]) {
				return 8 * k + i;
			}
		}
	}
	if (p == &page.allowed[ROW]) {
		return WORD_ALLOWED;
	}
	assert_ptr_equal(p, &page.lines);
	return WORD_LINES;
}

/* A charge has come to its end, or has died. */
static void forget_turn(struct state *s, unsigned number)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		s->p[i].behind &= (uint8_t) ~(1u << number);
	}
}

static void flush_one(struct state *s, struct process *p)
{
	*word_at(s, p->buffer[0][0]) = p->buffer[0][1];
	p->buffered--;
	memmove(p->buffer, p->buffer[1], sizeof(p->buffer) - sizeof(p->buffer[0]));
	memset(p->buffer[BUFFERED - 1], 0, sizeof(p->buffer[0]));
}

static void flush(void)
{
	while (x.p->buffered) {
		flush_one(x.s, x.p);
	}
}

/* Returns true if the access is to be made, else *ret is what it returned. */
static bool next_access(uint64_t *ret)
{
	if (x.at < x.p->reads) {
		*ret = x.p->read[x.at++];
		return false;
	}
	if (x.made) {
		longjmp(x.leave, 1);
	}
	x.made = true;
	return true;
}

static void note_access(uint64_t v)
{
	assert_true(x.p->reads < READS);
	x.p->read[x.p->reads++] = (uint8_t)v;
	x.at++;
}

static uint64_t load(unsigned word)
{
	uint64_t v = *word_at(x.s, word);

	for (unsigned i = 0; i < x.p->buffered; i++) {
		v = x.p->buffer[i][0] == word ? x.p->buffer[i][1] : v;
	}
	return v;
}

/* Returns true if a word of inherited memory may change. */
static bool is_moved(unsigned word)
{
	bool hands_over = (x.sc->op[PROCESSES - 1][0] & OPERATION) == HAND_OVER;
	unsigned number = word % 8;

	return word < WORD_DISOWNED
		       ? number == 0 && (x.sc->heir_gets || hands_over)
		       : (number == 1 && hands_over) || (x.sc->op[number][0] & OPERATION) == DISOWN;
}

/* Returns true if a word of a line has the same value in all states. */
static bool is_constant(unsigned word)
{
	unsigned number = word % 8;
	bool releases = x.sc->kill && number == PROCESSES - 1;

	if (word >= WORD_INHERITED) {
		return !is_moved(word);
	}
	for (unsigned k = 0; k < OPERATIONS; k++) {
		releases |= (x.sc->op[number][k] & OPERATION) == RELEASE;
	}
	return word / 8 == WORD_RELEASED / 8 ? !releases : !x.sc->op[number][0];
}

/* Reads a word of a line without a step of its own. */
static uint64_t load_quietly(unsigned word)
{
	uint64_t v;

	if (is_constant(word)) {
		return *word_at(x.s, word);
	}
	if (x.at < x.p->reads) {
		return x.p->read[x.at++];
	}
	v = load(word);
	note_access(v);
	return v;
}

/* Returns true for words of orphans that stay 0: those of lines without a process, and `returned`,
 * which is summed with `disowned`. */
static bool is_never_used(const void *p)
{
	const struct proto_account_orphans *const o = page.orphans[ROW];
	uintptr_t at = (uintptr_t)p;

	if (at < (uintptr_t)o || at >= (uintptr_t)(o + PROTO_ACCOUNT_LINES)) {
		return false;
	}
	at -= (uintptr_t)o;
	return at / sizeof(*o) >= PROCESSES ||
	       at % sizeof(*o) == offsetof(struct proto_account_orphans, returned);
}

uint64_t orders_load(const void *p, size_t bytes)
{
	bool lines_change = (x.sc->kill && !x.sc->line_stays) || x.sc->lines < PROCESSES;
	unsigned word;
	uint64_t v;

	if (p == &page.limit[ROW]) {
		return x.sc->limit;
	}
	if (p == &page.allowed[ROW] && !x.sc->allowed) {
		return 0;
	}
	if (p == &page.lines && !lines_change) {
		return x.sc->lines;
	}
	if (p == &page.shares) {
		return x.sc->shares;
	}
	if (is_never_used(p)) {
		return 0;
	}
	word = word_of(p);
	if (word >= WORD_INHERITED && is_constant(word)) {
		return *word_at(x.s, word);
	}
	if (word < WORD_LINES && (word % 8 == x.number || is_constant(word))) {
		return load_quietly(word);
	}
	if (next_access(&v)) {
		v = load(word);
		note_access(v);
	}
	return v;
}

void orders_store(void *p, uint64_t v, size_t bytes, int ordered)
{
	unsigned word = word_of(p);
	uint64_t old;

	if (next_access(&old)) {
		note_access(0);
		x.again = x.looked && v;
		if (word / 8 == WORD_TURN / 8) {
			assert_true(v < TURNS);
			if (!v) {
				forget_turn(x.s, x.number);
			}
		}
		if (ordered) {
			flush();
			*word_at(x.s, word) = (uint8_t)v;
		} else {
			assert_true(x.p->buffered < BUFFERED);
			x.p->buffer[x.p->buffered][0] = (uint8_t)word;
			x.p->buffer[x.p->buffered++][1] = (uint8_t)v;
		}
	}
	if (word / 8 == WORD_WANTED / 8) {
		x.wanted = (uint8_t)v;
	}
}

void orders_add(void *p, uint64_t v)
{
	uint64_t old;

	if (next_access(&old)) {
		note_access(0);
		flush();
		*word_at(x.s, word_of(p)) += (uint8_t)v;
		if (x.sc->op[x.number][x.p->op] == (HAND_OVER | v)) {
			x.s->moving = word_of(p) >= WORD_DISOWNED ? 0 : (uint8_t)v;
		}
		if (word_of(p) / 8 == WORD_CHARGED / 8 && x.p->behind && !x.sc->timeout) {
			violated("a charge was granted before one that had its turn");
		}
	}
}

uint64_t orders_now(void)
{
	x.looked = true;
	/* The third look is too late. */
	x.now += x.sc->timeout ? (uint64_t)MEM_COLLIDE_NS / 10 * 6 : 0;
	return x.now;
}

void orders_yield(void)
{
	uint64_t none;

	if (next_access(&none)) {
		note_access(0);
		x.again = true;
	}
}

/* ---- steps ---- */

static unsigned sum_of(const struct state *s)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < PROCESSES; i++) {
		sum += (uint8_t)(s->charged[i] - s->released[i]);
		sum += (uint8_t)(s->inherited[i] - s->disowned[i]);
	}
	return sum;
}

/* Returns what processes hold: the account may have the same memory in two lines, for a moment. */
static unsigned held_of(const struct state *s)
{
	return sum_of(s) - s->moving;
}

static void operation_ended(unsigned number, int err)
{
	struct process *p = x.p;
	uint8_t op = x.sc->op[number][p->op];

	if ((op & TRIM) == TRIM) {
		x.s->bound = x.s->allowed;
	} else if (op & ORPHAN) {
		; /* no charge */
	} else if (op & RELEASE) {
		p->held = (uint8_t)(p->held - (op & NUMBER));
	} else if (!(op & JOIN) && !err) {
		p->held = (uint8_t)(p->held + op);
	} else if (!(op & JOIN) && !x.sc->timeout && p->fitted) {
		violated("a charge that fitted all the time was refused");
	}
	p->op++;
	p->reads = p->fitted = p->behind = 0;
	memset(p->read, 0, sizeof(p->read));
	/* After a charge that was refused, the operations behind it would release too much. */
	if (err) {
		p->op = OPERATIONS;
	}
}

static bool has_operation(const struct scenario *sc, const struct process *p, unsigned number)
{
	uint8_t op = !p->dead && p->op < OPERATIONS ? sc->op[number][p->op] : 0;

	return op && ((op & OPERATION) != DISOWN || x.s->inherited[number]);
}

/* As mem_share_give() and mem_share_return(). */
static void hand_over(uint8_t bytes)
{
	orders_add(&page.orphans[ROW][0].inherited, bytes);
	orders_add(&page.orphans[ROW][1].disowned, bytes);
}

static void use_canonical(unsigned number)
{
	struct process *p = x.p;
	__typeof__(canonical[0][0][0][0][0]) *c;

	c = &canonical[number][p->op][x.wanted != 0][x.looked][x.s->turn[number]];
	if (!c->reads) {
		c->reads = p->reads;
		memcpy(c->read, p->read, sizeof(c->read));
	}
	p->reads = c->reads;
	memcpy(p->read, c->read, sizeof(p->read));
}

/* As trim() of daemon/vgpu/vgpu_reserve.c. */
static void trim(uint64_t reserved)
{
	uint64_t claimed;

	orders_store(&page.allowed[ROW], reserved, sizeof(page.allowed[ROW]), 1);
	claimed = mem_account_claimed(&page, ROW);
	orders_store(&page.allowed[ROW], MAX(reserved, claimed), sizeof(page.allowed[ROW]), 1);
}

static int run_operation(unsigned number, uint8_t op)
{
	struct mem_ledger l = { .page = &page, .line = number };

	if ((op & TRIM) == TRIM) {
		trim(op & NUMBER);
		return 0;
	}
	if ((op & OPERATION) == HAND_OVER) {
		hand_over(op & NUMBER);
		return 0;
	}
	if ((op & OPERATION) == DISOWN) {
		orders_add(&page.orphans[ROW][number].disowned, op & NUMBER);
		return 0;
	}
	if (op & RELEASE) {
		mem_ledger_release(&l, ROW, op & NUMBER);
		return 0;
	}
	if (op & JOIN) {
		orders_store(&page.lines, op & NUMBER, sizeof(page.lines), 1);
		return 0;
	}
	return mem_ledger_charge(&l, ROW, op);
}

static void step_process(unsigned number)
{
	struct process *p = &x.s->p[number];
	uint8_t op = x.sc->op[number][p->op];

	x.p = p;
	x.number = (uint8_t)number;
	x.at = 0;
	x.made = x.looked = x.again = false;
	x.wanted = 0;
	x.now = 1;
	if (!p->reads) {
		p->fitted = 1;
		for (unsigned i = 0; i < PROCESSES; i++) {
			p->behind |= (uint8_t)((x.s->turn[i] != 0) << i);
		}
	}
	if (setjmp(x.leave) == 0) {
		int err = run_operation(number, op);

		assert_true(x.made);
		operation_ended(number, err);
	} else if (x.again) {
		use_canonical(number);
	}
}

/* As clear_line() of daemon/vgpu/vgpu.c. */
static void step_clear(struct state *s)
{
	const unsigned last = PROCESSES - 1;

	switch (s->cleared++) {
	case 0:
		s->inherited[0] += x.sc->heir_gets;
		s->moving = x.sc->heir_gets;
		break;
	case 1:
		s->released[last] = s->charged[last];
		s->moving = 0;
		break;
	case 2:
		s->wanted[last] = 0;
		break;
	case 3:
		s->turn[last] = 0;
		forget_turn(s, last);
		break;
	default:
		s->lines = PROCESSES - 1;
	}
}

/* Returns what may be charged at this moment. */
static unsigned most_of(const struct state *s)
{
	return x.sc->allowed ? MIN(s->allowed, x.sc->limit) : x.sc->limit;
}

/* Makes a step. Returns false if there is no such one. */
static bool step(struct state *s, unsigned which)
{
	struct process *last = &s->p[PROCESSES - 1];
	struct process *p = &s->p[which % PROCESSES];

	x.s = s;
	if (which < STEP_FLUSH && has_operation(x.sc, p, which)) {
		step_process(which);
	} else if (which >= STEP_FLUSH && which < STEP_KILL && p->buffered) {
		flush_one(s, p);
	} else if (which == STEP_KILL && x.sc->kill && has_operation(x.sc, last, PROCESSES - 1)) {
		memset(last, 0, sizeof(*last));
		last->dead = 1;
	} else if (which == STEP_CLEAR && last->dead && s->cleared < CLEARS - x.sc->line_stays) {
		step_clear(s);
	} else {
		return false;
	}
	if (held_of(s) > x.sc->limit) {
		violated("more is used than the limit");
	}
	if (held_of(s) > s->bound) {
		violated("more is used than gbpfd has counted");
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		p = &s->p[i];
		if (p->reads && sum_of(s) + x.sc->op[i][p->op] > most_of(s)) {
			p->fitted = 0;
		}
	}
	return true;
}

static void check_end(const struct state *s)
{
	for (unsigned i = 0; i < PROCESSES; i++) {
		if ((uint8_t)(s->charged[i] - s->released[i]) != s->p[i].held) {
			violated("the account differs from what the processes hold");
		}
		if (s->wanted[i] || s->turn[i]) {
			violated("a charge is left behind");
		}
	}
}

/* ---- the search ---- */

struct found {
	uint64_t hash;
	uint32_t from; /* the state that it was reached from first */
	uint8_t by;    /* with this step */
	bool ends;
	uint32_t edge, edges; /* the first one of those that leave it, and their number */
};

static struct {
	struct found *found; /* in the order in which they were found */
	uint32_t n, room;
	uint32_t *slot, mask; /* by hash: index + 1 */
	struct edge {
		uint32_t from;
		uint32_t to : 28, by : 4;
	} * edge;
	size_t edges, edge_room;
	struct {
		struct state s;
		uint32_t index;
	} * open;
	size_t n_open, open_room;
} g;

static void *more(void *p, size_t n, size_t *room, size_t size)
{
	if (n < *room) {
		return p;
	}
	*room = *room ? 2 * *room : 4096;
	p = realloc(p, *room * size);
	assert_non_null(p);
	return p;
}

static uint64_t hash_of(const struct state *s)
{
	const uint8_t *bytes = (const uint8_t *)s;
	uint64_t h = 0x9e3779b97f4a7c15, word;

	for (size_t i = 0; i < sizeof(*s); i += sizeof(word)) {
		word = 0;
		memcpy(&word, bytes + i, MIN(sizeof(*s) - i, sizeof(word)));
		h = (h ^ word) * 0xff51afd7ed558ccd;
		h ^= h >> 32;
	}
	return h;
}

/* Returns the index of a state; a new one is put on the list of those to be explored. */
static uint32_t index_of(const struct state *s, uint32_t from, unsigned by)
{
	uint64_t h = hash_of(s);
	uint32_t i = (uint32_t)h & g.mask;
	size_t room = g.room;

	for (; g.slot[i]; i = (i + 1) & g.mask) {
		if (g.found[g.slot[i] - 1].hash == h) {
			return g.slot[i] - 1;
		}
	}
	g.found = more(g.found, g.n, &room, sizeof(*g.found));
	g.room = (uint32_t)room;
	g.found[g.n] = (struct found){ .hash = h, .from = from, .by = (uint8_t)by };
	g.slot[i] = ++g.n;
	assert_true(g.n < g.mask / 4 * 3);
	g.open = more(g.open, g.n_open, &g.open_room, sizeof(*g.open));
	g.open[g.n_open].s = *s;
	g.open[g.n_open++].index = g.n - 1;
	return g.n - 1;
}

static void expand(const struct state *s, uint32_t index)
{
	bool any = false;

	g.found[index].edge = (uint32_t)g.edges;
	for (unsigned which = 0; which < STEPS && !x.violation; which++) {
		struct state next = *s;

		if (!step(&next, which)) {
			continue;
		}
		any = true;
		g.edge = more(g.edge, g.edges, &g.edge_room, sizeof(*g.edge));
		g.edge[g.edges].from = index;
		g.edge[g.edges].by = which & 0xf;
		g.edge[g.edges++].to = index_of(&next, index, which) & 0xfffffff;
		g.found[index].edges++;
	}
	if (!any) {
		check_end(s);
		g.found[index].ends = true;
	}
}

/* Every state leads to an end. Later edges are nearer to ends, which keeps the number of passes
 * low. */
static void check_ends(void)
{
	for (bool changed = true; changed;) {
		changed = false;
		for (size_t i = g.edges; i-- > 0;) {
			if (g.found[g.edge[i].to].ends && !g.found[g.edge[i].from].ends) {
				g.found[g.edge[i].from].ends = true;
				changed = true;
			}
		}
	}
	for (uint32_t i = 0; i < g.n && !x.violation; i++) {
		if (!g.found[i].ends) {
			violated("a state from which there is no end");
		}
	}
}

/* Strongly connected components of the states, by Tarjan's algorithm without recursion. */
static struct {
	uint32_t *number, *low; /* by state */
	uint32_t *next;		/* its edges that were followed */
	uint32_t *stack, *path;
	size_t n_stack, n_path;
	uint32_t numbered;
} t;

#define DONE UINT32_MAX /* number of a state whose component is known; low is the component's */

/* A component is a livelock if all processes that could make a step in each of its states make one
 * within it, likewise gbpfd and the store buffers. */
static void check_component(const uint32_t *member, size_t n, uint32_t component)
{
	unsigned always = ~(1u << STEP_KILL), within = 0;

	for (size_t i = 0; i < n; i++) {
		const struct found *f = &g.found[member[i]];
		unsigned could = 0;

		for (uint32_t k = f->edge; k < f->edge + f->edges; k++) {
			uint32_t to = g.edge[k].to;

			could |= 1u << g.edge[k].by;
			within |= t.number[to] == DONE && t.low[to] == component
					  ? 1u << g.edge[k].by
					  : 0;
		}
		always &= could;
	}
	if (within && !(always & ~within)) {
		violated("a cycle that no process leaves");
	}
}

static void enter(uint32_t state)
{
	t.number[state] = t.low[state] = ++t.numbered;
	t.stack[t.n_stack++] = t.path[t.n_path++] = state;
}

static void leave(uint32_t state)
{
	size_t first = t.n_stack;

	t.n_path--;
	if (t.n_path) {
		uint32_t parent = t.path[t.n_path - 1];

		t.low[parent] = MIN(t.low[parent], t.low[state]);
	}
	if (t.low[state] != t.number[state]) {
		return;
	}
	do {
		first--;
		t.low[t.stack[first]] = t.low[state];
		t.number[t.stack[first]] = DONE;
	} while (t.stack[first] != state);
	check_component(&t.stack[first], t.n_stack - first, t.low[state]);
	t.n_stack = first;
}

static void check_cycles(void)
{
	uint32_t *words = calloc(5 * (size_t)g.n, sizeof(*words));

	assert_non_null(words);
	memset(&t, 0, sizeof(t));
	t.number = words;
	t.low = words + g.n;
	t.next = words + 2 * (size_t)g.n;
	t.stack = words + 3 * (size_t)g.n;
	t.path = words + 4 * (size_t)g.n;
	enter(0);
	while (t.n_path && !x.violation) {
		uint32_t state = t.path[t.n_path - 1], to;

		if (t.next[state] == g.found[state].edges) {
			leave(state);
			continue;
		}
		to = g.edge[g.found[state].edge + t.next[state]++].to;
		if (!t.number[to]) {
			enter(to);
		} else if (t.number[to] != DONE) {
			t.low[state] = MIN(t.low[state], t.number[to]);
		}
	}
	free(words);
}

/* Prints the steps to the last state: processes, fN: flush, K: kill, C: clear. */
static void print_path(void)
{
	uint8_t by[512];
	unsigned n = 0;

	for (uint32_t i = g.n - 1; i && n < sizeof(by); i = g.found[i].from) {
		by[n++] = g.found[i].by;
	}
	print_message("%s: %s:", x.sc->name, x.violation);
	while (n--) {
		if (by[n] >= STEP_KILL) {
			print_message(" %c", by[n] == STEP_KILL ? 'K' : 'C');
		} else {
			print_message(" %s%u", by[n] < STEP_FLUSH ? "" : "f", by[n] % PROCESSES);
		}
	}
	print_message("\n");
}

/* Returns what is wrong in an order of the scenario's steps, NULL: nothing in any. */
static const char *explore(const struct scenario *sc)
{
	struct state s;

	memset(&g, 0, sizeof(g));
	memset(canonical, 0, sizeof(canonical));
	memset(&s, 0, sizeof(s));
	x.sc = sc;
	x.violation = NULL;
	g.mask = (1u << 23) - 1;
	g.slot = calloc((size_t)g.mask + 1, sizeof(*g.slot));
	assert_non_null(g.slot);
	s.lines = sc->lines;
	s.allowed = sc->allowed;
	s.bound = sc->allowed ? sc->allowed : sc->limit;
	for (unsigned i = 0; i < PROCESSES; i++) {
		s.charged[i] = s.p[i].held = sc->used[i];
		s.inherited[i] = sc->inherited[i];
	}
	(void)index_of(&s, 0, 0);
	while (g.n_open && !x.violation) {
		struct state next = g.open[--g.n_open].s;

		expand(&next, g.open[g.n_open].index);
	}
	if (!x.violation) {
		check_ends();
	}
	if (!x.violation) {
		check_cycles();
	}
	if (x.violation) {
		print_path();
	} else {
		print_message("%s: %u states\n", sc->name, g.n);
	}
	free(g.slot);
	free(g.found);
	free(g.edge);
	free(g.open);
	return x.violation;
}

/* ---- scenarios ---- */

static const struct scenario scenarios[] = {
	{ "2 charges, either fits", 4, 3, { 0 }, { { 3 }, { 2 } } },
	{ "2 charges, both fit", 4, 3, { 0 }, { { 2 }, { 2 } } },
	{ "2 charges next to what is held", 4, 3, { 1, 1 }, { { 2 }, { 0 }, { 1 } } },
	{ "2 charges each", 3, 3, { 0 }, { { 1, 1 }, { 0 }, { 1, 1 } } },
	{ "the lowest one never fits", 4, 3, { 2 }, { { 3 }, { 2 }, { 1 } } },
	{ "a process joins", 4, 1, { 0 }, { { 3 }, { JOIN | 2, 2 } } },
	{ "2 processes join", 4, 1, { 0 }, { { 2 }, { JOIN | 2, 3 }, { 0 } } },
	{ "a charge, then a release", 3, 3, { 0 }, { { 2, RELEASE | 2, 1 }, { 2 } } },
	{ "the last one dies", 4, 3, { 0 }, { { 3 }, { 0 }, { 2 } }, .kill = true },
	{ "gbpfd takes back what is not used",
	  6,
	  3,
	  { 0 },
	  { { 3 }, { 2 }, { TRIM | 1 } },
	  .allowed = 5 },
	{ "it takes back while one charges and frees",
	  6,
	  3,
	  { 1 },
	  { { RELEASE | 1, 2, 1 }, { 2 }, { TRIM | 1 } },
	  .allowed = 4 },
	{ "it takes back twice",
	  6,
	  3,
	  { 2, 1 },
	  { { RELEASE | 2 }, { 1 }, { TRIM | 2, TRIM | 1 } },
	  .allowed = 4 },
	{ "it takes back what was released",
	  6,
	  3,
	  { 0, 5 },
	  { { 1 }, { RELEASE | 3 }, { TRIM | 3 } },
	  .allowed = 6 },
	{ "memory moves", 2, 3, { 1 }, { { RELEASE | 1 }, { 1 }, { 1 } } },
	{ "a lower line comes again", 5, 3, { 0 }, { { 3, RELEASE | 3, 3 }, { 0 }, { 3 } } },
	{ "a small charge comes again", 4, 3, { 0 }, { { 1, RELEASE | 1, 1 }, { 0 }, { 3 } } },
	{ "two come again", 3, 3, { 0 }, { { 2, RELEASE | 2, 2 }, { 0 }, { 2, RELEASE | 2, 2 } } },
	{ "the creator dies, and an importer has its memory",
	  3,
	  3,
	  { 0, 0, 2 },
	  { { 0 }, { 2 }, { 1 } },
	  .kill = true,
	  .shares = true,
	  .heir_gets = 2 },
	{ "the importer closes it",
	  3,
	  3,
	  { 0, 0, 2 },
	  { { DISOWN | 2 }, { 2 }, { 1 } },
	  .kill = true,
	  .line_stays = true,
	  .shares = true,
	  .heir_gets = 2 },
	{ "what was inherited is closed, then charged",
	  2,
	  3,
	  { 0 },
	  { { 1 }, { DISOWN | 1, 1 } },
	  .shares = true,
	  .inherited = { 0, 1 } },
	{ "an importer closes, and another one has the memory",
	  3,
	  3,
	  { 0 },
	  { { 2 }, { 1 }, { HAND_OVER | 2 } },
	  .shares = true,
	  .inherited = { 0, 2 } },
	/* Millions of states. */
	{ "3 charges, one fits", 4, 3, { 0 }, { { 3 }, { 3 }, { 3 } } },
	{ "3 charges, two fit", 4, 3, { 0 }, { { 2 }, { 2 }, { 2 } } },
	{ "3 charges of different sizes", 4, 3, { 0 }, { { 3 }, { 2 }, { 1 } } },
	{ "the last of 3 dies",
	  4,
	  3,
	  { 0 },
	  { { 2 }, { 3 }, { 2 } },
	  .kill = true,
	  .line_stays = true },
	{ "it dies and waits take too long",
	  4,
	  3,
	  { 0 },
	  { { 2 }, { 3 }, { 2 } },
	  .kill = true,
	  .line_stays = true,
	  .timeout = true },
};

#define LONG_ONES 5u /* at the end of the list */

/* For planted faults: the long ones are left out once a violation was found. */
static bool skips_long_ones, found_any;

static void check_orders(void **state)
{
	const struct scenario *sc = *state;
	const char *violation;

	if (skips_long_ones && found_any && sc >= &scenarios[ARRAY_SIZE(scenarios) - LONG_ONES]) {
		skip();
	}
	violation = explore(sc);
	found_any |= violation != NULL;
	assert_null(violation);
}

/* With any argument, for planted_faults: see skips_long_ones. */
int main(int argc, char **argv)
{
	struct CMUnitTest tests[ARRAY_SIZE(scenarios)];

	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		tests[i] = (struct CMUnitTest){ .name = scenarios[i].name,
						.test_func = check_orders,
						.initial_state = unqual(&scenarios[i]) };
	}

	(void)argv;
	skips_long_ones = argc > 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
