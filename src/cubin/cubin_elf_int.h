/* A cubin as ELF: headers, sections, symbols and attributes, each checked against the bytes that
 * exist before it is used. Knows nothing of patching. */
#ifndef GBPF_CUBIN_CUBIN_ELF_INT_H
#define GBPF_CUBIN_CUBIN_ELF_INT_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

#define CUBIN_MACHINE 190u /* EM_CUDA */
#define CUBIN_TYPE_INFO 0x70000000u
#define CUBIN_TYPE_CONSTANT0 0x70000064u /* in relocatable cubins; others say PROGBITS */
#define CUBIN_TYPE_MERCURY 0x70000016u	 /* code that the driver can recompile */
#define CUBIN_SYMBOL_ENTRY 0x10u	 /* in st_other: a kernel */
#define CUBIN_ABI_OLD 7u		 /* EI_ABIVERSION up to CUDA 12.9 */
#define CUBIN_ABI_NEW 8u
#define CUBIN_BYTES_MAX ((size_t)1 << 31)

struct cubin_elf {
	const uint8_t *data; /* borrowed */
	size_t bytes;
	unsigned abi, arch;
	Elf64_Ehdr head;
	Elf64_Shdr *sections; /* owned copy of the table */
	uint32_t n_sections;
	Elf64_Phdr *segments; /* owned copy of the table */
	uint32_t n_segments;
	const char *names; /* section names; each ends inside the image */
	uint32_t symtab;   /* section index */
	const uint8_t *symbols;
	uint32_t n_symbols;
	const char *strings; /* symbol names; each ends inside the image */
};

/* Opens an image, which must outlive e. 0, -ENOEXEC with a reason in r, -ENOMEM. */
int cubin_elf_open(struct cubin_elf *e, const void *image, size_t bytes, struct report *r);
void cubin_elf_finish(struct cubin_elf *e);

const char *cubin_elf_name(const struct cubin_elf *e, uint32_t section);
/* Returns the text behind prefix if the section's name begins with it, else NULL. */
const char *cubin_elf_suffix(const struct cubin_elf *e, uint32_t section, const char *prefix);
/* i < n_symbols. */
Elf64_Sym cubin_elf_symbol(const struct cubin_elf *e, uint32_t i);
const char *cubin_elf_symbol_name(const struct cubin_elf *e, const Elf64_Sym *s);
/* Bytes of a section that has some in the image (type not NOBITS). */
const uint8_t *cubin_elf_data(const struct cubin_elf *e, uint32_t section);
bool cubin_elf_in_file(const struct cubin_elf *e, uint32_t section);
/* Returns whether the driver can compile the image for other architectures. */
bool cubin_elf_is_mercury(const struct cubin_elf *e);

/* ---- relocations ---- */

struct cubin_reloc {
	uint64_t offset;
	uint32_t symbol, type;
	int64_t addend; /* 0 in tables without addends */
	bool has_addend;
};
bool cubin_elf_is_reloc(const struct cubin_elf *e, uint32_t section);
/* Returns the count of entries of a relocation section. */
size_t cubin_elf_relocs(const struct cubin_elf *e, uint32_t section);
struct cubin_reloc cubin_elf_reloc(const struct cubin_elf *e, uint32_t section, size_t i);

/* ---- attributes (.nv.info) ---- */

enum cubin_attr_id {
	CUBIN_ATTR_CTAIDZ_USED = 0x04,
	CUBIN_ATTR_MAX_THREADS = 0x05,
	CUBIN_ATTR_PARAM_CBANK = 0x0a,
	CUBIN_ATTR_EXTERNS = 0x0f,
	CUBIN_ATTR_REQNTID = 0x10,
	CUBIN_ATTR_FRAME_SIZE = 0x11,
	CUBIN_ATTR_MIN_STACK = 0x12,
	CUBIN_ATTR_KPARAM_INFO = 0x17,
	CUBIN_ATTR_CBANK_PARAM_SIZE = 0x19,
	CUBIN_ATTR_MAXREG_COUNT = 0x1b,
	CUBIN_ATTR_EXITS = 0x1c,
	CUBIN_ATTR_S2RCTAID = 0x1d,
	CUBIN_ATTR_CRS_STACK = 0x1e,
	CUBIN_ATTR_CNP_WRAPPER = 0x1f, /* launches kernels, device runtime before CUDA 12 */
	CUBIN_ATTR_CNP_PATCH = 0x20,
	CUBIN_ATTR_ATOM_SYS = 0x27,
	CUBIN_ATTR_GROUP_INSNS = 0x28,
	CUBIN_ATTR_REGCOUNT = 0x2f,
	CUBIN_ATTR_WARP_WIDE = 0x31,
	CUBIN_ATTR_INDIRECT_TARGETS = 0x34,
	CUBIN_ATTR_SW2861232_WAR = 0x35,
	CUBIN_ATTR_SW_WAR = 0x36,
	CUBIN_ATTR_API_VERSION = 0x37,
	CUBIN_ATTR_COROUTINE = 0x3a,
	CUBIN_ATTR_CLUSTER = 0x3d,
	CUBIN_ATTR_EXPLICIT_CLUSTER = 0x3e,
	CUBIN_ATTR_MAX_CLUSTER_RANK = 0x3f,
	CUBIN_ATTR_UCODE = 0x43,
	CUBIN_ATTR_KPARAM_INFO_V2 = 0x45,
	CUBIN_ATTR_SYSCALLS = 0x46,
	CUBIN_ATTR_MEMBAR_SYS_WAR = 0x47,
	CUBIN_ATTR_VRC_CTA_INIT = 0x4a,
	CUBIN_ATTR_TOOLS_PATCH = 0x4b,
	CUBIN_ATTR_NUM_BARRIERS = 0x4c,
	CUBIN_ATTR_ENTRY_FRAGMENTS = 0x4f,
	CUBIN_ATTR_SPARSE_MMA_MASK = 0x50,
	CUBIN_ATTR_REG_RECONFIG = 0x54, /* setmaxnreg */
	CUBIN_ATTR_STUB_KIND = 0x58,
	CUBIN_ATTR_BLOCKS_ARE_CLUSTERS = 0x5b,
	CUBIN_ATTR_MERCURY_ISA = 0x5f,
	CUBIN_ATTR_KNOWN_MAX = 0x60, /* the highest that CUDA 13.0 has a name for */
	/* No name is known. ptxas 13.2 writes it, with the value 3, into each of the 894 kernels in
	 * CuPy 14's libraries, an empty one included; the drivers of CUDA 13.0 have no name for it
	 * and run these kernels. */
	CUBIN_ATTR_OF_13_2 = 0x66,
};

struct cubin_attr {
	unsigned format; /* 1 nothing, 2 a byte, 3 16 bits, 4 data with a length */
	unsigned id;
	unsigned value;	     /* all but format 4; behind a byte there is 0 */
	const uint8_t *data; /* format 4: its bytes */
	unsigned len;
	unsigned bytes; /* of the whole record */
};
/* Reads the record at *at and moves *at behind it: 1, 0 at the end, -ENOEXEC if it is broken. */
int cubin_attr_next(const uint8_t **at, const uint8_t *end, struct cubin_attr *a);

uint16_t cubin_u16(const uint8_t *p);
uint32_t cubin_u32(const uint8_t *p);
void cubin_put16(uint8_t *p, uint16_t v);
void cubin_put32(uint8_t *p, uint32_t v);

/* Reports that an image is not understood; returns -ENOEXEC. */
int cubin_refuse(struct report *r, const char *fmt, ...) PRINTF_LIKE(2, 3);

#endif
