/* Compares a patched image with its original: headers, sections, segments, symbols; code and
 * attributes of kernels are in cubin_check_code.c and cubin_check_info.c. */
#include "cubin/cubin_check_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strmap.h"
#include "cubin/cubin.h"

static int check_header(const struct cubin_checking *c)
{
	Elf64_Ehdr a = c->old.head, b = c->new.head;

	a.e_shoff = b.e_shoff = 0;
	a.e_phoff = b.e_phoff = 0;
	if (memcmp(&a, &b, sizeof(a)) != 0) {
		return cubin_refuse(c->r, "check: the ELF headers differ");
	}
	return 0;
}

/* ---- which kernels are there ---- */

static int add_kernel(struct cubin_checking *c, struct strmap *names, uint32_t symbol)
{
	Elf64_Sym y = cubin_elf_symbol(&c->old, symbol);
	const char *name;
	struct cubin_check_kernel *k = &c->kernels[c->n];
	int err;

	if (ELF64_ST_TYPE(y.st_info) != STT_FUNC || !(y.st_other & CUBIN_SYMBOL_ENTRY) ||
	    y.st_shndx == SHN_UNDEF || y.st_shndx >= c->old.n_sections) {
		return 0;
	}
	name = cubin_elf_suffix(&c->old, y.st_shndx, ".text.");
	if (!name || c->kernel_of[y.st_shndx]) {
		return cubin_refuse(c->r, "check: a kernel outside of its section");
	}
	err = strmap_add(names, name, k);
	if (err < 0) {
		return err == -EEXIST ? cubin_refuse(c->r, "check: two kernels '%s'", name) : err;
	}
	k->name = name;
	k->text = y.st_shndx;
	k->symbol = symbol;
	k->patched = c->new.sections[k->text].sh_size != c->old.sections[k->text].sh_size;
	c->kernel_of[k->text] = (uint32_t)++c->n;
	return 0;
}

static void join_part(struct cubin_checking *c, const struct strmap *names, uint32_t section)
{
	const char *info = cubin_elf_suffix(&c->old, section, ".nv.info.");
	const char *bank = cubin_elf_suffix(&c->old, section, ".nv.constant0.");
	bool is_info = c->old.sections[section].sh_type == CUBIN_TYPE_INFO;
	struct cubin_check_kernel *k = info || bank ? strmap_get(names, info ? info : bank) : NULL;

	if (!k || is_info != (info != NULL) || !cubin_elf_in_file(&c->old, section)) {
		return;
	}
	if (info && !k->info) {
		k->info = section;
	} else if (bank && !k->bank) {
		k->bank = section;
	} else {
		return; /* stays unknown, and so may not change */
	}
	c->kernel_of[section] = (uint32_t)(k - c->kernels) + 1;
}

static int find_kernels(struct cubin_checking *c)
{
	struct strmap names;
	int err = 0;

	/* at most one kernel per section: add_kernel */
	c->kernels = calloc(c->old.n_sections, sizeof(*c->kernels));
	c->kernel_of = calloc(c->old.n_sections, sizeof(*c->kernel_of));
	if (!c->kernels || !c->kernel_of) {
		return -ENOMEM;
	}
	strmap_init(&names);
	for (uint32_t i = 1; i < c->old.n_symbols && !err; i++) {
		err = add_kernel(c, &names, i);
	}
	for (uint32_t i = 1; i < c->old.n_sections && !err; i++) {
		join_part(c, &names, i);
	}
	strmap_finish(&names);
	return err;
}

/* ---- sections ---- */

static const struct cubin_check_kernel *patched_at(const struct cubin_checking *c, uint32_t section)
{
	const struct cubin_check_kernel *k =
		c->kernel_of[section] ? &c->kernels[c->kernel_of[section] - 1] : NULL;

	return k && k->patched ? k : NULL;
}

static int check_section(const struct cubin_checking *c, uint32_t i)
{
	Elf64_Shdr a = c->old.sections[i], b = c->new.sections[i];
	const struct cubin_check_kernel *k = patched_at(c, i);

	if (strcmp(cubin_elf_name(&c->old, i), cubin_elf_name(&c->new, i)) != 0) {
		return cubin_refuse(c->r, "check: section %u has another name", i);
	}
	a.sh_offset = b.sh_offset = 0; /* cubin_elf_open checks that they are aligned */
	if (k || cubin_check_is_redirected(c, i)) {
		a.sh_size = b.sh_size = 0; /* checked with its content */
	}
	if (k && k->text == i) { /* register and barrier counts: cubin_check_code */
		a.sh_info &= 0xffffff;
		b.sh_info &= 0xffffff;
		if (c->old.abi == CUBIN_ABI_OLD) {
			a.sh_flags &= ~((uint64_t)0x7f << 20);
			b.sh_flags &= ~((uint64_t)0x7f << 20);
		}
	}
	if (memcmp(&a, &b, sizeof(a)) != 0) {
		return cubin_refuse(c->r, "check: the headers of section '%s' differ",
				    cubin_elf_name(&c->old, i));
	}
	return 0;
}

static int check_content(const struct cubin_checking *c, uint32_t i)
{
	const char *name = cubin_elf_name(&c->old, i);

	if (!cubin_elf_in_file(&c->old, i) || patched_at(c, i) || i == c->old.symtab ||
	    cubin_check_is_redirected(c, i)) {
		return 0;
	}
	if (c->old.sections[i].sh_type == CUBIN_TYPE_INFO && !strcmp(name, ".nv.info")) {
		return cubin_check_image_info(c, i);
	}
	if (memcmp(cubin_elf_data(&c->old, i), cubin_elf_data(&c->new, i),
		   c->old.sections[i].sh_size) != 0) {
		return cubin_refuse(c->r, "check: section '%s' differs", name);
	}
	return 0;
}

/* ---- what the file holds ---- */

struct range {
	uint64_t from, to;
	uint32_t section; /* 0: none */
};

static int by_start(const void *x, const void *y)
{
	const struct range *a = x, *b = y;

	if (a->from != b->from) {
		return a->from < b->from ? -1 : 1;
	}
	return a->to > b->to ? -1 : a->to < b->to;
}

/* Whether section b lies inside section a in both images, at the same place. */
static bool shares(const struct cubin_checking *c, uint32_t a, uint32_t b)
{
	const Elf64_Shdr *x = &c->old.sections[a], *y = &c->old.sections[b];

	return a && b && x->sh_size == c->new.sections[a].sh_size &&
	       y->sh_size == c->new.sections[b].sh_size && y->sh_offset >= x->sh_offset &&
	       y->sh_offset + y->sh_size <= x->sh_offset + x->sh_size &&
	       c->new.sections[b].sh_offset - c->new.sections[a].sh_offset ==
		       y->sh_offset - x->sh_offset;
}

static int check_order(const struct cubin_checking *c, const struct range *ranges, size_t n)
{
	uint32_t owner = 0;
	uint64_t end = 0;

	for (size_t i = 0; i < n; i++) {
		if (ranges[i].from < end && !shares(c, owner, ranges[i].section)) {
			return cubin_refuse(c->r, "check: parts of the image overlap");
		}
		for (; end < ranges[i].from; end++) {
			if (c->new.data[end]) {
				return cubin_refuse(c->r, "check: bytes between sections");
			}
		}
		if (ranges[i].to > end) {
			end = ranges[i].to;
			owner = ranges[i].section;
		}
	}
	return end == c->new.bytes ? 0 : cubin_refuse(c->r, "check: bytes behind the last section");
}

/* Nothing of the new image overlaps unless it did before, and bytes in between are zero. */
static int check_ranges(const struct cubin_checking *c, struct range *ranges)
{
	const struct cubin_elf *e = &c->new;
	size_t n = 0;

	ranges[n++] = (struct range){ 0, sizeof(Elf64_Ehdr), 0 };
	ranges[n++] = (struct range){ e->head.e_shoff,
				      e->head.e_shoff + e->n_sections * sizeof(Elf64_Shdr), 0 };
	if (e->n_segments) {
		ranges[n++] =
			(struct range){ e->head.e_phoff,
					e->head.e_phoff + e->n_segments * sizeof(Elf64_Phdr), 0 };
	}
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (cubin_elf_in_file(e, i)) {
			ranges[n++] =
				(struct range){ e->sections[i].sh_offset,
						e->sections[i].sh_offset + e->sections[i].sh_size,
						i };
		}
	}
	qsort(ranges, n, sizeof(*ranges), by_start);
	return check_order(c, ranges, n);
}

/* Whether a section lies in a segment; of sections without bytes the place decides. */
static bool inside(const Elf64_Shdr *s, const Elf64_Phdr *p, bool in_file)
{
	return s->sh_offset >= p->p_offset &&
	       s->sh_offset + (in_file ? s->sh_size : 0) <= p->p_offset + p->p_filesz;
}

/* A segment must hold the same sections as before, begin with the first, and end with the last. */
static int check_segment(const struct cubin_checking *c, uint32_t i)
{
	Elf64_Phdr a = c->old.segments[i], b = c->new.segments[i];
	uint64_t head_a = a.p_offset, head_b = b.p_offset, tail_a = 0, tail_b = 0;
	bool any = false;

	if (a.p_offset + a.p_filesz > c->old.bytes || b.p_offset + b.p_filesz > c->new.bytes ||
	    a.p_memsz - a.p_filesz != b.p_memsz - b.p_filesz) {
		return cubin_refuse(c->r, "check: segment %u has another size", i);
	}
	for (uint32_t q = 1; q < c->old.n_sections; q++) {
		const Elf64_Shdr *x = &c->old.sections[q], *y = &c->new.sections[q];
		bool in_file = cubin_elf_in_file(&c->old, q);
		bool in = in_file && inside(x, &a, true);

		if (!in && cubin_check_loses_relocs(c, q)) {
			continue; /* may be empty now, and then be anywhere */
		}
		if (in != (in_file && inside(y, &b, true))) {
			return cubin_refuse(c->r, "check: segment %u holds other sections", i);
		}
		if (in) {
			head_a = any ? MIN(head_a, x->sh_offset) : x->sh_offset;
			head_b = any ? MIN(head_b, y->sh_offset) : y->sh_offset;
			tail_a = MAX(tail_a, x->sh_offset + x->sh_size);
			tail_b = MAX(tail_b, y->sh_offset + y->sh_size);
			any = true;
		}
	}
	if (a.p_offset == c->old.head.e_phoff) { /* the segments' own table */
		any = true;
		head_a = a.p_offset;
		head_b = c->new.head.e_phoff;
		tail_a = tail_b = 0;
		if (a.p_filesz != b.p_filesz) {
			return cubin_refuse(c->r, "check: segment %u has another size", i);
		}
	}
	if (a.p_offset - head_a != b.p_offset - head_b ||
	    (tail_a && b.p_offset + b.p_filesz - tail_b > 4096) ||
	    (!any && a.p_filesz != b.p_filesz)) {
		return cubin_refuse(c->r, "check: segment %u begins or ends elsewhere", i);
	}
	a.p_offset = b.p_offset = 0;
	a.p_filesz = b.p_filesz = 0;
	a.p_memsz = b.p_memsz = 0;
	return memcmp(&a, &b, sizeof(a)) ? cubin_refuse(c->r, "check: segment %u differs", i) : 0;
}

/* ---- symbols and relocations ---- */

static int check_symbol(const struct cubin_checking *c, uint32_t i)
{
	Elf64_Sym a = cubin_elf_symbol(&c->old, i), b = cubin_elf_symbol(&c->new, i);
	const struct cubin_check_kernel *k =
		a.st_shndx < c->old.n_sections ? patched_at(c, a.st_shndx) : NULL;

	if (k && k->symbol == i && b.st_size == c->new.sections[k->text].sh_size) {
		a.st_size = b.st_size;
	}
	if (memcmp(&a, &b, sizeof(a)) != 0) {
		return cubin_refuse(c->r, "check: symbol '%s' differs",
				    cubin_elf_symbol_name(&c->old, &a));
	}
	return 0;
}

/* The branch to the stub must not be relocated. Contents are compared with the other sections'. */
static int check_relocs(const struct cubin_checking *c, uint32_t i)
{
	uint32_t target = c->new.sections[i].sh_info;
	const struct cubin_check_kernel *k = patched_at(c, target);

	if (!k || k->text != target) {
		return 0;
	}
	for (size_t q = 0; q < cubin_elf_relocs(&c->new, i); q++) {
		if (cubin_elf_reloc(&c->new, i, q).offset < 16) {
			return cubin_refuse(c->r, "check: the entry of '%s' is relocated", k->name);
		}
	}
	return 0;
}

static int check_kernel(struct cubin_checking *c, struct cubin_check_kernel *k)
{
	int err;

	if (!k->patched) {
		return 0;
	}
	if (!k->info || !k->bank) {
		return cubin_refuse(c->r, "check: '%s' lacks attributes or a bank", k->name);
	}
	err = cubin_check_info(c, k);
	if (!err) {
		err = cubin_check_bank(c, k);
	}
	return err ? err : cubin_check_code(c, k);
}

static int check_parts(struct cubin_checking *c, struct range *ranges)
{
	int err = check_ranges(c, ranges);

	for (uint32_t i = 1; i < c->old.n_sections && !err; i++) {
		err = check_section(c, i);
	}
	for (size_t i = 0; i < c->n && !err; i++) {
		err = check_kernel(c, &c->kernels[i]);
	}
	if (!err) {
		err = cubin_check_redirects(c);
	}
	for (uint32_t i = 1; i < c->old.n_sections && !err; i++) {
		err = check_content(c, i);
		if (!err && cubin_elf_is_reloc(&c->new, i)) {
			err = check_relocs(c, i);
		}
	}
	for (uint32_t i = 0; i < c->old.n_segments && !err; i++) {
		err = check_segment(c, i);
	}
	for (uint32_t i = 0; i < c->old.n_symbols && !err; i++) {
		err = check_symbol(c, i);
	}
	for (size_t i = 0; i < c->n && !err; i++) {
		if (c->kernels[i].patched && !c->kernels[i].has_regcount &&
		    !(c->old.sections[c->kernels[i].text].sh_info >> 24)) {
			err = cubin_refuse(c->r, "check: '%s' has no register count",
					   c->kernels[i].name);
		}
	}
	return err;
}

static int check(struct cubin_checking *c)
{
	struct range *ranges;
	int err = check_header(c);

	if (!err &&
	    (c->old.n_sections != c->new.n_sections || c->old.n_segments != c->new.n_segments ||
	     c->old.symtab != c->new.symtab || c->old.n_symbols != c->new.n_symbols)) {
		err = cubin_refuse(c->r, "check: counts of sections, segments or symbols differ");
	}
	if (!err) {
		err = find_kernels(c);
	}
	if (err < 0) {
		return err;
	}
	ranges = calloc((size_t)c->new.n_sections + 3, sizeof(*ranges));
	if (!ranges) {
		return -ENOMEM;
	}
	err = check_parts(c, ranges);
	free(ranges);
	return err;
}

int cubin_check_copy(const void *original, size_t original_bytes, const void *result,
		     size_t result_bytes, const struct cubin_stub *s,
		     const struct cubin_redirects *d, struct report *r)
{
	struct cubin_checking c = { .stub = s, .redirects = d, .r = r };
	int err = cubin_elf_open(&c.old, original, original_bytes, r);

	if (!err) {
		err = cubin_elf_open(&c.new, result, result_bytes, r);
	}
	if (!err) {
		err = check(&c);
	}
	free(c.kernels);
	free(c.kernel_of);
	cubin_elf_finish(&c.old);
	cubin_elf_finish(&c.new);
	return err;
}

int cubin_check(const void *original, size_t original_bytes, const void *result,
		size_t result_bytes, const struct cubin_stub *s, struct report *r)
{
	return cubin_check_copy(original, original_bytes, result, result_bytes, s, NULL, r);
}
