/* Patches an image: decides, lays out, writes, and has the result checked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin/cubin.h"
#include "cubin/cubin_check_int.h"
#include "cubin/cubin_copy_int.h"
#include "cubin/cubin_elf_int.h"
#include "cubin/cubin_patched_int.h"
#include "cubin/cubin_plan_int.h"
#include "cubin/cubin_redirect_int.h"
#include "cubin/cubin_scan_int.h"
#include "cubin/cubin_stub_int.h"

struct patching {
	const struct cubin_elf *elf;
	struct cubin_scan *scan;
	const struct cubin_stub *stub;
	const struct cubin_redirects *redirects; /* of a copy; NULL: none */
	struct cubin_layout layout;
	uint8_t *to;
};

static bool same_family(unsigned a, unsigned b)
{
	return a / 10 == b / 10;
}

/* From Mercury sections the driver can recompile an image for another architecture of the family,
 * and that code would lack the stub. */
static int check_arch(const struct cubin_elf *e, const struct cubin_stub *stub, struct report *r)
{
	if (!same_family(e->arch, stub->arch)) {
		return cubin_refuse(r, "code for sm_%u with a stub for sm_%u", e->arch, stub->arch);
	}
	if (e->arch != stub->arch && cubin_elf_is_mercury(e)) {
		return cubin_refuse(r, "code for sm_%u that the driver compiles for sm_%u", e->arch,
				    stub->arch);
	}
	return 0;
}

static void size_sections(struct patching *p)
{
	const struct cubin_redirects *d = p->redirects;

	if (d && d->bank.relocs) {
		p->layout.bytes[d->bank.relocs] = cubin_redirects_reloc_bytes(&d->bank, p->elf);
	}
	if (d && d->code.relocs) {
		p->layout.bytes[d->code.relocs] = cubin_redirects_reloc_bytes(&d->code, p->elf);
	}
	for (size_t i = 0; i < p->scan->n; i++) {
		const struct cubin_parts *parts = &p->scan->parts[i];
		const struct cubin_kernel *k = &p->scan->kernels[i];

		if (k->why == CUBIN_OK) {
			p->layout.bytes[parts->text] = cubin_plan_text(k, p->stub);
			p->layout.bytes[parts->bank] = cubin_plan_bank(k, p->stub);
			p->layout.bytes[parts->info] = cubin_plan_info(p->elf, parts, p->stub);
		}
	}
}

/* Returns false if the section is neither the bank with addresses that are replaced, nor their
 * relocations. */
static bool write_redirected(const struct patching *p, uint32_t section, uint8_t *to)
{
	const struct cubin_redirects *d = p->redirects;

	if (d && section == d->bank.section) {
		cubin_redirects_write_bank(to, &d->bank, p->elf);
	} else if (d && section == d->bank.relocs) {
		cubin_redirects_write_relocs(to, &d->bank, p->elf);
	} else if (d && section == d->code.relocs) {
		cubin_redirects_write_relocs(to, &d->code, p->elf);
	} else {
		return false;
	}
	return true;
}

static void write_section(const struct patching *p, uint32_t section)
{
	uint32_t kernel = p->scan->kernel_of[section];
	uint8_t *to = p->to + p->layout.offset[section];
	const struct cubin_parts *parts = kernel ? &p->scan->parts[kernel - 1] : NULL;
	const struct cubin_kernel *k = kernel ? &p->scan->kernels[kernel - 1] : NULL;

	if (write_redirected(p, section, to)) {
		return;
	}
	if (!k || k->why != CUBIN_OK) {
		memcpy(to, cubin_elf_data(p->elf, section), p->elf->sections[section].sh_size);
	} else if (section == parts->text) {
		cubin_write_text(to, p->elf, parts, k, p->stub);
		if (p->redirects && section == p->redirects->code.section) {
			cubin_redirects_write_code(to, &p->redirects->code);
		}
	} else if (section == parts->bank) {
		cubin_write_bank(to, p->elf, parts, k, p->stub);
	} else {
		cubin_write_info(to, p->elf, parts, k, p->stub);
	}
}

/* Where a place of the old image went, for what is changed inside an unchanged section. */
static uint8_t *moved(const struct patching *p, uint32_t section, uint64_t at)
{
	return p->to + p->layout.offset[section] + (at - p->elf->sections[section].sh_offset);
}

static void write_symbol(const struct patching *p, const struct cubin_parts *parts, uint64_t bytes)
{
	uint64_t at = p->elf->sections[p->elf->symtab].sh_offset;

	at += (uint64_t)parts->symbol * sizeof(Elf64_Sym) + offsetof(Elf64_Sym, st_size);
	memcpy(moved(p, p->elf->symtab, at), &bytes, sizeof(bytes));
}

/* Raises the register count that a record of section i states, if it is a patched kernel's. */
static void write_regcount(const struct patching *p, uint32_t i, const struct cubin_attr *a)
{
	Elf64_Sym y = cubin_elf_symbol(p->elf, cubin_u32(a->data));
	uint32_t kernel = y.st_shndx < p->elf->n_sections ? p->scan->kernel_of[y.st_shndx] : 0;

	if (kernel && p->scan->parts[kernel - 1].symbol == cubin_u32(a->data) &&
	    p->scan->kernels[kernel - 1].why == CUBIN_OK) {
		cubin_put32(moved(p, i, (uint64_t)(a->data + 4 - p->elf->data)),
			    MAX(cubin_u32(a->data + 4), p->stub->registers));
	}
}

/* Register counts of the kernels in the attributes of the image. */
static void write_regcounts(const struct patching *p)
{
	for (uint32_t i = 1; i < p->elf->n_sections; i++) {
		const uint8_t *at, *end;
		struct cubin_attr a;

		if (p->elf->sections[i].sh_type != CUBIN_TYPE_INFO ||
		    strcmp(cubin_elf_name(p->elf, i), ".nv.info") != 0) {
			continue;
		}
		at = cubin_elf_data(p->elf, i);
		end = at + p->elf->sections[i].sh_size;
		while (cubin_attr_next(&at, end, &a) > 0) {
			if (a.id == CUBIN_ATTR_REGCOUNT) {
				write_regcount(p, i, &a);
			}
		}
	}
}

static void write_tables(const struct patching *p)
{
	uint8_t *to = p->to + p->layout.sections_at;
	Elf64_Ehdr head = p->elf->head;

	head.e_shoff = p->layout.sections_at;
	head.e_phoff = p->elf->n_segments ? p->layout.segments_at : 0;
	memcpy(p->to, &head, sizeof(head));
	for (uint32_t i = 0; i < p->elf->n_sections; i++) {
		Elf64_Shdr s = p->elf->sections[i];
		uint32_t kernel = p->scan->kernel_of[i];
		const struct cubin_kernel *k = kernel ? &p->scan->kernels[kernel - 1] : NULL;

		if (i) {
			s.sh_offset = p->layout.offset[i];
			s.sh_size = p->layout.bytes[i];
		}
		if (k && k->why == CUBIN_OK && p->scan->parts[kernel - 1].text == i) {
			if (s.sh_info >> 24) {
				s.sh_info = (s.sh_info & 0xffffff) |
					    MAX(s.sh_info >> 24, p->stub->registers) << 24;
			}
			if (p->elf->abi == CUBIN_ABI_OLD) {
				s.sh_flags &= ~((uint64_t)0x7f << 20);
				s.sh_flags |= (uint64_t)MAX(k->barriers, p->stub->barriers) << 20;
			}
		}
		memcpy(to + i * sizeof(s), &s, sizeof(s));
	}
}

static int write_segments(const struct patching *p, struct report *r)
{
	for (uint32_t i = 0; i < p->elf->n_segments; i++) {
		Elf64_Phdr s = p->elf->segments[i];
		int err = cubin_layout_segment(&p->layout, p->elf, &s, r);

		if (err < 0) {
			return err;
		}
		memcpy(p->to + p->layout.segments_at + i * sizeof(s), &s, sizeof(s));
	}
	return 0;
}

static int write_image(struct patching *p, struct report *r)
{
	int err;

	size_sections(p);
	err = cubin_layout_make(&p->layout, p->elf, r);
	if (err < 0) {
		return err;
	}
	p->to = calloc(p->layout.total, 1);
	if (!p->to) {
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < p->elf->n_sections; i++) {
		if (cubin_elf_in_file(p->elf, i)) {
			write_section(p, i);
		}
	}
	for (size_t i = 0; i < p->scan->n; i++) {
		if (p->scan->kernels[i].why == CUBIN_OK) {
			write_symbol(p, &p->scan->parts[i],
				     p->layout.bytes[p->scan->parts[i].text]);
		}
	}
	write_regcounts(p);
	write_tables(p);
	return write_segments(p, r);
}

static int patch_image(struct cubin_patched *to, struct cubin_scan *scan,
		       const struct cubin_stub *stub, const struct cubin_redirects *d,
		       struct report *r)
{
	struct patching p = { .elf = scan->elf, .scan = scan, .stub = stub, .redirects = d };
	int err = cubin_layout_init(&p.layout, scan->elf);

	if (!err) {
		err = write_image(&p, r);
	}
	if (!err) {
		err = cubin_check_copy(scan->elf->data, scan->elf->bytes, p.to, p.layout.total,
				       stub, d, r);
	}
	if (err < 0) {
		free(p.to);
	} else {
		cubin_patched_set_image(to, p.to, p.layout.total, cubin_patched_free);
	}
	cubin_layout_finish(&p.layout);
	return err;
}

/* Moves the kernels out of the scan. */
static void take_kernels(struct cubin_patched *to, struct cubin_scan *scan)
{
	to->kernels = scan->kernels;
	to->params = scan->params;
	to->names = scan->names;
	to->n = scan->n;
	scan->kernels = NULL;
	scan->params = NULL;
	strmap_init(&scan->names);
}

/* The kernel that is patched alone, for a copy. */
struct choice {
	const char *kernel; /* NULL: all are */
	cubin_address_fn *address;
	void *arg;
	struct cubin_redirects redirects; /* owned */
	bool redirected;
};

static int find_variables(const struct cubin_elf *e, struct choice *c, struct cubin_uses uses,
			  struct report *r)
{
	int err;

	if (!c->address) {
		return report_set(r, -ENOTSUP, "cubin",
				  "a copy of the kernel would have its own variables");
	}
	err = cubin_redirects_make(&c->redirects, e, uses, c->address, c->arg, r);
	c->redirected = !err;
	return err;
}

/* Excludes all kernels but one, which must be fit to run from a copy. */
static int choose(struct cubin_scan *scan, struct choice *c, struct report *r)
{
	const struct cubin_kernel *k = strmap_get(&scan->names, c->kernel);
	struct cubin_uses uses;
	int err;

	if (!k) {
		return report_set(r, -ENOENT, "cubin", "no kernel '%s'", c->kernel);
	}
	for (size_t i = 0; i < scan->n; i++) {
		if (&scan->kernels[i] != k && scan->kernels[i].why == CUBIN_OK) {
			scan->kernels[i].why = CUBIN_NOT_CHOSEN;
		}
	}
	err = cubin_copy_check(scan->elf, scan, k, &uses, r);
	return !err && (uses.bank || uses.code) ? find_variables(scan->elf, c, uses, r) : err;
}

static int patch_elf(struct cubin_patched **ret, const struct cubin_elf *e, struct choice *c,
		     const struct cubin_stub *stub, struct report *r)
{
	struct cubin_patched *to = NULL;
	struct cubin_scan scan;
	int err = check_arch(e, stub, r);

	if (!err) {
		err = cubin_scan_open(&scan, e, r);
	}
	if (err < 0) {
		return err;
	}
	err = c->kernel ? choose(&scan, c, r) : 0;
	if (!err) {
		to = calloc(1, sizeof(*to));
		err = to ? 0 : -ENOMEM;
	}
	if (to) {
		to->patched = cubin_plan_kernels(&scan, stub);
		err = to->patched ? patch_image(to, &scan, stub,
						c->redirected ? &c->redirects : NULL, r)
				  : -ENOENT;
	}
	if (to && (err == 0 || err == -ENOENT)) {
		take_kernels(to, &scan);
		*ret = to;
	} else {
		free(to);
	}
	cubin_scan_finish(&scan);
	return err;
}

static int patch_kernels(struct cubin_patched **ret, const void *image, size_t bytes,
			 struct choice *c, const struct cubin_stub *s, struct report *r)
{
	struct cubin_elf e;
	int err = cubin_elf_open(&e, image, bytes, r);

	if (err < 0) {
		return err;
	}
	err = patch_elf(ret, &e, c, s, r);
	cubin_redirects_finish(&c->redirects);
	cubin_elf_finish(&e);
	return err;
}

int cubin_patch(struct cubin_patched **ret, const void *image, size_t bytes,
		const struct cubin_stub *s, struct report *r)
{
	struct choice all = { .kernel = NULL };

	return patch_kernels(ret, image, bytes, &all, s, r);
}

int cubin_patch_copy(struct cubin_patched **ret, const void *image, size_t bytes,
		     const char *kernel, const struct cubin_stub *s, cubin_address_fn *address,
		     void *arg, struct report *r)
{
	struct choice c = { .kernel = kernel, .address = address, .arg = arg };
	struct cubin_patched *p = NULL;
	int err = patch_kernels(&p, image, bytes, &c, s, r);

	if (err == -ENOENT && p) {
		(void)report_set(r, err, "cubin", "'%s' cannot be patched: %s", kernel,
				 cubin_why_text(cubin_patched_find(p, kernel)->why));
		cubin_patched_close(p);
	} else if (!err) {
		*ret = p;
	}
	return err;
}
