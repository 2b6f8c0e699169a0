/* All orders in which processes run src/mem/ledger.c, access by access. The test's programs compile
 * ledger.c with its accesses to the account replaced by those below. An operation is run again from
 * its beginning for each access: the accesses that it has made return what they returned then, the
 * next one is made, and the one behind it leaves the operation by longjmp(). */
#ifndef GBPF_TESTS_ORDERS_H
#define GBPF_TESTS_ORDERS_H

#include <stddef.h>
#include <stdint.h>

uint64_t orders_load(const void *p, size_t bytes);
void orders_store(void *p, uint64_t v, size_t bytes, int ordered);
void orders_add(void *p, uint64_t v);
uint64_t orders_now(void);
void orders_yield(void);

#endif
