/* Charges memory that is shared: to its creator, and once that is charged no more, to the processes
 * that have imported it, in each vGPU one of them (mem/account_shares.h, docs/MEMORY-INTERNALS.md).
 *
 * Accounts say what their processes have exported and imported. A page is trusted only as far as
 * its own vGPU: an import raises the figures of the vGPU that has it, and a claim keeps imports of
 * the same memory from being charged, as long as its process is charged for as much itself.
 *
 * gbpfd may be killed at any point: the next one does the rest from the pages. */
#include "daemon/vgpu/vgpu_int.h"

#include <stdlib.h>

#include "base/array_grow.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "daemon/timer.h"
#include "mem/account_figures.h"
#include "mem/account_shares.h"

#define LOOK_USEC 1000u /* from a message to the look that it asks for */
#define LOOK_REST 10u	/* a look may take this share of the time to the next one */

/* An import, or a memory that a process is charged for. */
struct known {
	uint64_t id;
	uint32_t number; /* of the share */
};

struct knowns {
	struct known *at; /* owned */
	size_t n, room;
};

/* One look at all accounts. */
struct look {
	const struct daemon_vgpu *v; /* of processes that have exited; NULL: none has */
	const uint64_t *lines;	     /* theirs, a bit each; then only their memory is looked at */
	struct knowns claims;	     /* of living processes, in all accounts */
	struct knowns dead;	     /* what is known to have lost its creator, or its payer */
	struct knowns charged;	     /* imports that are charged to a line of the account at hand */
	struct knowns imports;	     /* that are not */
	struct knowns left; /* of the account: what was closed before imports were sorted */
	bool failed;	    /* without memory: nothing is decided */
};

static void add(struct look *k, struct knowns *to, uint64_t id, uint32_t number)
{
	struct known *at = array_grow(to->at, to->n, &to->room, sizeof(*at), 64, SIZE_MAX);

	if (!at) {
		k->failed = true;
		return;
	}
	to->at = at;
	at[to->n++] = (struct known){ id, number };
}

static int compare(const void *a, const void *b)
{
	const struct known *x = a, *y = b;

	return x->id != y->id ? (x->id > y->id) - (x->id < y->id)
			      : (x->number > y->number) - (x->number < y->number);
}

static void sort(struct knowns *s)
{
	if (s->n) {
		qsort(s->at, s->n, sizeof(*s->at), compare);
	}
}

static int compare_ids(const void *id, const void *known)
{
	uint64_t x = *(const uint64_t *)id, y = ((const struct known *)known)->id;

	return (x > y) - (x < y);
}

static bool has(const struct knowns *s, uint64_t id)
{
	return s->n && bsearch(&id, s->at, s->n, sizeof(*s->at), compare_ids);
}

static bool is_charged(enum mem_share_kind kind)
{
	return kind == MEM_SHARE_GIVEN || kind == MEM_SHARE_OWNED || kind == MEM_SHARE_LEFT;
}

static bool is_of_dead(const struct look *k, const struct daemon_vgpu *v, const struct mem_share *s)
{
	return k->v == v && daemon_vgpu_is_in(k->lines, s->line);
}

static bool is_meant(const struct look *k, uint64_t id)
{
	return !k->v || has(&k->dead, id);
}

/* Notes what the processes that have exited were charged for. */
static void note_dead(struct look *k)
{
	struct proto_account *page = daemon_vgpu_page(k->v);

	for (uint32_t i = 0, n = mem_shares_of(page); i < n; i++) {
		struct mem_share s = mem_share_at(page, i);

		if (!is_of_dead(k, k->v, &s)) {
			continue;
		}
		mem_share_complete(page, i);
		s = mem_share_at(page, i);
		if (s.kind == MEM_SHARE_CLAIM) {
			/* Before imports are looked for: see mem/account_shares.h. */
			mem_share_mark_dead(page, i, &s);
		}
		if (s.kind == MEM_SHARE_CLAIM || s.kind == MEM_SHARE_DEAD || is_charged(s.kind)) {
			add(k, &k->dead, s.id, i);
		}
	}
	sort(&k->dead);
}

/* A claim counts while its process is charged for as much. */
static bool holds(const struct daemon_vgpu *v, const struct mem_share *s)
{
	return s->bytes && mem_account_line_used(daemon_vgpu_page(v), s->row, s->line) >= s->bytes;
}

/* Notes what an account says of memory that imports of other accounts may be. */
static void note_claims(struct look *k, const struct daemon_vgpu *v)
{
	struct proto_account *page = daemon_vgpu_page(v);

	for (uint32_t i = 0, n = page ? mem_shares_of(page) : 0; i < n; i++) {
		struct mem_share s;

		mem_share_complete(page, i);
		s = mem_share_at(page, i);
		if (s.kind == MEM_SHARE_CLAIM && is_meant(k, s.id) && holds(v, &s)) {
			add(k, &k->claims, s.id, i);
		} else if (!k->v && (s.kind == MEM_SHARE_DEAD || s.kind == MEM_SHARE_LEFT)) {
			add(k, &k->dead, s.id, i);
		}
	}
}

/* Sorts the imports of an account into those that its living processes are charged for, and those
 * that none is. */
static void sort_imports(struct look *k, const struct daemon_vgpu *v)
{
	const struct proto_account *page = daemon_vgpu_page(v);

	k->charged.n = k->imports.n = k->left.n = 0;
	for (uint32_t i = 0, n = mem_shares_of(page); i < n; i++) {
		struct mem_share s = mem_share_at(page, i);

		if (!is_meant(k, s.id)) {
			continue;
		}
		if (s.kind == MEM_SHARE_LEFT) {
			add(k, &k->left, s.state, i);
		}
		if (is_of_dead(k, v, &s) || !daemon_vgpu_has_row(v, s.row)) {
			continue;
		}
		if (s.kind == MEM_SHARE_IMPORT) {
			add(k, &k->imports, s.id, i);
		} else if (!s.is_vague &&
			   (s.kind == MEM_SHARE_OWNED || s.kind == MEM_SHARE_GIVEN)) {
			add(k, &k->charged, s.id, i);
		}
	}
	sort(&k->charged);
	sort(&k->imports);
}

/* Gives imports that no process is charged for to their lines: of those of one memory the first. */
static void give_imports(struct look *k, const struct daemon_vgpu *v, bool all)
{
	struct proto_account *page = daemon_vgpu_page(v);
	uint64_t given = 0;
	bool any = false;

	for (size_t i = 0; i < k->imports.n; i++) {
		const struct known *import = &k->imports.at[i];
		struct mem_share s = mem_share_at(page, import->number);

		if (s.kind != MEM_SHARE_IMPORT || s.id != import->id ||
		    s.bytes > PROTO_VGPU_MEM_MAX || has(&k->claims, s.id) ||
		    (!all && !has(&k->dead, s.id))) {
			continue;
		}
		if (s.is_vague || !(has(&k->charged, s.id) || (any && given == s.id))) {
			if (mem_share_give(page, import->number, &s)) {
				mem_account_note_peak(page, s.row, s.line, NULL);
				any = true;
				given = s.id;
			}
		}
	}
}

/* Takes off their lines what processes had closed before the imports were sorted: others are
 * charged now. One that was closed later may be wanted by an import that was not given. */
static void return_left(const struct look *k, const struct daemon_vgpu *v)
{
	for (size_t i = 0; i < k->left.n; i++) {
		struct mem_share s = mem_share_at(daemon_vgpu_page(v), k->left.at[i].number);

		if (s.state == k->left.at[i].id) {
			mem_share_return(daemon_vgpu_page(v), k->left.at[i].number, &s);
		}
	}
}

static void look(struct look *k, struct daemon *d)
{
	bool all = !daemon_vgpus_are_awaited(d);

	for (struct daemon_vgpu *v = d->vgpus.first; v; v = v->next) {
		note_claims(k, v);
	}
	sort(&k->claims);
	sort(&k->dead); /* once more, if processes have exited */
	for (struct daemon_vgpu *v = d->vgpus.first; v && !k->failed; v = v->next) {
		if (!v->page.map || !mem_shares_of(daemon_vgpu_page(v))) {
			continue;
		}
		sort_imports(k, v);
		if (!k->failed) {
			give_imports(k, v, all);
			return_left(k, v);
		}
	}
	free(k->claims.at);
	free(k->dead.at);
	free(k->charged.at);
	free(k->imports.at);
	free(k->left.at);
	if (k->failed) {
		daemon_vgpu_shares_changed(d);
	}
}

void daemon_vgpu_pass_on(struct daemon_vgpu *v, const uint64_t lines[PROTO_ACCOUNT_LINES / 64])
{
	struct look k = { .v = v, .lines = lines };

	note_dead(&k);
	if (k.dead.n || k.failed) {
		look(&k, v->d);
	}
}

void daemon_vgpu_drop_shares(struct daemon_vgpu *v, const uint64_t lines[PROTO_ACCOUNT_LINES / 64])
{
	struct proto_account *page = daemon_vgpu_page(v);

	for (uint32_t i = 0; i < PROTO_ACCOUNT_ROWS * PROTO_ACCOUNT_LINES; i++) {
		if (daemon_vgpu_is_in(lines, i % PROTO_ACCOUNT_LINES)) {
			mem_account_clear_orphans(page, i / PROTO_ACCOUNT_LINES,
						  i % PROTO_ACCOUNT_LINES);
		}
	}
	for (uint32_t i = 0, n = mem_shares_of(page); i < n; i++) {
		struct mem_share s = mem_share_at(page, i);

		if (s.kind != MEM_SHARE_FREE && daemon_vgpu_is_in(lines, s.line)) {
			mem_share_free(page, i, &s);
		}
	}
}

void daemon_vgpu_look_at_shares(struct daemon *d)
{
	struct look k = { 0 };

	look(&k, d);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
	uint64_t begun = clock_now_ns();
	struct daemon *d = arg;

	(void)src;
	(void)usec;
	daemon_vgpu_look_at_shares(d);
	d->vgpus.shares_rest_ns = clock_now_ns() + LOOK_REST * (clock_now_ns() - begun);
	return 0;
}

void daemon_vgpu_shares_changed(struct daemon *d)
{
	uint64_t now = clock_now_ns(), at;

	sd_event_now(d->loop, CLOCK_MONOTONIC, &at);
	at += LOOK_USEC;
	at += d->vgpus.shares_rest_ns > now ? (d->vgpus.shares_rest_ns - now) / 1000 : 0;
	if (!daemon_timer_is_armed(d->vgpus.shares_timer)) {
		(void)daemon_timer_at(d->loop, &d->vgpus.shares_timer, at, 1, on_timer, d);
	}
}
