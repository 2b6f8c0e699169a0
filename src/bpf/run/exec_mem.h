/* Executable memory: only from memfds that nobody can change any more. */
#ifndef GBPF_BPF_RUN_EXEC_MEM_H
#define GBPF_BPF_RUN_EXEC_MEM_H

#include <stddef.h>

/* A memfd of these bytes (padded with zeros to the size), sealed against every change. Descriptor
 * or -errno. */
struct ebpf_exec_part {
	const void *data;
	size_t offset;
	size_t bytes;
};
int ebpf_exec_create(const char *name, size_t bytes, const struct ebpf_exec_part *parts,
		     unsigned n);

/* 0 when the descriptor is a memfd that is sealed against every change, -EBADF otherwise. */
int ebpf_exec_check(int fd);

/* Maps a page-aligned part, private, read and execute, prefaulted. The caller has checked fd and
 * range, and unmaps. 0, or -errno: the system may refuse executable mappings. */
int ebpf_exec_map(int fd, size_t offset, size_t bytes, void **ret);

#endif
