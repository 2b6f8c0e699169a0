/* Hot words: words of maps to which programs inside kernels add from every warp, so that the warps
 * of a kernel wait for each other there. */
#ifndef GBPF_BPF_LOAD_HOT_WORD_H
#define GBPF_BPF_LOAD_HOT_WORD_H

#include "bpf/load/elf/object.h"

struct ebpf_hot_word {
	const struct ebpf_prog *prog; /* borrowed from the object */
	const struct ebpf_line *line; /* of the atomic; borrowed; NULL: unknown */
	uint32_t map;
};

/* Finds at most `max` hot words of an object that the verifier has accepted: one for each program
 * and map. Returns how many. A finding is certain as far as that the address is the same for all
 * warps and that no branch, other than a test for NULL, leaves any out; words are missed where a
 * program computes the address in loops or functions. */
unsigned ebpf_hot_words(const struct ebpf_object *o, struct ebpf_hot_word *ret, unsigned max);
/* Appends what is wrong and which type of map to use instead, without the place. */
void ebpf_hot_word_text(const struct ebpf_object *o, const struct ebpf_hot_word *w,
			struct buf *out);

#endif
