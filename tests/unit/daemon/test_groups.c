/* Processes of one user and one group that communicate are sent each other's boards. */
#include "parts.h"

static struct proto_directory directory;

static struct parts *begin(void)
{
	struct parts *p = parts_new();

	directory = (struct proto_directory){ .magic = 1 };
	for (unsigned i = 0; i < PROTO_MAX_GPUS; i++) {
		directory.version[i] = 5;
	}
	p->d->directory.map = &directory;
	return p;
}

static struct part *add(struct parts *p, uid_t uid, const char *group)
{
	struct part *a = parts_add(p, uid, GBPF_CLASS_BATCH);

	snprintf(a->s.group.name, sizeof(a->s.group.name), "%s", group);
	a->s.gpus = 3;
	for (uint32_t i = 0; i < 3; i++) {
		a->s.gpu_index[i] = i;
	}
	return a;
}

/* Adds a rank on a GPU, with so many collectives. */
static struct part *add_rank(struct parts *p, const char *group, uint32_t gpu, uint64_t collectives)
{
	struct part *a = add(p, 1000, group);

	a->board.ranks = 1u << gpu;
	a->board.gpu[gpu].collectives = collectives;
	a->stats.gpu[gpu].launches = 1;
	daemon_group_join(&a->s);
	return a;
}

/* The rank has launched one more. */
static void move(struct part *a, uint32_t gpu)
{
	a->board.gpu[gpu].collectives++;
	a->stats.gpu[gpu].launches++;
}

static void those_of_a_group_get_each_others_boards(void **state)
{
	struct parts *p = begin();
	struct part *a = add(p, 1000, "job"), *b = add(p, 1000, "job");
	struct part *silent = add(p, 1000, "job"), *other = add(p, 1000, "job2");
	struct part *foreign = add(p, 1001, "job"), *none = add(p, 1000, "");

	daemon_group_join(&a->s);
	daemon_group_join(&foreign->s);
	daemon_group_join(&none->s);
	daemon_group_join(&other->s);
	parts_expect_board(a, 0, -1, 0);
	daemon_group_join(&b->s);
	assert_int_equal(a->s.group.number, b->s.group.number);
	assert_int_not_equal(a->s.group.number, other->s.group.number);
	parts_expect_board(a, PROTO_PEER_ADD, 1, b->s.tenant);
	parts_expect_board(b, PROTO_PEER_ADD, 0, a->s.tenant);
	daemon_group_join(&b->s); /* said twice */
	daemon_group_leave(&a->s);
	parts_expect_board(b, PROTO_PEER_REMOVE, 0, a->s.tenant);
	a->s.group.communicates = false;
	daemon_group_leave(&a->s);
	parts_expect_board(a, 0, -1, 0);
	parts_expect_board(b, 0, -1, 0);
	parts_expect_board(silent, 0, -1, 0);
	parts_expect_board(other, 0, -1, 0);
	parts_expect_board(foreign, 0, -1, 0);
	parts_expect_board(none, 0, -1, 0);
	daemon_group_join(&silent->s); /* gets the slot that is free */
	parts_expect_board(b, PROTO_PEER_ADD, 0, silent->s.tenant);
	parts_expect_board(silent, PROTO_PEER_ADD, 1, b->s.tenant);
	parts_free(p);
}

static void a_group_has_64_ranks_at_most(void **state)
{
	struct parts *p = begin();
	struct part *first = NULL, *last = NULL;

	for (unsigned i = 0; i < 65; i++) {
		last = add(p, 1000, "job");
		first = first ? first : last;
		daemon_group_join(&last->s);
		assert_int_equal(last->s.group.slot, i < 64 ? (int)i : -1);
	}
	parts_expect_board(last, 0, -1, 0);
	first->s.dying = true; /* it has exited */
	daemon_group_leave(&first->s);
	assert_int_equal(last->s.group.slot, 0);
	parts_expect_board(last, PROTO_PEER_ADD, 1, 1);
	parts_free(p);
}

static void a_gpu_is_led_if_all_its_groups_are_on_another_one(void **state)
{
	struct parts *p = begin();
	struct part *a0 = add_rank(p, "a", 0, 1000), *a1 = add_rank(p, "a", 1, 1064), *b0, *b1,
		    *single;

	assert_int_equal(directory.led, 2);
	b1 = add_rank(p, "b", 1, 7);
	assert_int_equal(directory.led, 0); /* not all */
	b0 = add_rank(p, "b", 0, 7);
	assert_int_equal(directory.led, 2);
	a1->board.gpu[1].collectives++; /* no more in step */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	a1->board.gpu[1].collectives = 936;
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 2);
	single = add(p, 1000, "");
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 2);
	single->stats.gpu[1].copies = 1; /* other work: that GPU's policy counts for all of them */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 1);
	single->stats.gpu[0].launches = 1;
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	parts_now += 1000 * MS; /* a second without any */
	move(a0, 0);
	move(a1, 1);
	move(b0, 0);
	move(b1, 1);
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 2);
	single->stats.gpu[1].inflight = 1; /* a long kernel */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 1);
	single->s.dying = true;
	a1->s.class_id = GBPF_CLASS_LATENCY; /* its requests are on that GPU */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	a1->s.class_id = GBPF_CLASS_BATCH;
	directory.version[1] = 6; /* a policy of its own */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	directory.version[0] = directory.version[1] = 0; /* none: nothing is held there */
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	directory.version[0] = directory.version[1] = 5;
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 2);
	parts_now += 1000 * MS; /* a1 works on without collectives: not in step */
	a1->stats.gpu[1].launches++;
	move(b0, 0);
	move(b1, 1);
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 1);
	parts_now += 999 * MS;
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 1);
	parts_now += 1 * MS;
	move(b0, 0);
	move(b1, 1);
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 2);
	b1->s.dying = true;
	daemon_groups_lead(p->d);
	assert_int_equal(directory.led, 0);
	parts_free(p);
}

static void groups_have_their_gpus_without_other_work(void **state)
{
	struct parts *p = begin();
	struct part *a0 = add_rank(p, "a", 0, 5), *a1, *b1, *b0, *single;

	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 0); /* one GPU */
	a1 = add_rank(p, "a", 1, 500);
	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 3);
	assert_int_equal(a1->s.group.sole_gpus, 3);
	b1 = add_rank(p, "b", 1, 5);
	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 0); /* b has other GPUs */
	assert_int_equal(b1->s.group.sole_gpus, 0);
	b0 = add_rank(p, "b", 0, 5);
	(void)add_rank(p, "c", 2, 5);
	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 3);
	assert_int_equal(b0->s.group.sole_gpus, 3);
	single = add(p, 1000, "");
	single->stats.gpu[2].launches = 1;
	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 3);
	single->stats.gpu[1].launches = 1;
	daemon_groups_lead(p->d);
	assert_int_equal(a0->s.group.sole_gpus, 0);
	assert_int_equal(single->s.group.sole_gpus, 0);
	parts_now += 1000 * MS; /* a second without other work, and b has launched no collectives */
	move(a0, 0);
	move(a1, 1);
	daemon_groups_lead(p->d);
	assert_int_equal(a1->s.group.sole_gpus, 3);
	assert_int_equal(b0->s.group.sole_gpus, 0);
	b0->stats.gpu[0].launches++;
	daemon_groups_lead(p->d);
	assert_int_equal(a1->s.group.sole_gpus, 0);
	parts_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(those_of_a_group_get_each_others_boards),
		cmocka_unit_test(a_group_has_64_ranks_at_most),
		cmocka_unit_test(a_gpu_is_led_if_all_its_groups_are_on_another_one),
		cmocka_unit_test(groups_have_their_gpus_without_other_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
