/* A device in memory for the direct plan. The test sees its memory in one mapping, the plan in
 * another one, which is inaccessible where no window is open: an access outside open windows ends
 * the test program. */
#ifndef GBPF_TESTS_MEM_DIRECT_RIG_H
#define GBPF_TESTS_MEM_DIRECT_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem/direct.h"

#define RIG_BASE ((uint64_t)0x302000000)
#define RIG_UNITS (MEM_WINDOWS_MAX + 4u)
#define UNIT MEM_WINDOW_BYTES
/* The device address of a byte of that unit. */
#define AT(unit, offset) (RIG_BASE + (uint64_t)(unit)*UNIT + (offset))

struct rig {
	struct mem_direct d;
	unsigned char *memory;	  /* what the device holds */
	unsigned char *seen;	  /* the same through windows */
	uint64_t first, end;	  /* windows cover these addresses only */
	bool refuse[RIG_UNITS];	  /* [atomic] to open a window there */
	bool is_open[RIG_UNITS];  /* [atomic] */
	unsigned opens, closes;	  /* [atomic] successful ones */
	unsigned refused;	  /* [atomic] calls that were refused */
	int entered[2], leave[2]; /* pipes of an open that waits; -1: it does not wait */
};
extern struct rig rig;

/* cmocka's setup and teardown; the teardown requires that all windows get closed. */
int rig_begin(void **state);
int rig_end(void **state);

/* Makes copies of the driver's until the unit has a window, and requires it to get one. */
void rig_open(unsigned unit);
bool rig_is_open(unsigned unit);
/* Where the device holds that address. */
unsigned char *rig_at(uint64_t address);

uint64_t rig_random(uint64_t *seed);
void rig_fill(unsigned char *p, size_t bytes, uint64_t seed);

#endif
