/* Reason codes of the block level: why an entry has no preemptible clone, or a launch does not use
 * it. Shown by `gbpf ps --why`. Values appear on shared pages: append only. */
#ifndef GBPF_PROTO_BLOCK_WHY_H
#define GBPF_PROTO_BLOCK_WHY_H

#include <stdbool.h>

enum proto_block_why {
	PROTO_BLOCK_UNKNOWN,	    /* not examined */
	PROTO_BLOCK_OK,		    /* it has a preemptible clone or an entry stub */
	PROTO_BLOCK_NO_PTX,	    /* the image has no PTX, or none of the kernel */
	PROTO_BLOCK_UNREADABLE,	    /* the PTX could not be read */
	PROTO_BLOCK_CLUSTER,	    /* clusters of blocks */
	PROTO_BLOCK_DEPENDENT,	    /* griddepcontrol */
	PROTO_BLOCK_GRID_ID,	    /* reads %gridid, %envreg or others that distinguish launches */
	PROTO_BLOCK_DEVICE_RUNTIME, /* launches kernels, or uses the workspace of grid-wide
				       cooperative groups */
	PROTO_BLOCK_CALL,	    /* calls through a pointer code that may read its block index */
	PROTO_BLOCK_EXTERN,	    /* calls a function of another module */
	PROTO_BLOCK_PARAMETERS,	    /* no room behind its parameters */
	PROTO_BLOCK_SHARED,	    /* no room for 16 bytes of shared memory, or reads its size */
	PROTO_BLOCK_OCCUPANCY,	    /* the clone would have fewer resident blocks, or the driver
				       refuses the launch */
	PROTO_BLOCK_COOPERATIVE,    /* cooperative launch */
	PROTO_BLOCK_ATTRIBUTE,	    /* a launch attribute that is not known to be harmless */
	PROTO_BLOCK_CAPTURE,	    /* in a graph */
	PROTO_BLOCK_HUNG,	    /* waited for later blocks: excluded */
	PROTO_BLOCK_SHORT,	    /* too short for the block level to pay off */
	PROTO_BLOCK_REJECTED,	    /* the driver refused the rewritten module */
	PROTO_BLOCK_CLASS,	    /* the tenant was of class latency when the module was loaded */
	PROTO_BLOCK_SOURCE,	    /* uses something that the pass does not know */
	PROTO_BLOCK_NATIVE,	/* its machine code is kept: the PTX differs from it in features, or
				   takes long to compile */
	PROTO_BLOCK_COLLECTIVE, /* communicates with other GPUs (NCCL, NVSHMEM) */
	PROTO_BLOCK_CODE,	/* its machine code cannot be patched */
	PROTO_BLOCK_CODE_OFF,	/* machine code is not patched: GBPF_BLOCK=ptx */
	PROTO_BLOCK_STUB,	/* the driver did not compile the entry stub, or not as expected */
	PROTO_BLOCK_NO_CONTEXT, /* loaded without a current context, or for unlike devices */
	PROTO_BLOCK_ONLY_ONE,	/* its library uses only modules with one function (cuFFT) */
	PROTO_BLOCK_WAITED,	/* waited for later blocks in an earlier run */
	PROTO_BLOCK_TOOL,	/* machine code, loaded under a debugger or tool */
	PROTO_BLOCK_TEST_FAILED, /* the self-test of patched machine code failed */
	PROTO_BLOCK_TEST_TIME,	 /* it did not end in time */
	PROTO_BLOCK_OLD_DRIVER,	 /* the driver cannot tell which kernel a handle names */
	PROTO_BLOCK_THREAD,	 /* on a stream that only one thread can name */
	PROTO_BLOCK_PROBED,	 /* its probed form runs, which cannot be stopped yet */
	PROTO_BLOCK_OTHER_PTX,	 /* the image has PTX, for other devices only */
	PROTO_BLOCK_WHYS
};

/* Returns whether kernels of that name, mangled or not, wait for kernels on other GPUs, which wait
 * for them: those of NCCL and NVSHMEM. */
bool proto_communicates(const char *kernel);
/* Returns a static text: "not looked at" for PROTO_BLOCK_UNKNOWN and for values without a text. */
const char *proto_block_why_text(enum proto_block_why why);

#endif
