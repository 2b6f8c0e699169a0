/* Runs random kernels on the engine, with every handler set that this machine supports, and
 * compares with the plain reference. A third of the kernels is stopped every few operations. */
#include <string.h>

#include "../../unit/exec/engine.h"
#include "fuzz_main.h"
#include "soft/server/exec/handlers.h"

static bool run(void *arg, const struct kernel *k, const char *ptx, size_t bytes, const uint8_t *in,
		uint8_t *out, uint8_t *sums)
{
	struct engine_launch l = { .grid = { BLOCKS, 1, 1 },
				   .block = { kernel_threads(k), 1, 1 },
				   .limit = 200000000 };
	uint64_t addresses[3];
	char message[512] = "";
	struct engine e;
	void *p[3];
	bool ok;

	exec_handlers_force(arg);
	l.budget = kernel_seed(k) % 3 ? 0 : 1 + kernel_seed(k) % 7;
	engine_init(&e);
	if (engine_load(&e, ptx, bytes, "kernel", message, sizeof(message)) < 0) {
		fprintf(stderr, "%s\n", message);
		engine_finish(&e);
		return false;
	}
	p[0] = engine_take(&e, LANES_MAX * IN_BYTES, &addresses[0]);
	p[1] = engine_take(&e, LANES_MAX * OUT_BYTES, &addresses[1]);
	p[2] = engine_take(&e, SUMS_BYTES, &addresses[2]);
	memcpy(p[0], in, LANES_MAX * IN_BYTES);
	memset(p[1], 0, LANES_MAX * OUT_BYTES);
	memset(p[2], 0, SUMS_BYTES);
	l.params = addresses;
	ok = engine_run(&e, &l) == EXEC_DONE;
	if (!ok) {
		fprintf(stderr, "it did not end: %s, line %u, thread %u\n",
			e.fault.what ? e.fault.what : "a limit", e.fault.line, e.fault.thread);
	}
	memcpy(out, p[1], LANES_MAX * OUT_BYTES);
	memcpy(sums, p[2], SUMS_BYTES);
	engine_finish(&e);
	return ok;
}

int main(int argc, char **argv)
{
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];
	struct fuzz_target targets[EXEC_HANDLER_SETS];
	unsigned n = exec_handlers_sets(sets);

	for (unsigned i = 0; i < n; i++) {
		targets[i] = (struct fuzz_target){ sets[i]->name, run, (void *)(uintptr_t)sets[i] };
	}
	return fuzz_main(argc, argv, targets, n);
}
