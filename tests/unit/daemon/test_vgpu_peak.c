/* What the event of a process's end says of the memory that it held: also if it was killed, or has
 * written over its account. */
#include "vgpu_rig.h"

#include <sys/wait.h>

#include "../eventually.h"
#include "mem/account_figures.h"

#define MIB(n) ((uint64_t)(n) << 20)

static void hold_and_release(struct member *p)
{
	struct mem_ledger l;

	assert_int_equal(mem_ledger_init(&l, p->account, p->line), 0);
	assert_int_equal(mem_ledger_charge(&l, 0, MIB(48)), 0);
	mem_account_note_peak(p->account, 0, p->line, NULL);
	mem_ledger_release(&l, 0, MIB(40));
	assert_int_equal(mem_ledger_charge(&l, 0, MIB(8)), 0);
	mem_account_note_peak(p->account, 0, p->line, NULL);
	assert_int_equal(mem_ledger_charge(&l, 0, MIB(45)), 0); /* the driver refuses it */
	mem_ledger_release(&l, 0, MIB(45));
	store_relaxed(&p->f.stats->busy_ns, UINT64_C(1500000000));
}

/* As a process that is killed between a charge and the note of it. */
static void hold_without_a_note(struct member *p)
{
	set_used(p, p->line, MIB(20));
}

static void write_a_peak(struct member *p)
{
	store_relaxed(&p->account->orphans[0][p->line].peak, UINT64_MAX);
}

static void write_garbage(struct member *p)
{
	memset(p->account->line, 0xa5, sizeof(p->account->line));
	memset(p->account->orphans, 0x5a, sizeof(p->account->orphans));
}

static json_int_t number_in(struct gd *d, uint64_t seq, const char *member)
{
	char params[64];
	json_int_t n;
	json_t *j;

	snprintf(params, sizeof(params), "{\"since\":%llu}", (unsigned long long)(seq - 1));
	j = gd_call(d, "events", params);
	n = json_integer_value(
		json_object_get(json_array_get(json_object_get(j, "events"), 0), member));
	json_decref(j);
	return n;
}

/* Kills a process that has done that to its account. Returns the number of the event, whose text
 * must contain `text`. */
static uint64_t end_of(struct gd *d, const char *vgpu, void (*act)(struct member *),
		       const char *text)
{
	pid_t pid = start_acting(d, vgpu, act);
	uint64_t since = gd_last_event(d), seq;

	kill(pid, SIGKILL);
	seq = gd_await_event(d, since, "kill", text);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return seq;
}

static json_int_t peak_of(struct gd *d, const char *vgpu, void (*act)(struct member *),
			  const char *text)
{
	return number_in(d, end_of(d, vgpu, act, text), "mem_peak");
}

static void the_end_of_a_process_states_the_most_that_it_held(void **state)
{
	struct gd *d = *state;
	struct member watcher;

	json_decref(gd_call(d, "vgpu.create", "{\"name\":\"train\",\"mem\":67108864}"));
	join_named(&watcher, d, "train"); /* the account lives on */
	assert_int_equal(peak_of(d, "train", NULL, "0.000 s of GPU time"), 0);
	assert_int_equal(peak_of(d, "train", hold_and_release,
				 "1.500 s of GPU time, at most 48.0 MiB of GPU memory"),
			 MIB(48));
	assert_int_equal(peak_of(d, "train", hold_without_a_note, "at most 20.0 MiB"), MIB(20));
	assert_int_equal(peak_of(d, "train", NULL, "0.000 s of GPU time"), 0); /* a free line */
	part(&watcher);
}

static void what_was_used_survives_gbpfd(void **state)
{
	struct gd *d = *state;
	uint64_t seq;

	json_decref(gd_call(d, "vgpu.create", "{\"name\":\"train\"}"));
	seq = end_of(d, "train", hold_and_release, "at most 48.0 MiB");
	restart_after_kill(d);
	d->g = gd_open(d);
	assert_int_equal(number_in(d, seq, "mem_peak"), MIB(48));
	assert_int_equal(number_in(d, seq, "gpu_ns"), 1500000000);
}

/* What a process says that it held counts up to the limit, or else the device's size. */
static void garbage_is_bounded_in_what_a_process_held(void **state)
{
	struct gd *d = *state;

	json_decref(gd_call(d, "vgpu.create", "{\"name\":\"train\",\"mem\":67108864}"));
	json_decref(gd_call(d, "vgpu.create", "{\"name\":\"free\"}"));
	assert_int_equal(peak_of(d, "train", write_a_peak, "at most 64.0 MiB"), MIB(64));
	assert_int_equal(peak_of(d, "train", write_garbage, "at most 64.0 MiB"), MIB(64));
	assert_int_equal(peak_of(d, "free", write_a_peak, "at most 1024.0 MiB"), DEVICE);
	json_decref(gd_call(d, "vgpu.set", "{\"name\":\"train\",\"mem\":33554432}"));
	assert_int_equal(peak_of(d, "train", write_a_peak, "at most 32.0 MiB"), MIB(32));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, gd_setup, gd_teardown)
		TEST(the_end_of_a_process_states_the_most_that_it_held),
		TEST(what_was_used_survives_gbpfd),
		TEST(garbage_is_bounded_in_what_a_process_held),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
