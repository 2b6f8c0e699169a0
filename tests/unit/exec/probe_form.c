/* Makes, binds and checks probed forms. */
#include "probe_form.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "ptx/probe_shared.h"

typedef uint64_t u64;
typedef uint32_t u32;
typedef int32_t s32;
typedef int64_t s64;

enum {
#define GBPF_HOOK(id, name, side, budget, vmin, vmax, doc) HOOK_##name = id,
#define GBPF_DEVICE_HOOK(id, name, budget, doc) HOOK_##name = id,
#include "gbpf/hooks.def"
};

static const struct {
	uint32_t hook;
	const char *name;
	unsigned bytes;
} fields[] = {
#define GBPF_DEVICE_HOOK(id, name, budget, doc) /* with their contexts */
#define GBPF_CTX(hook, type, name, access, doc) { HOOK_##hook, #name, sizeof(type) },
#include "gbpf/hooks.def"
};

/* ---- programs that log ---- */

static void declare(struct buf *out, const char *name, uint32_t hook, uint64_t *mask)
{
	unsigned n = 0;

	*mask = 0;
	buf_printf(out, ".func %s_f0 (.param .b64 env", name);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (fields[i].hook == hook) {
			buf_printf(out, ", .param .b%u %s", fields[i].bytes * 8, fields[i].name);
			*mask |= UINT64_C(1) << n++;
		}
	}
	buf_puts(out, ")\n{\n");
}

static void program(struct buf *out, const char *name, uint32_t hook, uint64_t *mask)
{
	unsigned n = 0;

	declare(out, name, hook, mask);
	buf_printf(out,
		   ".reg .b64 %%e, %%i, %%v; .reg .b32 %%w; .reg .pred %%p;\n"
		   "ld.param.b64 %%e, [env];\natom.add.u64 %%i, [%%e], 1;\n"
		   "setp.ge.u64 %%p, %%i, %u;\n@%%p ret;\nmul.lo.u64 %%i, %%i, %u;\n"
		   "add.s64 %%e, %%e, %%i;\n",
		   PROBE_FORM_RECORDS, PROBE_FORM_FIELDS * 8);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (fields[i].hook != hook) {
			continue;
		}
		if (fields[i].bytes == 8) {
			buf_printf(out, "ld.param.b64 %%v, [%s];\n", fields[i].name);
		} else {
			buf_printf(out, "ld.param.b32 %%w, [%s];\ncvt.u64.u32 %%v, %%w;\n",
				   fields[i].name);
		}
		buf_printf(out, "st.u64 [%%e+%u], %%v;\n", 8 + 8 * n++);
	}
	buf_puts(out, "ret;\n}\n");
}

static const char *first_entry(const struct ptx_module *m)
{
	ptx_each (&m->items, it) {
		const struct ptx_function *g = (const struct ptx_function *)it;

		if (it->kind == PTX_FUNCTION && g->is_entry && g->has_body) {
			return g->name;
		}
	}
	return "none";
}

int probe_form_of(struct probe_form *f, const struct ptx_module *m, const char *entry,
		  const uint32_t *hooks, uint32_t n, struct report *r)
{
	struct ptx_probe probes[PTX_PROBES_MAX];

	memset(f, 0, sizeof(*f));
	memset(probes, 0, sizeof(probes));
	f->n = n;
	snprintf(f->entry, sizeof(f->entry), "%s", entry);
	for (uint32_t i = 0; i < n; i++) {
		f->hooks[i] = hooks[i] % 100;
		f->lanes[i] = hooks[i] >= 100;
		snprintf(f->names[i], sizeof(f->names[i]), "log%u", i);
		probes[i].hook = f->hooks[i];
		probes[i].lanes = f->lanes[i];
		program(&f->texts[i], f->names[i], f->hooks[i], &probes[i].fields);
		probes[i].name = f->names[i];
		probes[i].text = buf_text(&f->texts[i]);
	}
	return ptx_probe_rewrite(m, f->entry, probes, n, &f->probed, r);
}

int probe_form_make(struct probe_form *f, const char *ptx, size_t len, const uint32_t *hooks,
		    uint32_t n, char *message, size_t room)
{
	struct ptx_module *m = NULL;
	struct report r;
	int err;

	memset(f, 0, sizeof(*f));
	report_init(&r);
	err = ptx_module_parse(&m, ptx, len, "case", &r);
	err = err ? err : ptx_shared_merge(m, first_entry(m), NULL, &r);
	err = err ? err : probe_form_of(f, m, first_entry(m), hooks, n, &r);
	if (err) {
		snprintf(message, room, "%s: %s", buf_text(&r.place), buf_text(&r.message));
	}
	ptx_module_free(m);
	report_finish(&r);
	return err;
}

void probe_form_finish(struct probe_form *f)
{
	ptx_probed_finish(&f->probed);
	for (uint32_t i = 0; i < f->n; i++) {
		buf_finish(&f->texts[i]);
	}
}

/* ---- loading ---- */

static int fill(struct probe_form *f, struct engine *e)
{
	uint64_t at, bytes;
	uint64_t *table;

	if (exec_module_global(e->module, PTX_PROBE_TABLE, &at, &bytes) < 0 ||
	    bytes != 8 * (f->n + (uint64_t)f->probed.n_variables)) {
		return -ENOENT;
	}
	table = (uint64_t *)(void *)(e->host + (at - ENGINE_BASE));
	for (uint32_t i = 0; i < f->n; i++) {
		f->logs[i] = engine_take(e, sizeof(*f->logs[i]), &table[i]);
	}
	for (uint32_t i = 0; i < f->probed.n_variables; i++) {
		if (exec_module_global(f->original, f->probed.variables[i], &table[f->n + i],
				       &bytes) < 0) {
			return -ENOENT;
		}
	}
	return 0;
}

int probe_form_bind(struct probe_form *f, struct engine *e, const struct buf *text, char *message,
		    size_t room)
{
	int err;

	f->original = e->module;
	e->module = NULL;
	err = engine_load(e, text->data, text->len, "probed", message, room);
	if (err == 0 && fill(f, e) < 0) {
		snprintf(message, room, "the table cannot be filled");
		err = -ENOENT;
	}
	return err;
}

void probe_form_unbind(struct probe_form *f, struct engine *e)
{
	exec_module_unref(e->module);
	e->module = f->original;
	f->original = NULL;
}

void probe_form_number(const struct probe_form *f, void *params)
{
	const uint64_t number = PROBE_FORM_LAUNCH;

	if (f->probed.number.passed) {
		memcpy((char *)params + f->probed.number.offset, &number, sizeof(number));
	}
}

/* ---- logs ---- */

static unsigned index_of(uint32_t hook, const char *field)
{
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (fields[i].hook == hook && strcmp(fields[i].name, field) == 0) {
			return n;
		}
		n += fields[i].hook == hook;
	}
	fprintf(stderr, "hook %u has no field %s\n", hook, field);
	abort();
}

uint64_t probe_form_value(const struct probe_form *f, uint32_t log, uint64_t record,
			  const char *field)
{
	static struct {
		const char *field;
		unsigned hook, n;
	} known[64]; /* by the address of the literal */
	unsigned at = (unsigned)((uintptr_t)field / 4 + f->hooks[log]) % 64;

	if (known[at].field != field || known[at].hook != f->hooks[log]) {
		known[at].n = index_of(f->hooks[log], field);
		known[at].field = field;
		known[at].hook = f->hooks[log];
	}
	return f->logs[log]->fields[record][known[at].n];
}

struct shape {
	uint32_t grid[3], block[3];
	uint64_t blocks, threads, warps;
};

static int complain(const struct probe_form *f, uint32_t log, const char *what, uint64_t got,
		    uint64_t want)
{
	fprintf(stderr, "probe %u of hook %u: %s: %" PRIu64 ", not %" PRIu64 "\n", log,
		f->hooks[log], what, got, want);
	return 1;
}

#define IS(what, got, want)                                                                        \
	do {                                                                                       \
		uint64_t got_ = (got), want_ = (want);                                             \
		bad += got_ != want_ ? complain(f, log, what, got_, want_) : 0;                    \
	} while (0)

/* Values that follow from others in the same record. */
static int check_record(const struct probe_form *f, uint32_t log, uint64_t i, const struct shape *s)
{
#define VALUE(name) probe_form_value(f, log, i, name)
	uint64_t linear = VALUE("thread_x") +
			  s->block[0] * (VALUE("thread_y") + s->block[1] * VALUE("thread_z"));
	uint64_t active = VALUE("active"), warp = linear / 32, left = s->threads - warp * 32;
	uint64_t all = left >= 32 ? UINT32_MAX : (UINT64_C(1) << left) - 1;
	int bad = 0;

	IS("launch", VALUE("launch"), PROBE_FORM_LAUNCH);
	IS("kernel", VALUE("kernel"), hash_bytes(f->entry, strlen(f->entry)));
	IS("block", VALUE("block"),
	   VALUE("block_x") +
		   s->grid[0] * (VALUE("block_y") + (uint64_t)s->grid[1] * VALUE("block_z")));
	IS("block's range", VALUE("block") < s->blocks, true);
	IS("grid_x", VALUE("grid_x"), s->grid[0]);
	IS("grid_y", VALUE("grid_y"), s->grid[1]);
	IS("grid_z", VALUE("grid_z"), s->grid[2]);
	IS("threads_x", VALUE("threads_x"), s->block[0]);
	IS("threads_y", VALUE("threads_y"), s->block[1]);
	IS("threads_z", VALUE("threads_z"), s->block[2]);
	IS("thread's range", linear < s->threads, true);
	IS("warp", VALUE("warp"), warp);
	IS("lane", VALUE("lane"), linear % 32);
	IS("lanes", VALUE("lanes"), (uint64_t)__builtin_popcountll(active));
	IS("active lanes that exist", active & ~all, 0);
	IS("own lane is active", active >> (linear % 32) & 1, 1);
	if (!f->lanes[log] && f->hooks[log] != HOOK_gdev_block_enter &&
	    f->hooks[log] != HOOK_gdev_access) {
		IS("lowest lane", active & ((UINT64_C(1) << (linear % 32)) - 1), 0);
	}
	return bad;
}

/* Adds up, for each warp, the active lanes of its records; each lane may occur once. */
static int check_lanes(const struct probe_form *f, uint32_t log, const struct shape *s)
{
	uint32_t *seen = calloc(s->blocks * s->warps, sizeof(*seen));
	uint64_t lanes = 0;
	int bad = 0;

	for (uint64_t i = 0; i < f->logs[log]->n; i++) {
		uint64_t w = VALUE("block") * s->warps + VALUE("warp");
		uint32_t mask =
			f->lanes[log] ? UINT32_C(1) << VALUE("lane") : (uint32_t)VALUE("active");

		bad += seen[w] & mask ? complain(f, log, "a lane came twice", mask, seen[w]) : 0;
		seen[w] |= mask;
		lanes += (uint64_t)__builtin_popcount(mask);
	}
	IS("lanes in all", lanes, s->blocks * s->threads);
	free(seen);
	return bad;
}

/* ---- accesses ---- */

#define GROUPS_MAX 100u /* of a log that are compared: each takes a search */

struct lane_access {
	uint64_t addr, bytes;
	unsigned lane;
};

static uint64_t sectors_of(const struct lane_access *a, unsigned n)
{
	uint64_t ret = 0;

	for (unsigned i = 0; i < n; i++) {
		bool first = true;

		for (unsigned k = 0; k < i; k++) {
			first = first && a[k].addr / 32 != a[i].addr / 32;
		}
		ret += first;
	}
	return ret;
}

static uint64_t stride_of(const struct lane_access *a, unsigned n)
{
	uint64_t step = n > 1 ? a[1].addr - a[0].addr : 0;

	for (unsigned i = 1; i < n; i++) {
		if (a[i].addr - a[i - 1].addr != step) {
			return 0; /* mixed */
		}
	}
	return step == 0 ? 1 : step == a[0].bytes ? 2 : 3;
}

/* Words of one bank that lanes of one turn access. */
static uint64_t conflicts_of(const struct lane_access *a, unsigned n)
{
	unsigned per_turn = a[0].bytes > 8 ? 8 : a[0].bytes > 4 ? 16 : 32;
	uint64_t most = 1;

	for (unsigned i = 0; i < n; i++) {
		uint64_t words[32], n_words = 0;

		for (unsigned k = 0; k < n; k++) {
			uint64_t word = a[k].addr / 4;
			bool is_new = a[k].lane / per_turn == a[i].lane / per_turn &&
				      word % 32 == a[i].addr / 4 % 32;

			for (unsigned w = 0; w < n_words; w++) {
				is_new = is_new && words[w] != word;
			}
			if (is_new) {
				words[n_words++] = word;
			}
		}
		most = n_words > most ? n_words : most;
	}
	return most - 1;
}

/* Finds the first record of a lane at a site that has not been found before. */
static bool next_record(const struct probe_form *f, uint32_t log, const uint64_t key[4], bool *used,
			uint64_t *ret)
{
	for (uint64_t i = 0; i < f->logs[log]->n; i++) {
		if (!used[i] && VALUE("lane") == key[3] && VALUE("site") == key[2] &&
		    VALUE("warp") == key[1] && VALUE("block") == key[0]) {
			*ret = i;
			used[i] = true;
			return true;
		}
	}
	return false;
}

/* Each record of a warp must follow from those of its lanes. A lane passes sites in the order of
 * its execution, so its n-th record belongs to the n-th of the warp that has it. */
static int check_group(const struct probe_form *f, uint32_t log, uint32_t lanes, uint64_t i,
		       bool *used)
{
	uint64_t key[4] = { VALUE("block"), VALUE("warp"), VALUE("site"), 0 }, low = UINT64_MAX,
		 high = 0, active = VALUE("active");
	struct lane_access a[32] = { 0 };
	unsigned n = 0;
	int bad = 0;

	for (key[3] = 0; key[3] < 32; key[3]++) {
		uint64_t at;

		if (!(active >> key[3] & 1)) {
			continue;
		}
		if (!next_record(f, lanes, key, used, &at)) {
			return complain(f, log, "a lane's record is missing", i, key[3]);
		}
		a[n] = (struct lane_access){ probe_form_value(f, lanes, at, "addr"),
					     probe_form_value(f, lanes, at, "bytes"),
					     (unsigned)key[3] };
		IS("bytes", VALUE("bytes"), a[n].bytes);
		low = a[n].addr < low ? a[n].addr : low;
		high = a[n].addr > high ? a[n].addr : high;
		n++;
	}
	IS("addr", VALUE("addr"), low);
	IS("addr_high", VALUE("addr_high"), high);
	if (VALUE("op") != 4) { /* of a bulk copy those of its own */
		IS("sectors", VALUE("sectors"), sectors_of(a, n));
		IS("stride", VALUE("stride"), stride_of(a, n));
	}
	IS("conflicts", VALUE("conflicts"),
	   VALUE("space") == 2 && VALUE("op") != 4 ? conflicts_of(a, n) : 0);
	return bad;
}

/* The next log must be the same hook's, of each lane. */
static int check_accesses(const struct probe_form *f, uint32_t log)
{
	static bool used[PROBE_FORM_RECORDS];
	uint32_t lanes = log + 1;
	int bad = 0;

	memset(used, 0, sizeof(used));
	if (f->lanes[log] || lanes >= f->n || f->hooks[lanes] != f->hooks[log] ||
	    f->logs[lanes]->n > PROBE_FORM_RECORDS) {
		return 0;
	}
	for (uint64_t i = 0; i < f->logs[log]->n && i < GROUPS_MAX && !bad; i++) {
		if (VALUE("op") != 5) { /* of matrices not all lanes have addresses */
			bad += check_group(f, log, lanes, i, used);
		}
	}
	return bad;
}

/* ---- other hooks ---- */

/* Lanes that arrive at a barrier and those that leave it; none leaves one that it only arrives at.
 */
static int check_barriers(const struct probe_form *f, uint32_t log)
{
	uint64_t before = 0, after = 0;
	int bad = 0;

	for (uint64_t i = 0; i < f->logs[log]->n; i++) {
		uint64_t n = f->lanes[log] ? 1 : VALUE("lanes");

		before += VALUE("after") ? 0 : n;
		after += VALUE("after") ? n : 0;
	}
	IS("lanes that left more often than they came", after > before, 0);
	return bad;
}

static int check_branches(const struct probe_form *f, uint32_t log)
{
	int bad = 0;

	for (uint64_t i = 0; i < f->logs[log]->n && !bad; i++) {
		uint64_t of = f->lanes[log] ? UINT64_C(1) << VALUE("lane") : VALUE("active");

		IS("lanes that take a branch without being there", VALUE("taken") & ~of, 0);
	}
	return bad;
}

static int check_blocks(const struct probe_form *f, uint32_t log, const struct shape *s)
{
	uint8_t *seen = calloc(s->blocks, 1);
	int bad = 0;

	IS("calls", f->logs[log]->n, s->blocks);
	for (uint64_t i = 0; i < f->logs[log]->n && !bad; i++) {
		IS("a block came twice", seen[VALUE("block")], 0);
		seen[VALUE("block")] = 1;
	}
	free(seen);
	return bad;
}

static int check_log(const struct probe_form *f, uint32_t log, const struct shape *s)
{
	uint32_t hook = f->hooks[log];
	int bad = 0;

	if (f->logs[log]->n > PROBE_FORM_RECORDS) {
		return 0; /* not all records are here */
	}
	for (uint64_t i = 0; i < f->logs[log]->n && !bad; i++) {
		bad += check_record(f, log, i, s);
	}
	if (bad) {
		return bad;
	}
	if (hook == HOOK_gdev_block_enter || hook == HOOK_gdev_block_exit) {
		bad += check_blocks(f, log, s);
	} else if (hook == HOOK_gdev_enter || hook == HOOK_gdev_exit) {
		bad += check_lanes(f, log, s);
	}
	bad += hook == HOOK_gdev_access ? check_accesses(f, log) : 0;
	bad += hook == HOOK_gdev_barrier ? check_barriers(f, log) : 0;
	bad += hook == HOOK_gdev_branch ? check_branches(f, log) : 0;
	if (hook == HOOK_gdev_enter && !f->lanes[log]) {
		IS("calls", f->logs[log]->n, s->blocks * s->warps);
	}
	return bad;
}

int probe_form_check(const struct probe_form *f, const uint32_t grid[3], const uint32_t block[3],
		     const char *name)
{
	struct shape s = { .grid = { grid[0], grid[1], grid[2] },
			   .block = { block[0], block[1], block[2] } };
	int bad = 0;

	s.blocks = (uint64_t)grid[0] * grid[1] * grid[2];
	s.threads = (uint64_t)block[0] * block[1] * block[2];
	s.warps = (s.threads + 31) / 32;
	for (uint32_t i = 0; i < f->n; i++) {
		bad += check_log(f, i, &s);
	}
	if (bad) {
		fprintf(stderr, "%s: %d wrong values in logs\n", name, bad);
	}
	return bad;
}
