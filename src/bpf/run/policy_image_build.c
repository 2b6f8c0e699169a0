/* Writes an image: copies the parts in order into a memfd and seals it against changes. */
#include "bpf/run/policy_image.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "bpf/run/exec_mem.h"

#define PAGE 4096u

static int counts_ok(const struct ebpf_image_header *h, const struct ebpf_image_parts *p,
		     size_t code_at)
{
	return h->n_maps <= EBPF_MAX_MAPS && h->n_tails <= EBPF_MAX_TAILS &&
	       h->n_insns <= EBPF_MAX_HOOKS * EBPF_MAX_INSNS &&
	       h->n_devices <= EBPF_MAX_DEVICE_PROGS &&
	       h->device_text_bytes <= EBPF_MAX_DEVICE_TEXT &&
	       p->code_bytes <= EBPF_MAX_IMAGE_BYTES &&
	       code_at + p->code_bytes <= EBPF_MAX_IMAGE_BYTES;
}

int ebpf_image_build_parts(struct ebpf_image_header *h, const struct ebpf_image_parts *p)
{
	struct ebpf_exec_part parts[] = {
		{ h, 0, sizeof(*h) },
		{ p->defs, 0, (size_t)h->n_maps * sizeof(*p->defs) },
		{ p->insns, 0, (size_t)h->n_insns * sizeof(*p->insns) },
		{ p->devices, 0, (size_t)h->n_devices * sizeof(*p->devices) },
		{ p->tails, 0, (size_t)h->n_tails * sizeof(*p->tails) },
		{ p->device_text, 0, h->device_text_bytes },
		{ p->code, 0, p->code ? p->code_bytes : 0 },
	};
	size_t n = ARRAY_SIZE(parts), at = 0, code_at;

	for (size_t i = 0; i < n - 1; i++) {
		parts[i].offset = at;
		at += parts[i].bytes;
	}
	code_at = parts[n - 1].offset = ROUND_UP(at, PAGE);
	if (!counts_ok(h, p, code_at)) {
		return -E2BIG;
	}
	h->magic = EBPF_IMAGE_MAGIC;
	h->header_bytes = sizeof(*h);
	h->name[EBPF_NAME_BYTES - 1] = 0;
	h->code_bytes = p->code ? (uint32_t)p->code_bytes : 0;
	h->code_offset = h->code_bytes ? (uint32_t)code_at : 0;
	h->arch = h->code_bytes ? EM_X86_64 : 0;
	return ebpf_exec_create("gbpf-image", code_at + ROUND_UP((size_t)h->code_bytes, PAGE),
				parts, ARRAY_SIZE(parts));
}

int ebpf_image_build(struct ebpf_image_header *h, const struct ebpf_map_def *defs,
		     const struct ebpf_insn *insns, const void *code, size_t code_bytes)
{
	h->n_tails = h->n_devices = h->device_text_bytes = 0;
	return ebpf_image_build_parts(
		h, &(struct ebpf_image_parts){
			   .defs = defs, .insns = insns, .code = code, .code_bytes = code_bytes });
}

int ebpf_image_renumber(const void *image, size_t bytes, uint64_t version)
{
	struct ebpf_image_header h;
	const struct ebpf_exec_part parts[] = {
		{ &h, 0, sizeof(h) },
		{ (const char *)image + sizeof(h), sizeof(h), bytes - sizeof(h) },
	};

	memcpy(&h, image, sizeof(h));
	h.version = version;
	return ebpf_exec_create("gbpf-image", bytes, parts, ARRAY_SIZE(parts));
}
