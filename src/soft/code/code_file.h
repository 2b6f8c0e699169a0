/* The parts of a cubin that writer and reader share. Internal to the room. */
#ifndef GBPF_SOFT_CODE_CODE_FILE_H
#define GBPF_SOFT_CODE_CODE_FILE_H

#include <stdint.h>

#include "ptx/choose.h"

#define SOFT_FILE_MACHINE 190u
#define SOFT_FILE_OS_ABI 0x41u
#define SOFT_FILE_ABI_VERSION 8u     /* of CUDA 13 */
#define SOFT_FILE_FLAGS 0x06005604u  /* sm_86, as ptxas 13.0 writes it */
#define SOFT_FILE_INFO 0x70000000u   /* section type of .nv.info */
#define SOFT_FILE_ENTRY 0x10u	     /* st_other of an entry */
#define SOFT_FILE_ENTRIES_MAX 16384u /* so that 16 bits number the sections */

/* Attributes of .nv.info and .nv.info.K: format, number, then a byte, a u16 or a length. */
enum soft_file_format {
	SOFT_FORMAT_NONE = 1,
	SOFT_FORMAT_BYTE,
	SOFT_FORMAT_HALF,
	SOFT_FORMAT_DATA
};
enum soft_file_attribute {
	SOFT_ATTR_MAX_THREADS = 0x05,
	SOFT_ATTR_PARAM_CBANK = 0x0a,
	SOFT_ATTR_REQ_THREADS = 0x10,
	SOFT_ATTR_FRAME_SIZE = 0x11,
	SOFT_ATTR_MIN_STACK_SIZE = 0x12,
	SOFT_ATTR_KPARAM_INFO = 0x17,
	SOFT_ATTR_CBANK_PARAM_SIZE = 0x19,
	SOFT_ATTR_MAXREG_COUNT = 0x1b,
	SOFT_ATTR_EXIT_OFFSETS = 0x1c,
	SOFT_ATTR_REGCOUNT = 0x2f,
	SOFT_ATTR_API_VERSION = 0x37,
	SOFT_ATTR_NUM_BARRIERS = 0x4c,
};
#define SOFT_RELOC_ADDRESS 2u	   /* relocation: 64 bits, the symbol's address */
#define SOFT_KPARAM_FLAGS 0x1f000u /* below the size */
#define SOFT_KPARAM_BYTES 18u	   /* shift of the size */

/* The section with the module's PTX, by which machine code of the soft GPU is recognized: this
 * head, then the text. */
#define SOFT_FILE_PTX PTX_SOFT_CODE
#define SOFT_FILE_MAGIC                                                                            \
	UINT64_C(0x3130746666736267) /* "gbsfft01": the last two are the version                   \
				      */

struct soft_file_head {
	uint64_t magic;
	uint64_t bytes; /* of the text */
};

#endif
