/* Runs the fetches that gen_textures.py wrote through the driver API on the GPU of libcuda.so.1:
 * the soft GPU in the unit tests, hardware by hand. Usage: texture_cases FILE. Prints each result
 * that differs, and totals. Exit code 1 if one differs. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "cuabi/api.h"
#include "need.h"

#define ROWS_MAX 512
#define SHOWN_MAX 4 /* differences printed of each case */
#define LEVELS_MAX 16

struct texture_case {
	char kind[16], run[256];
	CUarray_format format;
	unsigned channels, texel_bytes, levels, flags;
	size_t dims[3];
	CUDA_TEXTURE_DESC desc;
	uint8_t *data; /* borrowed: decoded in place of the text */
	unsigned line, n;
	uint32_t in[ROWS_MAX][4], expect[ROWS_MAX][4];
};

static int word_of(const char *word, const char *const *words, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (strcmp(word, words[i]) == 0) {
			return (int)i;
		}
	}
	need(CUDA_ERROR_INVALID_VALUE, word);
	return 0;
}

static float float_of(const char *bits)
{
	uint32_t u = (uint32_t)strtoul(bits, NULL, 16);
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

/* "texture KIND FORMAT CHANNELS W H D LEVELS MODE MODE MODE LINEAR MIP_LINEAR FLAGS BIAS MIN MAX
 * BORDER BORDER BORDER BORDER" */
static void read_texture(struct texture_case *c, char *line)
{
	static const char *const formats[] = {
		"u8", "s8", "u16", "s16", "u32", "s32", "f16", "f32"
	};
	static const CUarray_format values[] = {
		CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,
		CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
		CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32,
		CU_AD_FORMAT_HALF,	     CU_AD_FORMAT_FLOAT
	};
	static const unsigned bytes[] = { 1, 1, 2, 2, 4, 4, 2, 4 };
	static const char *const modes[] = { "wrap", "clamp", "mirror", "border" };
	char *w[24], *save = NULL;
	unsigned n = 0;
	int f;

	for (char *p = strtok_r(line, " ", &save); p && n < ARRAY_SIZE(w);
	     p = strtok_r(NULL, " ", &save)) {
		w[n++] = p;
	}
	need(n == 21 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "a texture line");
	snprintf(c->kind, sizeof(c->kind), "%s", w[1]);
	f = word_of(w[2], formats, ARRAY_SIZE(formats));
	c->format = values[f];
	c->channels = (unsigned)strtoul(w[3], NULL, 10);
	c->texel_bytes = bytes[f] * c->channels;
	for (unsigned i = 0; i < 3; i++) {
		c->dims[i] = strtoul(w[4 + i], NULL, 10);
		c->desc.addressMode[i] =
			(CUaddress_mode)word_of(w[8 + i], modes, ARRAY_SIZE(modes));
	}
	c->levels = (unsigned)strtoul(w[7], NULL, 10);
	c->desc.filterMode = (CUfilter_mode)strtoul(w[11], NULL, 10);
	c->desc.mipmapFilterMode = (CUfilter_mode)strtoul(w[12], NULL, 10);
	c->desc.flags = (unsigned)strtoul(w[13], NULL, 10);
	c->desc.mipmapLevelBias = float_of(w[14]);
	c->desc.minMipmapLevelClamp = float_of(w[15]);
	c->desc.maxMipmapLevelClamp = float_of(w[16]);
	for (unsigned i = 0; i < 4; i++) {
		c->desc.borderColor[i] = float_of(w[17 + i]);
	}
}

static void read_data(struct texture_case *c, char *hex)
{
	size_t n = strlen(hex) / 2;

	c->data = (uint8_t *)hex;
	for (size_t i = 0; i < n; i++) {
		char two[3] = { hex[2 * i], hex[2 * i + 1], '\0' };

		c->data[i] = (uint8_t)strtoul(two, NULL, 16);
	}
}

static void read_row(struct texture_case *c, char *line)
{
	char *p = line;

	need(c->n < ROWS_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "too many rows");
	for (unsigned i = 0; i < 4; i++) {
		c->in[c->n][i] = (uint32_t)strtoul(p, &p, 16);
	}
	p = strchr(p, '=');
	need(p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, line);
	p++;
	for (unsigned i = 0; i < 4; i++) {
		c->expect[c->n][i] = (uint32_t)strtoul(p, &p, 16);
	}
	c->n++;
}

static size_t fill_array(const struct texture_case *c, CUarray a, unsigned level,
			 const uint8_t *from)
{
	bool layered = strcmp(c->kind, "array") != 0;
	CUDA_MEMCPY3D m = { .srcMemoryType = CU_MEMORYTYPE_HOST,
			    .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			    .srcHost = from,
			    .dstArray = a };

	m.WidthInBytes = MAX(c->dims[0] >> level, (size_t)1) * c->texel_bytes;
	m.Height = MAX(c->dims[1] >> level, (size_t)1);
	m.Depth = MAX(layered ? c->dims[2] : c->dims[2] >> level, (size_t)1);
	m.srcPitch = m.WidthInBytes;
	m.srcHeight = m.Height;
	need(cuMemcpy3D_v2(&m), "fill");
	return m.WidthInBytes * m.Height * m.Depth;
}

static CUtexObject make_texture(const struct texture_case *c)
{
	CUDA_ARRAY3D_DESCRIPTOR d = { .Width = c->dims[0],
				      .Height = c->dims[1],
				      .Depth = c->dims[2],
				      .Format = c->format,
				      .NumChannels = c->channels };
	CUDA_RESOURCE_DESC r = { .resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY };
	const uint8_t *from = c->data;
	CUtexObject t = 0;
	CUarray level;

	d.Flags = strcmp(c->kind, "layered") == 0 ? CUDA_ARRAY3D_LAYERED
		  : strcmp(c->kind, "cube") == 0  ? CUDA_ARRAY3D_CUBEMAP
						  : 0;
	d.Flags |= strstr(c->run, "tld4") ? CUDA_ARRAY3D_TEXTURE_GATHER : 0;
	if (c->levels == 1) {
		r.resType = CU_RESOURCE_TYPE_ARRAY;
		need(cuArray3DCreate_v2(&r.res.array.hArray, &d), "array");
		fill_array(c, r.res.array.hArray, 0, from);
	} else {
		need(cuMipmappedArrayCreate(&r.res.mipmap.hMipmappedArray, &d, c->levels),
		     "levels");
		for (unsigned i = 0; i < c->levels; i++) {
			need(cuMipmappedArrayGetLevel(&level, r.res.mipmap.hMipmappedArray, i),
			     "level");
			from += fill_array(c, level, i, from);
		}
	}
	need(cuTexObjectCreate(&t, &r, &c->desc, NULL), "texture");
	return t;
}

static CUfunction make_kernel(const struct texture_case *c, CUmodule *ret_module)
{
	struct buf text;
	CUfunction f;

	buf_init(&text);
	buf_printf(&text,
		   ".version 7.0\n.target sm_70\n.address_size 64\n"
		   ".visible .entry k(.param .u64 t, .param .u64 in, .param .u64 out)\n{\n"
		   "	.reg .b64 %%t, %%i, %%o, %%w; .reg .f32 %%f<4>; .reg .b32 %%r<9>;\n"
		   "	ld.param.u64 %%t, [t]; ld.param.u64 %%i, [in]; ld.param.u64 %%o, [out];\n"
		   "	mov.u32 %%r0, %%tid.x; mul.wide.u32 %%w, %%r0, 16;\n"
		   "	add.u64 %%i, %%i, %%w; add.u64 %%o, %%o, %%w;\n"
		   "	ld.global.v4.f32 {%%f0, %%f1, %%f2, %%f3}, [%%i];\n"
		   "	ld.global.v4.b32 {%%r5, %%r6, %%r7, %%r8}, [%%i];\n"
		   "	%s\n"
		   "	st.global.v4.b32 [%%o], {%%r1, %%r2, %%r3, %%r4};\n	ret;\n}\n",
		   c->run);
	need(cuModuleLoadData(ret_module, buf_text(&text)), c->run);
	need(cuModuleGetFunction(&f, *ret_module, "k"), "k");
	buf_finish(&text);
	return f;
}

/* Returns the number of rows that differ. */
static unsigned run_case(const struct texture_case *c)
{
	static uint32_t got[ROWS_MAX][4];
	CUtexObject t = make_texture(c);
	size_t bytes = c->n * sizeof(c->in[0]);
	CUdeviceptr in, out;
	CUmodule module;
	unsigned bad = 0;

	need(cuMemAlloc_v2(&in, bytes), "memory");
	need(cuMemAlloc_v2(&out, bytes), "memory");
	need(cuMemcpyHtoD_v2(in, c->in, bytes), "copy");
	need(cuLaunchKernel(make_kernel(c, &module), 1, 1, 1, c->n, 1, 1, 0, NULL,
			    (void *[]){ &t, &in, &out }, NULL),
	     "launch");
	need(cuMemcpyDtoH_v2(got, out, bytes), c->run);
	for (unsigned i = 0; i < c->n; i++) {
		if (memcmp(got[i], c->expect[i], sizeof(got[i])) == 0) {
			continue;
		}
		if (bad++ < SHOWN_MAX) {
			printf("line %u, row %u of %s: %#x %#x %#x %#x gives %#x %#x %#x %#x, "
			       "expected %#x %#x %#x %#x\n",
			       c->line, i, c->run, c->in[i][0], c->in[i][1], c->in[i][2],
			       c->in[i][3], got[i][0], got[i][1], got[i][2], got[i][3],
			       c->expect[i][0], c->expect[i][1], c->expect[i][2], c->expect[i][3]);
		}
	}
	need(cuMemFree_v2(in), "free");
	need(cuMemFree_v2(out), "free");
	need(cuModuleUnload(module), "unload");
	return bad;
}

int main(int argc, char **argv)
{
	static struct texture_case c;
	unsigned line = 0, cases = 0, rows = 0, bad = 0;
	char *p, *next;
	CUcontext ctx;
	struct buf text;

	buf_init(&text);
	if (argc != 2 || buf_read_file(&text, argv[1], (size_t)16 << 20) < 0) {
		fprintf(stderr, "usage: texture_cases FILE\n");
		return 2;
	}
	need(cuInit(0), "cuInit");
	need(cuCtxCreate_v2(&ctx, 0, 0), "context");
	for (p = text.data; p && *p; p = next) {
		next = strchr(p, '\n');
		if (next) {
			*next++ = '\0';
		}
		line++;
		if (strncmp(p, "texture ", 8) == 0) {
			memset(&c, 0, sizeof(c));
			c.line = line;
			read_texture(&c, p);
		} else if (strncmp(p, "data ", 5) == 0) {
			read_data(&c, p + 5);
		} else if (strncmp(p, "run ", 4) == 0) {
			snprintf(c.run, sizeof(c.run), "%s", p + 4);
		} else if (*p) {
			read_row(&c, p);
		} else {
			bad += run_case(&c);
			cases++;
			rows += c.n;
		}
	}
	printf("%u cases, %u fetches, %u differ\n", cases, rows, bad);
	buf_finish(&text);
	return bad || !cases;
}
