/* See direct_rig.h. */
#include "direct_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/compiler.h"

#define DEVICE_BYTES (RIG_UNITS * UNIT)

struct rig rig;

/* Failures end the program: cmocka's assertions are for its own thread. */
static void require(bool condition)
{
	if (!condition) {
		abort();
	}
}

static int open_window(void *dev, uint64_t address, struct mem_window *ret)
{
	uint64_t unit = (address - RIG_BASE) / UNIT, begin, end;
	char byte = 0;

	require(dev == &rig && address >= RIG_BASE && unit < RIG_UNITS);
	if (rig.entered[1] >= 0) {
		require(write(rig.entered[1], &byte, 1) == 1);
		require(read(rig.leave[0], &byte, 1) == 1);
	}
	begin = MAX(rig.first, AT(unit, 0));
	end = MIN(rig.end, AT(unit + 1, 0));
	if (load_relaxed(&rig.refuse[unit]) || address < begin || address >= end) {
		(void)add_relaxed(&rig.refused, 1u);
		/* As a device that has begun to fill the window in. */
		*ret = (struct mem_window){ .base = begin, .bytes = UNIT, .own = { 1, 2, 3 } };
		return -ENOENT;
	}
	require(!load_relaxed(&rig.is_open[unit]));
	*ret = (struct mem_window){ .base = begin,
				    .bytes = end - begin,
				    .at = rig.seen + (begin - RIG_BASE),
				    .own = { unit, ~unit, 77 } };
	require(mprotect(ret->at, ret->bytes, PROT_READ | PROT_WRITE) == 0);
	store_relaxed(&rig.is_open[unit], true);
	(void)add_relaxed(&rig.opens, 1u);
	return 0;
}

static void close_window(void *dev, struct mem_window *w)
{
	uint64_t unit = w->own[0];

	require(dev == &rig && unit < RIG_UNITS && w->own[1] == ~unit && w->own[2] == 77);
	require(load_relaxed(&rig.is_open[unit]));
	require(mprotect(w->at, w->bytes, PROT_NONE) == 0);
	store_relaxed(&rig.is_open[unit], false);
	(void)add_relaxed(&rig.closes, 1u);
}

static const struct mem_window_ops ops = { open_window, close_window };

int rig_begin(void **state)
{
	int fd = memfd_create("device", MFD_CLOEXEC);

	(void)state;
	require(fd >= 0 && ftruncate(fd, (off_t)DEVICE_BYTES) == 0);
	memset(&rig, 0, sizeof(rig));
	rig.memory = mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rig.seen = mmap(NULL, DEVICE_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
	require(rig.memory != MAP_FAILED && rig.seen != MAP_FAILED);
	close(fd);
	rig.first = AT(0, 0);
	rig.end = AT(RIG_UNITS, 0);
	rig.entered[1] = rig.leave[0] = -1;
	mem_direct_init(&rig.d, &ops, &rig);
	return 0;
}

int rig_end(void **state)
{
	(void)state;
	mem_direct_finish(&rig.d);
	assert_int_equal(rig.opens, rig.closes);
	munmap(rig.memory, DEVICE_BYTES);
	munmap(rig.seen, DEVICE_BYTES);
	return 0;
}

void rig_open(unsigned unit)
{
	enum mem_direct_answer answer = MEM_DIRECT_NO;

	for (unsigned i = 0; answer == MEM_DIRECT_NO && i < MEM_WINDOW_HITS; i++) {
		answer = mem_direct_find(&rig.d, AT(unit, 0), 1, false);
	}
	assert_int_equal(answer, MEM_DIRECT_OPEN);
	mem_direct_open(&rig.d, AT(unit, 0), true);
	assert_true(rig_is_open(unit));
}

bool rig_is_open(unsigned unit)
{
	return load_relaxed(&rig.is_open[unit]);
}

unsigned char *rig_at(uint64_t address)
{
	return rig.memory + (address - RIG_BASE);
}

uint64_t rig_random(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

void rig_fill(unsigned char *p, size_t bytes, uint64_t seed)
{
	for (size_t i = 0; i < bytes; i++) {
		p[i] = (unsigned char)((i + seed) * 2654435761u >> 23);
	}
}
