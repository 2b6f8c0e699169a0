/* Patched machine code over the fake libcuda: its linker returns compiled stubs, and each call that
 * launches shows the parameters that the driver would read. */
#ifndef GBPF_TESTS_SHIM_CODE_RIG_H
#define GBPF_TESTS_SHIM_CODE_RIG_H

#include "fixture.h"

extern int rig_self_tests; /* how often the self-test ran */
extern int rig_self_test;  /* its result */
extern int rig_driver_version;
extern CUresult rig_link;      /* what the driver's linker returns */
extern unsigned rig_links;     /* texts that it was given */
extern unsigned rig_lookups;   /* how often shim/code asked the driver what a handle names */
extern CUfunction rig_invalid; /* the driver refuses this handle */
extern int rig_primary_active; /* what the driver says of the primary context */

/* In the text of the stub with programs (tests/unit/cubin/probe_programs.h). */
#define RIG_PROBE_TEXT "0x7f1200345600"

/* Machine code of tests/data/shim/kernels.ptx. */
extern unsigned char *rig_image;
extern size_t rig_image_bytes;

/* The handles that the driver returns: their names are fixed. */
#define RIG_TWO ((CUfunction)(uintptr_t)0xf1000)	  /* two(u64, u32) */
#define RIG_NONE ((CUfunction)(uintptr_t)0xf2000)	  /* none() */
#define RIG_MANY ((CUfunction)(uintptr_t)0xf3000)	  /* many(150 of u32) */
#define RIG_OTHER ((CUfunction)(uintptr_t)0xf4000)	  /* of another module, not patched */
#define RIG_KERNEL ((CUkernel)(uintptr_t)0xf5000)	  /* two, of a library */
#define RIG_ITS_FUNCTION ((CUfunction)(uintptr_t)0xf6000) /* its function in the context */
#define RIG_MODULE ((CUmodule)(uintptr_t)0x4400)
#define RIG_OTHER_MODULE ((CUmodule)(uintptr_t)0x4500)
#define RIG_LIBRARY ((CUlibrary)(uintptr_t)0x4600)

#define RIG_PARAMS_MAX 160u
/* What the driver was last given to read: as many parameters as the machine code has. */
struct rig_seen {
	unsigned calls;
	unsigned n;
	void *params[RIG_PARAMS_MAX];
	bool zero; /* the last parameter is the stub's argument, all zero */
	size_t extra_bytes;
	unsigned char buffer[256]; /* extra's, as far as it fits */
};
extern struct rig_seen rig_seen;

int rig_setup(void **state);
int rig_before(void **state);
/* Returns true if 64 zero bytes are at p. */
bool rig_is_zero(const void *p);

#endif
