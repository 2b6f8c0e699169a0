/* Hooks a library's import slot of ioctl: finds the symbol in the library's relocations and
 * replaces the word that the linker has filled in. Only that library's own calls are observed;
 * ioctl is unchanged for the rest of the process. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"
#include "gpu/control_int.h"
#include "gpu/learn.h"
#include "gpu/ranges.h"

#if defined(__x86_64__)
#define IS_SLOT(type)                                                                              \
	((type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_SLOT(type)                                                                              \
	((type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_ABS64)
#endif

typedef int ioctl_fn(int fd, unsigned long request, ...);

static ioctl_fn *next; /* the slot's previous value */

static int stand_in(int fd, unsigned long request, ...)
{
	void *argument;
	va_list ap;
	int ret, err;

	va_start(ap, request);
	argument = va_arg(ap, void *);
	va_end(ap);
	err = errno;
	gpu_ranges_before(request, argument);
	errno = err;
	ret = load_acquire(&next)(fd, request, argument);
	err = errno;
	gpu_learn_call(fd, request, argument, ret);
	errno = err;
	return ret;
}

/* ---- the library's tables ---- */

struct library {
	uintptr_t base;
	const ElfW(Sym) * symbols;
	const char *strings;
	size_t strings_bytes;
	const ElfW(Rela) * rela, *jump;
	size_t rela_bytes, jump_bytes;
	uintptr_t low, high;		 /* address range of its segments */
	uintptr_t relro_low, relro_high; /* whole pages that the linker has made read-only */
};

/* Where it can write, the linker has already added the base to these addresses, as glibc does. */
static uintptr_t address(const struct link_map *map, const ElfW(Dyn) * d)
{
	return d->d_un.d_ptr < map->l_addr ? map->l_addr + d->d_un.d_ptr : d->d_un.d_ptr;
}

static void read_dynamic(const struct link_map *map, struct library *l)
{
	for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
		switch (d->d_tag) {
		case DT_SYMTAB:
			l->symbols = (const void *)address(map, d);
			break;
		case DT_STRTAB:
			l->strings = (const void *)address(map, d);
			break;
		case DT_STRSZ:
			l->strings_bytes = d->d_un.d_val;
			break;
		case DT_RELA:
			l->rela = (const void *)address(map, d);
			break;
		case DT_RELASZ:
			l->rela_bytes = d->d_un.d_val;
			break;
		case DT_JMPREL:
			l->jump = (const void *)address(map, d);
			break;
		case DT_PLTRELSZ:
			l->jump_bytes = d->d_un.d_val;
			break;
		default:
			break;
		}
	}
}

struct wanted {
	const struct link_map *map;
	struct library *l;
};

static int read_segments(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct wanted *w = arg;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

	(void)size;
	if (info->dlpi_addr != w->map->l_addr ||
	    strcmp(info->dlpi_name ? info->dlpi_name : "", w->map->l_name) != 0) {
		return 0;
	}
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;

		if (p->p_type == PT_LOAD) {
			w->l->low = w->l->low ? MIN(w->l->low, from) : from;
			w->l->high = MAX(w->l->high, to);
		} else if (p->p_type == PT_GNU_RELRO) {
			w->l->relro_low = from & ~(page - 1);
			w->l->relro_high = to & ~(page - 1);
		}
	}
	return 1;
}

static int open_library(void *handle, struct library *l)
{
	struct link_map *map = NULL;
	struct wanted w;

	memset(l, 0, sizeof(*l));
	if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map) {
		return -ENOENT;
	}
	l->base = map->l_addr;
	read_dynamic(map, l);
	w = (struct wanted){ map, l };
	(void)dl_iterate_phdr(read_segments, &w);
	return l->symbols && l->strings && l->low < l->high ? 0 : -ENOENT;
}

/* ---- the slot ---- */

static bool is_ioctl(const struct library *l, const ElfW(Rela) * r)
{
	uint32_t name = l->symbols[ELF64_R_SYM(r->r_info)].st_name;

	return IS_SLOT(ELF64_R_TYPE(r->r_info)) && name < l->strings_bytes &&
	       l->strings_bytes - name >= sizeof("ioctl") &&
	       memcmp(l->strings + name, "ioctl", sizeof("ioctl")) == 0;
}

/* A slot that is bound lazily still points into the library itself; use the ioctl of the process
 * then. */
static ioctl_fn *bound(const struct library *l, uintptr_t value)
{
	return value && (value < l->low || value >= l->high)
		       ? (ioctl_fn *)value
		       : (ioctl_fn *)(uintptr_t)dlsym(RTLD_DEFAULT, "ioctl");
}

static int replace(const struct library *l, uintptr_t *slot)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)slot & ~(page - 1);
	bool sealed = at >= l->relro_low && at < l->relro_high;
	ioctl_fn *before;

	if ((uintptr_t)slot < l->low || (uintptr_t)slot > l->high - sizeof(*slot) ||
	    (uintptr_t)slot % sizeof(*slot)) {
		return -ENOENT;
	}
	if (*slot == (uintptr_t)stand_in) {
		return 0;
	}
	before = bound(l, *slot);
	if (!before) {
		return -ENOENT;
	}
	if (sealed && mprotect((void *)at, page, PROT_READ | PROT_WRITE) < 0) {
		return -errno;
	}
	store_release(&next, before);
	store_release(slot, (uintptr_t)stand_in);
	if (sealed) {
		(void)mprotect((void *)at, page, PROT_READ);
	}
	return 0;
}

static int replace_all(const struct library *l, const ElfW(Rela) * r, size_t bytes, int found)
{
	for (size_t i = 0; r && i < bytes / sizeof(*r); i++) {
		if (is_ioctl(l, &r[i])) {
			int err = replace(l, (uintptr_t *)(l->base + r[i].r_offset));

			found = err ? err : found == -ENOENT ? 0 : found;
		}
	}
	return found;
}

bool gpu_learn_installed(void)
{
	return load_acquire(&next) != NULL;
}

int gpu_learn_install(void *handle)
{
	static bool forks;
	struct library l;
	int err = open_library(handle, &l);

	if (err) {
		return err;
	}
	err = replace_all(&l, l.rela, l.rela_bytes, -ENOENT);
	err = replace_all(&l, l.jump, l.jump_bytes, err);
	if (!err && !xchg_acqrel(&forks, true)) {
		(void)pthread_atfork(NULL, NULL, gpu_learn_forget_all);
	}
	return err;
}
