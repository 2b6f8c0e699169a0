/* Models the stack byte by byte. A number or pointer that was stored whole is still known when it
 * is loaded whole. Overwriting part of a pointer makes all of it unreadable, so that no program can
 * read a part of an address. */
#include "bpf/load/verify/verify_insn_int.h"
#include "bpf/load/verify/verify_int.h"

#include <errno.h>
#include <string.h>

/* Returns the slot of a byte. Requires a negative offset that was checked to lie in the frame. */
static unsigned slot_of(int64_t off)
{
	return (unsigned)((-off - 1) / 8);
}

static unsigned byte_of(int64_t off)
{
	return (unsigned)(off & 7);
}

static void touch(struct ebpf_verifier *v, unsigned frame, int64_t low)
{
	struct ebpf_call_state *f = v->frames[frame];
	uint32_t sum = 0;

	if (-low > (int64_t)f->depth) {
		f->depth = (uint32_t)ROUND_UP(-low, 8);
		for (unsigned i = 0; i <= v->depth; i++) {
			sum += v->frames[i]->depth;
		}
		v->stack_bytes = MAX(v->stack_bytes, sum);
	}
}

static int refuse_byte(struct ebpf_verifier *v, unsigned frame, int64_t off, int pointer)
{
	const char *whose = frame == v->depth ? "fp" : "caller's fp";

	if (pointer) {
		report_hint(v->r, "load the whole pointer (8 aligned bytes), or store something "
				  "else there first");
		return ebpf_verify_refuse(
			v, v->pc, "leak",
			"byte %s%lld is part of a stored pointer and cannot be read as data", whose,
			(long long)off);
	}
	report_hint(v->r, "initialize the whole variable (= {0}), padding included");
	return ebpf_verify_refuse(v, v->pc, "init",
				  "stack byte %s%lld is read but was never written on this path",
				  whose, (long long)off);
}

static int refuse_iterator(struct ebpf_verifier *v, unsigned frame, int64_t off)
{
	report_hint(v->r, "let the helpers alone use it, until it is destroyed");
	return ebpf_verify_refuse(v, v->pc, "iter", "byte %s%lld belongs to an iterator",
				  frame == v->depth ? "fp" : "caller's fp", (long long)off);
}

/* Returns the number of spilled bytes in a slot and sets *first to the first of them. */
static unsigned spill_extent(const struct ebpf_stack_slot *s, unsigned *first)
{
	unsigned n = 0;

	for (unsigned i = 0; i < 8; i++) {
		if (s->kind[i] == BYTE_SPILL) {
			*first = n++ ? *first : i;
		}
	}
	return n;
}

/* Returns the kind of a byte of a number that is stored. */
static uint8_t number_byte(const struct ebpf_scalar *n, unsigned byte)
{
	unsigned c = (unsigned)(n->t.value >> 8 * byte) & 0xff;

	return ebpf_scalar_is_const(n) && c < BYTE_TEXT ? (uint8_t)(BYTE_TEXT + c) : BYTE_MISC;
}

/* Characters are kept only where one may be printed: each state that differs from others by
 * them alone costs a join, and many joins cost what is known of numbers. */
static uint8_t stored_byte(const struct ebpf_verifier *v, const struct ebpf_scalar *n,
			   unsigned byte)
{
	return v->prints ? number_byte(n, byte) : (uint8_t)BYTE_MISC;
}

static int is_zero(const struct ebpf_reg *r)
{
	return r->type == REG_SCALAR && ebpf_scalar_is_const(&r->v) && r->v.t.value == 0;
}

/* Turns a spill into plain bytes: those of a number stay readable, those of a pointer do not. */
static void forget_spill(const struct ebpf_verifier *v, struct ebpf_stack_slot *s)
{
	unsigned first = 0;

	spill_extent(s, &first);
	for (unsigned i = first; i < 8; i++) {
		if (s->kind[i] == BYTE_SPILL) {
			s->kind[i] = s->r.type != REG_SCALAR ? BYTE_NONE
				     : is_zero(&s->r)	     ? BYTE_ZERO
							     : stored_byte(v, &s->r.v, i - first);
		}
	}
}

/* Charges the verifier's work for an access: one unit per slot from low to high. */
static void count_work(struct ebpf_verifier *v, int64_t low, int64_t high)
{
	v->work += 2 * (1 + slot_of(low) - slot_of(high - 1));
}

/* Loads spilled bytes of one slot. Returns 1 if it set *out. */
static int read_spill(struct ebpf_verifier *v, struct ebpf_stack_slot *s, unsigned byte,
		      unsigned bytes, struct ebpf_reg *out)
{
	unsigned first = 0, n = spill_extent(s, &first);
	struct ebpf_scalar shift;

	if (n == 0 || byte < first || byte + bytes > first + n) {
		return 0;
	}
	ebpf_link_name(v, &s->r);
	*out = s->r;
	if (byte == first && bytes == n) {
		return 1;
	}
	if (s->r.type != REG_SCALAR) {
		return 0;
	}
	if (byte == first && bytes == 4) {
		ebpf_link_low(out);
	} else {
		ebpf_link_drop(out);
	}
	ebpf_scalar_const(&shift, (byte - first) * 8);
	ebpf_scalar_alu(EBPF_RSH, 1, 0, &out->v, &shift);
	ebpf_scalar_truncate(&out->v, bytes * 8);
	return 1;
}

#define EACH_BYTE UINT64_C(0x0101010101010101)

static uint64_t kinds_of(const struct ebpf_stack_slot *s)
{
	uint64_t kinds;

	memcpy(&kinds, s->kind, sizeof(kinds));
	return kinds;
}

/* Returns whether all eight bytes hold numbers, of which at most characters are known. */
static int all_numbers(const struct ebpf_stack_slot *s)
{
	uint64_t kinds = kinds_of(s), texts = kinds >> 7 & EACH_BYTE;

	return ((kinds & ~(texts * 0xff)) | texts * BYTE_MISC) == EACH_BYTE * BYTE_MISC;
}

/* Returns the character that a byte is known to be, or -1. */
static int character(const struct ebpf_stack_slot *s, unsigned byte)
{
	unsigned first = 0, kind = s->kind[byte];

	if (kind == BYTE_SPILL && s->r.type == REG_SCALAR) {
		spill_extent(s, &first);
		kind = number_byte(&s->r.v, byte - first);
	}
	return kind == BYTE_ZERO ? 0 : kind >= BYTE_TEXT ? (int)(kind - BYTE_TEXT) : -1;
}

int ebpf_verify_stack_text(struct ebpf_verifier *v, const struct ebpf_reg *ptr, uint64_t bytes,
			   char *text, size_t cap, int64_t *ret_at)
{
	int64_t low = (int64_t)ptr->v.t.value;

	for (size_t n = 0; n < bytes; n++) {
		int64_t off = *ret_at = low + (int64_t)n;
		int c;

		if (off < -(int64_t)EBPF_STACK_BYTES || off >= 0) {
			return -EDOM;
		}
		c = character(&v->frames[ptr->frame]->slots[slot_of(off)], byte_of(off));
		ebpf_mark_slot_text(v, ptr->frame, slot_of(off));
		v->work++;
		if (c < 0) {
			return -EDOM;
		}
		text[MIN(n, cap - 1)] = (char)(n < cap - 1 ? c : 0);
		if (c == 0) {
			return 0;
		}
	}
	return -E2BIG;
}

/* Checks that the program may read every byte in [low, high). */
static int check_readable(struct ebpf_verifier *v, unsigned frame, int64_t low, int64_t high,
			  int *all_zero)
{
	*all_zero = 1;
	count_work(v, low, high);
	for (int64_t off = low; off < high; off++) {
		const struct ebpf_stack_slot *s = &v->frames[frame]->slots[slot_of(off)];
		unsigned kind = s->kind[byte_of(off)];

		if (byte_of(off) == 0 && off + 8 <= high && all_numbers(s)) {
			ebpf_mark_slot_read(v, frame, slot_of(off));
			*all_zero = 0;
			off += 7;
			continue;
		}
		if (kind == BYTE_ITER) {
			return refuse_iterator(v, frame, off);
		}
		if (kind == BYTE_NONE || (kind == BYTE_SPILL && s->r.type != REG_SCALAR)) {
			return refuse_byte(v, frame, off, kind == BYTE_SPILL);
		}
		ebpf_mark_slot_read(v, frame, slot_of(off));
		*all_zero &=
			kind == BYTE_ZERO || (kind == BYTE_SPILL && ebpf_scalar_is_const(&s->r.v) &&
					      s->r.v.t.value == 0);
	}
	return 0;
}

/* Checks that all of [low, high) is readable, and sets *out, unless it is NULL, to what a load of
 * bytes from it gives. */
static int read_range(struct ebpf_verifier *v, unsigned frame, int64_t low, int64_t high,
		      unsigned bytes, struct ebpf_reg *out)
{
	int zero, err = check_readable(v, frame, low, high, &zero);

	if (err || !out) {
		return err;
	}
	ebpf_reg_unknown(out);
	if (zero) {
		ebpf_scalar_const(&out->v, 0);
	} else {
		ebpf_scalar_loaded(&out->v, bytes, 0);
	}
	return 0;
}

/* Reads bytes at a place that is known. */
static int read_here(struct ebpf_verifier *v, unsigned frame, int64_t low, uint64_t bytes,
		     struct ebpf_reg *out)
{
	struct ebpf_stack_slot *s = &v->frames[frame]->slots[slot_of(low)];
	int64_t high = low + (int64_t)bytes;

	if (out && slot_of(low) == slot_of(high - 1) &&
	    read_spill(v, s, byte_of(low), (unsigned)bytes, out)) {
		ebpf_mark_slot_read(v, frame, slot_of(low));
		return 0;
	}
	return read_range(v, frame, low, high, (unsigned)bytes, out);
}

/* Reads from one of n places. Numbers are united; a pointer must be at a place that is known. */
static int read_one_of(struct ebpf_verifier *v, unsigned frame, const int64_t *at, unsigned n,
		       int64_t off, uint64_t bytes, struct ebpf_reg *out)
{
	struct ebpf_reg one;

	for (unsigned i = 0; i < n; i++) {
		int err = read_here(v, frame, at[i] + off, bytes, out ? &one : NULL);

		if (err) {
			return err;
		}
		if (out && ebpf_reg_is_pointer(&one)) {
			return refuse_byte(v, frame, at[i] + off, 1);
		}
		if (out && i) {
			ebpf_scalar_unite(&out->v, &one.v);
		} else if (out) {
			ebpf_reg_unknown(out);
			out->v = one.v;
		}
	}
	return 0;
}

int ebpf_verify_stack_read(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			   uint64_t bytes, struct ebpf_reg *out)
{
	int64_t low = ptr->v.smin + off, high = ptr->v.smax + off + (int64_t)bytes;
	int64_t at[VERIFY_MAX_PLACES];
	unsigned n = ebpf_scalar_values(&ptr->v, at, VERIFY_MAX_PLACES);

	touch(v, ptr->frame, low);
	if (n == 1) { /* which smin may be below, if the known bits leave one value */
		return read_here(v, ptr->frame, at[0] + off, bytes, out);
	}
	return n ? read_one_of(v, ptr->frame, at, n, off, bytes, out)
		 : read_range(v, ptr->frame, low, high, (unsigned)bytes, out);
}

/* Writes somewhere: each byte in [low, high) may or may not be overwritten. */
static void write_somewhere(struct ebpf_verifier *v, unsigned frame, int64_t low, int64_t high,
			    int zero)
{
	struct ebpf_call_state *f = v->frames[frame];

	count_work(v, low, high);
	for (int64_t off = low; off < high;) {
		unsigned n = slot_of(off), first = byte_of(off);
		unsigned end = (unsigned)MIN(8u, first + (uint64_t)(high - off));
		struct ebpf_stack_slot *s = &f->slots[n];

		if (kinds_of(s) != EACH_BYTE * BYTE_MISC) {
			forget_spill(v, s);
			for (unsigned i = first; i < end; i++) {
				if (s->kind[i] >= BYTE_TEXT || (s->kind[i] == BYTE_ZERO && !zero)) {
					s->kind[i] = BYTE_MISC;
				}
			}
		}
		/* The new state of the slot depends on its old contents, so mark the slot as read.
		 */
		ebpf_mark_slot_read(v, frame, n);
		off += end - first;
	}
}

static void write_here(struct ebpf_verifier *v, unsigned frame, int64_t low, int64_t high,
		       unsigned kind)
{
	struct ebpf_call_state *f = v->frames[frame];

	count_work(v, low, high);
	for (int64_t off = low; off < high;) {
		unsigned n = slot_of(off), first = byte_of(off);
		unsigned count = (unsigned)MIN(8 - first, (uint64_t)(high - off));
		struct ebpf_stack_slot *s = &f->slots[n];

		if (count == 8) {
			ebpf_mark_slot_written(v, frame, n);
		}
		for (unsigned i = first; i < first + count; i++) {
			if (s->kind[i] == BYTE_SPILL) {
				forget_spill(v, s);
			}
		}
		memset(s->kind + first, (int)kind, count);
		f->used |= 1ull << n;
		off += count;
	}
}

static int check_pointer_store(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t low,
			       uint64_t bytes, const struct ebpf_reg *value)
{
	if (value->type == REG_CTX && ebpf_verify_on(v, SIDE_DEVICE)) {
		report_hint(v->r, "load the fields that are needed later first, or pass the "
				  "context to a function as an argument");
		return ebpf_verify_refuse(v, v->pc, "ctx",
					  "the context pointer is stored, but inside a kernel the "
					  "context is not in memory");
	}
	if (bytes != 8 || !ebpf_scalar_is_const(&ptr->v) || low % 8) {
		return ebpf_verify_refuse(
			v, v->pc, "stack",
			"a pointer (%s) is stored only whole, in 8 aligned bytes at a "
			"fixed place",
			ebpf_verify_reg_text(v, value));
	}
	if ((value->type == REG_STACK || value->type == REG_KEY) && value->frame > ptr->frame) {
		return ebpf_verify_refuse(
			v, v->pc, "stack",
			value->type == REG_KEY
				? "the key would outlive the callback in the caller's "
				  "frame"
				: "a pointer into this function's frame would outlive "
				  "it in the caller's frame");
	}
	return 0;
}

/* Writes at one of a few places, or anywhere in their range if there are more: each byte there may
 * or may not be overwritten. */
static void write_one_of(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			 uint64_t bytes, int zero)
{
	int64_t low = ptr->v.smin + off, high = ptr->v.smax + off + (int64_t)bytes;
	int64_t at[VERIFY_MAX_PLACES];
	unsigned n = ebpf_scalar_values(&ptr->v, at, VERIFY_MAX_PLACES);

	if (!n) {
		write_somewhere(v, ptr->frame, low, high, zero);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		write_somewhere(v, ptr->frame, at[i] + off, at[i] + off + (int64_t)bytes, zero);
	}
}

/* Refuses writes to [low, high) that hit an iterator. */
static int check_range(struct ebpf_verifier *v, unsigned frame, int64_t low, int64_t high)
{
	for (int64_t off = low; off < high; off = (off | 7) + 1) {
		if (v->frames[frame]->slots[slot_of(off)].kind[0] == BYTE_ITER) {
			ebpf_mark_slot_read(v, frame, slot_of(off));
			return refuse_iterator(v, frame, off);
		}
	}
	return 0;
}

/* Refuses writes that may hit an iterator. */
static int check_writable(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			  uint64_t bytes)
{
	int64_t at[VERIFY_MAX_PLACES];
	unsigned n = ebpf_scalar_values(&ptr->v, at, VERIFY_MAX_PLACES);
	int err = 0;

	if (!n) {
		return check_range(v, ptr->frame, ptr->v.smin + off,
				   ptr->v.smax + off + (int64_t)bytes);
	}
	for (unsigned i = 0; err == 0 && i < n; i++) {
		err = check_range(v, ptr->frame, at[i] + off, at[i] + off + (int64_t)bytes);
	}
	return err;
}

int ebpf_verify_stack_write(struct ebpf_verifier *v, const struct ebpf_reg *ptr, int64_t off,
			    uint64_t bytes, const struct ebpf_reg *value)
{
	int64_t low = ptr->v.smin + off, high = ptr->v.smax + off + (int64_t)bytes;
	int zero = value && is_zero(value);
	struct ebpf_stack_slot *s = &v->frames[ptr->frame]->slots[slot_of(low)];
	int err = check_writable(v, ptr, off, bytes);

	if (err) {
		return err;
	}
	touch(v, ptr->frame, low);
	if (value && ebpf_reg_is_pointer(value)) {
		err = check_pointer_store(v, ptr, low, bytes, value);

		if (err) {
			return err;
		}
	}
	if (!ebpf_scalar_is_const(&ptr->v)) {
		write_one_of(v, ptr, off, bytes, zero);
		return 0;
	}
	write_here(v, ptr->frame, low, high, zero ? BYTE_ZERO : BYTE_MISC);
	if (value && (bytes == 8 || bytes == 4) && !(zero && bytes == 4)) {
		forget_spill(v, s); /* in case only the other half of the spill was overwritten */
		memset(s->kind + byte_of(low), BYTE_SPILL, bytes);
		s->r = *value;
		if (bytes == 4) {
			ebpf_link_low(&s->r);
			ebpf_scalar_truncate(&s->r.v, 32);
		}
	} else if (value && !zero) {
		for (unsigned i = 0; i < bytes; i++) {
			s->kind[byte_of(low) + i] = stored_byte(v, &value->v, i);
		}
	}
	return 0;
}
