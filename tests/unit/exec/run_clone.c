/* Runs .ptxt files through the pass for block-level preemption: the preemptible clone of a kernel
 * must leave memory as the kernel does, however its launches are divided. Usage: run_clone [-v]
 * FILE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "ptxt.h"
#include "clone.h"

#define SEEDS 3u

struct totals {
	unsigned cases, clones, whys[PROTO_BLOCK_WHYS];
	bool verbose;
};

struct setting {
	struct engine e;
	uint8_t params[CLONE_PARAMS_MAX];
	void *data[PTXT_BUFFERS];
	size_t used;	    /* bytes of the window used by buffers and the module's variables */
	uint64_t variables; /* hash of the variables' initial content */
};

static void set(struct setting *s, const struct ptxt_case *c, const char *ptx, size_t len,
		char *message, size_t room, int *err)
{
	size_t at = 0;

	memset(s, 0, sizeof(*s));
	engine_init(&s->e);
	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];
		unsigned bytes = ptxt_bytes(b->kind), size = b->is_param ? bytes : 8;
		uint64_t address = 0;

		if (!b->is_param) {
			s->data[i] = engine_take(&s->e, (size_t)b->n * bytes, &address);
		}
		for (uint32_t k = 0; !b->is_param && k < b->n; k++) {
			memcpy((uint8_t *)s->data[i] + (size_t)k * bytes, &b->in[k].bits, bytes);
		}
		at = (at + size - 1) / size * size;
		memcpy(s->params + at, b->is_param ? &b->in[0].bits : &address, size);
		at += size;
	}
	*err = engine_load(&s->e, ptx, len, "case", message, room);
	s->used = s->e.used;
	s->variables = hash_bytes(s->e.host, s->used);
}

static void end(struct setting *s)
{
	engine_finish(&s->e);
}

static int compare(const struct ptxt_case *c, const struct setting *plain, const struct setting *s,
		   unsigned mode, uint64_t seed)
{
	int bad = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		bad += s->data[i] ? ptxt_compare(c, &c->buffers[i], i, s->data[i]) : 0;
	}
	/* Variables that hold code addresses differ from the start. */
	if (plain->variables == s->variables &&
	    memcmp(plain->e.host, s->e.host, plain->used) != 0) {
		fprintf(stderr, "%s: the memory is not what the kernel leaves\n", c->name);
		bad++;
	}
	if (plain->e.n_printed != s->e.n_printed ||
	    memcmp(plain->e.printed, s->e.printed, s->e.n_printed) != 0) {
		fprintf(stderr, "%s: printed \"%.*s\"\n", c->name, (int)s->e.n_printed,
			s->e.printed);
		bad++;
	}
	if (bad) {
		fprintf(stderr, "%s: the clone, mode %u, seed %llu\n", c->name, mode,
			(unsigned long long)seed);
	}
	return bad;
}

static int play(const struct ptxt_case *c, const struct clone *t, const struct setting *plain,
		enum exec_status want, const struct engine_launch *like)
{
	static struct setting s;
	int bad = 0;

	for (unsigned mode = 0; mode < CLONE_MIX && !bad; mode++) {
		for (uint64_t seed = 0; seed < (mode ? SEEDS : 1) && !bad; seed++) {
			struct engine_launch l = *like;
			char message[512] = "";
			enum exec_status got;
			int err;

			set(&s, c, t->text.data, t->text.len, message, sizeof(message), &err);
			l.params = s.params;
			got = err ? EXEC_FAULT_INSN
				  : clone_run(&s.e, &t->entries[0], &l, mode,
					      hash_bytes(c->name, strlen(c->name)) + seed);
			if (err || got != want) {
				fprintf(stderr, "%s: the clone ended with %d, not %d: %s\n",
					c->name, (int)got, (int)want,
					err ? message : s.e.fault.what);
				bad++;
			} else if (got == EXEC_DONE) {
				bad += compare(c, plain, &s, mode, seed);
			}
			end(&s);
		}
	}
	return bad;
}

static int run_case(const struct ptxt_case *c, void *arg)
{
	struct engine_launch l = { .shared = c->shared, .budget = c->budget, .limit = 100000000 };
	static struct setting plain;
	struct totals *t = arg;
	char message[512] = "";
	enum exec_status s;
	struct clone clone;
	int err, bad = 0;

	/* The clone has 16 more bytes after its shared memory. */
	if (*c->refused || (*c->fault && c->shared)) {
		return 0;
	}
	t->cases++;
	if (clone_make(&clone, c->ptx.data, c->ptx.len, message, sizeof(message)) < 0) {
		fprintf(stderr, "%s: %s\n", c->name, message);
		clone_finish(&clone);
		return 1;
	}
	t->whys[clone.n_entries ? clone.entries[0].why : PROTO_BLOCK_UNKNOWN]++;
	if (clone.n_entries && clone.entries[0].why == PROTO_BLOCK_OK) {
		t->clones++;
		memcpy(l.grid, c->grid, sizeof(l.grid));
		memcpy(l.block, c->block, sizeof(l.block));
		set(&plain, c, c->ptx.data, c->ptx.len, message, sizeof(message), &err);
		l.params = plain.params;
		s = err ? EXEC_NO_MEMORY : engine_run(&plain.e, &l);
		bad = play(c, &clone, &plain, s, &l);
		end(&plain);
	} else if (t->verbose && clone.n_entries) {
		printf("%s: line %u: %s\n", c->name, clone.entries[0].line,
		       proto_block_why_text(clone.entries[0].why));
	}
	clone_finish(&clone);
	return bad != 0;
}

int main(int argc, char **argv)
{
	struct totals t = { 0 };
	int failures = 0;

	for (int i = 1; i < argc; i++) {
		int n;

		if (strcmp(argv[i], "-v") == 0) {
			t.verbose = true;
			continue;
		}
		n = ptxt_file(argv[i], run_case, &t);
		failures += n < 0 ? 1 : n;
	}
	printf("%u cases, %u with a clone, %d failures\n", t.cases, t.clones, failures);
	for (unsigned i = 0; i < PROTO_BLOCK_WHYS; i++) {
		if (t.whys[i] && i != PROTO_BLOCK_OK) {
			printf("%u: %s\n", t.whys[i],
			       proto_block_why_text((enum proto_block_why)i));
		}
	}
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
