/* vGPUs with names, limits, reservations and waiting, as gbpfd keeps them: other users, processes
 * that write their page or ask without end, restarts. */
#include "vgpu_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../eventually.h"

#define MIB(n) ((uint64_t)(n) << 20)
#define HOUR UINT64_C(3600000000000)

/* ---- calls ---- */

/* Makes a call that must fail; returns the exit code that it reports. */
static int fail_call(struct gbpf *g, const char *method, const char *params)
{
	char *text = NULL;

	assert_true(gbpf_call(g, method, params, -1, &text) < 0);
	return gbpf_last_error(g)->exit;
}

static void call(struct gd *d, const char *method, const char *params)
{
	json_decref(gd_call(d, method, params));
}

static void call_as(uid_t uid, struct gd *d, const char *method, const char *params)
{
	struct gbpf *g;
	char *text = NULL;

	AS_USER(uid, g = gd_open(d));
	if (gbpf_call(g, method, params, -1, &text) < 0) {
		fail_msg("%s: %s", method, gbpf_last_error(g)->message);
	}
	free(text);
	gbpf_close(g);
}

/* Returns the vGPU of that name as `gbpf vgpu ls` has it; NULL: there is none. Caller frees. */
static json_t *find(struct gd *d, const char *name)
{
	json_t *all = gd_call(d, "vgpu.list", NULL), *v, *found = NULL;
	size_t i;

	json_array_foreach(json_object_get(all, "vgpus"), i, v)
	{
		if (strcmp(json_string_value(json_object_get(v, "name")), name) == 0) {
			found = json_incref(v);
		}
	}
	json_decref(all);
	return found;
}

static bool exists(struct gd *d, const char *name)
{
	json_t *v = find(d, name);

	json_decref(v);
	return v != NULL;
}

static size_t count(struct gd *d, const char *name, const char *member)
{
	json_t *v = find(d, name);
	size_t n = json_array_size(json_object_get(v, member));

	assert_non_null(v);
	json_decref(v);
	return n;
}

static json_int_t waiting(struct gd *d, const char *name)
{
	json_t *v = find(d, name);
	json_int_t n = json_integer_value(json_object_get(v, "waiting"));

	assert_non_null(v);
	json_decref(v);
	return n;
}

/* ---- processes ---- */

static void ask(const struct member *p, uint32_t seq, uint64_t bytes, uint64_t wait_ns)
{
	union proto_message m = { 0 };

	m.mem_ask.seq = seq;
	m.mem_ask.bytes = bytes;
	m.mem_ask.wait_ns = wait_ns;
	assert_int_equal(proto_send(p->f.sock, &m, PROTO_MEM_ASK, NULL, 0), 0);
}

static bool is_answered(const struct member *p, uint32_t seq)
{
	return load_acquire(&p->account->line[0][p->line].answer_seq) == seq;
}

/* Returns the answer, which must come. */
static uint32_t answer_of(const struct member *p, uint32_t seq)
{
	eventually(is_answered(p, seq));
	return load_relaxed(&p->account->line[0][p->line].answer);
}

static uint32_t ask_now(const struct member *p, uint32_t seq, uint64_t bytes)
{
	ask(p, seq, bytes, 0);
	return answer_of(p, seq);
}

static void return_named(struct member *p, const struct gd *d, const struct member *of,
			 const char *name)
{
	struct proto_hello h = hello_named(name, DEVICE);
	const int fds[3] = { of->f.board_fd, of->f.stats_fd, of->account_fd };

	h.flags = PROTO_REATTACH;
	h.accounts = 1;
	h.account_line = of->line;
	say(p, d, &h, fds, 3);
}

/* ---- lines ---- */

/* A process counts its questions from 1: an answer to the one before would be taken for its own. */
static void answers_do_not_outlive_their_process(void **state)
{
	struct gd *d = *state;
	struct member watcher, p;

	call(d, "vgpu.create", "{\"name\":\"train\",\"mem\":67108864,\"wait_ns\":1000000000}");
	join_named(&watcher, d, "train");
	join_named(&p, d, "train");
	assert_int_equal(p.line, 1);
	assert_int_equal(ask_now(&p, 1, MIB(65)), PROTO_ACCOUNT_REFUSED);
	store_relaxed(&p.account->line[0][1].overhead, UINT64_C(3));
	part(&p);
	while (gd_number(d, "status", "sessions") != 1) {
	}
	join_named(&p, d, "train");
	assert_int_equal(p.line, 1);
	assert_int_equal(load_acquire(&p.account->line[0][1].answer_seq), 0);
	assert_int_equal(load_relaxed(&p.account->line[0][1].overhead), 0);
	part(&p);
	part(&watcher);
}

/* A change of the shares does not touch limits of single devices. */
static void limits_of_devices_survive_a_change(void **state)
{
	struct proto_hello h = hello_of(5, MIB(64));
	struct gd *d = *state;
	struct member p;

	h.gpus = 2;
	memset(h.uuid[1], 8, sizeof(h.uuid[1]));
	h.vgpu.config.mem[1] = MIB(128);
	enter(&p, d, &h);
	assert_int_equal(p.error, 0);
	assert_int_equal(p.account->limit[1], MIB(128));
	call(d, "vgpu.set", "{\"tenant\":0,\"compute\":20}");
	assert_int_equal(p.account->limit[0], MIB(64));
	assert_int_equal(p.account->limit[1], MIB(128));
	call(d, "vgpu.set", "{\"tenant\":0,\"mem\":33554432}");
	assert_int_equal(p.account->limit[0], MIB(32));
	assert_int_equal(p.account->limit[1], MIB(32));
	part(&p);
}

/* ---- users ---- */

static void a_refused_change_changes_nothing(void **state)
{
	struct gd *d = *state;
	struct gbpf *g;

	NEED_TWO_USERS();
	open_to_all(d);
	call_as(USER_A, d, "vgpu.create", "{\"name\":\"own\"}");
	AS_USER(USER_A, g = gd_open(d));
	assert_int_equal(fail_call(g, "vgpu.set", "{\"name\":\"own\",\"users\":[65534]}"), 6);
	assert_int_equal(count(d, "own", "users"), 0);
	gbpf_close(g);
	call(d, "vgpu.set", "{\"name\":\"65533/own\",\"users\":[1,2]}");
	g = gd_open(d);
	assert_int_equal(fail_call(g, "vgpu.set", "{\"name\":\"65533/own\",\"users\":[3,-1]}"), 2);
	assert_int_equal(fail_call(g, "vgpu.set", "{\"name\":\"65533/own\",\"users\":7}"), 2);
	assert_int_equal(count(d, "own", "users"), 2);
	gbpf_close(g);
}

static int connect_control(const struct gd *d)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/control.sock", d->runtime);
	assert_int_equal(connect(sock, (const struct sockaddr *)&a, sizeof(a)), 0);
	return sock;
}

/* Makes gbpfd's next write of its vGPUs wait, in open(), for a reader of the file; it fails then,
 * since a FIFO cannot be synced. Returns the FIFO's path. */
static const char *hold_writes(const struct gd *d)
{
	static char fifo[128];

	snprintf(fifo, sizeof(fifo), "%s/vgpus.json.part", d->state);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	return fifo;
}

/* A caller that does not wait for answers: each change is a file to be written, so that only so
 * many are taken. All are answered. */
static void changes_that_wait_to_be_written_are_limited(void **state)
{
	static char lines[256 * 128], answers[256 * 1024];
	const struct timeval patience = { (time_t)EVENTUALLY_S, 0 };
	struct gd *d = *state;
	const char *fifo;
	size_t sent = 0, got = 0;
	unsigned answered = 0;
	bool refused = false;
	int sock, reader = -1;

	call(d, "vgpu.create", "{\"name\":\"train\"}");
	fifo = hold_writes(d);
	sock = connect_control(d);
	assert_int_equal(setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
	sent += (size_t)snprintf(lines, sizeof(lines),
				 "{\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}\n");
	for (unsigned i = 2; i <= 256; i++) {
		sent += (size_t)snprintf(lines + sent, sizeof(lines) - sent,
					 "{\"id\":%u,\"method\":\"vgpu.set\",\"params\":"
					 "{\"name\":\"train\",\"prio\":1}}\n",
					 i);
	}
	assert_int_equal(write(sock, lines, sent), sent);
	while (answered < 256) {
		ssize_t n = read(sock, answers + got, sizeof(answers) - 1 - got);

		for (ssize_t i = 0; i < n; i++) {
			answered += answers[got + (size_t)i] == '\n';
		}
		got += n > 0 ? (size_t)n : 0;
		refused = strstr(answers, "too many changes of virtual GPUs are being written");
		if (reader < 0 && (refused || n <= 0)) {
			reader = open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		}
		assert_true(n > 0);
	}
	assert_true(refused);
	assert_true(reader >= 0);
	close(reader);
	close(sock);
	call(d, "vgpu.set", "{\"name\":\"train\",\"prio\":2}"); /* they are written by now */
}

static void others_learn_nothing_of_a_vgpu(void **state)
{
	struct gd *d = *state;
	struct proto_hello h = hello_named("secret", 0);
	struct member p;
	struct gbpf *g;
	char *text = NULL;

	NEED_TWO_USERS();
	open_to_all(d);
	call_as(USER_A, d, "vgpu.create", "{\"name\":\"secret\"}");
	AS_USER(USER_B, g = gd_open(d));
	assert_int_equal(gbpf_call(g, "vgpu.list", NULL, -1, &text), 0);
	assert_null(strstr(text, "secret"));
	free(text);
	assert_int_equal(fail_call(g, "vgpu.set", "{\"name\":\"secret\",\"prio\":1}"), 5);
	assert_int_equal(fail_call(g, "vgpu.rm", "{\"name\":\"secret\"}"), 5);
	AS_USER(USER_B, say(&p, d, &h, NULL, 0));
	assert_int_equal(p.error, ENOENT);
	part(&p);
	gbpf_close(g);
	call(d, "vgpu.set", "{\"name\":\"65533/secret\",\"users\":[65534]}");
	AS_USER(USER_B, g = gd_open(d));
	assert_int_equal(fail_call(g, "vgpu.set", "{\"name\":\"secret\",\"prio\":1}"), 6);
	assert_int_equal(fail_call(g, "vgpu.rm", "{\"name\":\"secret\"}"), 6);
	AS_USER(USER_B, say(&p, d, &h, NULL, 0));
	assert_int_equal(p.error, 0);
	part(&p);
	gbpf_close(g);
}

/* A user's processes are counted over all its vGPUs, with names or without. */
static void names_do_not_lift_the_limit_of_processes(void **state)
{
	static struct member many[256];
	struct gd *d = *state;
	struct proto_hello h[2] = { hello_named("one", 0), hello_named("two", 0) };
	struct member more;

	NEED_TWO_USERS();
	open_to_all(d);
	call_as(USER_A, d, "vgpu.create", "{\"name\":\"one\"}");
	call_as(USER_A, d, "vgpu.create", "{\"name\":\"two\"}");
	call(d, "vgpu.set", "{\"name\":\"65533/two\",\"users\":[65534]}");
	for (unsigned i = 0; i < 256; i++) {
		AS_USER(USER_A, say(&many[i], d, &h[i % 2], NULL, 0));
		assert_int_equal(many[i].error, 0);
	}
	AS_USER(USER_B, say(&more, d, &h[1], NULL, 0));
	assert_int_equal(more.error, EUSERS);
	part(&more);
	for (unsigned i = 0; i < 256; i++) {
		part(&many[i]);
	}
}

/* ---- restarts ---- */

static void a_vgpu_whose_programs_may_return_is_not_removed(void **state)
{
	struct gd *d = *state;
	struct member p, back;
	struct gbpf *g;

	call(d, "vgpu.create", "{\"name\":\"train\"}");
	join_named(&p, d, "train");
	restart_after_kill(d);
	g = gd_open(d);
	assert_int_equal(fail_call(g, "vgpu.rm", "{\"name\":\"train\"}"), 7);
	gbpf_close(g);
	call(d, "vgpu.rm", "{\"name\":\"train\",\"drain\":true}");
	assert_true(exists(d, "train"));
	return_named(&back, d, &p, "train");
	assert_int_equal(back.error, 0);
	assert_true(is_same_page(&p, &back));
	part(&back);
	part(&p);
}

/* Its last process ended while no gbpfd was there to see it. */
static void a_draining_vgpu_ends_without_its_processes(void **state)
{
	char *patience = getenv("GBPF_PATIENCE") ? strdup(getenv("GBPF_PATIENCE")) : NULL;
	struct gd *d = *state;
	pid_t pid;

	call(d, "vgpu.create", "{\"name\":\"train\"}");
	pid = start_acting(d, "train", NULL);
	call(d, "vgpu.rm", "{\"name\":\"train\",\"drain\":true}");
	gbpf_close(d->g);
	d->g = NULL;
	gd_kill(d);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* gbpfd awaits them for 10 s times that. */
	assert_int_equal(setenv("GBPF_PATIENCE", "2", 1), 0);
	assert_int_equal(gd_start(d, NULL), 0);
	assert_int_equal(
		patience ? setenv("GBPF_PATIENCE", patience, 1) : unsetenv("GBPF_PATIENCE"), 0);
	free(patience);
	assert_true(exists(d, "train"));
	gd_await_event(d, 0, "vgpu", "train is removed: its last program has ended");
	assert_false(exists(d, "train"));
}

/* ---- reservations ---- */

/* What a page says that a vGPU uses is taken from others up to its limit alone. */
static void garbage_takes_no_memory_from_other_vgpus(void **state)
{
	struct gd *d = *state;
	struct member bad, good;

	call(d, "vgpu.create", "{\"name\":\"big\",\"reserve\":134217728}");
	call(d, "vgpu.create", "{\"name\":\"bad\",\"mem\":67108864}");
	call(d, "vgpu.create", "{\"name\":\"good\"}");
	join_named(&bad, d, "bad");
	join_named(&good, d, "good");
	set_used(&bad, bad.line, UINT64_MAX / 2);
	store_seqcst(&bad.account->limit[0], UINT64_MAX);
	store_seqcst(&bad.account->allowed[0], UINT64_C(1));
	memset(bad.account->uuid, 7, sizeof(bad.account->uuid));
	assert_int_equal(ask_now(&bad, 1, MIB(64)), PROTO_ACCOUNT_REFUSED);
	/* Has gbpfd look at what others use. */
	assert_int_equal(ask_now(&good, 9, MIB(897)), PROTO_ACCOUNT_REFUSED);
	/* 1024 less 128 reserved, and 64 that the other one can hold */
	assert_int_equal(ask_now(&good, 1, MIB(832) + 1), PROTO_ACCOUNT_REFUSED);
	assert_int_equal(ask_now(&good, 2, MIB(832)), PROTO_ACCOUNT_RETRY);
	assert_int_equal(load_seqcst(&good.account->allowed[0]), MIB(832));
	part(&bad);
	part(&good);
}

/* A row that gbpfd has not made. */
static void asking_for_memory_of_no_device_ends_the_session(void **state)
{
	union proto_message m = { 0 };
	struct gd *d = *state;
	struct member p;

	call(d, "vgpu.create", "{\"name\":\"train\"}");
	join_named(&p, d, "train");
	memset(p.account->uuid[1], 7, sizeof(p.account->uuid[1]));
	m.mem_ask.row = 1;
	m.mem_ask.seq = 1;
	assert_int_equal(proto_send(p.f.sock, &m, PROTO_MEM_ASK, NULL, 0), 0);
	gd_await_event(d, 0, "dropped", "it asks for memory of row 1");
	part(&p);
}

static void say_size(uid_t uid, struct member *p, const struct gd *d, uint8_t device,
		     uint64_t bytes)
{
	struct proto_hello h = hello_of(0, 0);

	memset(h.uuid[0], device, sizeof(h.uuid[0]));
	h.mem_bytes[0] = bytes;
	AS_USER(uid, enter(p, d, &h));
	assert_int_equal(p->error, 0);
}

/* A user who understates a size takes neither memory nor reservations from others; what root's
 * programs report counts. */
static void sizes_that_other_users_report_harm_nobody(void **state)
{
	struct proto_hello h = hello_named("good", 0);
	struct gd *d = *state;
	struct member liar[3], good, root;

	NEED_TWO_USERS();
	open_to_all(d);
	say_size(USER_A, &liar[0], d, 7, 1);
	say_size(USER_A, &liar[1], d, 7, MIB(16));
	say_size(USER_A, &liar[2], d, 9, MIB(16)); /* a device that there is not */
	call(d, "vgpu.create", "{\"name\":\"big\",\"reserve\":134217728}");
	call(d, "vgpu.create", "{\"name\":\"good\",\"users\":[65534]}");
	h.mem_bytes[0] = DEVICE;
	AS_USER(USER_B, enter(&good, d, &h));
	assert_int_equal(good.error, 0);
	assert_int_equal(ask_now(&good, 1, MIB(512)), PROTO_ACCOUNT_RETRY);
	say_size(0, &root, d, 7, MIB(512));
	part(&liar[0]);
	say_size(USER_A, &liar[0], d, 7, PROTO_VGPU_MEM_MAX);
	assert_int_equal(ask_now(&good, 2, MIB(384) + 1), PROTO_ACCOUNT_REFUSED);
	assert_int_equal(ask_now(&good, 3, MIB(384)), PROTO_ACCOUNT_RETRY);
	for (unsigned i = 0; i < 3; i++) {
		part(&liar[i]);
	}
	part(&good);
	part(&root);
}

/* Starts gbpfd anew, with an NVML that knows a GPU of DEVICE bytes. */
static void with_nvml(struct gd *d)
{
	char path[200], total[24], *libdir = strdup(getenv("GBPF_LIBDIR"));

	snprintf(path, sizeof(path), "%s/soft", d->dir);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/soft/libnvidia-ml.so.1", d->dir);
	assert_int_equal(symlink(getenv("FAKE_NVML"), path), 0);
	snprintf(total, sizeof(total), "%llu", (unsigned long long)(DEVICE + MIB(8)));
	assert_int_equal(setenv("FAKE_NVML_TOTAL", total, 1), 0);
	assert_int_equal(setenv("GBPF_LIBDIR", d->dir, 1), 0);
	restart_after_kill(d);
	d->g = gd_open(d);
	assert_int_equal(unsetenv("FAKE_NVML_TOTAL"), 0);
	assert_int_equal(setenv("GBPF_LIBDIR", libdir, 1), 0);
	free(libdir);
}

/* No process of root or gbpfd's user has named the GPU. */
static void nvml_corrects_sizes_that_other_users_report(void **state)
{
	struct proto_hello h = hello_named("good", 0);
	struct gd *d = *state;
	struct member liar, good;
	uint32_t seq = 1;

	NEED_TWO_USERS();
	with_nvml(d);
	open_to_all(d);
	call(d, "vgpu.create", "{\"name\":\"big\",\"reserve\":134217728}");
	call(d, "vgpu.create", "{\"name\":\"good\",\"users\":[65534]}");
	say_size(USER_A, &liar, d, 7, PROTO_VGPU_MEM_MAX);
	AS_USER(USER_B, enter(&good, d, &h));
	assert_int_equal(good.error, 0);
	eventually(ask_now(&good, seq++, DEVICE - MIB(128) + 1) == PROTO_ACCOUNT_REFUSED);
	assert_int_equal(ask_now(&good, seq, DEVICE - MIB(128)), PROTO_ACCOUNT_RETRY);
	part(&liar);
	say_size(USER_A, &liar, d, 7, PROTO_VGPU_MEM_MAX);
	assert_int_equal(ask_now(&good, ++seq, DEVICE - MIB(128) + 1), PROTO_ACCOUNT_REFUSED);
	assert_int_equal(
		fail_call(d->g, "vgpu.create", "{\"name\":\"more\",\"reserve\":1073741824}"), 7);
	part(&liar);
	part(&good);
}

/* The process lives on, but nothing is reserved for it. */
static void a_refused_reservation_is_not_kept(void **state)
{
	struct proto_hello h = hello_of(5, 0);
	struct gd *d = *state;
	struct member p, other;

	h.mem_bytes[0] = DEVICE;
	h.vgpu.config.reserve = 2 * DEVICE;
	say(&p, d, &h, NULL, 0);
	assert_int_equal(p.error, EDQUOT);
	part(&p);
	while (gd_number(d, "status", "sessions") != 0) {
	}
	say_size(0, &other, d, 7, DEVICE);
	call(d, "vgpu.create", "{\"name\":\"big\",\"reserve\":1073741824}");
	part(&other);
}

/* No size was known when they were made. */
static void reservations_beyond_a_device_are_reported(void **state)
{
	struct gd *d = *state;
	struct member p;

	call(d, "vgpu.create", "{\"name\":\"big\",\"reserve\":2147483648}");
	say_size(geteuid(), &p, d, 7, DEVICE);
	gd_await_event(d, 0, "vgpu", "2048 MiB are reserved, but a GPU has 1024 MiB");
	part(&p);
}

/* ---- waiting ---- */

/* The process would try and ask again without end. */
static void a_full_vgpu_has_no_room_on_a_device_of_unknown_size(void **state)
{
	struct proto_hello h = hello_named("train", 0);
	struct gd *d = *state;
	struct member p;

	call(d, "vgpu.create", "{\"name\":\"train\",\"mem\":67108864,\"wait_ns\":1000000000}");
	enter(&p, d, &h);
	set_used(&p, p.line, MIB(64));
	assert_int_equal(ask_now(&p, 1, MIB(2)), PROTO_ACCOUNT_REFUSED);
	set_used(&p, p.line, MIB(62));
	assert_int_equal(ask_now(&p, 2, MIB(2)), PROTO_ACCOUNT_RETRY);
	part(&p);
}

static void make_full(struct gd *d, struct member *p, struct member *q)
{
	call(d, "vgpu.create", "{\"name\":\"train\",\"mem\":67108864,\"wait_ns\":3600000000000}");
	join_named(p, d, "train");
	join_named(q, d, "train");
	set_used(p, p->line, MIB(64));
}

static void questions_without_end_do_not_delay_answers(void **state)
{
	struct gd *d = *state;
	struct member p, q;
	uint32_t seq = 1;

	make_full(d, &p, &q);
	ask(&p, 1, MIB(2), 20000000);
	eventually((ask(&q, seq++, MIB(2), HOUR), is_answered(&p, 1)));
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_REFUSED);
	part(&p);
	part(&q);
}

/* More questions than gbpfd decides at once: the others are answered all the same. */
static void many_questions_are_all_answered(void **state)
{
	struct gd *d = *state;
	struct member p, q;

	make_full(d, &p, &q);
	for (uint32_t seq = 1; seq <= 5000; seq++) {
		ask(&q, seq, MIB(2), 0);
	}
	assert_int_equal(answer_of(&q, 5000), PROTO_ACCOUNT_REFUSED);
	set_used(&p, p.line, MIB(62));
	assert_int_equal(ask_now(&q, 5001, MIB(2)), PROTO_ACCOUNT_RETRY);
	part(&p);
	part(&q);
}

static void a_lower_limit_ends_a_wait_that_is_hopeless(void **state)
{
	struct gd *d = *state;
	struct member p, q;

	make_full(d, &p, &q);
	ask(&p, 1, MIB(40), HOUR);
	eventually(waiting(d, "train") == 1);
	ask(&q, 1, MIB(2), HOUR);
	call(d, "vgpu.set", "{\"name\":\"train\",\"mem\":33554432}");
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_REFUSED);
	assert_false(is_answered(&q, 1));
	set_used(&p, p.line, MIB(30));
	assert_int_equal(answer_of(&q, 1), PROTO_ACCOUNT_RETRY);
	part(&p);
	part(&q);
}

static void the_first_waiter_is_answered_first(void **state)
{
	struct gd *d = *state;
	struct member p, q;

	make_full(d, &p, &q);
	ask(&p, 1, MIB(40), HOUR);
	eventually(waiting(d, "train") == 1);
	ask(&q, 1, MIB(2), HOUR);
	eventually(waiting(d, "train") == 2);
	set_used(&p, p.line, MIB(30));
	ask(&q, 2, MIB(2), 0); /* its last look is after this */
	assert_int_equal(answer_of(&q, 2), PROTO_ACCOUNT_REFUSED);
	ask(&q, 3, MIB(2), HOUR);
	assert_false(is_answered(&q, 1));
	set_used(&p, p.line, MIB(20));
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_RETRY);
	assert_int_equal(answer_of(&q, 3), PROTO_ACCOUNT_RETRY);
	part(&p);
	part(&q);
}

/* ---- while the device is full ---- */

static void ask_full(const struct member *p, uint32_t seq, uint64_t bytes, bool again)
{
	union proto_message m = { 0 };

	m.mem_ask.seq = seq;
	m.mem_ask.bytes = bytes;
	m.mem_ask.wait_ns = HOUR;
	m.mem_ask.flags = PROTO_MEM_FULL | (again ? PROTO_MEM_AGAIN : 0);
	assert_int_equal(proto_send(p->f.sock, &m, PROTO_MEM_ASK, NULL, 0), 0);
}

static void tries(const struct member *p, uint32_t seq)
{
	assert_int_equal(answer_of(p, seq), PROTO_ACCOUNT_RETRY);
	store_release(&p->account->line[0][p->line].tried_seq, seq);
}

/* Two vGPUs of which the first has all that the device has. */
static void fill_device(struct gd *d, struct member *holder, struct member *p, struct member *q)
{
	call(d, "vgpu.create", "{\"name\":\"big\"}");
	call(d, "vgpu.create", "{\"name\":\"one\",\"wait_ns\":3600000000000}");
	call(d, "vgpu.create", "{\"name\":\"two\",\"wait_ns\":3600000000000}");
	join_named(holder, d, "big");
	join_named(p, d, "one");
	join_named(q, d, "two");
	set_used(holder, holder->line, DEVICE);
}

/* Which comes first is decided by the first question, also after attempts in vain. */
static void waiters_for_a_full_device_try_in_turn(void **state)
{
	struct gd *d = *state;
	struct member holder, p, q;
	bool q_first = false;
	uint64_t began;

	fill_device(d, &holder, &p, &q);
	ask_full(&p, 1, MIB(512), false);
	tries(&p, 1); /* memory may have been freed before the question */
	began = clock_now_ns();
	ask_full(&p, 2, MIB(512), true);
	eventually(waiting(d, "one") == 1 ||
		   is_answered(&p, 2)); /* four times a second it may try */
	ask_full(&q, 1, MIB(2), false);
	eventually(waiting(d, "two") == 1 || is_answered(&q, 1));
	set_used(&holder, holder.line, DEVICE - MIB(2));
	eventually((q_first |= is_answered(&q, 1) && !is_answered(&p, 2), is_answered(&p, 2)));
	assert_false(q_first);
	assert_int_equal(answer_of(&p, 2), PROTO_ACCOUNT_RETRY);
	/* p has not tried yet: q is served before that only after 200 ms, on a slow machine */
	assert_false(is_answered(&q, 1) && clock_now_ns() - began < UINT64_C(200000000));
	ask_full(&p, 3, MIB(512), true);
	assert_int_equal(answer_of(&q, 1), PROTO_ACCOUNT_RETRY);
	part(&holder);
	part(&p);
	part(&q);
}

static void ask_many(const struct member *p, uint32_t *seq)
{
	for (unsigned i = 0; i < 500; i++) {
		ask_full(p, ++*seq, MIB(2), false);
	}
}

/* Beyond what gbpfd decides at once of a process, a question waits for the next look, which answers
 * it. */
static void many_questions_about_a_full_device_are_not_decided_at_once(void **state)
{
	struct gd *d = *state;
	struct member holder, p, q;
	uint32_t seq = 0;

	fill_device(d, &holder, &p, &q);
	eventually((ask_many(&p, &seq), waiting(d, "one") == 1));
	tries(&p, seq);
	part(&holder);
	part(&p);
	part(&q);
}

static void a_vgpu_that_does_not_wait_is_refused_on_a_full_device(void **state)
{
	struct gd *d = *state;
	struct member holder, p, q;

	fill_device(d, &holder, &p, &q);
	ask_full(&holder, 1, MIB(2), false);
	assert_int_equal(answer_of(&holder, 1), PROTO_ACCOUNT_REFUSED);
	ask_full(&p, 1, DEVICE + 1, false); /* never */
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_REFUSED);
	assert_int_equal(waiting(d, "one"), 0);
	part(&holder);
	part(&p);
	part(&q);
}

/* One that is told to try and does not is waited for, but not for long. */
static void a_waiter_that_does_not_try_does_not_hold_up_others(void **state)
{
	struct gd *d = *state;
	struct member holder, p, q;

	fill_device(d, &holder, &p, &q);
	ask_full(&p, 1, MIB(2), false);
	assert_int_equal(answer_of(&p, 1), PROTO_ACCOUNT_RETRY);
	ask_full(&q, 1, MIB(2), false);
	assert_int_equal(answer_of(&q, 1), PROTO_ACCOUNT_RETRY);
	part(&holder);
	part(&p);
	part(&q);
}

/* It has taken and freed what it was told to try, between two looks of gbpfd. */
static void nothing_is_kept_for_a_process_that_has_tried(void **state)
{
	struct gd *d = *state;
	struct member p, q;

	make_full(d, &p, &q);
	set_used(&p, p.line, UINT64_C(0));
	assert_int_equal(ask_now(&p, 1, MIB(40)), PROTO_ACCOUNT_RETRY);
	assert_int_equal(ask_now(&q, 1, MIB(40)), PROTO_ACCOUNT_REFUSED);
	store_release(&p.account->line[0][p.line].tried_seq, 1u);
	assert_int_equal(ask_now(&q, 2, MIB(40)), PROTO_ACCOUNT_RETRY);
	part(&p);
	part(&q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(answers_do_not_outlive_their_process),
		TEST(limits_of_devices_survive_a_change),
		TEST(a_refused_change_changes_nothing),
		TEST(changes_that_wait_to_be_written_are_limited),
		TEST(others_learn_nothing_of_a_vgpu),
		TEST(names_do_not_lift_the_limit_of_processes),
		TEST(a_vgpu_whose_programs_may_return_is_not_removed),
		TEST(a_draining_vgpu_ends_without_its_processes),
		TEST(garbage_takes_no_memory_from_other_vgpus),
		TEST(asking_for_memory_of_no_device_ends_the_session),
		TEST(sizes_that_other_users_report_harm_nobody),
		TEST(nvml_corrects_sizes_that_other_users_report),
		TEST(a_refused_reservation_is_not_kept),
		TEST(reservations_beyond_a_device_are_reported),
		TEST(a_full_vgpu_has_no_room_on_a_device_of_unknown_size),
		TEST(questions_without_end_do_not_delay_answers),
		TEST(many_questions_are_all_answered),
		TEST(a_lower_limit_ends_a_wait_that_is_hopeless),
		TEST(the_first_waiter_is_answered_first),
		TEST(nothing_is_kept_for_a_process_that_has_tried),
		TEST(waiters_for_a_full_device_try_in_turn),
		TEST(many_questions_about_a_full_device_are_not_decided_at_once),
		TEST(a_vgpu_that_does_not_wait_is_refused_on_a_full_device),
		TEST(a_waiter_that_does_not_try_does_not_hold_up_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
