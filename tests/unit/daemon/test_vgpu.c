/* vGPUs as gbpfd keeps them: lines and accounts of processes, limits on their number, hellos
 * and accounts that are invalid, and when a line is cleared. */
#include "vgpu_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../eventually.h"

#define VGPUS_MAX PROTO_VGPUS
#define FOREIGN_MAX 16u

/* ---- processes of a vGPU that live as processes ---- */

struct child {
	pid_t pid;
	int to, from;
};

/* Runs in a process of its own: joins, charges `bytes`, reports its line, ends its session on
 * request, and remains until it is killed. */
static void live(const struct gd *d, uint64_t number, uint64_t bytes, bool shared, int in, int out)
{
	struct member p;
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	join(&p, d, number);
	set_used(&p, p.line, bytes);
	if (shared && fork() == 0) { /* its session lives as long as this one */
		_exit(read(in, &c, 1) < 0);
	}
	if (write(out, &p.line, sizeof(p.line)) < 0 || read(in, &c, 1) != 1) {
		_exit(1);
	}
	fd_close(p.f.sock);
	if (write(out, &c, 1) < 0) {
		_exit(1);
	}
	for (;;) {
		pause();
	}
}

/* shared: its session ends when c.to is closed, not with the process. */
static struct child start_child_of(const struct gd *d, uint64_t number, uint64_t bytes, bool shared,
				   uint32_t *ret_line)
{
	struct child c = { 0 };
	int in[2], out[2];

	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		close(in[1]);
		live(d, number, bytes, shared, in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	c.to = in[1];
	c.from = out[0];
	assert_int_equal(read(c.from, ret_line, sizeof(*ret_line)), sizeof(*ret_line));
	return c;
}

static struct child start_child(const struct gd *d, uint64_t number, uint64_t bytes,
				uint32_t *ret_line)
{
	return start_child_of(d, number, bytes, false, ret_line);
}

static void end_session_of(const struct child *c)
{
	char byte = 0;

	assert_int_equal(write(c->to, &byte, 1), 1);
	assert_int_equal(read(c->from, &byte, 1), 1);
}

static void end_child(const struct child *c)
{
	kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
	close(c->to);
	close(c->from);
}

/* ---- tests ---- */

static void processes_of_a_vgpu_get_lines_of_one_page(void **state)
{
	static const uint8_t uuid[16] = { 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 };
	struct gd *d = *state;
	struct member a, b, c;

	join(&a, d, 5);
	join(&b, d, 5);
	join(&c, d, 6);
	assert_true(is_same_page(&a, &b));
	assert_false(is_same_page(&a, &c));
	assert_int_equal(a.line, 0);
	assert_int_equal(b.line, 1);
	assert_int_equal(c.line, 0);
	assert_int_equal(a.account->magic, PROTO_ACCOUNT_MAGIC);
	assert_int_equal(a.account->abi, PROTO_ABI);
	assert_int_equal(a.account->limit[0], LIMIT);
	assert_int_equal(a.account->limit[1], 0);
	assert_memory_equal(a.account->uuid[0], uuid, 16);
	assert_int_equal(load_seqcst(&a.account->lines), 2);
	assert_int_equal(a.account->owner[1].pid, getpid());
	assert_int_equal(ftruncate(a.account_fd, 4096), -1); /* sealed */
	part(&a);
	part(&b);
	part(&c);
}

static void a_process_without_a_vgpu_gets_no_account(void **state)
{
	struct proto_hello h = hello_of(0, 0);
	struct gd *d = *state;
	struct member p;

	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	assert_null(p.account);
	part(&p);
}

static void the_first_process_sets_the_limit(void **state)
{
	struct proto_hello h = hello_of(5, 2 * LIMIT);
	struct gd *d = *state;
	struct member a, b;

	join(&a, d, 5);
	say(&b, d, &h, NULL, 0);
	assert_int_equal(b.error, 0);
	assert_int_equal(a.account->limit[0], LIMIT);
	part(&a);
	part(&b);
}

static void users_do_not_share_numbers(void **state)
{
	struct gd *d = *state;
	struct member root, a, b;

	NEED_TWO_USERS();
	open_to_all(d);
	join(&root, d, 5);
	join_as(USER_A, &a, d, 5);
	join_as(USER_B, &b, d, 5);
	assert_int_equal(a.error | b.error, 0);
	assert_false(is_same_page(&root, &a));
	assert_false(is_same_page(&root, &b));
	assert_false(is_same_page(&a, &b));
	part(&root);
	part(&a);
	part(&b);
}

/* The vGPU's next process gets the line of one that has exited. */
static void a_vgpu_has_at_most_256_processes(void **state)
{
	static struct member many[PROTO_ACCOUNT_LINES - 1];
	struct proto_hello h = hello_of(5, LIMIT);
	struct gd *d = *state;
	struct member more;
	uint32_t line;
	struct child c = start_child(d, 5, 4096, &line);

	assert_int_equal(line, 0);
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES - 1; i++) {
		join(&many[i], d, 5);
		assert_int_equal(many[i].line, i + 1);
	}
	say(&more, d, &h, NULL, 0);
	assert_int_equal(more.error, ENOSPC);
	assert_string_equal(more.text,
			    "it cannot join its virtual GPU: too many processes are in it");
	part(&more);
	h.vgpu.number = 6;
	say(&more, d, &h, NULL, 0);
	assert_int_equal(more.error, 0);
	part(&more);
	end_child(&c);
	eventually(used_of(&many[0], 0) == 0);
	join(&more, d, 5);
	assert_int_equal(more.line, 0);
	part(&more);
	for (uint32_t i = 0; i < PROTO_ACCOUNT_LINES - 1; i++) {
		part(&many[i]);
	}
}

/* A vGPU ends with its last process, and makes room for another one. */
static void there_are_at_most_64_vgpus(void **state)
{
	static struct member many[VGPUS_MAX - 1];
	struct proto_hello h = hello_of(1000, LIMIT);
	struct gd *d = *state;
	struct member more;
	uint32_t line;
	struct child c = start_child(d, 999, 0, &line);

	for (unsigned i = 0; i < VGPUS_MAX - 1; i++) {
		join(&many[i], d, i + 1);
	}
	say(&more, d, &h, NULL, 0);
	assert_int_equal(more.error, EUSERS);
	assert_string_equal(
		more.text,
		"it cannot join its virtual GPU: user 0 has 64 virtual GPUs, of 64 that "
		"others leave to it. End its programs, or remove one with `gbpf vgpu rm`");
	part(&more);
	join(&more, d, 1); /* one that exists */
	part(&more);
	end_child(&c);
	say(&more, d, &h, NULL, 0); /* gbpfd sweeps first, even if it has not seen the exit */
	while (more.error == EUSERS) {
		part(&more);
		say(&more, d, &h, NULL, 0);
	}
	assert_int_equal(more.error, 0);
	part(&more);
	for (unsigned i = 0; i < VGPUS_MAX - 1; i++) {
		part(&many[i]);
	}
}

static void a_foreign_user_has_at_most_16_vgpus(void **state)
{
	static struct member many[FOREIGN_MAX];
	struct member more, other, root;
	struct gd *d = *state;

	NEED_TWO_USERS();
	open_to_all(d);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		join_as(USER_A, &many[i], d, i + 1);
		assert_int_equal(many[i].error, 0);
	}
	join_as(USER_A, &more, d, 1000);
	assert_int_equal(more.error, EUSERS);
	part(&more);
	join_as(USER_A, &more, d, 1);
	join_as(USER_B, &other, d, 1000);
	join_as(0, &root, d, 1000);
	assert_int_equal(more.error | other.error | root.error, 0);
	part(&more);
	part(&other);
	part(&root);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		part(&many[i]);
	}
}

#define USER_C (USER_B + 1)
#define C_MAX 8u /* where two others have 16 each */

static void users_leave_vgpus_to_further_users(void **state)
{
	static struct member a[FOREIGN_MAX], b[FOREIGN_MAX], c[C_MAX], root[FOREIGN_MAX];
	struct member more;
	struct gd *d = *state;

	NEED_TWO_USERS();
	open_to_all(d);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) { /* root has places of its own */
		join_as(0, &root[i], d, i + 1);
		assert_int_equal(root[i].error, 0);
	}
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		join_as(USER_A, &a[i], d, i + 1);
		join_as(USER_B, &b[i], d, i + 1);
		assert_int_equal(a[i].error | b[i].error, 0);
	}
	for (unsigned i = 0; i < C_MAX; i++) {
		join_as(USER_C, &c[i], d, i + 1);
		assert_int_equal(c[i].error, 0);
	}
	join_as(USER_C, &more, d, 1000);
	assert_int_equal(more.error, EUSERS);
	assert_non_null(strstr(more.text, "has 8 virtual GPUs, of 8 that others leave to it. End"));
	part(&more);
	join_as(USER_C + 1, &more, d, 1000);
	assert_int_equal(more.error, 0);
	part(&more);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		part(&a[i]);
		part(&b[i]);
		part(&root[i]);
	}
	for (unsigned i = 0; i < C_MAX; i++) {
		part(&c[i]);
	}
}

static void come_back_as(uid_t uid, struct gd *d, const struct member *of, unsigned n)
{
	struct member back;

	for (unsigned i = 0; i < n; i++) {
		AS_USER(uid, come_back(&back, d, &of[i], of[i].number, of[i].account_fd, 0));
		assert_int_equal(back.error, 0);
		part(&back);
	}
}

/* Programs must not lose their limits because those of others have come back first. */
static void vgpus_come_back_in_any_order(void **state)
{
	static struct member a[FOREIGN_MAX], b[FOREIGN_MAX], c[C_MAX];
	struct gd *d = *state;

	NEED_TWO_USERS();
	open_to_all(d);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		join_as(USER_A, &a[i], d, i + 1);
		join_as(USER_B, &b[i], d, i + 1);
	}
	for (unsigned i = 0; i < C_MAX; i++) {
		join_as(USER_C, &c[i], d, i + 1);
	}
	restart_after_kill(d);
	open_to_all(d);
	come_back_as(USER_C, d, c, C_MAX);
	come_back_as(USER_B, d, b, FOREIGN_MAX);
	come_back_as(USER_A, d, a, FOREIGN_MAX);
	for (unsigned i = 0; i < FOREIGN_MAX; i++) {
		part(&a[i]);
		part(&b[i]);
	}
	for (unsigned i = 0; i < C_MAX; i++) {
		part(&c[i]);
	}
}

/* The memory of a process is not free before the process has exited. */
static void a_line_is_cleared_when_its_process_is_gone(void **state)
{
	struct gd *d = *state;
	struct member watcher, next;
	struct child c;
	uint32_t line;

	join(&watcher, d, 5);
	c = start_child(d, 5, 12345, &line);
	assert_int_equal(line, 1);
	store_seqcst(&watcher.account->line[3][line].wanted, UINT64_C(77));
	assert_int_equal(load_seqcst(&watcher.account->lines), 2);
	end_session_of(&c);
	while (gd_number(d, "status", "sessions") != 1) {
	}
	join(&next, d, 5); /* has gbpfd look for lines of exited processes */
	assert_int_equal(next.line, 2);
	assert_int_equal(used_of(&watcher, line), 12345);
	assert_int_equal(watcher.account->owner[line].pid, c.pid);
	end_child(&c);
	eventually(used_of(&watcher, line) == 0);
	eventually(load_seqcst(&watcher.account->line[3][line].wanted) == 0);
	eventually(load_relaxed(&watcher.account->owner[line].pid) == 0);
	part(&next);
	join(&next, d, 5);
	assert_int_equal(next.line, line);
	part(&next);
	part(&watcher);
}

static void sessions_that_end_leave_nothing_behind(void **state)
{
	struct gd *d = *state;
	struct member p;
	uint32_t line;
	struct child c = start_child(d, 5, 12345, &line);

	end_session_of(&c);
	end_child(&c);
	do { /* the same number is a new vGPU, once the old one has ended */
		join(&p, d, 5);
		line = p.line;
		part(&p);
	} while (line != 0);
	join(&p, d, 7);
	assert_int_equal(p.line, 0);
	assert_int_equal(used_of(&p, 0), 0);
	part(&p);
}

static void figures_are_shown_and_survive_gbpfd(void **state)
{
	struct gd *d = *state;
	struct member a, back;
	json_t *ps, *t;

	join(&a, d, 5);
	set_used(&a, a.line, UINT64_C(4711));
	restart_after_kill(d);
	come_back(&back, d, &a, 5, a.account_fd, a.line);
	assert_int_equal(back.error, 0);
	assert_int_equal(back.line, a.line);
	assert_true(is_same_page(&a, &back));
	assert_int_equal(used_of(&back, back.line), 4711);
	fake_send(&back.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "reattach", "member");
	ps = gd_call(d, "ps", NULL);
	t = json_array_get(json_object_get(ps, "tenants"), 0);
	assert_int_equal(json_integer_value(json_object_get(t, "mem_used")), 4711);
	assert_int_equal(json_integer_value(json_object_get(t, "mem_vgpu_used")), 4711);
	assert_int_equal(json_integer_value(json_object_get(t, "mem_limit")), LIMIT);
	json_decref(ps);
	part(&a);
	part(&back);
}

static void lines_of_processes_that_ended_meanwhile_are_cleared(void **state)
{
	struct gd *d = *state;
	struct member a, back, next;
	uint32_t line;
	struct child c;

	join(&a, d, 5);
	c = start_child(d, 5, 12345, &line);
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	end_child(&c);
	assert_int_equal(used_of(&a, line), 12345);
	assert_int_equal(gd_start(d, NULL), 0);
	come_back(&back, d, &a, 5, a.account_fd, a.line);
	assert_int_equal(back.error, 0);
	eventually(used_of(&a, line) == 0);
	join(&next, d, 5);
	assert_int_equal(next.line, line);
	part(&a);
	part(&back);
	part(&next);
}

/* ---- swap ---- */

#define SWAP PROTO_ACCOUNT_SWAP
#define SWAP_BYTES (UINT64_C(32) << 20)

static struct proto_hello hello_with_swap(uint64_t number)
{
	struct proto_hello h = hello_of(number, LIMIT);

	h.vgpu.config.swap = SWAP_BYTES;
	return h;
}

static void assert_swap(const struct member *p, uint64_t limit)
{
	static const uint8_t none[16], uuid[16] = PROTO_ACCOUNT_SWAP_UUID;

	assert_int_equal(load_seqcst(&p->account->limit[SWAP]), limit);
	assert_int_equal(load_seqcst(&p->account->allowed[SWAP]), 0);
	assert_memory_equal(p->account->uuid[SWAP], limit ? uuid : none, sizeof(uuid));
}

/* The member of the first tenant. */
static uint64_t of_tenant(struct gd *d, const char *member)
{
	json_t *ps = gd_call(d, "ps", NULL);
	json_t *t = json_array_get(json_object_get(ps, "tenants"), 0);
	uint64_t n = (uint64_t)json_integer_value(json_object_get(t, member));

	assert_non_null(json_object_get(t, member));
	json_decref(ps);
	return n;
}

/* The same of vGPU 5. */
static uint64_t of_vgpu(struct gd *d, const char *member)
{
	json_t *all = gd_call(d, "vgpu.list", "{\"name\":\"5\"}");
	json_t *v = json_array_get(json_object_get(all, "vgpus"), 0);
	uint64_t n = (uint64_t)json_integer_value(json_object_get(v, member));

	assert_non_null(json_object_get(v, member));
	json_decref(all);
	return n;
}

static void take_swap(const struct member *p, uint64_t bytes)
{
	store_seqcst(&p->account->line[SWAP][p->line].charged, bytes);
}

/* The row comes and goes with the limit; what is in use stays. Other vGPUs, and reservations,
 * restrict it in no way. */
static void swap_has_a_row_while_the_vgpu_has_some(void **state)
{
	struct proto_hello h = hello_with_swap(5);
	struct gd *d = *state;
	struct member p, other;

	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	fake_send(&p.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	assert_swap(&p, SWAP_BYTES);
	take_swap(&p, 4711);
	eventually(of_tenant(d, "swap_used") == 4711);
	assert_int_equal(of_tenant(d, "swap_limit"), SWAP_BYTES);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"reserve\":1048576}"));
	join(&other, d, 6);
	assert_swap(&other, 0);
	assert_swap(&p, SWAP_BYTES);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"swap\":2097152}"));
	assert_swap(&p, 2097152);
	part(&other);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"swap\":0}"));
	assert_swap(&p, 0);
	assert_int_equal(of_tenant(d, "swap_limit"), 0);
	assert_int_equal(of_tenant(d, "swap_used"), 4711);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"swap\":4194304}"));
	assert_swap(&p, 4194304);
	assert_int_equal(of_vgpu(d, "swap_used"), 4711);
	assert_int_equal(of_vgpu(d, "swap"), 4194304);
	assert_int_equal(p.account->limit[0], LIMIT);
	part(&p);
}

/* The page says what the vGPU is given, whatever processes write there. */
static void the_page_says_whether_swap_is_shown(void **state)
{
	struct proto_hello h = hello_with_swap(5);
	struct gd *d = *state;
	struct member p, other;

	h.vgpu.config.flags = PROTO_VGPU_SHOW_MEM;
	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	fake_send(&p.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	assert_int_equal(load_relaxed(&p.account->show_mem), 1);
	assert_swap(&p, SWAP_BYTES);
	join(&other, d, 6);
	assert_int_equal(load_relaxed(&other.account->show_mem), 0);
	eventually(of_tenant(d, "swap_limit") == SWAP_BYTES);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"show\":\"all\"}"));
	assert_int_equal(load_relaxed(&p.account->show_mem), 0);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"show\":\"mem\"}"));
	assert_int_equal(load_relaxed(&p.account->show_mem), 1);
	part(&other);
	part(&p);
}

static void swap_is_taken_over_after_a_restart(void **state)
{
	struct proto_hello h = hello_with_swap(5);
	struct gd *d = *state;
	struct member p, back;

	h.vgpu.config.flags = PROTO_VGPU_SHOW_MEM;
	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	take_swap(&p, 4711);
	restart_after_kill(d);
	memset(p.account->uuid[SWAP], 1, sizeof(p.account->uuid[SWAP])); /* no word of it counts */
	store_seqcst(&p.account->limit[SWAP], UINT64_MAX);
	store_relaxed(&p.account->show_mem, 0u);
	h.flags = PROTO_REATTACH;
	h.accounts = 1;
	h.account_line = p.line;
	say(&back, d, &h, (const int[]){ p.f.board_fd, p.f.stats_fd, p.account_fd }, 3);
	assert_int_equal(back.error, 0);
	assert_true(is_same_page(&p, &back));
	fake_send(&back.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "reattach", "member");
	assert_swap(&back, SWAP_BYTES);
	assert_int_equal(load_relaxed(&back.account->show_mem), 1);
	assert_int_equal(of_tenant(d, "swap_used"), 4711);
	assert_int_equal(of_tenant(d, "swap_limit"), SWAP_BYTES);
	part(&p);
	part(&back);
}

static void swap_of_a_process_that_has_exited_is_released(void **state)
{
	struct gd *d = *state;
	struct member watcher;
	uint32_t line;
	struct child c;

	join(&watcher, d, 5);
	c = start_child(d, 5, 0, &line);
	store_seqcst(&watcher.account->line[SWAP][line].charged, UINT64_C(4711));
	end_session_of(&c);
	end_child(&c);
	eventually(mem_line_used(&watcher.account->line[SWAP][line]) == 0);
	part(&watcher);
}

static void ask_for_swap(const struct member *p, uint32_t seq, uint64_t bytes, uint64_t wait_ns)
{
	union proto_message m = { 0 };

	m.mem_ask.row = SWAP;
	m.mem_ask.seq = seq;
	m.mem_ask.bytes = bytes;
	m.mem_ask.wait_ns = wait_ns;
	assert_int_equal(proto_send(p->f.sock, &m, PROTO_MEM_ASK, NULL, 0), 0);
}

static uint32_t answer_of(const struct member *p, uint32_t seq)
{
	const struct proto_account_line *line = &p->account->line[SWAP][p->line];

	eventually(load_acquire(&line->answer_seq) == seq);
	return load_relaxed(&line->answer);
}

/* A process may ask in the moment in which swap is taken back: it is refused, also if it waits. */
static void questions_about_swap_are_answered(void **state)
{
	struct proto_hello h = hello_with_swap(5);
	struct gd *d = *state;
	struct member p;

	h.vgpu.config.wait_ns = PROTO_VGPU_WAIT_MAX_NS;
	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, 0);
	fake_send(&p.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	ask_for_swap(&p, 1, SWAP_BYTES + 1, 0);
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_REFUSED);
	ask_for_swap(&p, 2, SWAP_BYTES, 0);
	assert_int_equal(answer_of(&p, 2), PROTO_ACCOUNT_RETRY);
	take_swap(&p, SWAP_BYTES);
	ask_for_swap(&p, 3, 1, PROTO_VGPU_WAIT_MAX_NS);
	eventually(of_vgpu(d, "waiting") == 1);
	json_decref(gd_call(d, "vgpu.set", "{\"tenant\":0,\"swap\":0}"));
	assert_int_equal(answer_of(&p, 3), PROTO_ACCOUNT_REFUSED);
	ask_for_swap(&p, 4, 1, PROTO_VGPU_WAIT_MAX_NS);
	assert_int_equal(answer_of(&p, 4), PROTO_ACCOUNT_REFUSED);
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	part(&p);
}

/* ---- invalid hellos ---- */

static void refused_without(struct gd *d, struct proto_hello h, const int *fds, unsigned n)
{
	struct member p;

	say(&p, d, &h, fds, n);
	assert_int_equal(p.error, EINVAL);
	part(&p);
}

static void contradictory_hellos_are_refused(void **state)
{
	struct gd *d = *state;
	struct proto_hello h = hello_of(0, LIMIT);
	struct member p;

	refused_without(d, h, NULL, 0); /* a limit without a vGPU */
	h = hello_of(5, PROTO_VGPU_MEM_MIN - 1);
	refused_without(d, h, NULL, 0);
	h = hello_of(5, PROTO_VGPU_MEM_MAX + 1);
	refused_without(d, h, NULL, 0);
	h = hello_of(5, LIMIT);
	snprintf(h.vgpu.name, sizeof(h.vgpu.name), "train");
	refused_without(d, h, NULL, 0); /* a name and a number */
	h.vgpu.number = 0;
	refused_without(d, h, NULL, 0); /* a name and a limit */
	h = hello_of(5, LIMIT);
	h.vgpu.config.compute = 101;
	refused_without(d, h, NULL, 0);
	h = hello_of(5, 0);
	h.vgpu.config.swap = PROTO_VGPU_SWAP_MIN;
	refused_without(d, h, NULL, 0); /* swap without a limit */
	h = hello_of(5, LIMIT);
	h.vgpu.config.swap = PROTO_VGPU_SWAP_MIN - 1;
	refused_without(d, h, NULL, 0);
	h.vgpu.config.swap = PROTO_VGPU_MEM_MAX + 1;
	refused_without(d, h, NULL, 0);
	join(&p, d, 5);
	{
		const int fds[3] = { p.f.board_fd, p.f.stats_fd, p.account_fd };

		h = hello_of(0, 0);
		h.flags = PROTO_REATTACH;
		h.accounts = 1;
		refused_without(d, h, fds, 3); /* an account without a vGPU */
	}
	part(&p);
}

/* The socket is closed without an answer. */
static void expect_closed(struct gd *d, const struct proto_hello *h, const int *fds, unsigned n)
{
	union proto_message m = { 0 };
	struct fake f;
	int got[8];
	unsigned ngot;

	fake_connect(&f, d);
	m.hello = *h;
	assert_int_equal(proto_send(f.sock, &m, PROTO_HELLO, fds, n), 0);
	while (fake_receive(&f, &m, got, &ngot) == 1) {
		assert_int_equal(m.head.type, PROTO_REFUSED);
		assert_int_equal(ngot, 0);
	}
	close(f.sock);
}

static void hellos_with_wrong_descriptors_end_the_session(void **state)
{
	struct gd *d = *state;
	struct proto_hello h = hello_of(5, LIMIT);
	struct member p;

	join(&p, d, 5);
	{
		const int fds[3] = { p.f.board_fd, p.f.stats_fd, p.account_fd };

		h.flags = PROTO_REATTACH;
		h.accounts = 2;
		expect_closed(d, &h, fds, 3);
		h.accounts = 1;
		expect_closed(d, &h, fds, 2);
		h.flags = 0; /* the descriptors that a message lacks are none of gbpfd's own */
		expect_closed(d, &h, NULL, 0);
		h.flags = PROTO_EARLY;
		h.gpus = 0;
		expect_closed(d, &h, NULL, 0);
	}
	assert_int_equal(gd_number(d, "status", "tenants"), 1);
	part(&p);
}

/* ---- invalid accounts ---- */

/* Each in a vGPU of its own, with a page of its own: one whose page was taken over waits for the
 * processes on it. */
static void try_account(struct gd *d, const struct member *of, int fd, uint32_t line, int error)
{
	static uint64_t number = 100;
	struct member p;

	come_back(&p, d, of, number++, fd, line);
	assert_int_equal(p.error, error);
	part(&p);
}

static void accounts_that_are_none_are_refused(void **state)
{
	static const struct {
		uint32_t line;
		int pid; /* in line 1 */
		unsigned magic, abi;
		int error;
	} cases[] = {
		{ PROTO_ACCOUNT_LINES, 0, 0, 0, EINVAL },
		{ UINT32_MAX, 0, 0, 0, EINVAL },
		{ 1, 0, 0, 0, EINVAL }, /* another process's */
		{ 1, 1, 0, 0, EINVAL },
		{ 0, 0, 1, 0, EINVAL },
		{ 0, 0, 0, 1, EINVAL },
		{ 0, 0, 0, 0, 0 }, /* all of them differ from this one in one thing */
	};
	struct gd *d = *state;
	struct proto_account *a;
	struct member p;
	int fd;

	join(&p, d, 5); /* for board and statistics */
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		a = forge(&fd, PROTO_ACCOUNT_BYTES);
		a->owner[1].pid = cases[i].pid;
		a->magic += cases[i].magic;
		a->abi += cases[i].abi;
		try_account(d, &p, fd, cases[i].line, cases[i].error);
		close(fd);
		shm_unmap(a, PROTO_ACCOUNT_BYTES);
	}
	a = forge(&fd, PROTO_ACCOUNT_BYTES + 4096);
	try_account(d, &p, fd, 0, EFBIG);
	close(fd);
	shm_unmap(a, PROTO_ACCOUNT_BYTES + 4096);
	a = forge(&fd, PROTO_ACCOUNT_BYTES - 4096);
	try_account(d, &p, fd, 0, EINVAL);
	close(fd);
	shm_unmap(a, PROTO_ACCOUNT_BYTES - 4096);
	fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(fd, PROTO_ACCOUNT_BYTES), 0);
	try_account(d, &p, fd, 0, EBADF);
	close(fd);
	fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	try_account(d, &p, fd, 0, EBADF);
	close(fd);
	part(&p);
}

static void another_vgpus_account_is_refused(void **state)
{
	struct gd *d = *state;
	struct member a, second, b, back, wrong;

	join(&a, d, 5);
	join(&second, d, 5);
	join(&b, d, 6);
	set_used(&a, 0, UINT64_C(11));
	restart_after_kill(d);
	come_back(&back, d, &a, 5, a.account_fd, 0);
	assert_int_equal(back.error, 0);
	come_back(&wrong, d, &b, 5, b.account_fd, 1); /* a line that waits for its process */
	assert_int_equal(wrong.error, EINVAL);
	part(&wrong);
	come_back(&wrong, d, &a, 5, a.account_fd, 0); /* a line whose process is there */
	assert_int_equal(wrong.error, EINVAL);
	part(&wrong);
	assert_int_equal(used_of(&a, 0), 11);
	come_back(&wrong, d, &second, 5, second.account_fd, 1);
	assert_int_equal(wrong.error, 0);
	part(&wrong);
	part(&second);
	come_back(&wrong, d, &b, 6, b.account_fd, 0);
	assert_int_equal(wrong.error, 0);
	part(&wrong);
	part(&back);
	part(&a);
	part(&b);
}

static void write_over(struct proto_account *a, unsigned what)
{
	store_relaxed(&a->show_mem, 1u); /* harms nothing, and is not noted by itself */
	switch (what) {
	case 0:
		break; /* a process that behaves */
	case 1:
		store_seqcst(&a->line[0][200].released, UINT64_C(1));
		break;
	case 2:
		store_seqcst(&a->limit[PROTO_ACCOUNT_HOST], UINT64_C(1));
		break;
	case 3:
		a->uuid[0][3] ^= 1;
		break;
	case 4:
		store_relaxed(&a->magic, 0u);
		break;
	case 5:
		store_relaxed(&a->vgpu_owner, UINT64_C(65534));
		break;
	case 6: /* it has no swap */
		store_seqcst(&a->limit[SWAP], SWAP_BYTES);
		break;
	case 7:
		memset(a->uuid[SWAP], 1, sizeof(a->uuid[SWAP]));
		break;
	default:
		store_seqcst(&a->lines, PROTO_ACCOUNT_LINES + 1);
	}
}

static int count_event(void *arg, const char *text)
{
	*(unsigned *)arg += strstr(text, "written over its account") != NULL;
	return 0;
}

static unsigned notes_of_garbage(struct gd *d)
{
	struct gbpf *g = gd_open(d);
	unsigned n = 0;

	assert_true(gbpf_events(g, 0, 0, 0, count_event, &n) >= 0);
	gbpf_close(g);
	return n;
}

/* Noted once, when a process of the vGPU has ended. What gbpfd writes is right again then. */
static void garbage_in_a_page_is_recorded(void **state)
{
	static const char *const noted[] = { NULL,
					     "what a process holds",
					     "a limit",
					     "a device",
					     "its format",
					     "its owner",
					     "a limit",
					     "a device",
					     "number of its lines" };
	struct gd *d = *state;
	struct member watcher;
	struct child c;
	uint32_t line;

	for (unsigned i = 0; i < ARRAY_SIZE(noted); i++) {
		join(&watcher, d, 80 + i);
		for (unsigned k = 0; k < 2; k++) {
			c = start_child(d, 80 + i, 12345, &line);
			write_over(watcher.account, i);
			end_session_of(&c);
			end_child(&c);
			eventually(used_of(&watcher, line) == 0);
		}
		if (noted[i]) {
			gd_await_event(d, 0, "vgpu", noted[i]);
		}
		assert_int_equal(watcher.account->magic, PROTO_ACCOUNT_MAGIC);
		assert_int_equal(watcher.account->limit[0], LIMIT);
		assert_swap(&watcher, 0);
		assert_true(!noted[i] || !load_relaxed(&watcher.account->show_mem));
		assert_int_equal(watcher.account->vgpu_owner, 1 + (uint64_t)getuid());
		eventually(load_seqcst(&watcher.account->lines) == 1);
		part(&watcher);
		assert_int_equal(notes_of_garbage(d), i);
	}
}

/* Its line is cleared when it has exited, which may be before its session ends. */
static void garbage_in_the_line_of_a_process_that_has_exited_is_recorded(void **state)
{
	struct gd *d = *state;
	struct member watcher;
	uint32_t line;
	struct child c;

	join(&watcher, d, 90);
	c = start_child_of(d, 90, 12345, true, &line);
	store_seqcst(&watcher.account->line[0][line].released, UINT64_C(12346));
	kill(c.pid, SIGKILL);
	assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
	eventually(used_of(&watcher, line) == 0);
	gd_await_event(d, 0, "vgpu", "what a process holds");
	close(c.to);
	close(c.from);
	part(&watcher);
}

/* Pinned memory and swap have rows of their own, by UUIDs that no device has. */
static void the_uuids_of_host_memory_are_not_taken_for_devices(void **state)
{
	static const uint8_t uuids[2][16] = { PROTO_ACCOUNT_HOST_UUID, PROTO_ACCOUNT_SWAP_UUID };
	struct proto_hello h = hello_of(78, LIMIT);
	struct gd *d = *state;
	struct proto_account *a;
	struct member p, forged;
	int fd;

	join(&p, d, 5);
	a = forge(&fd, PROTO_ACCOUNT_BYTES);
	for (unsigned i = 0; i < ARRAY_SIZE(uuids); i++) {
		memcpy(a->uuid[0], uuids[i], sizeof(a->uuid[0]));
		come_back(&forged, d, &p, 77, fd, 0);
		assert_int_equal(forged.error, EINVAL);
		part(&forged);
		memcpy(h.uuid[0], uuids[i], sizeof(h.uuid[0]));
		say(&forged, d, &h, NULL, 0);
		assert_int_equal(forged.error, EINVAL);
		part(&forged);
	}
	part(&p);
	close(fd);
	shm_unmap(a, PROTO_ACCOUNT_BYTES);
}

/* Words that no gbpfd writes. Its own line is the process's, so the page is taken over; gbpfd goes
 * on, other vGPUs are right, and the forged one ends with its process. */
static void a_page_full_of_garbage_is_harmless(void **state)
{
	static const int32_t pids[] = { -1, INT32_MIN, INT32_MAX, 0, 4194305 };
	struct gd *d = *state;
	struct proto_account *a;
	struct member p, other, forged, next;
	int fd;

	join(&p, d, 5);
	join(&other, d, 6);
	set_used(&other, 0, UINT64_C(11));
	a = forge(&fd, PROTO_ACCOUNT_BYTES);
	for (unsigned i = 1; i < PROTO_ACCOUNT_LINES; i++) {
		a->owner[i].pid = pids[i % 5];
		a->owner[i].start = UINT64_MAX - i;
	}
	memset(a->line, 0xff, sizeof(a->line));
	memset(a->limit, 0xff, sizeof(a->limit));
	a->lines = UINT32_MAX;
	come_back(&forged, d, &p, 77, fd, 0);
	assert_int_equal(forged.error, 0);
	fake_send(&forged.f, &(union proto_message){ 0 }, PROTO_BOARD_MAPPED);
	gd_await_event(d, 0, "reattach", "member");
	json_decref(gd_call(d, "ps", NULL));
	assert_int_equal(a->limit[0], LIMIT);
	eventually(used_of(&forged, 2) == 0); /* of a process that does not exist */
	join(&next, d, 77);
	assert_true(next.line > 0 && next.line < PROTO_ACCOUNT_LINES);
	assert_int_equal(used_of(&other, 0), 11);
	part(&next);
	part(&forged);
	part(&other);
	part(&p);
	close(fd);
	shm_unmap(a, PROTO_ACCOUNT_BYTES);
}

/* All rows name devices that gbpfd does not know. */
static void a_page_without_a_free_row_is_refused(void **state)
{
	struct gd *d = *state;
	struct proto_account *a;
	struct member p, forged;
	int fd;

	join(&p, d, 5);
	a = forge(&fd, PROTO_ACCOUNT_BYTES);
	memset(a->uuid, 0xee, sizeof(a->uuid)); /* several of one device */
	come_back(&forged, d, &p, 76, fd, 0);
	assert_int_equal(forged.error, EINVAL);
	part(&forged);
	for (uint8_t i = 0; i < PROTO_MAX_GPUS; i++) {
		a->uuid[i][0] = i;
	}
	come_back(&forged, d, &p, 77, fd, 0);
	assert_int_equal(forged.error, ENOSPC);
	part(&forged);
	part(&p);
	close(fd);
	shm_unmap(a, PROTO_ACCOUNT_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(processes_of_a_vgpu_get_lines_of_one_page),
		TEST(a_process_without_a_vgpu_gets_no_account),
		TEST(the_first_process_sets_the_limit),
		TEST(users_do_not_share_numbers),
		TEST(a_vgpu_has_at_most_256_processes),
		TEST(there_are_at_most_64_vgpus),
		TEST(a_foreign_user_has_at_most_16_vgpus),
		TEST(users_leave_vgpus_to_further_users),
		TEST(vgpus_come_back_in_any_order),
		TEST(a_line_is_cleared_when_its_process_is_gone),
		TEST(sessions_that_end_leave_nothing_behind),
		TEST(figures_are_shown_and_survive_gbpfd),
		TEST(lines_of_processes_that_ended_meanwhile_are_cleared),
		TEST(swap_has_a_row_while_the_vgpu_has_some),
		TEST(the_page_says_whether_swap_is_shown),
		TEST(swap_is_taken_over_after_a_restart),
		TEST(swap_of_a_process_that_has_exited_is_released),
		TEST(questions_about_swap_are_answered),
		TEST(contradictory_hellos_are_refused),
		TEST(hellos_with_wrong_descriptors_end_the_session),
		TEST(accounts_that_are_none_are_refused),
		TEST(another_vgpus_account_is_refused),
		TEST(garbage_in_a_page_is_recorded),
		TEST(garbage_in_the_line_of_a_process_that_has_exited_is_recorded),
		TEST(the_uuids_of_host_memory_are_not_taken_for_devices),
		TEST(a_page_full_of_garbage_is_harmless),
		TEST(a_page_without_a_free_row_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
