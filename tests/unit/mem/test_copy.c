/* Copies by the pipelined plan on a device in memory. A copy that is issued is carried out, and its
 * event reached, after a number of questions for events. So a piece that is used again too early,
 * or issued before it is filled, gives wrong data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "mem/copy_plan.h"
#include "../eventually.h"

#define DEVICE_BYTES ((size_t)40 << 20)
#define OPERATIONS_MAX 256u
#define PLENTY ((uint64_t)1 << 30) /* of bytes, for all pieces */
#define ERROR 77		   /* one of the device's own */

struct operation {
	enum mem_copy_way way;
	struct mem_piece *piece;
	uint64_t device;
	size_t bytes;
};

struct fake {
	unsigned char *memory;
	struct operation op[OPERATIONS_MAX]; /* issued */
	unsigned n, carried_out;
	unsigned latency, questions; /* an operation is carried out at each `latency`th question */
	unsigned fail_issue, fail_done, fail_create; /* the call that fails, from 1; 0: none */
	unsigned issues, dones, creates, made;
	bool paused; /* carries out nothing */
};

/* The number of the latest operation of a piece, from 1. */
static uintptr_t mark_of(const struct mem_piece *p)
{
	return (uintptr_t)p->event;
}

static int piece_create(void *dev, size_t bytes, struct mem_piece *ret)
{
	struct fake *f = dev;

	if (++f->creates == f->fail_create) {
		return ERROR;
	}
	ret->host = malloc(bytes);
	assert_non_null(ret->host);
	f->made++;
	return 0;
}

static void piece_destroy(void *dev, struct mem_piece *p)
{
	struct fake *f = dev;

	free(p->host);
	f->made--;
}

static int issue(void *dev, void *queue, enum mem_copy_way way, struct mem_piece *p,
		 uint64_t device, size_t bytes)
{
	struct fake *f = dev;

	assert_ptr_equal(queue, f);
	if (++f->issues == f->fail_issue) {
		return ERROR;
	}
	assert_true(f->n < OPERATIONS_MAX);
	assert_true(mark_of(p) <= f->carried_out); /* in use */
	assert_true(bytes && bytes <= MEM_PIECE_BYTES && device + bytes <= DEVICE_BYTES);
	f->op[f->n++] = (struct operation){ way, p, device, bytes };
	p->event = (void *)(uintptr_t)f->n;
	return 0;
}

static void carry_out(struct fake *f)
{
	const struct operation *o = &f->op[f->carried_out++];

	if (o->way == MEM_COPY_UP) {
		memcpy(f->memory + o->device, o->piece->host, o->bytes);
	} else {
		memcpy(o->piece->host, f->memory + o->device, o->bytes);
	}
}

static int piece_done(void *dev, const struct mem_piece *p)
{
	struct fake *f = dev;

	if (++f->dones == f->fail_done) {
		return ERROR;
	}
	if (!f->paused && ++f->questions >= f->latency && f->carried_out < f->n) {
		f->questions = 0;
		carry_out(f);
	}
	return mark_of(p) <= f->carried_out ? 0 : -EAGAIN;
}

static const struct mem_device_ops ops = { piece_create, piece_destroy, issue, piece_done };

static void finish_all(struct fake *f)
{
	while (f->carried_out < f->n) {
		carry_out(f);
	}
}

/* Carries out what is left, and numbers operations from 1 again. */
static void start_over(struct fake *f, struct mem_pieces *p)
{
	finish_all(f);
	f->n = f->carried_out = 0;
	for (struct mem_piece *piece = p->free; piece; piece = piece->next) {
		piece->event = NULL;
	}
}

static void fake_init(struct fake *f)
{
	*f = (struct fake){ .latency = 3 };
	f->memory = malloc(DEVICE_BYTES);
	assert_non_null(f->memory);
}

static unsigned char *map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* A word of each 8 differs in each place. */
static void fill(unsigned char *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++) {
		p[i] = (unsigned char)((i + seed) * 2654435761u >> 23);
	}
}

/* A fake device, a pool, and pieces. */
struct bed {
	struct fake f;
	struct mem_copy_pool pool;
	struct mem_pieces pieces;
	struct mem_copy c;
	size_t done;
};

static void bed_init(struct bed *b, unsigned threads)
{
	memset(b, 0, sizeof(*b));
	fake_init(&b->f);
	mem_copy_pool_init(&b->pool, threads);
	mem_pieces_init(&b->pieces);
}

static void bed_finish(struct bed *b)
{
	mem_copy_pool_finish(&b->pool);
	finish_all(&b->f);
	mem_pieces_finish(&b->pieces, &ops, &b->f);
	assert_int_equal(b->f.made, 0);
	free(b->f.memory);
}

static int copy(struct bed *b, enum mem_copy_way way, uint64_t device, unsigned char *host,
		size_t bytes, unsigned pieces, bool wait)
{
	int r;

	b->c.ops = &ops;
	b->c.dev = b->c.queue = &b->f;
	b->c.way = way;
	b->c.device = device;
	b->c.host = host;
	b->c.bytes = bytes;
	b->c.piece_bytes = b->c.piece_bytes ? b->c.piece_bytes : (size_t)1 << 20;
	b->c.wait = wait;
	start_over(&b->f, &b->pieces);
	b->c.n_pieces = mem_pieces_take(&b->pieces, &ops, &b->f, PLENTY, b->c.piece, pieces);
	assert_int_equal(b->c.n_pieces, pieces);
	b->done = 0;
	r = mem_copy_run(&b->pool, &b->c, &b->done);
	mem_pieces_give(&b->pieces, b->c.piece, pieces);
	return r;
}

/* The pieces were issued in order, without gaps. */
static void check_order(const struct fake *f, uint64_t device, size_t piece, size_t bytes)
{
	size_t at = 0;

	for (unsigned i = 0; i < f->n; i++) {
		assert_int_equal(f->op[i].device, device + at);
		assert_int_equal(f->op[i].bytes, MIN(piece, bytes - at));
		at += f->op[i].bytes;
	}
}

static void check_copies(struct bed *b, size_t bytes, unsigned pieces, unsigned shift)
{
	unsigned char *from = map(bytes + 64), *to = map(bytes + 128);

	fill(from, bytes + 64, pieces);
	memset(b->f.memory, 0, DEVICE_BYTES);
	assert_int_equal(copy(b, MEM_COPY_UP, shift * 3, from + shift, bytes, pieces, false), 0);
	memset(from + shift, 0, bytes); /* may be reused */
	assert_int_equal(b->done, bytes);
	check_order(&b->f, shift * 3, b->c.piece_bytes, bytes);
	finish_all(&b->f);
	fill(from, bytes + 64, pieces);
	assert_memory_equal(b->f.memory + shift * 3, from + shift, bytes);
	assert_int_equal(b->f.memory[shift * 3 + bytes], 0);

	assert_int_equal(copy(b, MEM_COPY_DOWN, shift * 3, to + 64 - shift, bytes, pieces, false),
			 0);
	assert_int_equal(b->done, bytes);
	check_order(&b->f, shift * 3, b->c.piece_bytes, bytes);
	assert_memory_equal(to + 64 - shift, from + shift, bytes);
	assert_int_equal(to[63 - shift], 0);
	assert_int_equal(to[64 - shift + bytes], 0);
	munmap(from, bytes + 64);
	munmap(to, bytes + 128);
}

static void copies_of_all_shapes(void **state)
{
	static const unsigned threads[] = { 1, 2, 4, 8 }, pieces[] = { 1, 2, 3, 8 };
	static const size_t bytes[] = { 1,
					MEM_COPY_UNIT - 1,
					MEM_COPY_UNIT,
					MEM_COPY_UNIT + 1,
					(size_t)1 << 20,
					((size_t)3 << 20) + 12345,
					((size_t)17 << 20) + 1 };

	(void)state;
	for (unsigned t = 0; t < ARRAY_SIZE(threads); t++) {
		struct bed b;

		bed_init(&b, threads[t]);
		for (unsigned p = 0; p < ARRAY_SIZE(pieces); p++) {
			for (unsigned n = 0; n < ARRAY_SIZE(bytes); n++) {
				b.f.latency = 1 + (p + n) % 4 * 5;
				b.c.piece_bytes = (p + n) % 2 ? MEM_PIECE_BYTES : (size_t)1 << 20;
				check_copies(&b, bytes[n], pieces[p], (n * 13 + p) % 64);
			}
		}
		assert_true(b.pool.n_helpers == threads[t] - 1);
		bed_finish(&b);
	}
}

static void a_copy_up_returns_before_it_arrives_unless_it_waits(void **state)
{
	size_t bytes = (size_t)6 << 20;
	unsigned char *host = map(bytes);
	struct bed b;

	(void)state;
	bed_init(&b, 2);
	b.f.paused = true;
	assert_int_equal(copy(&b, MEM_COPY_UP, 0, host, bytes, 8, false), 0);
	assert_int_equal(b.f.n, 6);
	assert_int_equal(b.f.carried_out, 0);
	finish_all(&b.f);
	b.f.paused = false;
	assert_int_equal(copy(&b, MEM_COPY_UP, 0, host, bytes, 8, true), 0);
	assert_int_equal(b.f.carried_out, 6);
	bed_finish(&b);
	munmap(host, bytes);
}

/* An error at each position: it is returned, nothing is issued behind it, and the pool and the
 * pieces serve the next copy. */
static void errors_end_a_copy_at_every_position(void **state)
{
	size_t bytes = (size_t)12 << 20;
	unsigned char *host = map(bytes);
	struct bed b;

	(void)state;
	bed_init(&b, 3);
	for (unsigned way = 0; way < 2; way++) {
		for (unsigned at = 1; at <= 12; at++) {
			b.f.issues = 0;
			b.f.fail_issue = at;
			assert_int_equal(copy(&b, way, 0, host, bytes, 3, true), ERROR);
			assert_int_equal(b.f.n, at - 1);
			assert_true(b.done <= (at - 1) << 20);
			assert_true(way == MEM_COPY_DOWN || b.done == (at - 1) << 20);
			finish_all(&b.f);
			b.f.fail_issue = 0;
			b.f.dones = 0;
			b.f.fail_done = at + 3; /* taking the pieces asks three times */
			assert_int_equal(copy(&b, way, 0, host, bytes, 3, true), ERROR);
			finish_all(&b.f);
			b.f.fail_done = 0;
		}
	}
	check_copies(&b, bytes, 3, 1);
	bed_finish(&b);
	munmap(host, bytes);
}

static int refuse_at_fourth(void *arg)
{
	return ++*(unsigned *)arg == 4 ? ERROR : 0;
}

/* After the pieces that can be issued before any has arrived. */
static int refuse_at_ninth(void *arg)
{
	return ++*(unsigned *)arg >= 9 ? ERROR : 0;
}

static void a_copy_ends_when_it_may_not_go_on(void **state)
{
	size_t bytes = (size_t)12 << 20;
	unsigned char *host = map(bytes);
	unsigned asked = 0;
	struct bed b;

	(void)state;
	bed_init(&b, 3);
	b.c.may_go_on = refuse_at_fourth;
	b.c.arg = &asked;
	assert_int_equal(copy(&b, MEM_COPY_UP, 0, host, bytes, 8, true), ERROR);
	assert_true(b.f.n <= 3); /* a caller that waits for helpers asks as well */
	assert_int_equal(b.done, (size_t)b.f.n << 20);
	finish_all(&b.f);
	bed_finish(&b);
	munmap(host, bytes);
}

/* Earlier work of the stream does not end: the copy still ends when it may not go on. */
static void a_waiting_copy_asks_whether_it_may_go_on(void **state)
{
	size_t bytes = (size_t)12 << 20;
	unsigned char *host = map(bytes);
	unsigned asked = 0;
	struct bed b;

	(void)state;
	bed_init(&b, 2);
	b.f.paused = true;
	b.c.may_go_on = refuse_at_ninth;
	b.c.arg = &asked;
	assert_int_equal(copy(&b, MEM_COPY_DOWN, 0, host, bytes, 8, true), ERROR);
	assert_int_equal(b.done, 0);
	assert_int_equal(b.f.n, 8);
	b.f.paused = false;
	bed_finish(&b);
	munmap(host, bytes);
}

struct turns {
	struct fake *f;
	size_t bytes;
	unsigned asked, given;
};

/* Each piece must ask three times. Checks what is said of the copy against the device. */
static bool is_third_turn(void *arg, size_t left, size_t unfinished)
{
	struct turns *t = arg;
	size_t issued = (size_t)t->f->n << 20;

	assert_int_equal(left, t->bytes - issued);
	assert_int_equal(unfinished, (size_t)(t->f->n - t->f->carried_out) << 20);
	if (++t->asked % 3) {
		return false;
	}
	t->given++;
	return true;
}

/* No piece is issued out of turn, and the data is right, both ways. */
static void a_piece_waits_for_its_turn(void **state)
{
	size_t bytes = ((size_t)12 << 20) + 5000;
	unsigned char *host = map(bytes);

	(void)state;
	for (int way = MEM_COPY_UP; way <= MEM_COPY_DOWN; way++) {
		struct turns t = { .bytes = bytes };
		struct bed b;

		bed_init(&b, 3);
		t.f = &b.f;
		fill(host, bytes, 4);
		fill(b.f.memory, DEVICE_BYTES, 5);
		b.c.is_turn = is_third_turn;
		b.c.arg = &t;
		assert_int_equal(copy(&b, (enum mem_copy_way)way, 0, host, bytes, 4, true), 0);
		assert_int_equal(b.done, bytes);
		assert_int_equal(t.given, 13);
		assert_int_equal(t.asked, 3 * 13);
		finish_all(&b.f);
		assert_memory_equal(b.f.memory, host, bytes);
		bed_finish(&b);
	}
	munmap(host, bytes);
}

/* A page without access: what is done ends before its piece, and is right. */
static void a_page_without_access_ends_the_plan(void **state)
{
	size_t bytes = (size_t)12 << 20, page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *host = map(bytes), *copied = malloc(bytes);
	struct bed b;

	(void)state;
	assert_non_null(copied);
	bed_init(&b, 4);
	fill(b.f.memory, DEVICE_BYTES, 9);
	for (size_t at = 0; at < bytes; at += ((size_t)1 << 20) + (at % 3 * page)) {
		size_t piece = at & ~(((size_t)1 << 20) - 1);

		fill(host, bytes, 3);
		memcpy(copied, host, bytes);
		assert_int_equal(mprotect(host + at / page * page, page, PROT_NONE), 0);
		assert_int_equal(copy(&b, MEM_COPY_UP, 0, host, bytes, 3, true), 0);
		assert_true(b.done <= piece && b.done % (1 << 20) == 0);
		assert_memory_equal(b.f.memory, copied, b.done);
		fill(b.f.memory, DEVICE_BYTES, 9);
		assert_int_equal(mprotect(host + at / page * page, page, PROT_READ), 0);
		assert_int_equal(copy(&b, MEM_COPY_DOWN, 0, host, bytes, 3, true), 0);
		assert_true(b.done <= piece && b.done % (1 << 20) == 0);
		assert_memory_equal(host, b.f.memory, b.done);
		assert_int_equal(mprotect(host, bytes, PROT_READ | PROT_WRITE), 0);
		finish_all(&b.f);
	}
	check_copies(&b, bytes, 3, 5);
	bed_finish(&b);
	free(copied);
	munmap(host, bytes);
}

/* A file mapping of which the second half lies behind the file's end. */
static void memory_behind_the_end_of_a_file_ends_the_plan(void **state)
{
	size_t bytes = (size_t)8 << 20;
	int fd = memfd_create("short", MFD_CLOEXEC);
	unsigned char *host;
	struct bed b;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes / 2), 0);
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(host != MAP_FAILED);
	bed_init(&b, 3);
	for (unsigned way = 0; way < 2; way++) {
		assert_int_equal(copy(&b, way, 0, host, bytes, 3, true), 0);
		assert_true(b.done <= bytes / 2);
		assert_int_equal(copy(&b, way, 0, host, bytes / 2, 3, true), 0);
		assert_int_equal(b.done, bytes / 2);
	}
	bed_finish(&b);
	munmap(host, bytes);
	close(fd);
}

/* ---- several copies ---- */

struct copier {
	struct mem_copy_pool *pool;
	unsigned seed;
};

static void *run_copier(void *arg)
{
	struct copier *k = arg;
	struct bed b;

	memset(&b, 0, sizeof(b));
	fake_init(&b.f);
	mem_pieces_init(&b.pieces);
	b.pool = (struct mem_copy_pool){ 0 };
	for (unsigned i = 0; i < 6; i++) {
		size_t bytes = ((size_t)(2 + k->seed + i) << 20) + k->seed * 77;
		unsigned char *host = map(bytes);
		struct mem_copy *c = &b.c;

		fill(host, bytes, k->seed + i);
		*c = (struct mem_copy){ .ops = &ops,
					.dev = &b.f,
					.queue = &b.f,
					.way = i % 2 ? MEM_COPY_DOWN : MEM_COPY_UP,
					.host = host,
					.bytes = bytes,
					.piece_bytes = (size_t)1 << 20,
					.wait = true };
		start_over(&b.f, &b.pieces);
		c->n_pieces = mem_pieces_take(&b.pieces, &ops, &b.f, PLENTY, c->piece, 4);
		if (i % 2) {
			fill(b.f.memory, bytes, k->seed + i);
			memset(host, 0, bytes);
		}
		assert_int_equal(mem_copy_run(k->pool, c, &b.done), 0);
		mem_pieces_give(&b.pieces, c->piece, c->n_pieces);
		assert_memory_equal(host, b.f.memory, bytes);
		munmap(host, bytes);
	}
	mem_pieces_finish(&b.pieces, &ops, &b.f);
	free(b.f.memory);
	return NULL;
}

static void copies_share_the_helpers(void **state)
{
	struct mem_copy_pool pool;
	struct copier k[5];
	pthread_t t[5];

	(void)state;
	mem_copy_pool_init(&pool, 4);
	for (unsigned i = 0; i < 5; i++) {
		k[i] = (struct copier){ &pool, i };
		assert_int_equal(pthread_create(&t[i], NULL, run_copier, &k[i]), 0);
	}
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
	}
	assert_int_equal(pool.n_helpers, 3);
	mem_copy_pool_finish(&pool);
}

static void idle_helpers_end_and_come_back(void **state)
{
	struct bed b;

	(void)state;
	bed_init(&b, 4);
	b.pool.idle_ns = 1000000;
	for (unsigned i = 0; i < 3; i++) {
		check_copies(&b, (size_t)9 << 20, 4, i);
		eventually(load_acquire(&b.pool.n_helpers) == 0);
	}
	bed_finish(&b);
}

/* ---- pieces ---- */

static void pieces_are_limited_and_taken_when_finished(void **state)
{
	struct mem_piece *p[MEM_CONTEXT_PIECES_MAX], *q[MEM_CONTEXT_PIECES_MAX];
	struct mem_pieces pieces;
	struct fake f;

	(void)state;
	fake_init(&f);
	f.paused = true;
	mem_pieces_init(&pieces);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, p, 10), 10);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, p + 10, 10), 6);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, q, 1), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(issue(&f, &f, MEM_COPY_UP, p[i], 0, 1), 0);
	}
	p[15]->lost = true;
	mem_pieces_give(&pieces, p, 16);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, q, 16), 12);
	for (unsigned i = 0; i < 12; i++) {
		assert_ptr_equal(q[i], p[3 + i]);
	}
	finish_all(&f);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, q + 12, 16), 3);
	mem_pieces_give(&pieces, q, 15);
	mem_pieces_finish(&pieces, &ops, &f);
	assert_int_equal(f.made, 0);
	free(f.memory);
}

static void pieces_are_made_for_what_is_copied(void **state)
{
	struct mem_piece *p[8];
	struct mem_pieces pieces;
	struct fake f;

	(void)state;
	fake_init(&f);
	mem_pieces_init(&pieces);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, MEM_PIECE_CREDIT - 1, p, 8), 0);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, 1, p, 8), 1);
	mem_pieces_give(&pieces, p, 1);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, 0, p, 8), 1);
	mem_pieces_give(&pieces, p, 1);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, 2 * MEM_PIECE_CREDIT, p, 8), 3);
	mem_pieces_give(&pieces, p, 3);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, UINT64_MAX, p, 8), 8);
	mem_pieces_give(&pieces, p, 8);
	assert_int_equal(f.made, 8);
	mem_pieces_finish(&pieces, &ops, &f);
	free(f.memory);
}

static void pieces_that_cannot_be_made_are_tried_again(void **state)
{
	struct mem_piece *p[MEM_CONTEXT_PIECES_MAX];
	struct mem_pieces pieces;
	struct fake f;

	(void)state;
	fake_init(&f);
	f.fail_create = 3;
	mem_pieces_init(&pieces);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, p, 8), 2);
	mem_pieces_give(&pieces, p, 2);
	assert_int_equal(mem_pieces_take(&pieces, &ops, &f, PLENTY, p, 16), 16);
	assert_int_equal(f.made, 16);
	mem_pieces_give(&pieces, p, 16);
	mem_pieces_finish(&pieces, &ops, &f);
	free(f.memory);
}

int main(void)
{
	/* The slow ones last: most of the faults that planted_copy_faults plants end in the others.
	 */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_up_returns_before_it_arrives_unless_it_waits),
		cmocka_unit_test(errors_end_a_copy_at_every_position),
		cmocka_unit_test(a_copy_ends_when_it_may_not_go_on),
		cmocka_unit_test(a_waiting_copy_asks_whether_it_may_go_on),
		cmocka_unit_test(a_piece_waits_for_its_turn),
		cmocka_unit_test(memory_behind_the_end_of_a_file_ends_the_plan),
		cmocka_unit_test(copies_share_the_helpers),
		cmocka_unit_test(idle_helpers_end_and_come_back),
		cmocka_unit_test(pieces_are_limited_and_taken_when_finished),
		cmocka_unit_test(pieces_are_made_for_what_is_copied),
		cmocka_unit_test(pieces_that_cannot_be_made_are_tried_again),
		cmocka_unit_test(a_page_without_access_ends_the_plan),
		cmocka_unit_test(copies_of_all_shapes),
	};

	return cmocka_run_group_tests_name("mem-copy", tests, NULL, NULL);
}
