/* opcodes.def as a table: the decoder of each opcode. */
#include "soft/server/exec/decode/decode_kernel.h"
#include "soft/server/exec/op/integer.h"
#include "soft/server/exec/op/video.h"

#include <stdlib.h>
#include <string.h>

/* Sorted by name. */
#define OPCODE(name, decode, argument, count, text) { #name, decode, argument, count, NULL },
#define MISSING(name, text) { #name, NULL, 0, 0, text },
static const struct exec_opcode opcodes[] = {
#include "soft/server/exec/decode/opcodes.def"
};
#undef OPCODE
#undef MISSING

static int by_name(const void *key, const void *entry)
{
	return strcmp(key, ((const struct exec_opcode *)entry)->name);
}

const struct exec_opcode *exec_dec_opcode_find(const char *name)
{
	return bsearch(name, opcodes, ARRAY_SIZE(opcodes), sizeof(opcodes[0]), by_name);
}
