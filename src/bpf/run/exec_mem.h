/* Executable memory, mapped only from fully sealed memfds. */
#ifndef GBPF_BPF_RUN_EXEC_MEM_H
#define GBPF_BPF_RUN_EXEC_MEM_H

#include <stddef.h>

/* Creates a memfd with these bytes, padded with zeros to the size, and seals it against every
 * change. Returns a descriptor or -errno. */
struct ebpf_exec_part {
	const void *data;
	size_t offset;
	size_t bytes;
};
int ebpf_exec_create(const char *name, size_t bytes, const struct ebpf_exec_part *parts,
		     unsigned n);

/* Returns 0 if the descriptor is a memfd that is sealed against every change, else -EBADF. */
int ebpf_exec_check(int fd);

/* Maps a page-aligned part privately for reading and execution, prefaulted. The caller has checked
 * fd and range, and unmaps it. Returns 0 or -errno: the system may refuse executable mappings. */
int ebpf_exec_map(int fd, size_t offset, size_t bytes, void **ret);

#endif
