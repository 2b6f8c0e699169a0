/* What the host has room for, by files of the kernel: memory that is pinned ahead of need must not
 * put the machine, or the control group of this process, under pressure. Not for the launch path:
 * reads files. */
#ifndef GBPF_MEM_HOST_ROOM_H
#define GBPF_MEM_HOST_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEM_HOST_SYSTEM "" /* root of this machine's files */

/* Parses "some avg10=1.23 ..." of a file of /proc/pressure, in hundredths of a percent. Returns
 * false if the text has no such line; *ret is unchanged then. */
bool mem_host_parse_pressure(const char *text, uint64_t *ret);
/* Parses the number of a line "name 123", or, as in /proc/meminfo, "name: 123 kB", in bytes. The
 * same return. */
bool mem_host_parse_field(const char *text, const char *name, uint64_t *ret);
/* Parses the path of a process's control group in /proc/PID/cgroup: of version 1 with that
 * controller, or, if it is "", of version 2. Returns false if there is none, if it does not fit, or
 * if it is outside of the mounted hierarchy. */
bool mem_host_parse_group(const char *text, const char *controller, char *ret, size_t room);

/* Returns how many bytes this process may pin ahead of need: what is available of the machine's
 * memory, and what the limits of its control groups leave, each less a margin of an eighth of the
 * whole; 0 while tasks of the machine wait for memory. UINT64_MAX if no file says anything. root: a
 * folder with the proc and sys that are read. */
uint64_t mem_host_room(const char *root);

#endif
