/* Types of the CUDA runtime API as its binary interface fixes them (CUDA 12 and 13, x86-64 and
 * arm64). Handles are the driver's. CUDART_ABI, 12 or 13, is the major version that this library is
 * compiled for. Sizes and offsets are facts that a test compares. */
#ifndef GBPF_CUDART_RT_TYPES_H
#define GBPF_CUDART_RT_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "cuabi/types.h"

#define CUDART_ERROR(name, value, text) name = value,
typedef enum cudaError {
#include "cudart/errors.def"
} cudaError_t;
#undef CUDART_ERROR

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUarray cudaArray_t;
typedef CUmipmappedArray cudaMipmappedArray_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUfunction cudaFunction_t;
typedef CUkernel cudaKernel_t;
typedef CUlibrary cudaLibrary_t;
typedef CUmemoryPool cudaMemPool_t;
typedef CUuserObject cudaUserObject_t;
typedef CUipcMemHandle cudaIpcMemHandle_t;
typedef CUipcEventHandle cudaIpcEventHandle_t;
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *user);

enum cudaMemcpyKind {
	cudaMemcpyHostToHost = 0,
	cudaMemcpyHostToDevice = 1,
	cudaMemcpyDeviceToHost = 2,
	cudaMemcpyDeviceToDevice = 3,
	cudaMemcpyDefault = 4,
};

enum cudaMemoryType {
	cudaMemoryTypeUnregistered = 0,
	cudaMemoryTypeHost = 1,
	cudaMemoryTypeDevice = 2,
	cudaMemoryTypeManaged = 3,
};

struct dim3 {
	unsigned int x, y, z;
};

struct cudaExtent {
	size_t width, height, depth;
};
struct cudaPos {
	size_t x, y, z;
};
struct cudaPitchedPtr {
	void *ptr;
	size_t pitch, xsize, ysize;
};

enum cudaChannelFormatKind {
	cudaChannelFormatKindSigned = 0,
	cudaChannelFormatKindUnsigned = 1,
	cudaChannelFormatKindFloat = 2,
	cudaChannelFormatKindNone = 3,
	cudaChannelFormatKindNV12 = 4,
	cudaChannelFormatKindUnsignedNormalized8X1 = 5,
	cudaChannelFormatKindSignedNormalized16X4 = 16,
};
struct cudaChannelFormatDesc {
	int x, y, z, w; /* bits of each channel */
	enum cudaChannelFormatKind f;
};

struct cudaMemcpy3DParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	struct cudaExtent extent;
	enum cudaMemcpyKind kind;
};

struct cudaMemcpy3DPeerParms {
	cudaArray_t srcArray;
	struct cudaPos srcPos;
	struct cudaPitchedPtr srcPtr;
	int srcDevice;
	cudaArray_t dstArray;
	struct cudaPos dstPos;
	struct cudaPitchedPtr dstPtr;
	int dstDevice;
	struct cudaExtent extent;
};

struct cudaPointerAttributes {
	enum cudaMemoryType type;
	int device;
	void *devicePointer;
	void *hostPointer;
#if CUDART_ABI >= 13
	long reserved[8];
#endif
};

struct cudaFuncAttributes {
	size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
	int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
	int maxDynamicSharedSizeBytes, preferredShmemCarveout;
	int clusterDimMustBeSet;
	int requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
	int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
	int reserved[16];
};

/* The launch attributes are the driver's. */
typedef struct cudaLaunchConfig_st {
	struct dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} cudaLaunchConfig_t;

struct cudaKernelNodeParams {
	void *func;
	struct dim3 gridDim, blockDim;
	unsigned int sharedMemBytes;
	void **kernelParams;
	void **extra;
};

struct cudaMemsetParams {
	void *dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
};

enum cudaResourceType {
	cudaResourceTypeArray = 0,
	cudaResourceTypeMipmappedArray = 1,
	cudaResourceTypeLinear = 2,
	cudaResourceTypePitch2D = 3,
};
struct cudaResourceDesc {
	enum cudaResourceType resType;
	union {
		struct {
			cudaArray_t array;
		} array;
		struct {
			cudaMipmappedArray_t mipmap;
		} mipmap;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t sizeInBytes;
		} linear;
		struct {
			void *devPtr;
			struct cudaChannelFormatDesc desc;
			size_t width, height, pitchInBytes;
		} pitch2D;
#if CUDART_ABI >= 13
		int reserved[32];
#endif
	} res;
#if CUDART_ABI >= 13
	unsigned int flags;
#endif
};

enum cudaTextureReadMode {
	cudaReadModeElementType = 0,
	cudaReadModeNormalizedFloat = 1,
};
struct cudaTextureDesc {
	CUaddress_mode addressMode[3];
	CUfilter_mode filterMode;
	enum cudaTextureReadMode readMode;
	int sRGB;
	float borderColor[4];
	int normalizedCoords;
	unsigned int maxAnisotropy;
	CUfilter_mode mipmapFilterMode;
	float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
	int disableTrilinearOptimization, seamlessCubemap;
};

struct cudaResourceViewDesc {
	unsigned int format;
	size_t width, height, depth;
	unsigned int firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
#if CUDART_ABI >= 13
	unsigned int reserved[16];
#endif
};

struct cudaMemcpyNodeParams {
	int flags, reserved[3];
	struct cudaMemcpy3DParms copyParams;
};

struct cudaConditionalNodeParams {
	CUgraphConditionalHandle handle;
	unsigned int type, size;
	cudaGraph_t *phGraph_out;
};

/* The members that are not here have the driver's layout. */
struct cudaGraphNodeParams {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		long long reserved1[29];
		struct cudaKernelNodeParams kernel;
		struct cudaMemcpyNodeParams memcpy;
		struct cudaMemsetParams memset;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		struct cudaConditionalNodeParams conditional;
	};
	long long reserved2;
};

#define CUDART_PROP(type, name, attribute) type name;
#define CUDART_PROP_N(type, name, n, attribute) type name[n];
struct cudaDeviceProp {
#include "cudart/device_prop.def"
};
#undef CUDART_PROP
#undef CUDART_PROP_N

_Static_assert(sizeof(struct cudaDeviceProp) == (CUDART_ABI >= 13 ? 1008 : 1032),
	       "as the runtime's");
_Static_assert(sizeof(struct cudaResourceDesc) == (CUDART_ABI >= 13 ? 144 : 64),
	       "as the runtime's");
_Static_assert(sizeof(struct cudaTextureDesc) == 72, "as the runtime's");
_Static_assert(sizeof(struct cudaResourceViewDesc) == (CUDART_ABI >= 13 ? 112 : 48),
	       "as the runtime's");
_Static_assert(sizeof(struct cudaGraphNodeParams) == 256, "as the runtime's");
_Static_assert(sizeof(struct cudaMemcpyNodeParams) == 176, "as the runtime's");
_Static_assert(sizeof(struct dim3) == 12, "as the runtime's");
_Static_assert(sizeof(struct cudaMemcpy3DParms) == 160, "as the runtime's");
_Static_assert(sizeof(struct cudaMemcpy3DPeerParms) == 168, "as the runtime's");
_Static_assert(sizeof(struct cudaFuncAttributes) == 144, "as the runtime's");
_Static_assert(sizeof(cudaLaunchConfig_t) == 56, "as the runtime's");
_Static_assert(sizeof(struct cudaKernelNodeParams) == 56, "as the runtime's");
_Static_assert(sizeof(struct cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS),
	       "the same as the driver's");

#endif
