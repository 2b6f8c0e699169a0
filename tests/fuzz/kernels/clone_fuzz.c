/* Runs random kernels through the block-level pass and compares their clones with the plain
 * reference: in one launch, in pieces, with changing leases, and with several blocks at once. */
#include <string.h>

#include "../../unit/exec/clone.h"
#include "base/compiler.h"
#include "fuzz_main.h"

static bool play(struct engine *e, const struct clone *t, const struct kernel *k, unsigned mode,
		 const uint8_t *in, uint8_t *out, uint8_t *sums)
{
	struct engine_launch l = { .grid = { BLOCKS, 1, 1 },
				   .block = { kernel_threads(k), 1, 1 },
				   .limit = 400000000 };
	uint64_t addresses[3];
	void *p[3];

	p[0] = engine_take(e, LANES_MAX * IN_BYTES, &addresses[0]);
	p[1] = engine_take(e, LANES_MAX * OUT_BYTES, &addresses[1]);
	p[2] = engine_take(e, SUMS_BYTES, &addresses[2]);
	memcpy(p[0], in, LANES_MAX * IN_BYTES);
	memset(p[1], 0, LANES_MAX * OUT_BYTES);
	memset(p[2], 0, SUMS_BYTES);
	l.params = addresses;
	if (clone_run(e, &t->entries[0], &l, mode, kernel_seed(k)) != EXEC_DONE) {
		fprintf(stderr, "it did not end: %s\n", e->fault.what ? e->fault.what : "a limit");
		return false;
	}
	memcpy(out, p[1], LANES_MAX * OUT_BYTES);
	memcpy(sums, p[2], SUMS_BYTES);
	return true;
}

static bool run(void *arg, const struct kernel *k, const char *ptx, size_t bytes, const uint8_t *in,
		uint8_t *out, uint8_t *sums)
{
	const unsigned *mode = arg;
	char message[512] = "";
	struct engine e;
	struct clone t;
	bool ok = false;

	engine_init(&e);
	if (clone_make(&t, ptx, bytes, message, sizeof(message)) < 0 || t.n_entries != 1) {
		fprintf(stderr, "the pass: %s\n", message);
	} else if (t.entries[0].why != PROTO_BLOCK_OK) {
		fprintf(stderr, "no clone: %s\n", proto_block_why_text(t.entries[0].why));
	} else if (engine_load(&e, t.text.data, t.text.len, "clone", message, sizeof(message)) <
		   0) {
		fprintf(stderr, "%s\n", message);
	} else {
		ok = play(&e, &t, k, *mode, in, out, sums);
	}
	clone_finish(&t);
	engine_finish(&e);
	return ok;
}

int main(int argc, char **argv)
{
	static unsigned modes[] = { 0, CLONE_SPLIT | CLONE_LEASES,
				    CLONE_SPLIT | CLONE_LEASES | CLONE_MIX };
	struct fuzz_target targets[] = {
		{ "the clone", run, &modes[0] },
		{ "the clone in pieces", run, &modes[1] },
		{ "the clone in pieces and turns", run, &modes[2] },
	};

	return fuzz_main(argc, argv, targets, ARRAY_SIZE(targets));
}
