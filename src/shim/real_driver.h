/* The real libcuda: from the address of one of its functions to the names that share the address.
 */
#ifndef GBPF_SHIM_REAL_DRIVER_H
#define GBPF_SHIM_REAL_DRIVER_H

/* Maximum number of names that are reported for one address. An address that more names share (the
 * soft GPU's common refusal, for example) cannot be attributed to a name. */
#define SHIM_REAL_ALIASES_MAX 64

/* Stores the indexes of the shim's entries whose real function lies at the address. Returns how
 * many were stored. */
unsigned shim_real_entries_at(const void *address, unsigned ret_index[SHIM_REAL_ALIASES_MAX]);

/* Returns the address of a symbol of the real libcuda, NULL if it has none or is not loaded. */
const void *shim_real_symbol(const char *name);

#endif
