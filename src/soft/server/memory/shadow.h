/* The state of each byte of a window (EXEC_SHADOW_*) while --check is enabled; otherwise these
 * functions do nothing. Ranges lie in the window; offsets are relative to its start. */
#ifndef GBPF_SOFT_SERVER_MEMORY_SHADOW_H
#define GBPF_SOFT_SERVER_MEMORY_SHADOW_H

#include "soft/server/exec/exec.h"

int softd_shadow_init(struct exec_space *s);
void softd_shadow_finish(struct exec_space *s);
/* Marks fresh memory as allocated but uninitialized, and fills it with EXEC_POISON. */
void softd_shadow_set_allocated(struct exec_space *s, uint64_t offset, uint64_t bytes);
/* Marks memory that may be read at once: pinned, imported, mapped, written by the host. */
void softd_shadow_set_initialized(struct exec_space *s, uint64_t offset, uint64_t bytes);
void softd_shadow_set_freed(struct exec_space *s, uint64_t offset, uint64_t bytes);
/* Propagates initialization with a copy; the source may have no shadow. */
void softd_shadow_copy(struct exec_space *to, uint64_t offset, const struct exec_space *from,
		       uint64_t from_offset, uint64_t bytes);

#endif
