/* Waits for and writes of values in memory, as ring records. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_OP_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_OP_H

#include "soft/client/process.h"

#define SOFT_STREAM_OP_BATCH_MAX 255u /* the driver's limit */

/* Checks one operation of a batch and makes its record. *ret_none: the operation needs no record.
 */
CUresult soft_stream_op_value(const CUstreamBatchMemOpParams *op, struct soft_record_value *ret,
			      bool *ret_none);

#endif
