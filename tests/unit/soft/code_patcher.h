/* Patches a kernel of a cubin by hand, as a driver would find it behind src/cubin, in the simplest
 * way: changed sections are appended to the file. Trusts the file. Errors can be planted, one at a
 * time. */
#ifndef GBPF_TESTS_SOFT_CODE_PATCHER_H
#define GBPF_TESTS_SOFT_CODE_PATCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum patch_fault {
	PATCH_RIGHT,
	PATCH_NO_PARAMETER, /* the tables do not have the argument */
	PATCH_PARAMETER_ELSEWHERE,
	PATCH_PARAMETER_TWICE,
	PATCH_BANK_SIZE,
	PATCH_BANK_BYTES,
	PATCH_CONSTANTS,
	PATCH_NO_EXITS, /* the stub's exits are not listed */
	PATCH_EXIT_ELSEWHERE,
	PATCH_REGISTERS,
	PATCH_NO_BARRIER,
	PATCH_SYMBOL_BYTES,
	PATCH_NO_WAIT, /* the NOP behind the stub waits for nothing */
	PATCH_NO_DISPLACED,
	PATCH_BACK_ELSEWHERE,
	PATCH_TO_ELSEWHERE,
	PATCH_BODY_CHANGED,
	PATCH_UNKNOWN_INSN,
	PATCH_ARGUMENT_ELSEWHERE, /* an instruction refers to what is no parameter */
	PATCH_TAIL,
	PATCH_FAULTS
};

/* Appends the image with `kernel` patched. stub: machine code of an entry STUB(.b8 pad[pad_bytes],
 * .b8 arg[arg_bytes]). */
void patch_kernel(struct buf *ret, const void *image, size_t bytes, const char *kernel,
		  const void *stub, const char *stub_name, uint32_t pad_bytes, uint32_t arg_bytes,
		  enum patch_fault fault);

/* Returns the kernel's number of registers. */
uint32_t patch_registers(const void *image, const char *kernel);

/* Returns the contents of a section. */
const uint8_t *patch_section(const void *image, const char *prefix, const char *name,
			     size_t *ret_bytes);

#endif
