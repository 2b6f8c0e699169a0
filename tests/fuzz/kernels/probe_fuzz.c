/* Runs random kernels with programs at all sites and compares the results with the plain reference;
 * the programs' logs must agree with blocks, warps and lanes. The same for clones of the forms. */
#include <string.h>

#include "../../unit/exec/clone.h"
#include "../../unit/exec/probe_form.h"
#include "base/compiler.h"
#include "fuzz_main.h"

static const uint32_t hooks[] = { 34, 32, 33, 35, 38, 138, 40, 39, 41, 141, 36, 37, 42, 132 };

static enum exec_status play(struct engine *e, const struct probe_form *f, const struct clone *t,
			     const struct kernel *k, const uint8_t *in, uint8_t *out, uint8_t *sums)
{
	struct engine_launch l = { .kernel = f->entry,
				   .grid = { BLOCKS, 1, 1 },
				   .block = { kernel_threads(k), 1, 1 },
				   .shared = ptx_probe_smem(0, 0, 0),
				   .limit = 4000000000 };
	uint64_t addresses[4]; /* and the launch's number */
	enum exec_status s;
	void *p[3];

	p[0] = engine_take(e, LANES_MAX * IN_BYTES, &addresses[0]);
	p[1] = engine_take(e, LANES_MAX * OUT_BYTES, &addresses[1]);
	p[2] = engine_take(e, SUMS_BYTES, &addresses[2]);
	memcpy(p[0], in, LANES_MAX * IN_BYTES);
	memset(p[1], 0, LANES_MAX * OUT_BYTES);
	memset(p[2], 0, SUMS_BYTES);
	probe_form_number(f, addresses);
	l.params = addresses;
	s = t ? clone_run(e, &t->entries[0], &l, CLONE_SPLIT, kernel_seed(k)) : engine_run(e, &l);
	memcpy(out, p[1], LANES_MAX * OUT_BYTES);
	memcpy(sums, p[2], SUMS_BYTES);
	return s;
}

static bool run(void *arg, const struct kernel *k, const char *ptx, size_t bytes, const uint8_t *in,
		uint8_t *out, uint8_t *sums)
{
	const uint32_t grid[3] = { BLOCKS, 1, 1 }, block[3] = { kernel_threads(k), 1, 1 };
	static struct probe_form f;
	const bool *clones = arg;
	char message[512] = "";
	struct clone t = { 0 };
	enum exec_status s;
	struct engine e;
	bool ok = false;

	engine_init(&e);
	if (probe_form_make(&f, ptx, bytes, hooks, ARRAY_SIZE(hooks), message, sizeof(message)) <
		    0 ||
	    engine_load(&e, ptx, bytes, "kernel", message, sizeof(message)) < 0 ||
	    (*clones &&
	     clone_make(&t, f.probed.text.data, f.probed.text.len, message, sizeof(message)) < 0)) {
		fprintf(stderr, "%s\n", message);
	} else if (probe_form_bind(&f, &e, *clones ? &t.text : &f.probed.text, message,
				   sizeof(message)) < 0) {
		fprintf(stderr, "%s\n", message);
	} else {
		s = play(&e, &f, *clones ? &t : NULL, k, in, out, sums);
		ok = s == EXEC_DONE && probe_form_check(&f, grid, block, "kernel") == 0;
		if (s != EXEC_DONE) {
			fprintf(stderr, "it did not end: %s\n",
				e.fault.what ? e.fault.what : "a limit");
		}
		probe_form_unbind(&f, &e);
	}
	clone_finish(&t);
	probe_form_finish(&f);
	engine_finish(&e);
	return ok;
}

int main(int argc, char **argv)
{
	static bool form = false, clone = true;
	struct fuzz_target targets[] = {
		{ "the probed form", run, &form },
		{ "the probed form's clone", run, &clone },
	};

	return fuzz_main(argc, argv, targets, ARRAY_SIZE(targets));
}
