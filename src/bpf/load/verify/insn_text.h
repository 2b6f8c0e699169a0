/* Instructions as text, for messages and the log of a path. */
#ifndef GBPF_BPF_LOAD_VERIFY_INSN_TEXT_H
#define GBPF_BPF_LOAD_VERIFY_INSN_TEXT_H

#include <stdint.h>

#include "base/buf.h"
#include "bpf/run/insn.h"

/* Formats instruction pc of n instructions, which may hold arbitrary bytes. */
void ebpf_insn_text(const struct ebpf_insn *insns, uint32_t n, uint32_t pc, struct buf *out);

#endif
