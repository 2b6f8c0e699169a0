/* Waits for and writes of values in memory, as ring records. */
#ifndef GBPF_SOFT_CLIENT_STREAM_STREAM_OP_H
#define GBPF_SOFT_CLIENT_STREAM_STREAM_OP_H

#include "soft/client/process.h"

#define STREAM_OP_BATCH_MAX 255u /* as the driver has it */

/* One operation of a batch, checked; *ret_none: there is nothing to do for it. */
CUresult soft_stream_op_value(const CUstreamBatchMemOpParams *op, struct soft_record_value *ret,
			      bool *ret_none);

#endif
