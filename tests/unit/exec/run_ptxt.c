/* Runs .ptxt files on the engine, with each handler set that this machine supports. Usage: run_ptxt
 * FILE... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "ptxt.h"
#include "soft/server/exec/handlers.h"

struct totals {
	int cases;
};

static const char *const status_names[] = { [EXEC_DONE] = "",
					    [EXEC_BUDGET] = "hang",
					    [EXEC_FAULT_ADDRESS] = "address",
					    [EXEC_FAULT_ALIGN] = "align",
					    [EXEC_FAULT_TRAP] = "trap",
					    [EXEC_FAULT_INSN] = "insn",
					    [EXEC_FAULT_ASSERT] = "assert",
					    [EXEC_NO_MEMORY] = "memory" };

static size_t fill_params(struct engine *e, const struct ptxt_case *c, uint8_t *params, void **data)
{
	size_t at = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];
		unsigned bytes = ptxt_bytes(b->kind);
		uint64_t address;

		if (b->is_param) {
			at = (at + bytes - 1) / bytes * bytes;
			memcpy(params + at, &b->in[0].bits, bytes);
			at += bytes;
			continue;
		}
		data[i] = engine_take(e, (size_t)b->n * bytes, &address);
		for (uint32_t k = 0; k < b->n; k++) {
			memcpy((uint8_t *)data[i] + (size_t)k * bytes, &b->in[k].bits, bytes);
		}
		at = (at + 7) / 8 * 8;
		memcpy(params + at, &address, sizeof(address));
		at += sizeof(address);
	}
	return at;
}

static int check_refused(const struct ptxt_case *c, int err, const char *message)
{
	char place[32];

	snprintf(place, sizeof(place), "case:%u:", c->refused_line);
	if (!*c->refused && err == 0) {
		return 0;
	}
	if (!*c->refused || err == 0) {
		fprintf(stderr, "%s: %s\n", c->name, err ? message : "was not refused");
		return 1;
	}
	if (!strstr(message, c->refused) || strncmp(message, place, strlen(place)) != 0) {
		fprintf(stderr, "%s: refused with \"%s\"\n", c->name, message);
		return 1;
	}
	return 0;
}

static int run_case(const struct ptxt_case *c, void *arg)
{
	struct engine_launch l = { .shared = c->shared, .budget = c->budget, .limit = 50000000 };
	struct totals *t = arg;
	uint8_t params[256] = { 0 };
	void *data[PTXT_BUFFERS] = { 0 };
	char message[512] = "";
	struct engine e;
	enum exec_status s;
	int bad, err;

	t->cases++;
	engine_init(&e);
	err = engine_load(&e, c->ptx.data, c->ptx.len, "case", message, sizeof(message));
	bad = check_refused(c, err, message);
	if (err == 0 && bad == 0) {
		fill_params(&e, c, params, data);
		memcpy(l.grid, c->grid, sizeof(l.grid));
		memcpy(l.block, c->block, sizeof(l.block));
		l.params = params;
		s = engine_run(&e, &l);
		if (strcmp(status_names[s], c->fault) != 0 ||
		    (*c->fault && c->fault_line && c->fault_line != e.fault.line)) {
			fprintf(stderr,
				"%s: ended with \"%s\" (%s, line %u, thread %u, address 0x%llx)\n",
				c->name, status_names[s], s ? e.fault.what : "", e.fault.line,
				e.fault.thread, (unsigned long long)e.fault.address);
			bad++;
		}
		if (c->print.len && (c->print.len != e.n_printed ||
				     memcmp(c->print.data, e.printed, e.n_printed) != 0)) {
			fprintf(stderr, "%s: printed \"%.*s\"\n", c->name, (int)e.n_printed,
				e.printed);
			bad++;
		}
		for (uint32_t i = 0; i < c->n_buffers && s == EXEC_DONE; i++) {
			bad += data[i] ? ptxt_compare(c, &c->buffers[i], i, data[i]) : 0;
		}
	}
	engine_finish(&e);
	return bad != 0;
}

int main(int argc, char **argv)
{
	const struct exec_handlers *sets[EXEC_HANDLER_SETS];
	unsigned n_sets = exec_handlers_sets(sets);
	int failures = 0;

	for (unsigned k = 0; k < n_sets; k++) {
		struct totals t = { 0 };

		exec_handlers_force(sets[k]);
		for (int i = 1; i < argc; i++) {
			int n = ptxt_file(argv[i], run_case, &t);

			failures += n < 0 ? 1 : n;
		}
		printf("%s: %d cases, %d failures\n", sets[k]->name, t.cases, failures);
	}
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
