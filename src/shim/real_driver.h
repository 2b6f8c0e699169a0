/* The real library's addresses, from address to name. */
#ifndef GBPF_SHIM_REAL_DRIVER_H
#define GBPF_SHIM_REAL_DRIVER_H

/* Several names may share one address; more than this many and none is told (the soft GPU's
 * refusal, for example). */
#define SHIM_REAL_ALIASES_MAX 64

/* Indexes of the shim's entries whose real function lies at the address. Returns how many. */
unsigned shim_real_entries_at(const void *address, unsigned ret_index[SHIM_REAL_ALIASES_MAX]);

#endif
