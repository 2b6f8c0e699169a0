/* Writes an image: copies the parts in order into a memfd and seals it against changes. */
#include "bpf/run/policy_image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/exec_mem.h"

#define PAGE 4096u

int ebpf_image_build_tails(struct ebpf_image_header *h, const struct ebpf_map_def *defs,
			   const struct ebpf_insn *insns, const struct ebpf_tail_at *tails,
			   const void *code, size_t code_bytes)
{
	size_t defs_bytes = (size_t)h->n_maps * sizeof(*defs);
	size_t insns_bytes = (size_t)h->n_insns * sizeof(*insns);
	size_t tails_bytes = (size_t)h->n_tails * sizeof(*tails);
	size_t data_bytes = sizeof(*h) + defs_bytes + insns_bytes + tails_bytes;
	size_t code_at = ROUND_UP(data_bytes, PAGE);
	struct ebpf_exec_part parts[] = {
		{ h, 0, sizeof(*h) },
		{ defs, sizeof(*h), defs_bytes },
		{ insns, sizeof(*h) + defs_bytes, insns_bytes },
		{ tails, sizeof(*h) + defs_bytes + insns_bytes, tails_bytes },
		{ code, code_at, code ? code_bytes : 0 },
	};

	if (h->n_maps > EBPF_MAX_MAPS || h->n_tails > EBPF_MAX_TAILS ||
	    h->n_insns > EBPF_MAX_HOOKS * EBPF_MAX_INSNS || code_bytes > EBPF_MAX_IMAGE_BYTES ||
	    code_at + code_bytes > EBPF_MAX_IMAGE_BYTES) {
		return -E2BIG;
	}
	h->magic = EBPF_IMAGE_MAGIC;
	h->header_bytes = sizeof(*h);
	h->name[EBPF_NAME_BYTES - 1] = 0;
	h->code_bytes = code ? (uint32_t)code_bytes : 0;
	h->code_offset = h->code_bytes ? (uint32_t)code_at : 0;
	h->arch = h->code_bytes ? EM_X86_64 : 0;
	return ebpf_exec_create("gbpf-image",
				h->code_bytes ? code_at + ROUND_UP(code_bytes, PAGE) : code_at,
				parts, ARRAY_SIZE(parts));
}

int ebpf_image_build(struct ebpf_image_header *h, const struct ebpf_map_def *defs,
		     const struct ebpf_insn *insns, const void *code, size_t code_bytes)
{
	h->n_tails = 0;
	return ebpf_image_build_tails(h, defs, insns, NULL, code, code_bytes);
}
