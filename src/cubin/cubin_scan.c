/* Finds the kernels of a cubin by one pass over sections, symbols, attributes and relocations each.
 */
#include "cubin/cubin_scan_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void refuse_kernel(struct cubin_kernel *k, enum cubin_why why)
{
	if (k->why == CUBIN_OK) {
		k->why = why;
	}
}

static bool known_type(uint32_t type)
{
	return type <= SHT_STRTAB || type == SHT_RELA || type == SHT_NOTE || type == SHT_NOBITS ||
	       type == SHT_REL || (type >= CUBIN_TYPE_INFO && type <= CUBIN_TYPE_INFO + 0x16) ||
	       (type >= CUBIN_TYPE_CONSTANT0 && type <= CUBIN_TYPE_CONSTANT0 + 0x19) ||
	       (type >= 0x70000082u && type <= 0x70000087u);
}

static int check_types(const struct cubin_elf *e, struct report *r)
{
	for (uint32_t i = 1; i < e->n_sections; i++) {
		if (!known_type(e->sections[i].sh_type)) {
			return cubin_refuse(r, "section '%s' of unknown type 0x%x",
					    cubin_elf_name(e, i), e->sections[i].sh_type);
		}
		if (cubin_elf_suffix(e, i, ".text.") && e->sections[i].sh_type != SHT_PROGBITS) {
			return cubin_refuse(r, "code in a section of type 0x%x",
					    e->sections[i].sh_type);
		}
	}
	return 0;
}

/* Finds the symbols of kernels: entry_of[text] becomes the symbol. */
static int find_entries(struct cubin_scan *s, uint32_t *entry_of, struct report *r)
{
	const struct cubin_elf *e = s->elf;

	for (uint32_t i = 1; i < e->n_symbols; i++) {
		Elf64_Sym y = cubin_elf_symbol(e, i);
		const char *name;

		if (ELF64_ST_TYPE(y.st_info) != STT_FUNC || !(y.st_other & CUBIN_SYMBOL_ENTRY) ||
		    y.st_shndx == SHN_UNDEF) {
			continue;
		}
		name = y.st_shndx < e->n_sections ? cubin_elf_suffix(e, y.st_shndx, ".text.")
						  : NULL;
		if (!name || strcmp(name, cubin_elf_symbol_name(e, &y)) != 0 || y.st_value ||
		    y.st_size != e->sections[y.st_shndx].sh_size || entry_of[y.st_shndx]) {
			return cubin_refuse(r, "kernel symbol '%s' is not that of its section",
					    cubin_elf_symbol_name(e, &y));
		}
		entry_of[y.st_shndx] = i;
		s->n++;
	}
	return 0;
}

static int make_kernels(struct cubin_scan *s, const uint32_t *entry_of, struct report *r)
{
	size_t n = 0;
	int err;

	s->kernels = calloc(s->n ? s->n : 1, sizeof(*s->kernels));
	s->parts = calloc(s->n ? s->n : 1, sizeof(*s->parts));
	if (!s->kernels || !s->parts) {
		return -ENOMEM;
	}
	for (uint32_t i = 1; i < s->elf->n_sections; i++) {
		const char *name = cubin_elf_suffix(s->elf, i, ".text.");

		if (!entry_of[i]) {
			continue;
		}
		err = strmap_add(&s->names, name, &s->kernels[n]);
		if (err < 0) {
			return err == -EEXIST ? cubin_refuse(r, "more than one kernel '%s'", name)
					      : err;
		}
		s->kernels[n].name = s->names.entries[s->names.n - 1].key;
		s->kernels[n].code_bytes = (uint32_t)s->elf->sections[i].sh_size;
		s->parts[n].text = i;
		s->parts[n].symbol = entry_of[i];
		s->kernel_of[i] = (uint32_t)++n;
	}
	return 0;
}

/* Joins attributes and banks with their kernels. */
static int find_parts(struct cubin_scan *s, struct report *r)
{
	const struct cubin_elf *e = s->elf;

	for (uint32_t i = 1; i < e->n_sections; i++) {
		const Elf64_Shdr *h = &e->sections[i];
		const char *info = cubin_elf_suffix(e, i, ".nv.info.");
		const char *bank = info ? NULL : cubin_elf_suffix(e, i, ".nv.constant0.");
		const struct cubin_kernel *k =
			info || bank ? strmap_get(&s->names, info ? info : bank) : NULL;
		struct cubin_parts *p = k ? &s->parts[k - s->kernels] : NULL;
		uint32_t *part;

		if (!p) {
			continue;
		}
		part = info ? &p->info : &p->bank;
		if (*part || (h->sh_flags & SHF_INFO_LINK && h->sh_info != p->text) ||
		    (info ? h->sh_type != CUBIN_TYPE_INFO
			  : h->sh_type != SHT_PROGBITS && h->sh_type != CUBIN_TYPE_CONSTANT0)) {
			return cubin_refuse(r, "section '%s' is not that of its kernel",
					    cubin_elf_name(e, i));
		}
		*part = i;
		s->kernel_of[i] = (uint32_t)(k - s->kernels) + 1;
	}
	return 0;
}

/* Whether a function is of the device runtime, through which kernels launch kernels. */
static bool starts_device_work(const char *symbol)
{
	static const char *const prefixes[] = {
		"__cudaCDP",	   "__cuda_syscall_cnp",     "cudaLaunchDevice",
		"cnpLaunchDevice", "cudaGetParameterBuffer", "cnpGetParameterBuffer",
	};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
		if (!strncmp(symbol, prefixes[i], strlen(prefixes[i]))) {
			return true;
		}
	}
	return false;
}

/* Section symbols of banks, and whether the image can launch kernels. */
static void note_symbols(struct cubin_scan *s)
{
	const struct cubin_elf *e = s->elf;
	bool launches = false;

	for (uint32_t i = 1; i < e->n_symbols; i++) {
		Elf64_Sym y = cubin_elf_symbol(e, i);
		unsigned type = ELF64_ST_TYPE(y.st_info);

		if (type == STT_SECTION && y.st_shndx < e->n_sections && s->kernel_of[y.st_shndx]) {
			struct cubin_parts *p = &s->parts[s->kernel_of[y.st_shndx] - 1];

			if (p->bank == y.st_shndx) {
				p->bank_symbol = i;
			}
		} else if (type == STT_FUNC && !(y.st_other & CUBIN_SYMBOL_ENTRY)) {
			launches |= starts_device_work(cubin_elf_symbol_name(e, &y));
		}
	}
	for (size_t i = 0; i < s->n && launches; i++) {
		refuse_kernel(&s->kernels[i], CUBIN_DEVICE_RUNTIME);
	}
}

/* Register counts stand in the attributes of the image, by symbol. */
static int read_regcounts(struct cubin_scan *s, uint32_t section, struct report *r)
{
	const struct cubin_elf *e = s->elf;
	const uint8_t *at = cubin_elf_data(e, section), *end = at + e->sections[section].sh_size;
	struct cubin_attr a;
	int err;

	while ((err = cubin_attr_next(&at, end, &a)) > 0) {
		Elf64_Sym y;
		struct cubin_parts *p;
		uint32_t kernel;

		if (a.id > CUBIN_ATTR_KNOWN_MAX) {
			return cubin_refuse(r, "unknown attribute 0x%02x of the image", a.id);
		}
		if (a.id != CUBIN_ATTR_REGCOUNT) {
			continue;
		}
		if (a.len != 8 || cubin_u32(a.data) >= e->n_symbols) {
			return cubin_refuse(r, "a register count of an unknown form");
		}
		y = cubin_elf_symbol(e, cubin_u32(a.data));
		kernel = y.st_shndx < e->n_sections ? s->kernel_of[y.st_shndx] : 0;
		if (!kernel || s->parts[kernel - 1].symbol != cubin_u32(a.data)) {
			continue; /* a function's */
		}
		p = &s->parts[kernel - 1];
		if (p->regcount_at) {
			return cubin_refuse(r, "two register counts of one kernel");
		}
		p->regcount_at = (uint32_t)(a.data + 4 - e->data);
		s->kernels[kernel - 1].registers = cubin_u32(a.data + 4);
	}
	return err < 0 ? cubin_refuse(r, "broken attributes of the image") : 0;
}

static int read_attrs(struct cubin_scan *s, struct report *r)
{
	size_t total = 0;
	struct cubin_param *next;

	for (uint32_t i = 1; i < s->elf->n_sections; i++) {
		if (s->elf->sections[i].sh_type == CUBIN_TYPE_INFO &&
		    !strcmp(cubin_elf_name(s->elf, i), ".nv.info")) {
			int err = read_regcounts(s, i, r);

			if (err < 0) {
				return err;
			}
		}
	}
	for (size_t i = 0; i < s->n; i++) {
		int n = s->parts[i].info ? cubin_scan_params(s->elf, s->parts[i].info) : 0;

		if (n < 0) {
			return cubin_refuse(r, "broken attributes of kernel '%s'",
					    s->kernels[i].name);
		}
		s->kernels[i].n_params = (uint32_t)n;
		total += (size_t)n;
	}
	s->params = calloc(total + 1, sizeof(*s->params));
	if (!s->params) {
		return -ENOMEM;
	}
	next = s->params;
	for (size_t i = 0; i < s->n; i++) {
		int err = cubin_scan_attrs(s->elf, &s->parts[i], &s->kernels[i], next, r);

		if (err < 0) {
			return err;
		}
		next += s->kernels[i].n_params;
	}
	return 0;
}

/* Whether a relocation in `target` only describes code, for debuggers and unwinding. */
static bool describes(const struct cubin_elf *e, uint32_t target)
{
	return cubin_elf_suffix(e, target, ".debug_") ||
	       cubin_elf_suffix(e, target, ".nv_debug_") ||
	       cubin_elf_suffix(e, target, ".nv.merc.debug_") ||
	       cubin_elf_suffix(e, target, ".nv.merc.nv_debug_");
}

static void note_reloc(struct cubin_scan *s, uint32_t target, const struct cubin_reloc *l)
{
	Elf64_Sym y = cubin_elf_symbol(s->elf, l->symbol);
	uint32_t at = s->kernel_of[target];
	uint32_t to = y.st_shndx < s->elf->n_sections ? s->kernel_of[y.st_shndx] : 0;

	if (at && s->parts[at - 1].text == target && l->offset < 16) {
		refuse_kernel(&s->kernels[at - 1], CUBIN_RELOCATED);
	}
	if (!to || s->parts[to - 1].text != y.st_shndx || describes(s->elf, target)) {
		return;
	}
	/* An address inside the kernel that is not its first instruction's stays valid. */
	if (y.st_value + (uint64_t)l->addend < CUBIN_ENTRY_BYTES) {
		refuse_kernel(&s->kernels[to - 1], CUBIN_REFERENCED);
	}
}

static void read_relocs(struct cubin_scan *s)
{
	for (uint32_t i = 1; i < s->elf->n_sections; i++) {
		size_t n = cubin_elf_is_reloc(s->elf, i) ? cubin_elf_relocs(s->elf, i) : 0;

		for (size_t q = 0; q < n; q++) {
			struct cubin_reloc l = cubin_elf_reloc(s->elf, i, q);

			note_reloc(s, s->elf->sections[i].sh_info, &l);
		}
	}
}

static int scan(struct cubin_scan *s, uint32_t *entry_of, struct report *r)
{
	int err = check_types(s->elf, r);

	if (!err) {
		err = find_entries(s, entry_of, r);
	}
	if (!err) {
		err = make_kernels(s, entry_of, r);
	}
	if (!err) {
		err = find_parts(s, r);
	}
	if (!err) {
		note_symbols(s);
		err = read_attrs(s, r);
	}
	if (err < 0) {
		return err;
	}
	read_relocs(s);
	for (size_t i = 0; i < s->n; i++) {
		cubin_scan_code(s->elf, &s->parts[i], &s->kernels[i]);
	}
	return 0;
}

int cubin_scan_open(struct cubin_scan *s, const struct cubin_elf *e, struct report *r)
{
	uint32_t *entry_of = calloc(e->n_sections, sizeof(*entry_of));
	int err = -ENOMEM;

	memset(s, 0, sizeof(*s));
	s->elf = e;
	strmap_init(&s->names);
	s->kernel_of = calloc(e->n_sections, sizeof(*s->kernel_of));
	if (entry_of && s->kernel_of) {
		err = scan(s, entry_of, r);
	}
	free(entry_of);
	if (err < 0) {
		cubin_scan_finish(s);
	}
	return err;
}

void cubin_scan_finish(struct cubin_scan *s)
{
	free(s->kernels);
	free(s->parts);
	free(s->params);
	free(s->kernel_of);
	strmap_finish(&s->names);
	s->kernels = NULL;
	s->parts = NULL;
	s->params = NULL;
	s->kernel_of = NULL;
}
