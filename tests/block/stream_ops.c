/* Two- and three-dimensional copies, copies between devices, memory operations, managed memory, and
 * launches other than cuLaunchKernel. */
#include "stream_ops.h"

#include <string.h>

#define ROW 512u /* bytes */
#define ROWS (WIDE_WORDS * 4 / ROW)
#define LAYERS 8u

/* Copies in two halves, left and right. */
static void copy_2d(CUstream s, CUDA_MEMCPY2D m)
{
	m.srcPitch = m.dstPitch = ROW;
	m.WidthInBytes = ROW / 2;
	m.Height = ROWS;
	CU(cuMemcpy2DAsync_v2(&m, s));
	m.srcXInBytes = m.dstXInBytes = ROW / 2;
	CU(cuMemcpy2DAsync_v2(&m, s));
	memset(&m, 0xff, sizeof(m));
}

static void copy_3d(CUstream s, CUDA_MEMCPY3D m)
{
	m.srcPitch = m.dstPitch = ROW;
	m.srcHeight = m.dstHeight = ROWS / LAYERS;
	m.WidthInBytes = ROW;
	m.Height = ROWS / LAYERS;
	m.Depth = LAYERS;
	CU(cuMemcpy3DAsync_v2(&m, s));
	memset(&m, 0xff, sizeof(m));
}

static void copy_3d_peer(CUstream s, CUdeviceptr to, CUdeviceptr from, CUcontext context)
{
	CUDA_MEMCPY3D_PEER m = { .srcMemoryType = CU_MEMORYTYPE_DEVICE,
				 .srcDevice = from,
				 .srcContext = context,
				 .srcPitch = ROW,
				 .srcHeight = ROWS,
				 .dstMemoryType = CU_MEMORYTYPE_DEVICE,
				 .dstDevice = to,
				 .dstContext = context,
				 .dstPitch = ROW,
				 .dstHeight = ROWS,
				 .WidthInBytes = ROW,
				 .Height = ROWS,
				 .Depth = 1 };

	CU(cuMemcpy3DPeerAsync(&m, s));
	memset(&m, 0xff, sizeof(m));
}

/* Copies through memory that is freed before the copies have run, and may be reused. */
static void copy_twice(CUstream s, CUdeviceptr to, CUdeviceptr from)
{
	CUdeviceptr between;

	CU(cuMemAllocAsync(&between, WIDE_WORDS * 4, s));
	CU(cuMemcpyAsync(between, from, WIDE_WORDS * 4, s));
	CU(cuMemcpyAsync(to, between, WIDE_WORDS * 4, s));
	CU(cuMemFreeAsync(between, s));
}

void wide_copy(CUstream s, CUdeviceptr to, CUdeviceptr from, CUcontext context, uint32_t way)
{
	switch (way % 5) {
	case 0:
		copy_2d(s, (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					    .srcDevice = from,
					    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
					    .dstDevice = to });
		break;
	case 1:
		copy_3d(s, (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					    .srcDevice = from,
					    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					    .dstDevice = to });
		break;
	case 2:
		CU(cuMemcpyPeerAsync(to, context, from, context, WIDE_WORDS * 4, s));
		break;
	case 3:
		copy_3d_peer(s, to, from, context);
		break;
	default:
		copy_twice(s, to, from);
		break;
	}
}

uint32_t wide_fill(CUstream s, CUdeviceptr to, uint32_t v, uint32_t way)
{
	switch (way % 5) {
	case 0:
		CU(cuMemsetD2D32Async(to, ROW, v, ROW / 4, ROWS, s));
		return v;
	case 1:
		CU(cuMemsetD2D16Async(to, ROW, (uint16_t)v, ROW / 4, ROWS, s));
		CU(cuMemsetD2D16Async(to + ROW / 2, ROW, (uint16_t)v, ROW / 4, ROWS, s));
		return (v & 0xffffu) * 0x10001u;
	case 2:
		CU(cuMemsetD2D8Async(to, ROW, (uint8_t)v, ROW, ROWS, s));
		return (v & 0xffu) * 0x1010101u;
	case 3:
		CU(cuMemsetD16Async(to, (uint16_t)v, WIDE_WORDS * 2, s));
		return (v & 0xffffu) * 0x10001u;
	default:
		CU(cuMemsetD8Async(to, (uint8_t)v, WIDE_WORDS * 4, s));
		return (v & 0xffu) * 0x1010101u;
	}
}

void wide_put(CUstream s, CUdeviceptr to, const uint32_t *pageable, uint32_t way)
{
	switch (way % 3) {
	case 0:
		copy_2d(s, (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_HOST,
					    .srcHost = pageable,
					    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					    .dstDevice = to });
		break;
	case 1:
		copy_3d(s, (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_HOST,
					    .srcHost = pageable,
					    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
					    .dstDevice = to });
		break;
	default: /* small sources are copied when the call is deferred */
		for (uint32_t i = 0; i < WIDE_WORDS; i += WIDE_WORDS / 4) {
			CU(cuMemcpyHtoDAsync(to + 4ul * i, pageable + i, WIDE_WORDS, s));
		}
		break;
	}
}

void wide_get(CUstream s, uint32_t *to, CUdeviceptr from, uint32_t way)
{
	if (way % 2) {
		copy_2d(s, (CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					    .srcDevice = from,
					    .dstMemoryType = CU_MEMORYTYPE_HOST,
					    .dstHost = to });
	} else {
		copy_3d(s, (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_DEVICE,
					    .srcDevice = from,
					    .dstMemoryType = CU_MEMORYTYPE_HOST,
					    .dstHost = to });
	}
}

void wide_order(CUstream from, CUstream to, CUdeviceptr word, uint32_t way)
{
	CUstreamBatchMemOpParams ops[2] = {
		{ .value = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
			     .address = word,
			     .value = 0,
			     .flags = CU_STREAM_WAIT_VALUE_GEQ } },
		{ .value = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
			     .address = word,
			     .value = 1,
			     .flags = CU_STREAM_WRITE_VALUE_DEFAULT } }
	};

	if (way % 2) {
		CU(cuStreamBatchMemOp(from, 2, ops, 0));
	} else {
		CU(cuStreamWriteValue32(from, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
	}
	memset(ops, 0, sizeof(ops));
	if (way & 2) {
		CU(cuStreamWaitValue32(to, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
		return;
	}
	ops[0].value.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	ops[0].value.address = word;
	ops[0].value.value = 1;
	ops[0].value.flags = CU_STREAM_WAIT_VALUE_GEQ;
	CU(cuStreamBatchMemOp(to, 1, ops, 0));
	memset(ops, 0, sizeof(ops));
}

#define BATCH 8u

void wide_batch(CUstream s, CUdeviceptr to, CUdeviceptr from, uint32_t way)
{
	CUmemcpyAttributes how[2] = { { .srcAccessOrder =
						way & 1 ? CU_MEMCPY_SRC_ACCESS_ORDER_ANY
							: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM },
				      { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM } };
	size_t bytes[BATCH], first[2] = { 0, BATCH / 2 }, failed = 0;
	CUdeviceptr dst[BATCH], src[BATCH];

	for (uint32_t i = 0; i < BATCH; i++) {
		bytes[i] = WIDE_WORDS * 4 / BATCH;
		dst[i] = to + i * bytes[i];
		src[i] = from + i * bytes[i];
	}
	if (way & 2) {
		CU(cuMemcpyBatchAsync(dst, src, bytes, BATCH, how, first, 2, &failed, s));
	} else {
		CU(cuMemcpyBatchAsync_v2(dst, src, bytes, BATCH, how, first, 1, s));
	}
	memset(dst, 0, sizeof(dst));
	memset(src, 0, sizeof(src));
	memset(bytes, 0, sizeof(bytes));
	memset(how, 0xff, sizeof(how));
	memset(first, 0xff, sizeof(first));
}

void wide_copy_default(CUdeviceptr to, CUdeviceptr from, uint32_t way)
{
	if (way % 2) {
		CU(cuMemcpy(to, from, WIDE_WORDS * 4));
	} else {
		CU(cuMemcpyDtoD_v2(to, from, WIDE_WORDS * 4));
	}
}

void wide_fill_default(CUdeviceptr to, uint32_t v, uint32_t way)
{
	if (way % 2) {
		CU(cuMemsetD32_v2(to, v, WIDE_WORDS));
	} else {
		CU(cuMemsetD2D32_v2(to, ROW, v, ROW / 4, ROWS));
	}
}

void wide_attribute(CUstream s, CUdeviceptr data, uint32_t way)
{
	CUstreamAttrValue v;

	memset(&v, 0, sizeof(v));
	if (way % 2) {
		v.syncPolicy = CU_SYNC_POLICY_AUTO;
		CU(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &v));
		return;
	}
	v.accessPolicyWindow.base_ptr = (void *)(uintptr_t)data;
	v.accessPolicyWindow.num_bytes = WIDE_WORDS * 4;
	CU(cuStreamSetAttribute(s, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &v));
}

void wide_mapped(CUstream s, CUdeviceptr data)
{
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
				   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUmemGenericAllocationHandle h;
	CUdeviceptr range;
	size_t bytes = 0;

	CU(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
	bytes = (WIDE_WORDS * 4 + bytes - 1) / bytes * bytes;
	CU(cuMemCreate(&h, bytes, &prop, 0));
	CU(cuMemAddressReserve(&range, bytes, 0, 0, 0));
	CU(cuMemMap(range, bytes, 0, h, 0));
	CU(cuMemRelease(h));
	CU(cuMemSetAccess(range, bytes, &access, 1));
	CU(cuMemcpyDtoDAsync_v2(range, data, WIDE_WORDS * 4, s));
	CU(cuMemsetD32Async(data, 0, WIDE_WORDS, s));
	CU(cuMemcpyDtoDAsync_v2(data, range, WIDE_WORDS * 4, s));
	CU(cuStreamSynchronize(s));
	CU(cuMemUnmap(range, bytes));
	CU(cuMemAddressFree(range, bytes));
}

CUdeviceptr wide_managed(CUstream s)
{
	CUdeviceptr p;

	CU(cuMemAllocManaged(&p, WIDE_WORDS * 4, CU_MEM_ATTACH_GLOBAL));
	CU(cuStreamAttachMemAsync(s, p, 0, CU_MEM_ATTACH_GLOBAL));
	CU(cuMemAdvise(p, WIDE_WORDS * 4, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0));
	CU(cuMemPrefetchAsync(p, WIDE_WORDS * 4, 0, s));
	return p;
}

void wide_launch(CUstream s, CUfunction f, uint32_t blocks, uint32_t threads, void **params,
		 uint32_t way)
{
	CUlaunchAttribute attributes[2] = { { .id = CU_LAUNCH_ATTRIBUTE_IGNORE },
					    { .id = CU_LAUNCH_ATTRIBUTE_PRIORITY } };
	CUlaunchConfig config = { blocks, 1, 1, threads, 1, 1, 0, s, attributes, 1 };
	CUresult r;

	switch (way % 4) {
	case 0:
		r = cuLaunchCooperativeKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, params);
		if (r != CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) {
			CU(r);
			return;
		}
		config.numAttrs = 0;
		break;
	case 1:
		config.numAttrs = 2;
		break;
	case 2:
		attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		attributes[0].value.programmaticStreamSerializationAllowed = 1;
		break;
	default:
		break;
	}
	CU(cuLaunchKernelEx(&config, f, params, NULL));
}
