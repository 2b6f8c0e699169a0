/* The server checks every byte of a copy or memset that a client asks for, not only where it
 * begins: with records written past the client library, which makes the same checks. */
#include "raw.h"

#define PAGE 4096u
#define PAGES 5u
#define BYTES (PAGES * PAGE)

enum role { COPY_TO, COPY_FROM, SET, ROLES };

struct shape {
	uint64_t offset; /* from the allocation's begin; may be "negative" */
	uint64_t width, height, pitch;
	bool valid;
};

static const struct shape shapes[] = {
	{ 0, BYTES, 1, 0, true },
	{ 0, BYTES + 1, 1, 0, false }, /* one byte more */
	{ 0, BYTES + PAGE, 1, 0, false },
	{ 0, 2 * BYTES, 1, 0, false },
	{ 1, BYTES - 1, 1, 0, true },
	{ 1, BYTES, 1, 0, false },
	{ BYTES - 1, 1, 1, 0, true },
	{ BYTES - 1, 2, 1, 0, false }, /* begins in the last page */
	{ BYTES, 1, 1, 0, false },
	{ (uint64_t)-1, 1, 1, 0, false },
	{ (uint64_t)-1, BYTES, 1, 0, false }, /* only the first byte is outside */
	{ 0, PAGE, PAGES, PAGE, true },
	{ 0, PAGE, PAGES + 1, PAGE, false }, /* only the last row is outside */
	{ 0, 16, 5, PAGE, true },
	{ 0, 16, 6, PAGE, false },
	{ PAGE, 16, 5, PAGE, false },
	{ BYTES - 16, 16, 1, 0, true },
	{ BYTES - 16, 16, 2, 16, false },
	{ 0, 1, 2, BYTES, false },
	{ 0, 1, 2, BYTES - 1, true },
};

static void put_one(struct raw *c, enum role role, uint64_t other, uint64_t at,
		    const struct shape *s)
{
	struct soft_record_copy copy = { .r = { .op = SOFT_OP_COPY, .stream = 1 },
					 .dst = role == COPY_TO ? at : other,
					 .src = role == COPY_TO ? other : at,
					 .dst_pitch = s->pitch,
					 .src_pitch = s->pitch,
					 .width = s->width,
					 .height = s->height };
	struct soft_record_set set = { .r = { .op = SOFT_OP_SET, .stream = 1 },
				       .dst = at,
				       .pitch = s->pitch,
				       .width = s->width,
				       .height = s->height,
				       .value = 7,
				       .unit = 1 };

	if (role == SET) {
		raw_put(c, &set, sizeof(set));
	} else {
		raw_put(c, &copy, sizeof(copy));
	}
}

static uint64_t alloc(struct raw *c, uint64_t bytes)
{
	return raw_must(c, (struct soft_request){ .op = SOFT_REQ_ALLOC, .value = bytes });
}

/* Runs one operation; returns whether the server accepted it. */
static bool is_accepted(struct raw *c, enum role role, uint64_t other, uint64_t at,
			const struct shape *s)
{
	raw_make_stream(c, 0, 1);
	raw_await_word(&c->shared->streams[1].done, 1);
	put_one(c, role, other, at, s);
	eventually(load_acquire(&c->shared->context_error[0]) ||
		   load_acquire(&c->shared->streams[1].done) >= 2);
	return !load_acquire(&c->shared->context_error[0]);
}

static void each_byte_of_an_operation_is_checked(void **state)
{
	struct raw c;

	(void)state;
	for (unsigned role = 0; role < ROLES; role++) {
		for (unsigned i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
			uint64_t other, at;

			raw_open(&c, 1);
			other = alloc(&c, 4 * BYTES);
			at = alloc(&c, BYTES);
			(void)alloc(&c, BYTES); /* behind it, after an invalid page */
			if (is_accepted(&c, role, other, at + shapes[i].offset, &shapes[i]) !=
			    shapes[i].valid) {
				fail_msg("role %u shape %u: should %sbe accepted", role, i,
					 shapes[i].valid ? "" : "not ");
			}
			raw_close(&c);
		}
	}
}

/* A reservation of two granules: the first is mapped, the second mapped, not mapped, or mapped
 * without the right. */
static void each_mapping_under_an_operation_is_checked(void **state)
{
	enum { NOT_MAPPED, READABLE, WRITABLE, CASES };
	const struct shape s = { 0, 2 * SOFT_GRANULARITY, 1, 0, true };
	struct raw c;

	(void)state;
	for (unsigned role = 0; role < ROLES; role++) {
		for (unsigned second = 0; second < CASES; second++) {
			uint64_t other, at, handle;
			bool want = second == WRITABLE || (second == READABLE && role == COPY_FROM);

			raw_open(&c, 1);
			other = alloc(&c, 2 * SOFT_GRANULARITY);
			at = raw_must(&c, (struct soft_request){ .op = SOFT_REQ_RESERVE,
								 .value = 2 * SOFT_GRANULARITY });
			for (unsigned i = 0; i < 2; i++) {
				struct soft_request map = { .op = SOFT_REQ_MAP,
							    .value = at + i * SOFT_GRANULARITY,
							    .more = { SOFT_GRANULARITY } };
				struct soft_request access = { .op = SOFT_REQ_ACCESS,
							       .value = map.value,
							       .more = { SOFT_GRANULARITY },
							       .object = 3 };

				if (i == 1 && second == NOT_MAPPED) {
					continue;
				}
				handle = raw_must(
					&c, (struct soft_request){ .op = SOFT_REQ_HANDLE_CREATE,
								   .value = SOFT_GRANULARITY });
				map.more[2] = handle;
				raw_must(&c, map);
				access.object = i == 1 && second == READABLE ? 1 : 3;
				raw_must(&c, access);
			}
			if (is_accepted(&c, role, other, at, &s) != want) {
				fail_msg("role %u, second granule %u: should %sbe accepted", role,
					 second, want ? "" : "not ");
			}
			raw_close(&c);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_byte_of_an_operation_is_checked),
		cmocka_unit_test(each_mapping_under_an_operation_is_checked),
	};

	return cmocka_run_group_tests(tests, rig_begin_small, rig_end);
}
