/* Runs .ptxt files through the probe pass, prepared as `gbpf run --probes` loads them: the probed
 * form of a kernel, and the preemptible clone of that, must leave memory as the kernel does, and
 * the programs must have been called for each block, warp and lane. Usage: run_probe [-v] FILE...
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "clone.h"
#include "probe_form.h"
#include "ptx/prepare.h"
#include "ptxt.h"

struct totals {
	unsigned cases, forms, clones, prepared;
	bool verbose;
};

struct setting {
	struct engine e;
	uint8_t params[CLONE_PARAMS_MAX];
	void *data[PTXT_BUFFERS];
	size_t used; /* bytes of the window used by buffers and the module's variables */
};

static int set(struct setting *s, const struct ptxt_case *c, char *message, size_t room)
{
	size_t at = 0;
	int err;

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
	err = engine_load(&s->e, c->ptx.data, c->ptx.len, "case", message, room);
	s->used = s->e.used;
	return err;
}

static int compare(const struct ptxt_case *c, const struct setting *plain, const struct setting *s,
		   bool prepared)
{
	int bad = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		bad += s->data[i] ? ptxt_compare(c, &c->buffers[i], i, s->data[i]) : 0;
	}
	/* Numbers of functions, which prepared modules list, differ between two engines. */
	if (!prepared && memcmp(plain->e.host, s->e.host, plain->used) != 0) {
		fprintf(stderr, "%s: the memory is not what the kernel leaves\n", c->name);
		bad++;
	}
	if (plain->e.n_printed != s->e.n_printed ||
	    memcmp(plain->e.printed, s->e.printed, s->e.n_printed) != 0) {
		fprintf(stderr, "%s: printed \"%.*s\"\n", c->name, (int)s->e.n_printed,
			s->e.printed);
		bad++;
	}
	return bad;
}

struct run {
	const struct ptxt_case *c;
	struct probe_form *f;
	struct engine_launch launch; /* of the kernel */
	const struct setting *plain;
	enum exec_status want;
	bool prepared;
};

/* A call of what is no function faults in the kernel, and traps in a prepared form. */
static bool is_wanted(const struct run *r, enum exec_status got)
{
	return got == r->want ||
	       (r->prepared && r->want == EXEC_FAULT_ADDRESS && got == EXEC_FAULT_TRAP);
}

/* Runs the form, or its clone. */
static int play(const struct run *r, const struct clone *clone)
{
	struct engine_launch l = r->launch;
	static struct setting s;
	char message[512] = "";
	enum exec_status got = EXEC_NO_MEMORY;
	int bad = 0, err = set(&s, r->c, message, sizeof(message));

	err = err ? err
		  : probe_form_bind(r->f, &s.e, clone ? &clone->text : &r->f->probed.text, message,
				    sizeof(message));
	probe_form_number(r->f, s.params);
	l.params = s.params;
	l.kernel = r->f->entry;
	l.shared = r->f->probed.needs_shared ? ptx_probe_smem(l.shared, 0, 0) : l.shared;
	if (err == 0) {
		got = clone ? clone_run(&s.e, clone_entry(clone, l.kernel), &l, CLONE_SPLIT, 1)
			    : engine_run(&s.e, &l);
	}
	if (err || !is_wanted(r, got)) {
		fprintf(stderr, "%s: the %s ended with %d, not %d: %s\n%s\n", r->c->name,
			clone ? "clone" : "form", (int)got, (int)r->want,
			err ? message : s.e.fault.what, buf_text(&r->f->probed.text));
		bad = 1;
	} else if (got == EXEC_DONE) {
		bad = compare(r->c, r->plain, &s, r->prepared);
		bad += probe_form_check(r->f, r->c->grid, r->c->block, r->c->name);
	}
	probe_form_unbind(r->f, &s.e);
	engine_finish(&s.e);
	return bad;
}

static int play_clone(const struct run *r, struct totals *t)
{
	const struct ptx_block_entry *entry;
	char message[512] = "";
	struct clone clone;
	int bad = 0;

	if (clone_make(&clone, r->f->probed.text.data, r->f->probed.text.len, message,
		       sizeof(message)) < 0) {
		fprintf(stderr, "%s: %s\n", r->c->name, message);
		bad = 1;
	}
	entry = clone_entry(&clone, r->f->entry);
	if (entry && entry->why == PROTO_BLOCK_OK) {
		t->clones++;
		bad += play(r, &clone);
	} else if (t->verbose && entry) {
		printf("%s: no clone: line %u: %s\n", r->c->name, entry->line,
		       proto_block_why_text(entry->why));
	}
	clone_finish(&clone);
	return bad;
}

static int play_hooks(struct run *r, struct totals *t, const uint32_t *hooks, uint32_t n)
{
	static struct probe_form f;
	char message[512] = "";
	int bad = 0, err;

	err = probe_form_make(&f, r->c->ptx.data, r->c->ptx.len, hooks, n, message,
			      sizeof(message));
	r->f = &f;
	if (err == 0) {
		t->forms++;
		bad = play(r, NULL);
		bad += bad ? 0 : play_clone(r, t);
	} else if (err != -ENOTSUP) {
		fprintf(stderr, "%s: %s\n", r->c->name, message);
		bad = 1;
	} else if (t->verbose) {
		printf("%s: %s\n", r->c->name, message);
	}
	probe_form_finish(&f);
	return bad;
}

/* Cases whose outcome depends on the size of the kernel's own frame. */
static bool depends_on_frame(const struct ptxt_case *c)
{
	static const char *const names[] = {
		"a hundred calls inside each other", /* the engine's stack has room for fewer */
		"local memory ends",		     /* the form has more of it */
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strstr(c->name, names[i])) {
			return true;
		}
	}
	return false;
}

/* Prints the case's text prepared for probes, if there is something to prepare. */
static int prepare(const struct ptxt_case *c, struct buf *text)
{
	struct ptx_module *m = NULL;
	int err = ptx_module_parse(&m, c->ptx.data, c->ptx.len, "case", NULL);

	err = err ? 0 : ptx_prepare(m, 1);
	if (err > 0) {
		err = ptx_module_print(m, text);
	}
	ptx_module_free(m);
	return err;
}

static int run_text(const struct ptxt_case *c, bool prepared, void *arg);

static int run_case(const struct ptxt_case *c, void *arg)
{
	struct ptxt_case prepared = *c;
	struct totals *t = arg;
	int bad;

	buf_init(&prepared.ptx);
	bad = prepare(c, &prepared.ptx) < 0;
	t->prepared += prepared.ptx.len > 0;
	bad += run_text(prepared.ptx.len ? &prepared : c, prepared.ptx.len > 0, arg);
	buf_finish(&prepared.ptx);
	return bad;
}

static int run_text(const struct ptxt_case *c, bool prepared, void *arg)
{
	static const uint32_t edges[] = { 34, 32, 33, 35, 132, 133 }, entry[] = { 34 },
			      inside[] = { 32, 38, 138, 36, 37, 39, 40, 41, 141, 42 };
	static struct setting plain;
	struct run r = { .c = c, .plain = &plain, .prepared = prepared };
	struct totals *t = arg;
	char message[512] = "";
	int bad = 0;

	/* A form may have more bytes after its shared memory. */
	if (*c->refused || (*c->fault && c->shared) || depends_on_frame(c)) {
		return 0;
	}
	t->cases++;
	r.launch = (struct engine_launch){ .shared = c->shared,
					   .budget = c->budget,
					   .limit = 100000000 };
	memcpy(r.launch.grid, c->grid, sizeof(c->grid));
	memcpy(r.launch.block, c->block, sizeof(c->block));
	if (set(&plain, c, message, sizeof(message)) == 0) {
		r.launch.params = plain.params;
		r.want = engine_run(&plain.e, &r.launch);
		bad += play_hooks(&r, t, entry, ARRAY_SIZE(entry));
		bad += play_hooks(&r, t, edges, ARRAY_SIZE(edges));
		bad += play_hooks(&r, t, inside, ARRAY_SIZE(inside));
	} else {
		fprintf(stderr, "%s: %s\n", c->name, message);
		bad = 1;
	}
	engine_finish(&plain.e);
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
	printf("%u cases (%u prepared), %u probed forms, %u clones of forms, %d failures\n",
	       t.cases, t.prepared, t.forms, t.clones, failures);
	return failures || !t.forms ? EXIT_FAILURE : EXIT_SUCCESS;
}
