/* Types of the CUDA driver API as its binary interface fixes them (CUDA 13.0, x86-64 and arm64).
 * Sizes, offsets and values are facts that tests compare. Structures that gBPF does not access stay
 * incomplete. */
#ifndef GBPF_CUABI_TYPES_H
#define GBPF_CUABI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "cuabi/enums.h"

#define CUABI_VERSION 13000 /* cuDriverGetVersion of a driver with this list of functions */

#define CUABI_RESULT(name, value, text) name = value,
typedef enum CUresult {
#include "cuabi/results.def"
} CUresult;
#undef CUABI_RESULT

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned int CUdeviceptr_v1; /* of the functions from before CUDA 3.2 */

/* Handles: pointers to incomplete types. */
#define CUABI_HANDLE(name) typedef struct name##_st *name
CUABI_HANDLE(CUcontext);
CUABI_HANDLE(CUmodule);
CUABI_HANDLE(CUfunction);
CUABI_HANDLE(CUkernel);
CUABI_HANDLE(CUlibrary);
CUABI_HANDLE(CUstream);
CUABI_HANDLE(CUevent);
CUABI_HANDLE(CUarray);
CUABI_HANDLE(CUmipmappedArray);
CUABI_HANDLE(CUtexref);
CUABI_HANDLE(CUsurfref);
CUABI_HANDLE(CUgraph);
CUABI_HANDLE(CUgraphNode);
CUABI_HANDLE(CUgraphExec);
CUABI_HANDLE(CUgraphicsResource);
CUABI_HANDLE(CUgreenCtx);
CUABI_HANDLE(CUdevResourceDesc);
CUABI_HANDLE(CUlinkState);
CUABI_HANDLE(CUmemoryPool);
CUABI_HANDLE(CUexternalMemory);
CUABI_HANDLE(CUexternalSemaphore);
CUABI_HANDLE(CUuserObject);
CUABI_HANDLE(CUasyncCallbackHandle);
CUABI_HANDLE(CUlogsCallbackHandle);
CUABI_HANDLE(CUeglStreamConnection);
#undef CUABI_HANDLE
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef uint64_t CUgraphConditionalHandle;
typedef unsigned int CUlogIterator;

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)
#define CU_LAUNCH_PARAM_END ((void *)0x0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)0x1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)0x2)
#define CU_MEMHOSTALLOC_PORTABLE 0x1
#define CU_MEMHOSTALLOC_DEVICEMAP 0x2
#define CU_MEMHOSTALLOC_WRITECOMBINED 0x4
#define CU_MEMHOSTREGISTER_PORTABLE 0x1
#define CU_MEMHOSTREGISTER_DEVICEMAP 0x2
#define CU_MEMHOSTREGISTER_IOMEMORY 0x4
#define CU_MEMHOSTREGISTER_READ_ONLY 0x8

/* Enumerations whose values gBPF does not use. */
#define CUABI_ENUM(name) typedef unsigned int name
CUABI_ENUM(CUatomicOperation);
CUABI_ENUM(CUcoredumpSettings);
CUABI_ENUM(CUflushGPUDirectRDMAWritesScope);
CUABI_ENUM(CUflushGPUDirectRDMAWritesTarget);
CUABI_ENUM(CUfunctionLoadingState);
CUABI_ENUM(CUmulticastGranularity_flags);
CUABI_ENUM(CUprocessState);
CUABI_ENUM(CUtensorMapDataType);
CUABI_ENUM(CUtensorMapFloatOOBfill);
CUABI_ENUM(CUtensorMapIm2ColWideMode);
CUABI_ENUM(CUtensorMapInterleave);
CUABI_ENUM(CUtensorMapL2promotion);
CUABI_ENUM(CUtensorMapSwizzle);
#undef CUABI_ENUM

/* Structures that gBPF only passes through. */
#define CUABI_OPAQUE(name) typedef struct name##_st name
CUABI_OPAQUE(CUDA_ARRAY_SPARSE_PROPERTIES);
CUABI_OPAQUE(CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
CUABI_OPAQUE(CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC);
CUABI_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC);
CUABI_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS);
CUABI_OPAQUE(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS);
CUABI_OPAQUE(CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
CUABI_OPAQUE(CUDA_EXT_SEM_WAIT_NODE_PARAMS);
CUABI_OPAQUE(CUarrayMapInfo);
CUABI_OPAQUE(CUasyncNotificationInfo);
CUABI_OPAQUE(CUcheckpointCheckpointArgs);
CUABI_OPAQUE(CUcheckpointLockArgs);
CUABI_OPAQUE(CUcheckpointRestoreArgs);
CUABI_OPAQUE(CUcheckpointUnlockArgs);
CUABI_OPAQUE(CUmemDecompressParams);
CUABI_OPAQUE(CUmulticastObjectProp);
CUABI_OPAQUE(CUtensorMap);
#undef CUABI_OPAQUE

typedef void (*CUhostFn)(void *user);
typedef void (*CUstreamCallback)(CUstream stream, CUresult status, void *user);
typedef size_t (*CUoccupancyB2DSize)(int block_size);
typedef void (*CUasyncCallback)(CUasyncNotificationInfo *info, void *user,
				CUasyncCallbackHandle cb);
typedef void (*CUlogsCallback)(void *user, unsigned int level, char *message, size_t length);

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;
typedef struct CUipcEventHandle_st {
	char reserved[64];
} CUipcEventHandle;
typedef struct CUipcMemHandle_st {
	char reserved[64];
} CUipcMemHandle;

/* The first version of the structure, which CUDA 12.4 to 13.0 have. Only the library that filled it
 * may access `internal`. */
typedef struct CUdevSmResource_st {
	unsigned int smCount;
	unsigned int minSmPartitionSize;
	unsigned int smCoscheduledAlignment;
} CUdevSmResource;
typedef struct CUdevResource_st {
	CUdevResourceType type;
	unsigned char internal[92];
	union {
		CUdevSmResource sm;
		unsigned char oversize[48];
	};
} CUdevResource;

typedef struct CUdevprop_st {
	int maxThreadsPerBlock;
	int maxThreadsDim[3];
	int maxGridSize[3];
	int sharedMemPerBlock;
	int totalConstantMemory;
	int SIMDWidth;
	int memPitch;
	int regsPerBlock;
	int clockRate;
	int textureAlign;
} CUdevprop;

typedef struct CUexecAffinityParam_st {
	CUexecAffinityType type;
	union {
		struct {
			unsigned int val;
		} smCount;
	} param;
} CUexecAffinityParam;

typedef struct CUctxCreateParams_st {
	CUexecAffinityParam *execAffinityParams;
	int numExecAffinityParams;
	void *cigParams;
} CUctxCreateParams;

typedef struct CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st {
	int type; /* CUexternalMemoryHandleType */
	union {
		int fd;
		struct {
			void *handle;
			const void *name;
		} win32;
		const void *nvSciBufObject;
	} handle;
	unsigned long long size;
	unsigned int flags;
	unsigned int reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
_Static_assert(sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104, "as in CUDA's header");

/* ---- launches ---- */

typedef struct CUaccessPolicyWindow_st {
	void *base_ptr;
	size_t num_bytes;
	float hitRatio;
	unsigned int hitProp;
	unsigned int missProp;
} CUaccessPolicyWindow;

typedef union CUlaunchAttributeValue_union {
	char pad[64];
	CUaccessPolicyWindow accessPolicyWindow;
	int cooperative;
	unsigned int syncPolicy;
	struct {
		unsigned int x, y, z;
	} clusterDim;
	unsigned int clusterSchedulingPolicyPreference;
	int programmaticStreamSerializationAllowed;
	struct {
		CUevent event;
		int flags;
		int triggerAtBlockStart;
	} programmaticEvent;
	struct {
		CUevent event;
		int flags;
	} launchCompletionEvent;
	int priority;
	struct {
		unsigned char default_;
		unsigned char remote;
	} memSyncDomainMap;
	unsigned int memSyncDomain;
	struct {
		unsigned int x, y, z;
	} preferredClusterDim;
	struct {
		int deviceUpdatable;
		void *devNode;
	} deviceUpdatableKernelNode;
	unsigned int sharedMemCarveout;
	unsigned int nvlinkUtilCentricScheduling;
} CUlaunchAttributeValue;
typedef CUlaunchAttributeID CUkernelNodeAttrID;
typedef CUlaunchAttributeID CUstreamAttrID;
typedef CUlaunchAttributeValue CUkernelNodeAttrValue;
typedef CUlaunchAttributeValue CUstreamAttrValue;

typedef struct CUlaunchAttribute_st {
	CUlaunchAttributeID id;
	char pad[4];
	CUlaunchAttributeValue value;
} CUlaunchAttribute;

typedef struct CUlaunchConfig_st {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;

/* One launch of cuLaunchCooperativeKernelMultiDevice. */
typedef struct CUDA_LAUNCH_PARAMS_st {
	CUfunction function;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	void **kernelParams;
} CUDA_LAUNCH_PARAMS;

typedef struct CUDA_KERNEL_NODE_PARAMS_v1_st {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;

typedef struct CUDA_KERNEL_NODE_PARAMS_st {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
	CUkernel kern;
	CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
	uint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	unsigned int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

/* ---- copies ---- */

typedef struct CUDA_MEMCPY2D_st {
	size_t srcXInBytes, srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct CUDA_MEMCPY2D_v1_st {
	unsigned int srcXInBytes, srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr_v1 srcDevice;
	CUarray srcArray;
	unsigned int srcPitch;
	unsigned int dstXInBytes, dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr_v1 dstDevice;
	CUarray dstArray;
	unsigned int dstPitch;
	unsigned int WidthInBytes, Height;
} CUDA_MEMCPY2D_v1;

typedef struct CUDA_MEMCPY3D_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	void *reserved0;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	void *reserved1;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_MEMCPY3D_PEER_st {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	CUcontext srcContext;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	CUcontext dstContext;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;

typedef struct CUDA_MEMCPY3D_v1_st {
	unsigned int srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr_v1 srcDevice;
	CUarray srcArray;
	void *reserved0;
	unsigned int srcPitch, srcHeight;
	unsigned int dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr_v1 dstDevice;
	CUarray dstArray;
	void *reserved1;
	unsigned int dstPitch, dstHeight;
	unsigned int WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_v1;

typedef struct CUDA_ARRAY_DESCRIPTOR_st {
	size_t Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_st {
	size_t Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels;
	unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

typedef struct CUDA_ARRAY_DESCRIPTOR_v1_st {
	unsigned int Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR_v1;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_v1_st {
	unsigned int Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels;
	unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR_v1;

typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st {
	size_t size, alignment;
	unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

/* ---- textures and surfaces ---- */

typedef struct CUDA_RESOURCE_DESC_st {
	CUresourcetype resType;
	union {
		struct {
			CUarray hArray;
		} array;
		struct {
			CUmipmappedArray hMipmappedArray;
		} mipmap;
		struct {
			CUdeviceptr devPtr;
			CUarray_format format;
			unsigned int numChannels;
			size_t sizeInBytes;
		} linear;
		struct {
			CUdeviceptr devPtr;
			CUarray_format format;
			unsigned int numChannels;
			size_t width, height, pitchInBytes;
		} pitch2D;
		struct {
			int reserved[32];
		} reserved;
	} res;
	unsigned int flags;
} CUDA_RESOURCE_DESC;

typedef struct CUDA_TEXTURE_DESC_st {
	CUaddress_mode addressMode[3];
	CUfilter_mode filterMode;
	unsigned int flags;
	unsigned int maxAnisotropy;
	CUfilter_mode mipmapFilterMode;
	float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
	float borderColor[4];
	int reserved[12];
} CUDA_TEXTURE_DESC;

typedef struct CUDA_RESOURCE_VIEW_DESC_st {
	CUresourceViewFormat format;
	size_t width, height, depth;
	unsigned int firstMipmapLevel, lastMipmapLevel;
	unsigned int firstLayer, lastLayer;
	unsigned int reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

/* ---- memory ---- */

typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType;
		unsigned char gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmemPoolProps_st {
	CUmemAllocationType allocType;
	CUmemAllocationHandleType handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;

typedef struct CUmemcpyAttributes_st {
	unsigned int srcAccessOrder;
	CUmemLocation srcLocHint;
	CUmemLocation dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;

typedef struct CUmemPoolPtrExportData_st {
	unsigned char reserved[64];
} CUmemPoolPtrExportData;

/* One side of a copy of cuMemcpy3DBatchAsync. */
typedef struct CUmemcpy3DOperand_st {
	CUmemcpy3DOperandType type;
	union {
		struct {
			CUdeviceptr ptr;
			size_t rowLength, layerHeight;
			CUmemLocation locHint;
		} ptr;
		struct {
			CUarray array;
			struct {
				size_t x, y, z;
			} offset;
		} array;
	} op;
} CUmemcpy3DOperand;

typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
	CUmemcpy3DOperand src, dst;
	struct {
		size_t width, height, depth;
	} extent;
	CUmemcpySrcAccessOrder srcAccessOrder;
	unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;

/* One operation of cuStreamBatchMemOp. */
typedef union CUstreamBatchMemOpParams_union {
	CUstreamBatchMemOpType operation;
	struct CUstreamMemOpValue_st {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			uint32_t value;
			uint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias;
	} value; /* waits and writes */
	struct {
		CUstreamBatchMemOpType operation;
		unsigned int flags;
	} barrier; /* memory barrier and flush of remote writes */
	uint64_t pad[6];
} CUstreamBatchMemOpParams;

/* ---- graphs ---- */

typedef struct CUgraphEdgeData_st {
	unsigned char from_port, to_port, type;
	unsigned char reserved[5];
} CUgraphEdgeData;

typedef struct CUDA_HOST_NODE_PARAMS_st {
	CUhostFn fn;
	void *userData;
} CUDA_HOST_NODE_PARAMS;

typedef struct CUDA_MEMSET_NODE_PARAMS_st {
	CUdeviceptr dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_MEMSET_NODE_PARAMS_v2_st {
	CUdeviceptr dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
	CUcontext ctx;
} CUDA_MEMSET_NODE_PARAMS_v2;

typedef struct CUDA_MEMCPY_NODE_PARAMS_st {
	int flags, reserved;
	CUcontext copyCtx;
	CUDA_MEMCPY3D copyParams;
} CUDA_MEMCPY_NODE_PARAMS;

typedef struct CUDA_BATCH_MEM_OP_NODE_PARAMS_st {
	CUcontext ctx;
	unsigned int count;
	CUstreamBatchMemOpParams *paramArray;
	unsigned int flags;
} CUDA_BATCH_MEM_OP_NODE_PARAMS;

typedef struct CUDA_MEM_ALLOC_NODE_PARAMS_st {
	CUmemPoolProps poolProps;
	const CUmemAccessDesc *accessDescs;
	size_t accessDescCount;
	size_t bytesize;
	CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct CUDA_CHILD_GRAPH_NODE_PARAMS_st {
	CUgraph graph;
	unsigned int ownership;
} CUDA_CHILD_GRAPH_NODE_PARAMS;

typedef struct CUgraphNodeParams_st {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		long long reserved1[29];
		CUDA_KERNEL_NODE_PARAMS kernel;
		CUDA_MEMCPY_NODE_PARAMS memcpy;
		CUDA_MEMSET_NODE_PARAMS_v2 memset;
		CUDA_HOST_NODE_PARAMS host;
		CUDA_CHILD_GRAPH_NODE_PARAMS graph;
		struct {
			CUevent event;
		} eventWait, eventRecord;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		struct {
			CUdeviceptr dptr;
		} free;
		CUDA_BATCH_MEM_OP_NODE_PARAMS memOp;
	};
	long long reserved2;
} CUgraphNodeParams;

typedef struct CUgraphExecUpdateResultInfo_st {
	CUgraphExecUpdateResult result;
	CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

_Static_assert(sizeof(CUgraphEdgeData) == 8, "as the driver's");
_Static_assert(sizeof(CUDA_HOST_NODE_PARAMS) == 16, "as the driver's");
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS) == 40, "as the driver's");
_Static_assert(sizeof(CUDA_MEMSET_NODE_PARAMS_v2) == 48, "as the driver's");
_Static_assert(sizeof(CUDA_MEMCPY_NODE_PARAMS) == 216, "as the driver's");
_Static_assert(sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS) == 32, "as the driver's");
_Static_assert(sizeof(CUDA_MEM_ALLOC_NODE_PARAMS) == 120, "as the driver's");
_Static_assert(sizeof(CUgraphNodeParams) == 256, "as the driver's");
_Static_assert(sizeof(CUgraphExecUpdateResultInfo) == 24, "as the driver's");

/* A frame of an EGL stream; passed by value. */
typedef struct CUeglFrame_st {
	void *frame[3];
	unsigned int width, height, depth, pitch, planeCount, numChannels;
	unsigned int frameType, eglColorFormat, cuFormat;
} CUeglFrame;

#endif
