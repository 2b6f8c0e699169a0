/* gbpfd charges memory to its importers once its creator is charged no more: which of them, when,
 * and what forged accounts can do. Processes here write their lines themselves. */
#include "vgpu_rig.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../eventually.h"
#include "mem/account_shares.h"

#define MIB (UINT64_C(1) << 20)
#define ID UINT64_C(0xfeed)
#define ROUNDS 12u

/* What a process has, in a process of its own. */
struct holding {
	enum mem_share_kind kind; /* FREE: none */
	uint64_t id, charged, bytes;
};

struct child {
	pid_t pid;
	int from;
	uint32_t line;
};

static uint32_t note(const struct member *p, enum mem_share_kind kind, uint64_t id, uint64_t bytes)
{
	struct mem_ledger l;
	int n;

	assert_int_equal(mem_ledger_init(&l, p->account, p->line), 0);
	n = mem_share_add(&l, 0, kind, false, id, bytes);
	assert_true(n >= 0);
	return (uint32_t)n;
}

/* As the shim does after an import that has no claim in the account. */
static void tell(const struct member *p)
{
	union proto_message m = { .mem_ask = { .flags = PROTO_MEM_SHARES } };

	assert_int_equal(proto_send(p->f.sock, &m, PROTO_MEM_ASK, NULL, 0), 0);
}

static void live(const struct gd *d, uint64_t number, const struct holding *h, int out)
{
	struct member p;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join(&p, d, number);
	set_used(&p, p.line, h->charged);
	if (h->kind != MEM_SHARE_FREE) {
		(void)note(&p, h->kind, h->id, h->bytes);
	}
	if (write(out, &p.line, sizeof(p.line)) < 0) {
		_exit(1);
	}
	for (;;) {
		pause();
	}
}

static struct child start_child(const struct gd *d, uint64_t number, const struct holding *h)
{
	struct child c = { 0 };
	int out[2];

	assert_int_equal(pipe(out), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		live(d, number, h, out[1]);
	}
	close(out[1]);
	c.from = out[0];
	assert_int_equal(read(c.from, &c.line, sizeof(c.line)), sizeof(c.line));
	return c;
}

static void end(const struct child *c)
{
	kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
	close(c->from);
}

static struct child creator(const struct gd *d, uint64_t number, uint64_t bytes)
{
	const struct holding h = { MEM_SHARE_CLAIM, ID, bytes, bytes };

	return start_child(d, number, &h);
}

static uint64_t orphans_of(const struct member *p)
{
	return mem_account_orphans(p->account, 0, p->line);
}

static uint64_t all_of(const struct member *p)
{
	return mem_account_used(p->account, 0);
}

/* All that gbpfd had to do before is done once it answers. */
static void settle(struct gd *d)
{
	json_decref(gd_call(d, "status", NULL));
}

static void an_importer_is_charged_when_the_creator_is_gone(void **state)
{
	struct gd *d = *state;
	struct child c = creator(d, 5, 10 * MIB);
	struct member p;

	join(&p, d, 5);
	(void)note(&p, MEM_SHARE_IMPORT, ID, 10 * MIB);
	tell(&p);
	settle(d);
	assert_int_equal(orphans_of(&p), 0);
	assert_int_equal(all_of(&p), 10 * MIB);
	end(&c);
	eventually(used_of(&p, c.line) == 0);
	assert_int_equal(orphans_of(&p), 10 * MIB); /* before the line was cleared */
	assert_int_equal(all_of(&p), 10 * MIB);
	part(&p);
}

static void an_importer_that_exits_passes_the_charge_on(void **state)
{
	const struct holding h = { MEM_SHARE_IMPORT, ID, 0, 10 * MIB };
	struct gd *d = *state;
	struct child c = creator(d, 5, 10 * MIB), importer = start_child(d, 5, &h);
	struct member p;

	join(&p, d, 5);
	(void)note(&p, MEM_SHARE_IMPORT, ID, 10 * MIB);
	end(&c);
	eventually(mem_account_orphans(p.account, 0, importer.line) == 10 * MIB);
	assert_int_equal(orphans_of(&p), 0);
	end(&importer);
	eventually(mem_account_orphans(p.account, 0, importer.line) == 0);
	assert_int_equal(orphans_of(&p), 10 * MIB); /* before that line was cleared */
	part(&p);
}

static void importers_of_other_vgpus_are_charged_too(void **state)
{
	struct gd *d = *state;
	struct child c = creator(d, 5, 10 * MIB);
	struct member own, other;

	join(&own, d, 5);
	join(&other, d, 6);
	(void)note(&own, MEM_SHARE_IMPORT, ID, 10 * MIB);
	(void)note(&other, MEM_SHARE_IMPORT, ID, 10 * MIB);
	(void)note(&other, MEM_SHARE_IMPORT, ID, 10 * MIB); /* the same memory */
	(void)note(&other, MEM_SHARE_IMPORT, ID + 1, 10 * MIB);
	end(&c);
	eventually(orphans_of(&own) && orphans_of(&other));
	eventually(all_of(&own) ==
		   10 * MIB); /* the creator is charged until its account has ended */
	assert_int_equal(all_of(&other), 10 * MIB);
	part(&own);
	part(&other);
}

static void another_claim_keeps_the_importer_from_being_charged(void **state)
{
	struct gd *d = *state;
	struct child c = creator(d, 5, 10 * MIB), other = creator(d, 6, 10 * MIB);
	struct member p;

	join(&p, d, 5);
	(void)note(&p, MEM_SHARE_IMPORT, ID, 10 * MIB);
	end(&c);
	eventually(used_of(&p, c.line) == 0);
	assert_int_equal(orphans_of(&p), 0);
	end(&other);
	eventually(orphans_of(&p) == 10 * MIB);
	part(&p);
}

/* A claim of more than its process is charged for is no claim, nor is one of no bytes. */
static void forged_claims_do_not_count(void **state)
{
	const struct holding lie = { MEM_SHARE_CLAIM, ID, 9 * MIB, 10 * MIB };
	const struct holding nothing = { MEM_SHARE_CLAIM, ID, 0, 0 };
	struct gd *d = *state;
	struct child c = creator(d, 5, 10 * MIB), liar = start_child(d, 6, &lie);
	struct child other = start_child(d, 6, &nothing);
	struct member p;

	join(&p, d, 5);
	(void)note(&p, MEM_SHARE_IMPORT, ID, 10 * MIB);
	end(&c);
	eventually(used_of(&p, c.line) == 0);
	assert_int_equal(orphans_of(&p), 10 * MIB);
	end(&liar);
	end(&other);
	part(&p);
}

/* A process cannot have another vGPU charged for more than that one says that it has imported. */
static void forged_shares_change_only_their_own_vgpu(void **state)
{
	const struct holding lie = { MEM_SHARE_CLAIM, ID, 40 * MIB, 40 * MIB };
	struct gd *d = *state;
	struct child liar = start_child(d, 6, &lie), dead = creator(d, 6, 20 * MIB);
	struct member victim, bad;
	uint64_t r = 1;

	join(&victim, d, 5);
	join(&bad, d, 6);
	(void)note(&victim, MEM_SHARE_IMPORT, ID, 4 * MIB);
	(void)note(&bad, MEM_SHARE_IMPORT, ID + 1, UINT64_MAX - PROTO_SHARE_UNIT);
	for (uint32_t i = 100; i < PROTO_ACCOUNT_SHARES; i++) {
		r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		bad.account->share[i].state = i % 2 ? r : (r & ~UINT64_C(0xf)) | r >> 60 % 9;
		bad.account->share[i].id = i % 5 ? r : ID;
		bad.account->share[i].bytes = r >> i % 64;
	}
	store_seqcst(&bad.account->shares, UINT32_MAX);
	tell(&bad);
	end(&dead);
	eventually(used_of(&bad, dead.line) == 0);
	end(&liar);
	eventually(used_of(&bad, liar.line) == 0);
	settle(d);
	assert_true(orphans_of(&victim) <= 4 * MIB);
	assert_int_equal(used_of(&victim, victim.line), 0);
	assert_int_equal(all_of(&victim), orphans_of(&victim));
	part(&victim);
	part(&bad);
}

/* gbpfd was killed in the middle of each change; the next one completes it. */
static void a_restarted_gbpfd_completes_what_was_begun(void **state)
{
	struct gd *d = *state;
	struct member p, again;
	uint32_t given, left;

	join(&p, d, 5);
	given = note(&p, MEM_SHARE_IMPORT, ID, 10 * MIB);
	left = note(&p, MEM_SHARE_IMPORT, ID + 1, 4 * MIB);
	restart_after_kill(d);
	/* GIVEN, before `inherited` was raised; RETURNING, before `returned` was. */
	p.account->share[given].state += MEM_SHARE_GIVEN - MEM_SHARE_IMPORT;
	p.account->orphans[0][p.line].disowned -= 4 * MIB;
	p.account->share[left].state += MEM_SHARE_RETURNING - MEM_SHARE_IMPORT;
	come_back(&again, d, &p, 5, p.account_fd, p.line);
	assert_int_equal(again.error, 0);
	tell(&again);
	eventually(orphans_of(&again) == 10 * MIB);
	assert_int_equal(mem_share_at(again.account, given).kind, MEM_SHARE_OWNED);
	assert_int_equal(mem_share_at(again.account, left).kind, MEM_SHARE_FREE);
	part(&p);
	part(&again);
}

/* Creators and importers are killed in all orders; gbpfd is restarted in between. The account is
 * right: the keeper, which has imported all memory, is charged for each once. */
static void killed_processes_leave_the_figures_right(void **state)
{
	struct gd *d = *state;
	struct child c[ROUNDS], importer[ROUNDS];
	struct member keeper;

	join(&keeper, d, 5);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct holding h = { MEM_SHARE_CLAIM, ID + i, (i + 1) * MIB, (i + 1) * MIB };

		c[i] = start_child(d, 5 + i % 3, &h);
		h.kind = MEM_SHARE_IMPORT;
		h.charged = 0;
		importer[i] = start_child(d, 5, &h);
		(void)note(&keeper, MEM_SHARE_IMPORT, ID + i, (i + 1) * MIB);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		end(i % 2 ? &c[i] : &importer[i]);
		end(i % 2 ? &importer[i] : &c[i]);
	}
	eventually(orphans_of(&keeper) == ROUNDS * (ROUNDS + 1) / 2 * MIB);
	eventually(all_of(&keeper) == orphans_of(&keeper));
	part(&keeper);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(an_importer_is_charged_when_the_creator_is_gone),
		TEST(an_importer_that_exits_passes_the_charge_on),
		TEST(importers_of_other_vgpus_are_charged_too),
		TEST(another_claim_keeps_the_importer_from_being_charged),
		TEST(forged_claims_do_not_count),
		TEST(forged_shares_change_only_their_own_vgpu),
		TEST(a_restarted_gbpfd_completes_what_was_begun),
		TEST(killed_processes_leave_the_figures_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
