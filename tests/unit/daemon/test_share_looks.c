/* How gbpfd looks for the importers to be charged, in the test's process: what other processes
 * change during a look, and how many looks exited processes take. */
#include "vgpu_rig.h"

#include "daemon/vgpu/vgpu_int.h"
#include "mem/account_shares.h"

#define MIB (UINT64_C(1) << 20)
#define OTHERS 3u
#define SELF 0u /* the line of this process; none runs in the others */

static struct daemon *d;
/* Share that its process closes before it is given, or before this process is given one; negative:
 * none. */
static int closing;
static const struct proto_account *watched;
static unsigned reads; /* of the last share of the page that is watched */

static void close_share(struct proto_account *page, uint32_t number)
{
	struct mem_ledger l;

	assert_int_equal(mem_ledger_init(&l, page, mem_share_at(page, number).line), 0);
	(void)mem_share_drop(&l, number);
}

bool __real_mem_share_give(struct proto_account *page, uint32_t number, const struct mem_share *s);
bool __wrap_mem_share_give(struct proto_account *page, uint32_t number, const struct mem_share *s);
bool __wrap_mem_share_give(struct proto_account *page, uint32_t number, const struct mem_share *s)
{
	int share = closing;

	if (share >= 0 && (share == (int)number || s->line == SELF)) {
		closing = -1;
		close_share(page, (uint32_t)share);
	}
	return __real_mem_share_give(page, number, s);
}

struct mem_share __real_mem_share_at(const struct proto_account *page, uint32_t number);
struct mem_share __wrap_mem_share_at(const struct proto_account *page, uint32_t number);
struct mem_share __wrap_mem_share_at(const struct proto_account *page, uint32_t number)
{
	reads += page == watched && number == PROTO_ACCOUNT_SHARES - 1;
	return __real_mem_share_at(page, number);
}

static int begin(void **state)
{
	(void)state;
	closing = -1;
	watched = NULL;
	d = calloc(1, sizeof(*d));
	return d ? sd_event_new(&d->loop) : -1;
}

static int finish(void **state)
{
	(void)state;
	d->ending = true;
	daemon_vgpus_close(d);
	sd_event_unref(d->loop);
	free(d);
	return 0;
}

/* Brings a page to gbpfd, as this process. */
static struct daemon_vgpu *bring(int fd, uint64_t number)
{
	struct daemon_session s = { .d = d, .peer = { .pid = getpid(), .uid = geteuid() } };
	struct proto_hello h = hello_of(number, LIMIT);
	int fds[3] = { -1, -1, fd };

	h.accounts = 1;
	h.account_line = SELF;
	assert_int_equal(daemon_vgpu_join(&s, &h, fds, NULL), 0);
	return s.vgpu.of;
}

static struct daemon_vgpu *make(uint64_t number)
{
	struct proto_account *a;
	int fd;

	a = forge(&fd, PROTO_ACCOUNT_BYTES);
	a->uuid[0][0] = 7;
	shm_unmap(a, PROTO_ACCOUNT_BYTES);
	return bring(fd, number);
}

static uint32_t note(const struct daemon_vgpu *v, uint32_t line, enum mem_share_kind kind,
		     uint64_t id)
{
	struct mem_ledger l;
	int n;

	assert_int_equal(mem_ledger_init(&l, daemon_vgpu_page(v), line), 0);
	n = mem_share_add(&l, 0, kind, false, id, 10 * MIB);
	assert_true(n >= 0);
	return (uint32_t)n;
}

static enum mem_share_kind kind_of(const struct daemon_vgpu *v, uint32_t number)
{
	return mem_share_at(daemon_vgpu_page(v), number).kind;
}

static void a_gift_that_fails_leaves_the_memory_to_the_next_importer(void **state)
{
	const uint64_t exited[PROTO_ACCOUNT_LINES / 64] = { 1u << 1 };
	struct daemon_vgpu *v = make(5);
	uint32_t x, first, second;

	(void)state;
	store_seqcst(&daemon_vgpu_page(v)->line[0][1].charged, 20 * MIB);
	(void)note(v, 1, MEM_SHARE_CLAIM, 1);
	(void)note(v, 1, MEM_SHARE_CLAIM, 2);
	x = note(v, 2, MEM_SHARE_IMPORT, 1);
	first = note(v, 3, MEM_SHARE_IMPORT, 2);
	second = note(v, 4, MEM_SHARE_IMPORT, 2);
	closing = (int)first;
	daemon_vgpu_pass_on(v, exited);
	assert_int_equal(closing, -1);
	assert_int_equal(kind_of(v, x), MEM_SHARE_OWNED);
	assert_int_equal(kind_of(v, first), MEM_SHARE_FREE);
	assert_int_equal(kind_of(v, second), MEM_SHARE_OWNED);
}

static void what_is_closed_during_a_look_stays_until_the_next(void **state)
{
	struct daemon_vgpu *v = make(5);
	uint32_t owned = note(v, 1, MEM_SHARE_IMPORT, 1), other;

	(void)state;
	daemon_vgpu_look_at_shares(d);
	assert_int_equal(kind_of(v, owned), MEM_SHARE_OWNED);
	other = note(v, 2, MEM_SHARE_IMPORT, 1);
	(void)note(v, SELF, MEM_SHARE_IMPORT, 2); /* its gift is the moment of the close */
	closing = (int)owned;
	daemon_vgpu_look_at_shares(d);
	assert_int_equal(closing, -1);
	assert_int_equal(kind_of(v, owned), MEM_SHARE_LEFT);
	assert_int_equal(kind_of(v, other), MEM_SHARE_IMPORT);
	assert_int_equal(mem_account_orphans(daemon_vgpu_page(v), 0, 1), 10 * MIB);
	daemon_vgpu_look_at_shares(d);
	assert_int_equal(kind_of(v, other), MEM_SHARE_OWNED);
	assert_int_equal(mem_account_orphans(daemon_vgpu_page(v), 0, 1), 0);
	assert_int_equal(mem_account_orphans(daemon_vgpu_page(v), 0, 2), 10 * MIB);
}

/* Claims of all lines but that of this process. */
static void fill(struct proto_account *a)
{
	struct mem_ledger l;

	for (uint32_t i = 0; i < PROTO_ACCOUNT_SHARES; i++) {
		assert_int_equal(mem_ledger_init(&l, a, 1 + i % (PROTO_ACCOUNT_LINES - 1)), 0);
		assert_int_equal(mem_share_add(&l, 0, MEM_SHARE_CLAIM, false, i, MIB), i);
	}
}

static void a_page_of_exited_processes_takes_one_look(void **state)
{
	struct daemon_vgpu *other[OTHERS];
	struct proto_account *a;
	unsigned once;
	int fd;

	(void)state;
	for (unsigned i = 0; i < OTHERS; i++) {
		other[i] = make(5 + i);
		fill(daemon_vgpu_page(other[i]));
	}
	a = forge(&fd, PROTO_ACCOUNT_BYTES);
	fill(a);
	shm_unmap(a, PROTO_ACCOUNT_BYTES);
	watched = daemon_vgpu_page(other[0]);
	reads = 0;
	daemon_vgpu_look_at_shares(d);
	once = reads;
	assert_true(once > 0);
	reads = 0;
	(void)bring(fd, 5 + OTHERS);
	assert_in_range(reads, 1, once);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
		TEST(a_gift_that_fails_leaves_the_memory_to_the_next_importer),
		TEST(what_is_closed_during_a_look_stays_until_the_next),
		TEST(a_page_of_exited_processes_takes_one_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
