/* PTX back end: hash tables in memory of the GPU (map_bucket.h has the layout, docs/MAPS.md the
 * argument). Each operation is a bounded number of steps and waits for no other thread: a bucket
 * changes only by an exchange of its word.
 *
 * An operation is a scope with registers of its own: %qb, the address of the bucket's word; %qe, of
 * its first slot; %qk, the words of the key; %qw, the word as it was read; %qs and %qi, address and
 * number of the slot that was found. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bpf/load/jit/ptx/jit_ptx_int.h"
#include "bpf/run/map/map_bucket.h"

#define LOOKUPS 16u   /* readings of a bucket that changes meanwhile */
#define EXCHANGES 64u /* exchanges of a word that may fail */
#define REREADS 32u   /* readings while another thread inserts, perhaps the same key */

#define UPDATE_NOEXIST 1
#define UPDATE_EXIST 2

/* The labels of one operation. */
struct places {
	unsigned again, scan, next, absent, found, give_up, done;
};

static const struct ebpf_map *map_at(const struct ebpf_ptx_jit *j)
{
	const struct ebpf_ptx_value *handle = &ebpf_ptx_known(j)->base;

	return handle->kind == PTX_HANDLE && handle->map < j->plan->n_maps
		       ? &j->plan->maps[handle->map]
		       : NULL;
}

int ebpf_ptx_is_hash(const struct ebpf_ptx_jit *j)
{
	const struct ebpf_map *m = map_at(j);

	return m && m->ops && ebpf_is_bucket_map(m);
}

static struct places new_places(struct ebpf_ptx_jit *j)
{
	struct places at = { j->labels + 1, j->labels + 2, j->labels + 3, j->labels + 4,
			     j->labels + 5, j->labels + 6, j->labels + 7 };

	j->labels += 7;
	return at;
}

static void jump(struct ebpf_ptx_jit *j, unsigned label)
{
	ebpf_ptx_op(j, "bra $M%u", label);
}

static void jump_if(struct ebpf_ptx_jit *j, unsigned label)
{
	ebpf_ptx_op(j, "@%%p0 bra $M%u", label);
}

static void result(struct ebpf_ptx_jit *j, int value)
{
	ebpf_ptx_op(j, "mov.b64 %%r0, %d", value);
}

/* ---- key and bucket ---- */

static void take_key(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	const struct ebpf_ptx_value *at = &ebpf_ptx_known(j)->r2;
	unsigned unit = ebpf_ptx_value_unit(m->key_bytes);
	int aligned = ebpf_ptx_aligned(at, 0, unit) == 1, place = 0;
	int in_frame = ebpf_ptx_frame_place(at, 0, m->key_bytes, unit, &place);

	for (unsigned off = 0; off < m->key_bytes; off += unit) {
		const char *into = off % 8 ? "%t1" : "%qn";

		if (in_frame) {
			ebpf_ptx_frame_load(j, place + (int)off, unit, 0, into);
		} else {
			ebpf_ptx_op(j, "add.s64 %%t0, %%r2, %u", off);
			ebpf_ptx_load(j, into, unit, 0, aligned);
		}
		if (off % 8) {
			ebpf_ptx_op(j, "shl.b64 %%t1, %%t1, %u", 8 * (off % 8));
			ebpf_ptx_op(j, "or.b64 %%qn, %%qn, %%t1");
		}
		if (off % 8 + unit == 8 || off + unit == m->key_bytes) {
			ebpf_ptx_op(j, "mov.b64 %%qk%u, %%qn", off / 8);
		}
	}
}

/* %t0 = a step of ebpf_mix() from %t0 by a factor. */
static void mix(struct ebpf_ptx_jit *j, const char *factor)
{
	ebpf_ptx_op(j, "mul.hi.u64 %%t1, %%t0, %s", factor);
	ebpf_ptx_op(j, "mul.lo.s64 %%t0, %%t0, %s", factor);
	ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%t1");
}

/* As ebpf_seed_of() and ebpf_mix(): %qs, %qw, %qx and %qn are a, b, c and d of the seed. */
static void hash(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_op(j, "ld.global.nc.u64 %%qx, [%%qe+%u]", EBPF_BUCKET_SEED);
	ebpf_ptx_op(j, "ld.global.nc.u64 %%qn, [%%qe+%u]", EBPF_BUCKET_SEED + 8);
	ebpf_ptx_op(j, "xor.b64 %%qs, %%qx, 0x736f6d6570736575");
	ebpf_ptx_op(j, "xor.b64 %%qw, %%qn, 0x646f72616e646f6d");
	ebpf_ptx_op(j, "xor.b64 %%qx, %%qx, 0x6c7967656e657261");
	ebpf_ptx_op(j, "xor.b64 %%qn, %%qn, 0x7465646279746573");
	ebpf_ptx_op(j, "add.s64 %%qs, %%qs, %%qw");
	ebpf_ptx_op(j, "shl.b64 %%t0, %%qw, 13");
	ebpf_ptx_op(j, "shr.u64 %%t1, %%qw, 51");
	ebpf_ptx_op(j, "or.b64 %%qw, %%t0, %%t1");
	ebpf_ptx_op(j, "xor.b64 %%qw, %%qw, %%qs");
	ebpf_ptx_op(j, "mov.b64 {%%ql, %%qi}, %%qs");
	ebpf_ptx_op(j, "mov.b64 %%qs, {%%qi, %%ql}");
	ebpf_ptx_op(j, "or.b64 %%qw, %%qw, 1");
	ebpf_ptx_op(j, "or.b64 %%qn, %%qn, 1");
	ebpf_ptx_op(j, "xor.b64 %%t0, %%qk0, %%qs");
	mix(j, "%qw");
	for (unsigned w = 1; w < (m->key_bytes + 7) / 8; w++) {
		ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%qk%u", w);
		ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%qs");
		mix(j, "%qw");
	}
	ebpf_ptx_op(j, "xor.b64 %%t0, %%t0, %%qx");
	mix(j, "%qn");
}

/* Opens the scope of an operation, and finds the key's bucket. */
static void begin(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	buf_puts(&j->out, "\t{\n");
	ebpf_ptx_op(j, ".reg .b64 %%qb, %%qe, %%qw, %%qn, %%qx, %%qs, %%qv");
	ebpf_ptx_op(j, ".reg .b32 %%ql, %%qi, %%qm, %%qt, %%qr, %%qc");
	ebpf_ptx_op(j, ".reg .b64 %%qk<%u>", EBPF_BUCKET_MAX_KEY / 8);
	take_key(j, m);
	ebpf_ptx_map_data(j, "%t0", m->index);
	ebpf_ptx_op(j, "cvta.to.global.u64 %%qe, %%t0");
	hash(j, m);
	ebpf_ptx_op(j, "cvt.u32.u64 %%ql, %%t0");
	ebpf_ptx_op(j, "and.b32 %%ql, %%ql, %u", m->n_slots - 1);
	ebpf_ptx_op(j, "mad.wide.u32 %%qb, %%ql, %u, %%qe", EBPF_BUCKET_BYTES);
	ebpf_ptx_op(j, "add.s64 %%qb, %%qb, %u", m->head_off);
	ebpf_ptx_op(j, "mad.wide.u32 %%qe, %%ql, %u, %%qe", EBPF_BUCKET_SLOTS * m->stride);
	ebpf_ptx_op(j, "add.s64 %%qe, %%qe, %u", m->elem_off);
}

static void end(struct ebpf_ptx_jit *j)
{
	buf_puts(&j->out, "\t}\n");
}

static void read_word(struct ebpf_ptx_jit *j, const char *to)
{
	ebpf_ptx_op(j, "ld.relaxed.gpu.global.u64 %s, [%%qb]", to);
}

/* Exchanges the bucket's word %qw for %qn. Falls through if that succeeds; otherwise %qw is what
 * the word is, and the operation continues at `retry`, or gives up. */
static void exchange(struct ebpf_ptx_jit *j, const struct places *at, unsigned retry)
{
	unsigned good = ++j->labels;

	ebpf_ptx_op(j, "fence.acq_rel.gpu");
	ebpf_ptx_op(j, "atom.relaxed.gpu.global.cas.b64 %%qx, [%%qb], %%qw, %%qn");
	ebpf_ptx_op(j, "fence.acq_rel.gpu");
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%qx, %%qw");
	jump_if(j, good);
	ebpf_ptx_op(j, "mov.b64 %%qw, %%qx");
	ebpf_ptx_op(j, "sub.s32 %%qt, %%qt, 1");
	ebpf_ptx_op(j, "setp.ne.s32 %%p0, %%qt, 0");
	jump_if(j, retry);
	jump(j, at->give_up);
	ebpf_ptx_label(j, good);
}

/* Compares the key with those of the slots that %qw names: goes to `found` or to `absent`. */
static void scan(struct ebpf_ptx_jit *j, const struct ebpf_map *m, const struct places *at)
{
	ebpf_ptx_op(j, "cvt.u32.u64 %%ql, %%qw");
	ebpf_ptx_op(j, "and.b32 %%ql, %%ql, %u", EBPF_BUCKET_ALL);
	ebpf_ptx_label(j, at->next);
	ebpf_ptx_op(j, "setp.eq.u32 %%p0, %%ql, 0");
	jump_if(j, at->absent);
	ebpf_ptx_op(j, "brev.b32 %%qi, %%ql");
	ebpf_ptx_op(j, "clz.b32 %%qi, %%qi");
	ebpf_ptx_op(j, "sub.s32 %%qr, %%ql, 1");
	ebpf_ptx_op(j, "and.b32 %%ql, %%ql, %%qr");
	ebpf_ptx_op(j, "mad.wide.u32 %%qs, %%qi, %u, %%qe", m->stride);
	for (unsigned w = 0; w < (m->key_bytes + 7) / 8; w++) {
		ebpf_ptx_op(j, "ld.relaxed.gpu.global.u64 %%qx, [%%qs+%u]", 8 * w);
		ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%qx, %%qk%u", w);
		jump_if(j, at->next);
	}
	jump(j, at->found);
}

/* Notes for the clock of an LRU_HASH that slot %qi was used. */
static void use(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	unsigned known = ++j->labels;

	if (m->type != GBPF_MAP_LRU_HASH) {
		return;
	}
	ebpf_ptx_op(j, "mov.b32 %%qr, 1");
	ebpf_ptx_op(j, "shl.b32 %%qr, %%qr, %%qi");
	ebpf_ptx_op(j, "ld.relaxed.gpu.global.u32 %%ql, [%%qb+%u]", EBPF_BUCKET_USED);
	ebpf_ptx_op(j, "and.b32 %%ql, %%ql, %%qr");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%ql, 0");
	jump_if(j, known);
	ebpf_ptx_op(j, "red.relaxed.gpu.global.or.b32 [%%qb+%u], %%qr", EBPF_BUCKET_USED);
	ebpf_ptx_label(j, known);
}

/* ---- look-up ---- */

/* A slot may get another key while its key is read, so the word is read again. If the bucket
 * changes all the time, a slot that still has a key counts: a pointer may show another key's value
 * at any time after a deletion. */
static void check_found(struct ebpf_ptx_jit *j, const struct places *at)
{
	unsigned good = ++j->labels;

	read_word(j, "%qn");
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%qn, %%qw");
	jump_if(j, good);
	ebpf_ptx_op(j, "mov.b64 %%qw, %%qn");
	ebpf_ptx_op(j, "sub.s32 %%qt, %%qt, 1");
	ebpf_ptx_op(j, "setp.ne.s32 %%p0, %%qt, 0");
	jump_if(j, at->scan);
	ebpf_ptx_op(j, "shr.u64 %%qn, %%qn, %%qi");
	ebpf_ptx_op(j, "and.b64 %%qn, %%qn, 1");
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%qn, 0");
	jump_if(j, at->absent);
	ebpf_ptx_label(j, good);
}

int ebpf_ptx_hash_lookup(struct ebpf_ptx_jit *j)
{
	const struct ebpf_map *m = map_at(j);
	struct places at = new_places(j);

	begin(j, m);
	result(j, 0);
	ebpf_ptx_op(j, "mov.b32 %%qt, %u", LOOKUPS);
	read_word(j, "%qw");
	ebpf_ptx_label(j, at.scan);
	scan(j, m, &at);
	ebpf_ptx_label(j, at.found);
	check_found(j, &at);
	use(j, m);
	ebpf_ptx_op(j, "add.s64 %%qs, %%qs, %u", m->value_off);
	ebpf_ptx_op(j, "cvta.global.u64 %%r0, %%qs");
	ebpf_ptx_label(j, at.absent);
	end(j);
	return 0;
}

/* ---- changes ---- */

/* In a program of each lane the lowest of the active lanes acts for all: they have one key and, in
 * an update, one value. The others wait at `done`. */
static void elect(struct ebpf_ptx_jit *j, const struct places *at)
{
	if (!j->plan->options->device_lane) {
		return;
	}
	ebpf_ptx_op(j, "mov.u32 %%qr, %%lanemask_lt");
	ebpf_ptx_op(j, "and.b32 %%qr, %%qr, %%c_active");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%qr, 0");
	jump_if(j, at->done);
}

/* Gives all lanes a value of the lane that acted. */
static void share(struct ebpf_ptx_jit *j, const char *reg)
{
	if (!j->plan->options->device_lane) {
		return;
	}
	ebpf_ptx_op(j, "brev.b32 %%qi, %%c_active");
	ebpf_ptx_op(j, "clz.b32 %%qi, %%qi");
	ebpf_ptx_op(j, "mov.b64 {%%ql, %%qr}, %s", reg);
	ebpf_ptx_op(j, "shfl.sync.idx.b32 %%ql, %%ql, %%qi, 31, %%c_active");
	ebpf_ptx_op(j, "shfl.sync.idx.b32 %%qr, %%qr, %%qi, 31, %%c_active");
	ebpf_ptx_op(j, "mov.b64 %s, {%%ql, %%qr}", reg);
}

/* %qi = a slot of a full bucket whose key goes: one that was not used since the clock's last turn,
 * or, when a turn begins, the last one. `none` if all slots are being written. */
static void evict(struct ebpf_ptx_jit *j, unsigned none, unsigned lowest, unsigned chosen)
{
	ebpf_ptx_op(j, "and.b32 %%ql, %%ql, %u", EBPF_BUCKET_ALL);
	ebpf_ptx_op(j, "ld.relaxed.gpu.global.u32 %%qr, [%%qb+%u]", EBPF_BUCKET_USED);
	ebpf_ptx_op(j, "not.b32 %%qr, %%qr");
	ebpf_ptx_op(j, "and.b32 %%qr, %%qr, %%ql");
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%qr, 0");
	jump_if(j, lowest);
	ebpf_ptx_op(j, "setp.eq.u32 %%p0, %%ql, 0");
	jump_if(j, none);
	ebpf_ptx_op(j, "st.relaxed.gpu.global.u32 [%%qb+%u], %%qr", EBPF_BUCKET_USED);
	ebpf_ptx_op(j, "bfind.u32 %%qi, %%ql");
	jump(j, chosen);
}

/* %qi = a slot for a new key, or goes to `none`. */
static void choose(struct ebpf_ptx_jit *j, const struct ebpf_map *m, unsigned none)
{
	unsigned lowest = ++j->labels, chosen = ++j->labels;

	ebpf_ptx_op(j, "cvt.u32.u64 %%ql, %%qw");
	ebpf_ptx_op(j, "shr.u32 %%qi, %%ql, %u", EBPF_BUCKET_SLOTS);
	ebpf_ptx_op(j, "or.b32 %%qr, %%ql, %%qi");
	ebpf_ptx_op(j, "not.b32 %%qr, %%qr");
	ebpf_ptx_op(j, "and.b32 %%qr, %%qr, %u", EBPF_BUCKET_ALL);
	ebpf_ptx_op(j, "setp.ne.u32 %%p0, %%qr, 0");
	jump_if(j, lowest);
	if (m->type == GBPF_MAP_LRU_HASH) {
		evict(j, none, lowest, chosen);
	} else {
		jump(j, none);
	}
	ebpf_ptx_label(j, lowest);
	ebpf_ptx_op(j, "brev.b32 %%qi, %%qr");
	ebpf_ptx_op(j, "clz.b32 %%qi, %%qi");
	ebpf_ptx_label(j, chosen);
}

/* %qn = the word %qw after its next change: whether slot %qi has a key, and is being written. */
static void changed(struct ebpf_ptx_jit *j, int live, int busy)
{
	const struct {
		unsigned shift;
		int set;
	} bits[] = { { 0, live }, { EBPF_BUCKET_SLOTS, busy } };

	ebpf_ptx_op(j, "add.s64 %%qn, %%qw, 0x%" PRIx64, EBPF_BUCKET_CHANGE);
	for (unsigned k = 0; k < 2; k++) {
		ebpf_ptx_op(j, "mov.b64 %%qx, 0x%x", 1u << bits[k].shift);
		ebpf_ptx_op(j, "shl.b64 %%qx, %%qx, %%qi");
		if (bits[k].set) {
			ebpf_ptx_op(j, "or.b64 %%qn, %%qn, %%qx");
		} else {
			ebpf_ptx_op(j, "not.b64 %%qx, %%qx");
			ebpf_ptx_op(j, "and.b64 %%qn, %%qn, %%qx");
		}
	}
}

/* Stores the program's value, at r3, to the slot at %qs. */
static void store_value(struct ebpf_ptx_jit *j, const struct ebpf_map *m)
{
	ebpf_ptx_op(j, "add.s64 %%t0, %%qs, %u", m->value_off);
	ebpf_ptx_op(j, "cvta.global.u64 %%r1, %%t0");
	ebpf_ptx_op(j, "mov.b64 %%qv, %%r3");
	ebpf_ptx_copy_value(j, m->value_bytes);
	ebpf_ptx_op(j, "mov.b64 %%r3, %%qv"); /* the value may be stored again */
}

/* Stores the key to the slot at %qs, and zeros, or the program's value. */
static void fill_slot(struct ebpf_ptx_jit *j, const struct ebpf_map *m, int zero)
{
	for (unsigned w = 0; w < (m->key_bytes + 7) / 8; w++) {
		ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%qs+%u], %%qk%u", 8 * w, w);
	}
	if (!zero) {
		store_value(j, m);
		return;
	}
	ebpf_ptx_op(j, "mov.b64 %%qx, 0");
	for (unsigned off = m->value_off; off < m->stride; off += 8) {
		ebpf_ptx_op(j, "st.relaxed.gpu.global.u64 [%%qs+%u], %%qx", off);
	}
}

/* No slot has the key. A thread that has a slot of its own (its number is in %qm) publishes it: the
 * exchange succeeds only if the bucket has not changed since its keys were compared. Other threads
 * claim a slot first, and compare again behind the exchange, which acquires the keys. */
static void add_key(struct ebpf_ptx_jit *j, const struct ebpf_map *m, const struct places *at,
		    int zero)
{
	unsigned claim = ++j->labels, full = ++j->labels;

	ebpf_ptx_op(j, "setp.eq.s32 %%p0, %%qm, -1");
	jump_if(j, claim);
	ebpf_ptx_op(j, "mov.b32 %%qi, %%qm");
	changed(j, 1, 0);
	exchange(j, at, at->scan);
	ebpf_ptx_op(j, "mad.wide.u32 %%qs, %%qi, %u, %%qe", m->stride);
	ebpf_ptx_op(j, "mov.b32 %%qm, -1");
	use(j, m);
	result(j, 0);
	jump(j, at->done);
	ebpf_ptx_label(j, claim);
	ebpf_ptx_op(j, "cvt.u32.u64 %%qr, %%qw");
	ebpf_ptx_op(j, "setp.gt.u32 %%p0, %%qr, %u", EBPF_BUCKET_ALL);
	ebpf_ptx_op(j, "setp.ne.and.s32 %%p0, %%qc, 0, %%p0");
	ebpf_ptx_op(j, "@%%p0 sub.s32 %%qc, %%qc, 1");
	jump_if(j, at->again);
	choose(j, m, full);
	changed(j, 0, 1);
	exchange(j, at, at->scan);
	ebpf_ptx_op(j, "mov.b64 %%qw, %%qn");
	ebpf_ptx_op(j, "mov.b32 %%qm, %%qi");
	ebpf_ptx_op(j, "mad.wide.u32 %%qs, %%qi, %u, %%qe", m->stride);
	fill_slot(j, m, zero);
	jump(j, at->scan);
	ebpf_ptx_label(j, full);
	ebpf_ptx_map_data(j, "%t0", m->index);
	ebpf_ptx_op(j, "cvta.to.global.u64 %%t0, %%t0");
	ebpf_ptx_op(j, "mov.b64 %%t1, 1");
	ebpf_ptx_op(j, "red.relaxed.gpu.global.add.u64 [%%t0], %%t1");
	result(j, -E2BIG);
	jump(j, at->done);
}

/* Releases the slot that the thread has claimed, if it has one. */
static void release(struct ebpf_ptx_jit *j)
{
	unsigned none = ++j->labels;

	ebpf_ptx_op(j, "setp.eq.s32 %%p0, %%qm, -1");
	jump_if(j, none);
	ebpf_ptx_op(j, "mov.b64 %%qx, 0x%x", 1u << EBPF_BUCKET_SLOTS);
	ebpf_ptx_op(j, "shl.b64 %%qx, %%qx, %%qm");
	ebpf_ptx_op(j, "not.b64 %%qx, %%qx");
	ebpf_ptx_op(j, "red.relaxed.gpu.global.and.b64 [%%qb], %%qx");
	ebpf_ptx_label(j, none);
}

/* Opens an operation that changes the table: behind it the bucket's keys have been compared. */
static void begin_change(struct ebpf_ptx_jit *j, const struct ebpf_map *m, const struct places *at)
{
	begin(j, m);
	ebpf_ptx_op(j, "mov.b64 %%qs, 0");
	result(j, 0);
	elect(j, at);
	ebpf_ptx_op(j, "mov.b32 %%qm, -1");
	ebpf_ptx_op(j, "mov.b32 %%qt, %u", EXCHANGES);
	ebpf_ptx_op(j, "mov.b32 %%qc, %u", REREADS);
	ebpf_ptx_label(j, at->again);
	read_word(j, "%qw");
	ebpf_ptx_label(j, at->scan);
	scan(j, m, at);
}

/* Too many exchanges have failed. */
static void give_up(struct ebpf_ptx_jit *j, const struct places *at)
{
	unsigned over = ++j->labels;

	jump(j, over);
	ebpf_ptx_label(j, at->give_up);
	release(j);
	result(j, -EBUSY);
	jump(j, at->done);
	ebpf_ptx_label(j, over);
}

int ebpf_ptx_hash_update(struct ebpf_ptx_jit *j)
{
	const struct ebpf_map *m = map_at(j);
	unsigned good = ++j->labels, over = ++j->labels;
	struct places at = new_places(j);

	ebpf_ptx_op(j, "setp.le.u64 %%p0, %%r4, %u", UPDATE_EXIST);
	jump_if(j, good);
	result(j, -EINVAL);
	ebpf_ptx_count_error(j);
	jump(j, over);
	ebpf_ptx_label(j, good);
	begin_change(j, m, &at);
	ebpf_ptx_label(j, at.absent);
	result(j, -ENOENT);
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%r4, %u", UPDATE_EXIST);
	jump_if(j, at.done);
	add_key(j, m, &at, 0);
	give_up(j, &at);
	ebpf_ptx_label(j, at.found);
	release(j);
	result(j, -EEXIST);
	ebpf_ptx_op(j, "setp.eq.s64 %%p0, %%r4, %u", UPDATE_NOEXIST);
	jump_if(j, at.done);
	use(j, m);
	store_value(j, m);
	result(j, 0);
	ebpf_ptx_label(j, at.done);
	share(j, "%r0");
	end(j);
	ebpf_ptx_label(j, over);
	return 0;
}

int ebpf_ptx_hash_delete(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_map *m = map_at(j);
	struct places at = new_places(j);

	if (!ebpf_ptx_is_hash(j)) {
		return ebpf_ptx_refuse(j, "bpf_map_delete_elem, except in a known hash table");
	}
	begin_change(j, m, &at);
	ebpf_ptx_label(j, at.absent);
	result(j, -ENOENT);
	jump(j, at.done);
	give_up(j, &at);
	ebpf_ptx_label(j, at.found);
	changed(j, 0, 0);
	exchange(j, &at, at.scan);
	result(j, 0);
	ebpf_ptx_label(j, at.done);
	share(j, "%r0");
	end(j);
	return 0;
}

/* r3 is what each lane adds. The key is inserted with zeros, so the addition is the same whether it
 * was there. */
int ebpf_ptx_key_add(struct ebpf_ptx_jit *j, UNUSED const struct ebpf_jit_note *note)
{
	const struct ebpf_map *m = map_at(j);
	unsigned none = ++j->labels;
	struct places at = new_places(j);

	if (!ebpf_ptx_is_hash(j) || m->value_bytes < 8) {
		return ebpf_ptx_refuse(j, "gbpf_key_add, except in a known hash table with values "
					  "of 8 bytes or more");
	}
	begin_change(j, m, &at);
	ebpf_ptx_label(j, at.absent);
	add_key(j, m, &at, 1);
	give_up(j, &at);
	ebpf_ptx_label(j, at.found);
	release(j);
	use(j, m);
	result(j, 0);
	ebpf_ptx_label(j, at.done);
	share(j, "%r0");
	share(j, "%qs");
	ebpf_ptx_op(j, "setp.ne.s64 %%p0, %%r0, 0");
	jump_if(j, none);
	ebpf_ptx_op(j, "red.relaxed.gpu.global.add.u64 [%%qs+%u], %%r3", m->value_off);
	ebpf_ptx_label(j, none);
	end(j);
	return 0;
}
