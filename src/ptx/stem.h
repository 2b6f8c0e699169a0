/* Names that a pass adds: a stem that no name of the module begins with. */
#ifndef GBPF_PTX_STEM_H
#define GBPF_PTX_STEM_H

#include "ptx/module.h"

#define PTX_STEM_MAX 99999999u

/* Returns the lowest number from which on WORD and the number begin no name in the list, also
 * behind % or $: 0, or one more than the highest number that is used. Above PTX_STEM_MAX: there is
 * none. */
uint32_t ptx_stem_number(const struct ptx_list *list, const char *word);

#endif
