/* NUMA nodes: what sysfs says of them, and calls of the system (mem/numa.h). */
#include "mem/numa.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PATH_BYTES 256u
#define TEXT_MAX 4096u /* of a file; a longer one counts as unreadable */

/* The kernel reads one bit less than the number that it is given. */
#define POLICY_BITS (MEM_NUMA_NODES_MAX + 1ul)
#define BITS_PER_WORD (8 * sizeof(unsigned long))

/* ---- sysfs ---- */

/* Reads a decimal number below `limit` and advances *at behind it. Returns -1 if there is none. */
static int number(const char **at, int limit)
{
	int n = 0;

	if (**at < '0' || **at > '9') {
		return -1;
	}
	while (**at >= '0' && **at <= '9') {
		n = n * 10 + (**at - '0');
		if (n >= limit) {
			return -1;
		}
		(*at)++;
	}
	return n;
}

static bool is_end(const char *text)
{
	return !*text || strcmp(text, "\n") == 0;
}

bool mem_numa_parse(const char *text, cpu_set_t *ret)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (;; text++) {
		int first = number(&text, CPU_SETSIZE), last = first;

		if (first >= 0 && *text == '-') {
			text++;
			last = number(&text, CPU_SETSIZE);
		}
		if (first < 0 || last < first) {
			return false;
		}
		for (int i = first; i <= last; i++) {
			CPU_SET((size_t)i, &set);
		}
		if (*text != ',') {
			break;
		}
	}
	if (!is_end(text)) {
		return false;
	}
	*ret = set;
	return true;
}

/* Reads a whole file as text. Returns false if it cannot be read, or is too long. */
static bool read_text(const char *path, char text[static TEXT_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t n;

	if (fd < 0) {
		return false;
	}
	n = read(fd, text, TEXT_MAX);
	close(fd);
	if (n < 0 || n >= (ssize_t)TEXT_MAX || memchr(text, '\0', (size_t)n)) {
		return false;
	}
	text[n] = '\0';
	return true;
}

static bool read_list(const char *sysfs, const char *name, cpu_set_t *ret)
{
	char path[PATH_BYTES], text[TEXT_MAX];
	int n = snprintf(path, sizeof(path), "%s/devices/system/node/%s", sysfs, name);

	return n > 0 && (size_t)n < sizeof(path) && read_text(path, text) &&
	       mem_numa_parse(text, ret);
}

int mem_numa_of_pci(const char *sysfs, unsigned domain, unsigned bus, unsigned device)
{
	char path[PATH_BYTES], text[TEXT_MAX];
	const char *at = text;
	int node, n;

	n = snprintf(path, sizeof(path), "%s/bus/pci/devices/%04x:%02x:%02x.0/numa_node", sysfs,
		     domain, bus, device);
	if (n <= 0 || (size_t)n >= sizeof(path) || !read_text(path, text)) {
		return -1;
	}
	node = number(&at, (int)MEM_NUMA_NODES_MAX);
	return is_end(at) ? node : -1;
}

struct mem_numa mem_numa_find(const char *sysfs, int node)
{
	struct mem_numa ret = { .node = node };
	cpu_set_t nodes, usable;
	char name[32];

	if (node < 0 || node >= (int)MEM_NUMA_NODES_MAX || !read_list(sysfs, "online", &nodes) ||
	    CPU_COUNT(&nodes) < 2 || !CPU_ISSET((size_t)node, &nodes)) {
		return MEM_NUMA_NONE;
	}
	snprintf(name, sizeof(name), "node%d/cpulist", node);
	if (!read_list(sysfs, name, &ret.cpus) || sched_getaffinity(0, sizeof(usable), &usable)) {
		return MEM_NUMA_NONE;
	}
	CPU_AND(&usable, &usable, &ret.cpus);
	return CPU_COUNT(&usable) ? ret : MEM_NUMA_NONE;
}

/* ---- where a helper runs ---- */

void mem_numa_move_far(struct mem_numa_place *place, const struct mem_numa *to)
{
	int node = to ? MAX(to->node, -1) : -1;
	cpu_set_t cpus;

	/* The kernel may have more CPUs than the set: then the helper stays. */
	if (place->node < 0 && sched_getaffinity(0, sizeof(place->home), &place->home)) {
		CPU_ZERO(&place->home);
	}
	cpus = place->home;
	if (node >= 0) {
		CPU_AND(&cpus, &cpus, &to->cpus);
	}
	if (!CPU_COUNT(&cpus)) {
		cpus = place->home;
	}
	if (CPU_COUNT(&cpus)) {
		(void)sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	place->node = node;
}

/* ---- where memory is allocated ---- */

void mem_numa_prefer(const struct mem_numa *numa, struct mem_numa_policy *ret_old)
{
	unsigned long nodes[ARRAY_SIZE(ret_old->nodes)] = { 0 };

	*ret_old = (struct mem_numa_policy){ .replaced = false };
	if (numa->node < 0 || numa->node >= (int)MEM_NUMA_NODES_MAX ||
	    syscall(SYS_get_mempolicy, &ret_old->mode, ret_old->nodes, POLICY_BITS, NULL, 0ul)) {
		return;
	}
	nodes[(size_t)numa->node / BITS_PER_WORD] |= 1ul << (size_t)numa->node % BITS_PER_WORD;
	ret_old->replaced = syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, POLICY_BITS) == 0;
}

void mem_numa_restore(const struct mem_numa_policy *old)
{
	/* The old nodes may have been taken from the process meanwhile: rather no policy than one
	 * that the program has not asked for. */
	if (old->replaced && syscall(SYS_set_mempolicy, old->mode, old->nodes, POLICY_BITS)) {
		(void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0ul);
	}
}
