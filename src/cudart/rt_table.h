/* A hash table from addresses of the program to what was registered for them. */
#ifndef GBPF_CUDART_RT_TABLE_H
#define GBPF_CUDART_RT_TABLE_H

#include <stddef.h>

struct cudart_table {
	struct cudart_table_slot {
		const void *key; /* NULL: free */
		void *value;	 /* NULL: removed */
	} * slots;		 /* owned */
	size_t cap, used;	 /* cap: a power of two; used: slots with a key */
};

/* Returns the value, or NULL. */
void *cudart_table_get(const struct cudart_table *t, const void *key);

/* Stores a value that is not NULL; replaces an older one. 0 or -ENOMEM. */
int cudart_table_put(struct cudart_table *t, const void *key, void *value);

/* Removes a key if its value is this one. */
void cudart_table_remove(struct cudart_table *t, const void *key, const void *value);

#endif
