/* Fuzzes valid objects in which some bytes of one section are changed: BTF, line info, relocations,
 * maps, symbols. fuzz_object seldom gets that deep, because most changes of a file break its
 * structure. Input: the number of the object, then edits of four bytes: section, offset (16 bits),
 * value. Objects that still open are verified, and their types are read. */
#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/load/verify/verify.h"
#include "fuzz_objects.h"

#define MAX_OBJECT 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct edit {
	uint8_t section, low, high, value;
};

static void apply(uint8_t *elf, size_t bytes, const struct edit *e)
{
	Elf64_Ehdr h;
	Elf64_Shdr s;
	uint64_t at;

	memcpy(&h, elf, sizeof(h));
	memcpy(&s, elf + h.e_shoff + (uint64_t)(e->section % h.e_shnum) * sizeof(s), sizeof(s));
	if (s.sh_type == SHT_NOBITS || s.sh_size == 0) {
		return;
	}
	at = s.sh_offset + (e->low | (uint64_t)e->high << 8) % s.sh_size;
	if (at < bytes) {
		elf[at] ^= e->value;
	}
}

static void check(struct ebpf_object *o, struct report *r)
{
	for (uint32_t i = 0; i < o->n_progs; i++) {
		struct ebpf_verify_stats stats;

		/* skip hooks with large budgets, which cost the fuzzer too much time */
		if (o->progs[i].hook != 0 && o->progs[i].hook < 6) {
			ebpf_verify(&o->progs[i], o->maps, o->n_maps, 0, &stats, r);
		}
	}
	if (strnlen(o->name, sizeof(o->name)) == sizeof(o->name)) {
		abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ebpf_object o;
	static uint8_t elf[MAX_OBJECT];
	struct report r;
	struct buf text;
	size_t bytes;
	int err;

	if (size < 1 + sizeof(struct edit)) {
		return 0;
	}
	bytes = objects[data[0] % ARRAY_SIZE(objects)].bytes;
	if (bytes > MAX_OBJECT) {
		abort(); /* the object is too large: use a smaller one */
	}
	memcpy(elf, objects[data[0] % ARRAY_SIZE(objects)].data, bytes);
	for (size_t i = 1; i + sizeof(struct edit) <= size && i < 400; i += sizeof(struct edit)) {
		struct edit e;

		memcpy(&e, data + i, sizeof(e));
		apply(elf, bytes, &e);
	}
	report_init(&r);
	buf_init(&text);
	err = ebpf_object_open(&o, elf, bytes, "fuzz.bpf.o", &r);
	if (err) {
		/* a refusal must have a message */
		if (!r.message.len) {
			abort();
		}
	} else {
		check(&o, &r);
		ebpf_object_finish(&o);
	}
	report_text(&r, &text);
	report_finish(&r);
	buf_finish(&text);
	return 0;
}
