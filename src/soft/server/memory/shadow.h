/* While --check is on: what each byte of a window is (EXEC_SHADOW_*). Without it all of these do
 * nothing. Ranges lie in the window; offsets are from its begin. */
#ifndef GBPF_SOFT_SERVER_MEMORY_SHADOW_H
#define GBPF_SOFT_SERVER_MEMORY_SHADOW_H

#include "soft/server/exec/exec.h"

int softd_shadow_init(struct exec_space *s);
void softd_shadow_finish(struct exec_space *s);
/* New memory that nothing has written: filled with 0xff. */
void softd_shadow_set_allocated(struct exec_space *s, uint64_t offset, uint64_t bytes);
/* Memory that may be read at once: pinned, opened, mapped, written from outside. */
void softd_shadow_set_initialized(struct exec_space *s, uint64_t offset, uint64_t bytes);
void softd_shadow_set_freed(struct exec_space *s, uint64_t offset, uint64_t bytes);
/* A copy carries over what was initialized; the source may have no shadow. */
void softd_shadow_copy(struct exec_space *to, uint64_t offset, const struct exec_space *from,
		       uint64_t from_offset, uint64_t bytes);

#endif
