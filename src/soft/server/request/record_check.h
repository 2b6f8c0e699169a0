/* Validation of ring records and requests by themselves: sizes and ranges of fields. Depends on no
 * state, so that it can be fuzzed. */
#ifndef GBPF_SOFT_SERVER_REQUEST_RECORD_CHECK_H
#define GBPF_SOFT_SERVER_REQUEST_RECORD_CHECK_H

#include "soft/protocol.h"

/* A private copy of a record; kernel parameters follow within bytes[]. */
union softd_record {
	struct soft_record r;
	struct soft_record_stream stream;
	struct soft_record_launch launch;
	struct soft_record_copy copy;
	struct soft_record_set set;
	struct soft_record_event event;
	struct soft_record_wait wait;
	struct soft_record_host host;
	struct soft_record_free free;
	struct soft_record_value value;
	struct soft_record_shared shared;
	uint8_t bytes[SOFT_RECORD_MAX];
};

/* Checks the header alone: available bytes are in the ring, to_end lie before its end. Returns 0 or
 * -EPROTO. */
int softd_record_header_check(const struct soft_record *r, uint32_t available, uint32_t to_end);
/* Checks the whole record, of which r.bytes were copied. Returns 0 or -EPROTO. */
int softd_record_check(const union softd_record *r);
/* Checks a request as received. Returns 0, and the name is zero-terminated; or -EPROTO. */
int softd_request_check(const struct soft_request *q, size_t len);

#endif
