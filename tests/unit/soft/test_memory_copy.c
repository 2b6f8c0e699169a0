/* Copies of every shape between every two kinds of memory, arrays, batches, memsets. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

enum kind { PAGEABLE, PINNED, REGISTERED, MANAGED, DEVICE, POOL, KINDS };

static uint8_t *model_of; /* host memory with the expected contents of a buffer */

/* Allocates a buffer of the given kind. *ret_host: its address on the host, or NULL. */
static CUdeviceptr make(enum kind k, size_t bytes, uint8_t **ret_host)
{
	CUdeviceptr p = 0;
	void *host = NULL;

	switch (k) {
	case PAGEABLE:
		host = malloc(bytes);
		break;
	case PINNED:
		CU(cuMemHostAlloc(&host, bytes, 0));
		break;
	case REGISTERED:
		host = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
		CU(cuMemHostRegister_v2(host, bytes, 0));
		break;
	case MANAGED:
		CU(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
		host = (void *)(uintptr_t)p;
		break;
	case DEVICE:
		CU(cuMemAlloc_v2(&p, bytes));
		break;
	default:
		CU(cuMemAllocAsync(&p, bytes, NULL));
	}
	*ret_host = host;
	return host ? (CUdeviceptr)(uintptr_t)host : p;
}

static void fill(CUdeviceptr p, uint8_t *host, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i++) {
		model_of[i] = (uint8_t)(seed = seed * 1664525 + 1013904223, seed >> 24);
	}
	if (host) {
		memcpy(host, model_of, bytes);
	} else {
		CU(cuMemcpyHtoD_v2(p, model_of, bytes));
	}
}

static void expect(CUdeviceptr p, const uint8_t *host, const uint8_t *model, size_t bytes)
{
	uint8_t *back = malloc(bytes);

	CU(cuCtxSynchronize());
	if (host) {
		memcpy(back, host, bytes);
	} else {
		CU(cuMemcpyDtoH_v2(back, p, bytes));
	}
	CHECK(memcmp(back, model, bytes) == 0);
	free(back);
}

struct box {
	size_t x, y, z, pitch, rows;
};

static CUDA_MEMCPY3D describe(CUdeviceptr d, CUdeviceptr s, const struct box *db,
			      const struct box *sb, size_t w, size_t h, size_t n)
{
	return (CUDA_MEMCPY3D){ .srcXInBytes = sb->x,
				.srcY = sb->y,
				.srcZ = sb->z,
				.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
				.srcDevice = s,
				.srcPitch = sb->pitch,
				.srcHeight = sb->rows,
				.dstXInBytes = db->x,
				.dstY = db->y,
				.dstZ = db->z,
				.dstMemoryType = CU_MEMORYTYPE_UNIFIED,
				.dstDevice = d,
				.dstPitch = db->pitch,
				.dstHeight = db->rows,
				.WidthInBytes = w,
				.Height = h,
				.Depth = n };
}

static size_t at(const struct box *b, size_t y, size_t z)
{
	return b->x + (b->y + y) * b->pitch + (b->z + z) * b->pitch * b->rows;
}

/* Copies one random box between two kinds of memory and compares with a copy on the host. */
static void one_box(enum kind dk, enum kind sk, unsigned seed)
{
	const struct box db = { 3 + seed % 5, seed % 3, seed % 2, 700, 21 };
	const struct box sb = { seed % 7, 1 + seed % 4, seed % 3, 611, 19 };
	const size_t w = 500 + seed % 90, h = 14, n = 3, bytes = 700 * 21 * 6;
	uint8_t *dh, *sh, *dm = malloc(bytes), *sm = malloc(bytes);
	CUdeviceptr d = make(dk, bytes, &dh), s = make(sk, bytes, &sh);
	CUDA_MEMCPY3D p = describe(d, s, &db, &sb, w, h, n);

	model_of = dm;
	fill(d, dh, bytes, seed);
	model_of = sm;
	fill(s, sh, bytes, ~seed);
	for (size_t z = 0; z < n; z++) {
		for (size_t y = 0; y < h; y++) {
			memcpy(dm + at(&db, y, z), sm + at(&sb, y, z), w);
		}
	}
	if (seed & 1) {
		CU(cuMemcpy3D_v2(&p));
	} else {
		CU(cuMemcpy3DAsync_v2(&p, NULL));
	}
	expect(d, dh, dm, bytes);
	free(dm);
	free(sm);
}

static void boxes(void *unused)
{
	(void)unused;
	rig_context();
	for (unsigned dk = 0; dk < KINDS; dk++) {
		for (unsigned sk = 0; sk < KINDS; sk++) {
			one_box(dk, sk, dk * 7 + sk);
			one_box(dk, sk, dk * 7 + sk + 100);
		}
	}
}

static void boxes_are_copied_between_all_kinds(void **state)
{
	(void)state;
	assert_int_equal(rig_run(boxes, NULL), 0);
}

/* Large pageable copies go through the staging buffer in pieces: both directions, in order with
 * kernels. */
static void large(void *unused)
{
	const size_t n = (9u << 20) + 12345;
	uint8_t *a = malloc(n), *b = malloc(n);
	CUdeviceptr p, q;
	CUstream s;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, n));
	CU(cuMemAlloc_v2(&q, n));
	for (size_t i = 0; i < n; i++) {
		a[i] = (uint8_t)(i * 7 + i / 4096);
	}
	CU(cuMemcpyHtoDAsync_v2(p, a, n, s));
	memset(a, 0, n); /* the program may reuse the source */
	CU(cuMemcpyDtoDAsync_v2(q, p, n, s));
	CU(cuMemcpyDtoHAsync_v2(b, q, n, s));
	CU(cuStreamSynchronize(s));
	for (size_t i = 0; i < n; i++) {
		CHECK(b[i] == (uint8_t)(i * 7 + i / 4096));
	}
	free(a);
	free(b);
}

static void large_pageable_copies_keep_their_order(void **state)
{
	(void)state;
	assert_int_equal(rig_run(large, NULL), 0);
}

/* A copy between device memory does not wait for a running kernel; a copy to the host does. */
static void blocking_copies(void *unused)
{
	CUdeviceptr p, q, flag;
	void *params[] = { &flag };
	CUstream s;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_DEFAULT));
	CU(cuMemHostAlloc((void **)&flag, 4096, 0));
	CU(cuMemAlloc_v2(&p, 4096));
	CU(cuMemAlloc_v2(&q, 4096));
	*(volatile uint32_t *)(uintptr_t)flag = 0;
	rig_launch(rig_function("until"), 1, 1, NULL, params);
	CU(cuMemcpyDtoD_v2(p, q, 4096));
	CU(cuMemsetD8_v2(q, 1, 4096));
	CU(cuMemcpyDtoHAsync_v2((void *)(uintptr_t)(flag + 64), p, 64, s));
	CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(s));
	*(volatile uint32_t *)(uintptr_t)flag = 1;
	CU(cuMemcpyDtoH_v2((void *)(uintptr_t)(flag + 64), q, 64));
	CHECK(*(uint8_t *)(uintptr_t)(flag + 64 + 63) == 1);
}

static void copies_wait_as_the_driver_does(void **state)
{
	(void)state;
	assert_int_equal(rig_run(blocking_copies, NULL), 0);
}

/* ---- arrays ---- */

static void array_boxes(void *unused)
{
	static const struct {
		CUarray_format format;
		unsigned channels, bytes;
	} all[] = {
		{ CU_AD_FORMAT_UNSIGNED_INT8, 1, 1 },  { CU_AD_FORMAT_SIGNED_INT8, 4, 4 },
		{ CU_AD_FORMAT_UNSIGNED_INT16, 2, 4 }, { CU_AD_FORMAT_HALF, 4, 8 },
		{ CU_AD_FORMAT_UNSIGNED_INT32, 1, 4 }, { CU_AD_FORMAT_SIGNED_INT32, 2, 8 },
		{ CU_AD_FORMAT_FLOAT, 4, 16 },	       { CU_AD_FORMAT_UNORM_INT8X2, 2, 2 },
		{ CU_AD_FORMAT_SNORM_INT16X4, 4, 8 },
	};
	uint8_t in[16 * 10 * 6 * 3], out[sizeof(in)];

	(void)unused;
	rig_context();
	for (size_t i = 0; i < sizeof(in); i++) {
		in[i] = (uint8_t)(i * 31);
	}
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		CUDA_ARRAY3D_DESCRIPTOR d = { 10, 6, 3, all[i].format, all[i].channels, 0 }, got;
		CUDA_MEMCPY3D up = { .srcMemoryType = CU_MEMORYTYPE_HOST,
				     .srcHost = in,
				     .srcPitch = 10 * all[i].bytes,
				     .srcHeight = 6,
				     .dstMemoryType = CU_MEMORYTYPE_ARRAY,
				     .WidthInBytes = 10 * all[i].bytes,
				     .Height = 6,
				     .Depth = 3 };
		CUDA_MEMCPY3D down = { .srcMemoryType = CU_MEMORYTYPE_ARRAY,
				       .srcXInBytes = 2 * all[i].bytes,
				       .srcY = 1,
				       .srcZ = 1,
				       .dstMemoryType = CU_MEMORYTYPE_HOST,
				       .dstHost = out,
				       .dstPitch = 8 * all[i].bytes,
				       .dstHeight = 5,
				       .WidthInBytes = 8 * all[i].bytes,
				       .Height = 5,
				       .Depth = 2 };
		CUarray a;

		CU(cuArray3DCreate_v2(&a, &d));
		CU(cuArray3DGetDescriptor_v2(&got, a));
		CHECK(memcmp(&got, &d, sizeof(d)) == 0);
		up.dstArray = down.srcArray = a;
		CU(cuMemcpy3D_v2(&up));
		memset(out, 0, sizeof(out));
		CU(cuMemcpy3D_v2(&down));
		for (size_t z = 0; z < 2; z++) {
			for (size_t y = 0; y < 5; y++) {
				size_t row = 8 * all[i].bytes;

				CHECK(memcmp(out + (z * 5 + y) * row,
					     in + ((z + 1) * 6 + y + 1) * 10 * all[i].bytes +
						     2 * all[i].bytes,
					     row) == 0);
			}
		}
		up.dstZ = 1;
		CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&up));
		up.dstZ = 0;
		up.dstXInBytes = 1;
		CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3D_v2(&up)); /* too wide */
		CU(cuArrayDestroy(a));
		CU_IS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(a));
	}
}

static void arrays_of_all_formats(void **state)
{
	(void)state;
	assert_int_equal(rig_run(array_boxes, NULL), 0);
	assert_int_equal(rig_stats_idle().memory_used, 0);
}

static void array_bytes(void *unused)
{
	CUDA_ARRAY_DESCRIPTOR d = { 1000, 0, CU_AD_FORMAT_FLOAT, 1 };
	CUDA_ARRAY3D_DESCRIPTOR cube = { 8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP };
	CUDA_ARRAY_MEMORY_REQUIREMENTS need;
	uint32_t in[1000], out[1000];
	CUmipmappedArray m;
	CUarray a, b, level;
	CUdeviceptr p;

	(void)unused;
	rig_context();
	for (unsigned i = 0; i < 1000; i++) {
		in[i] = i;
	}
	CU(cuArrayCreate_v2(&a, &d));
	CU(cuArrayCreate_v2(&b, &d));
	CU(cuMemAlloc_v2(&p, 4000));
	CU(cuMemcpyHtoA_v2(a, 0, in, 4000));
	CU(cuMemcpyAtoA_v2(b, 400, a, 0, 3600));
	CU(cuMemcpyAtoD_v2(p, b, 400, 400));
	CU(cuMemcpyDtoA_v2(b, 0, p, 400));
	CU(cuMemcpyAtoHAsync_v2(out, b, 0, 4000, NULL));
	for (unsigned i = 0; i < 1000; i++) {
		CHECK(out[i] == i % 100 + (i >= 100) * ((i / 100 - 1) * 100));
	}
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(a, 1, in, 4000));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(a, ~(size_t)0, in, 4));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoA_v2(NULL, 0, in, 4));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuArrayGetMemoryRequirements(&need, a, 0));
	d.NumChannels = 3;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&a, &d));
	d.NumChannels = 1;
	d.Width = 0;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&a, &d));
	d.Width = ~(size_t)0;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2(&a, &d));
	d.Format = CU_AD_FORMAT_NV12;
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuArrayCreate_v2(&a, &d));
	CU(cuArray3DCreate_v2(&a, &cube));
	cube.Depth = 5;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuArray3DCreate_v2(&b, &cube));
	cube.Depth = 6;
	cube.Flags |= CUDA_ARRAY3D_SPARSE;
	CU_IS(CUDA_ERROR_NOT_SUPPORTED, cuArray3DCreate_v2(&b, &cube));
	cube = (CUDA_ARRAY3D_DESCRIPTOR){ 16, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0 };
	CU(cuMipmappedArrayCreate(&m, &cube, 9));
	CU(cuMipmappedArrayGetLevel(&level, m, 2));
	CU(cuArray3DGetDescriptor_v2(&cube, level));
	CHECK(cube.Width == 4 && cube.Height == 2);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMipmappedArrayGetLevel(&level, m, 5));
	CU_IS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(level));
	CU(cuMipmappedArrayDestroy(m));
}

static void arrays_are_copied_as_bytes_too(void **state)
{
	(void)state;
	assert_int_equal(rig_run(array_bytes, NULL), 0);
	assert_int_equal(rig_stats_idle().memory_used, 0);
}

/* Batches, memsets and the entry points of old versions. */

static void batches(void *unused)
{
	uint8_t in[3][256], out[3][256];
	CUmemcpyAttributes attrs[2] = { { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM },
					{ .srcAccessOrder =
						  CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL } };
	size_t first[2] = { 0, 1 }, sizes[3] = { 256, 256, 256 }, failed = 9;
	CUDA_MEMCPY3D_BATCH_OP op = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
	CUdeviceptr p, dst[3], src[3];
	CUstream s;

	(void)unused;
	rig_context();
	CU(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc_v2(&p, 768));
	for (int i = 0; i < 3; i++) {
		memset(in[i], i + 1, 256);
		dst[i] = p + 256u * (unsigned)i;
		src[i] = (CUdeviceptr)(uintptr_t)in[i];
	}
	CU(cuMemcpyBatchAsync(dst, src, sizes, 3, attrs, first, 2, &failed, s));
	for (int i = 0; i < 3; i++) {
		src[i] = dst[i];
		dst[i] = (CUdeviceptr)(uintptr_t)out[i];
	}
	CU(cuMemcpyBatchAsync_v2(dst, src, sizes, 3, attrs, first, 1, s));
	CU(cuStreamSynchronize(s));
	CHECK(memcmp(in, out, sizeof(in)) == 0);
	src[1] = p + 768;
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemcpyBatchAsync(dst, src, sizes, 3, attrs, first, 2, &failed, s));
	CHECK(failed == 1);
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemcpyBatchAsync(dst, src, sizes, 3, attrs, first, 2, &failed, NULL));
	first[0] = 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE,
	      cuMemcpyBatchAsync(dst, src, sizes, 3, attrs, first, 2, &failed, s));
	op.src = (CUmemcpy3DOperand){ .type = CU_MEMCPY_OPERAND_TYPE_POINTER,
				      .op.ptr = { p, 32, 4, { 0 } } };
	op.dst = (CUmemcpy3DOperand){ .type = CU_MEMCPY_OPERAND_TYPE_POINTER,
				      .op.ptr = { (CUdeviceptr)(uintptr_t)out, 16, 4, { 0 } } };
	op.extent.width = 16;
	op.extent.height = 4;
	op.extent.depth = 6;
	memset(out, 0, sizeof(out));
	CU(cuMemcpy3DBatchAsync(1, &op, &failed, 0, s));
	CU(cuStreamSynchronize(s));
	CHECK(out[0][0] == 1 && out[0][127] == 1 && out[0][128] == 2 && out[1][127] == 3);
	CHECK(out[1][128] == 0);
}

static void batches_copy_all_or_report_the_failing_copy(void **state)
{
	(void)state;
	assert_int_equal(rig_run(batches, NULL), 0);
}

static void sets(void *unused)
{
	uint32_t out[64];
	CUdeviceptr p;
	size_t pitch;

	(void)unused;
	rig_context();
	CU(cuMemAllocPitch_v2(&p, &pitch, 100, 8, 4));
	CHECK(pitch >= 100 && pitch % 256 == 0);
	CU(cuMemsetD2D8_v2(p, pitch, 1, pitch, 8));
	CU(cuMemsetD2D16_v2(p, pitch, 0x0202, 8, 2));
	CU(cuMemsetD2D32Async(p + 4, pitch, 0x03030303, 1, 8, NULL));
	CU(cuMemcpyDtoH_v2(out, p, sizeof(out)));
	CHECK(out[0] == 0x02020202 && out[1] == 0x03030303 && out[3] == 0x02020202 &&
	      out[4] == 0x01010101);
	CU(cuMemcpyDtoH_v2(out, p + 2 * pitch, sizeof(out)));
	CHECK(out[0] == 0x01010101 && out[1] == 0x03030303);
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(p + 2, 1, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(p, 1, ~(size_t)0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(p, 1, ~(size_t)0 / 4 + 2));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(p, 4, 1, 8, 2));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D8_v2(p, ~(size_t)0 / 2, 1, 8, 8));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemsetD8(0x1000, 1, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&p, &pitch, 100, 8, 3));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemAllocPitch_v2(&p, &pitch, 0, 8, 4));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&p, &pitch, 1 << 30, 1 << 30, 4));
	CU_IS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&p, ~(size_t)0));
}

static void memsets_have_units_and_pitch(void **state)
{
	(void)state;
	assert_int_equal(rig_run(sets, NULL), 0);
}

static void wild(void *unused)
{
	CUdeviceptr p;
	uint8_t byte = 0;
	CUDA_MEMCPY2D d = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			    .srcHost = &byte,
			    .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			    .WidthInBytes = 1,
			    .Height = 1 };

	(void)unused;
	rig_context();
	CU(cuMemAlloc_v2(&p, 4096));
	d.dstDevice = p;
	CU(cuMemcpy2D_v2(&d));
	d.WidthInBytes = ~(size_t)0;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&d));
	d.WidthInBytes = 1;
	d.dstXInBytes = ~(size_t)0;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&d));
	d.dstXInBytes = 0;
	d.dstY = ~(size_t)0 / 2;
	d.dstPitch = 512;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&d));
	d.dstY = 0;
	d.Height = ~(size_t)0;
	d.srcPitch = 1;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&d));
	d.Height = 0;
	CU(cuMemcpy2D_v2(&d));
	d.Height = 1;
	d.dstMemoryType = 77;
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(&d));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2(NULL));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(p + 4000, &byte, 97));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2(p, &byte, ~(size_t)0));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2(&byte, 4096, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpy(p + 4096, p, 1));
	CU_IS(CUDA_ERROR_INVALID_VALUE, cuMemcpyPeer(p, NULL, p + 4096, NULL, 1));
	CU(cuMemcpyHtoD_v2(p, NULL, 0));
}

static void out_of_range_copies_are_refused(void **state)
{
	(void)state;
	assert_int_equal(rig_run(wild, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(boxes_are_copied_between_all_kinds),
		cmocka_unit_test(large_pageable_copies_keep_their_order),
		cmocka_unit_test(copies_wait_as_the_driver_does),
		cmocka_unit_test(arrays_of_all_formats),
		cmocka_unit_test(arrays_are_copied_as_bytes_too),
		cmocka_unit_test(batches_copy_all_or_report_the_failing_copy),
		cmocka_unit_test(memsets_have_units_and_pitch),
		cmocka_unit_test(out_of_range_copies_are_refused),
	};

	return cmocka_run_group_tests(tests, rig_begin_tight, rig_end);
}
