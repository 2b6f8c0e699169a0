/* probed_graphs: a program with an executable graph of two kernels for probe_graphs.bats, which
 * obeys lines of standard input and answers each on standard output with "ok". It checks the memory
 * after each line that launches.
 *
 *   load              loads the module and gets its function
 *   code              loads it as machine code only
 *   make KIND BLOCKS  an executable graph: scale with that many blocks of 96 threads, then with one
 *                     block. KIND: explicit, captured, clone, child, library, or function, of a
 *                     library's kernel; the graphs are destroyed. "kept": as explicit, but the
 *                     graph stays, "nested": as child likewise; "full": as explicit, with more
 *                     shared memory than a form may add to
 *   replay N          launches it N times and synchronizes
 *   set BLOCKS        changes its first node, by the graph that was kept
 *   edit BLOCKS       changes the first node of the graph that was kept, and then updates the
 *                     executable graph from it
 *   stale BLOCKS      changes the first node of the graph that was kept
 *   update BLOCKS     updates it from another graph, which is destroyed
 *   replace BLOCKS    replaces its child graph by another, which is destroyed
 *   remove            destroys the first node of the graph that was kept
 *   record            captures a launch of it, and looks for the kernels in what was captured
 *   end               destroys what make has made
 *   unload            unloads the module
 *   context           as make, replay and end in a context of its own, 7 + 1 blocks, which is
 *                     destroyed before the executable graph
 *   exit              returns from main()
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../programs/program.h"
#include "check.h"

#define THREADS 96u
#define BLOCKS_MAX 64u
#define WORDS (BLOCKS_MAX * THREADS)
#define SHARED_MAX (99u << 10)

/* at[i] = 2 at[i] + 1, for i < n; other threads leave early */
static const char text[] =
	".version 6.0\n.target sm_70\n.address_size 64\n"
	".visible .entry scale(.param .u64 at, .param .u32 n)\n{\n"
	".reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd1, [at]; ld.param.u32 %r1, [n];\n"
	"mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"mad.lo.s32 %r5, %r2, %r3, %r4; setp.ge.u32 %p1, %r5, %r1; @%p1 ret;\n"
	"mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r6, [%rd3];\n"
	"add.u32 %r7, %r6, %r6; add.u32 %r7, %r7, 1; st.global.u32 [%rd3], %r7; ret;\n}\n";

static CUdevice device;
static CUcontext context;
static CUmodule module;
static CUlibrary library;
static bool by_kernel; /* scale is a CUkernel */
static CUfunction scale;
static CUgraph kept;
static CUgraphNode first, child_node;
static CUgraphExec exec;
static CUdeviceptr at;
static CUstream stream;
static unsigned blocks;	      /* of the exec's first node */
static unsigned graph_blocks; /* of that of the graph that was kept */
static unsigned shared;	      /* of each launch */
static unsigned model[WORDS];

static unsigned used_of(unsigned n)
{
	return n * THREADS - 1; /* one thread leaves early */
}

static void load(void)
{
	CU(cuModuleLoadData(&module, text));
	CU(cuModuleGetFunction(&scale, module, "scale"));
}

/* As programs do that bring no PTX. */
static void load_code(void)
{
	CUlinkState s;
	size_t bytes;
	void *image, *copy;

	CU(cuLinkCreate(0, NULL, NULL, &s));
	CU(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, sizeof(text), "ptx", 0, NULL,
			 NULL));
	CU(cuLinkComplete(s, &image, &bytes));
	copy = malloc(bytes); /* elsewhere than what the shim knows as the linker's result */
	CHECK(copy, "no memory");
	memcpy(copy, image, bytes);
	CU(cuLinkDestroy(s));
	CU(cuModuleLoadData(&module, copy));
	free(copy);
	CU(cuModuleGetFunction(&scale, module, "scale"));
}

/* ---- graphs ---- */

/* Parameters of a node. by_buffer: as one buffer. */
struct params {
	CUDA_KERNEL_NODE_PARAMS p;
	struct {
		CUdeviceptr at;
		unsigned used;
	} values;
	size_t bytes;
	void *pointers[2], *extra[5];
};

static void fill(struct params *p, unsigned n, bool by_buffer)
{
	memset(p, 0, sizeof(*p));
	p->values.at = at;
	p->values.used = used_of(n);
	p->p.func = by_kernel ? NULL : scale;
	p->p.kern = by_kernel ? (CUkernel)(void *)scale : NULL;
	p->p.gridDimX = n;
	p->p.blockDimX = THREADS;
	p->p.sharedMemBytes = shared;
	p->p.gridDimY = p->p.gridDimZ = p->p.blockDimY = p->p.blockDimZ = 1;
	p->pointers[0] = &p->values.at;
	p->pointers[1] = &p->values.used;
	p->bytes = sizeof(p->values.at) + sizeof(p->values.used);
	p->extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
	p->extra[1] = &p->values;
	p->extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
	p->extra[3] = &p->bytes;
	p->extra[4] = CU_LAUNCH_PARAM_END;
	p->p.kernelParams = by_buffer ? NULL : p->pointers;
	p->p.extra = by_buffer ? p->extra : NULL;
}

static CUgraph explicit(unsigned n)
{
	CUgraphNode second;
	struct params p;
	CUgraph g;

	CU(cuGraphCreate(&g, 0));
	fill(&p, n, false);
	CU(cuGraphAddKernelNode_v2(&first, g, NULL, 0, &p.p));
	fill(&p, 1, true);
	CU(cuGraphAddKernelNode_v2(&second, g, &first, 1, &p.p));
	return g;
}

static CUgraph captured(unsigned n)
{
	unsigned used = used_of(n);
	void *params[2] = { &at, &used };
	CUgraph g;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuLaunchKernel(scale, n, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	used = used_of(1);
	CU(cuLaunchKernel(scale, 1, 1, 1, THREADS, 1, 1, 0, stream, params, NULL));
	CU(cuStreamEndCapture(stream, &g));
	return g;
}

static CUgraph cloned(unsigned n)
{
	CUgraph from = explicit(n), g;

	CU(cuGraphClone(&g, from));
	CU(cuGraphDestroy(from));
	return g;
}

static CUgraph nested(unsigned n)
{
	CUgraph child = explicit(n), g;

	CU(cuGraphCreate(&g, 0));
	CU(cuGraphAddChildGraphNode(&child_node, g, NULL, 0, child));
	CU(cuGraphDestroy(child));
	return g;
}

static CUgraph of_library(unsigned n)
{
	CUkernel k;

	CU(cuLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
	CU(cuLibraryGetKernel(&k, library, "scale"));
	scale = (CUfunction)(void *)k;
	if (!by_kernel) {
		CU(cuKernelGetFunction(&scale, k));
	}
	return explicit(n);
}

/* The first executable graph of a graph ends before it. */
static void instantiate(CUgraph g)
{
	CUgraphExec other;

	CU(cuGraphInstantiateWithFlags(&other, g, 0));
	CU(cuGraphInstantiateWithFlags(&exec, g, 0));
	CU(cuGraphExecDestroy(other));
}

static void make(const char *kind, unsigned n)
{
	CUgraph g;

	shared = strcmp(kind, "full") == 0 ? SHARED_MAX : 0;
	by_kernel = strcmp(kind, "library") == 0;
	if (shared) {
		CU(cuFuncSetAttribute(scale, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
				      SHARED_MAX));
	}
	g = strcmp(kind, "captured") == 0		 ? captured(n)
	    : strcmp(kind, "clone") == 0		 ? cloned(n)
	    : strcmp(kind, "child") == 0		 ? nested(n)
	    : strcmp(kind, "nested") == 0		 ? nested(n)
	    : by_kernel || strcmp(kind, "function") == 0 ? of_library(n)
							 : explicit(n);

	instantiate(g);
	blocks = graph_blocks = n;
	if (strcmp(kind, "kept") == 0 || strcmp(kind, "nested") == 0) {
		kept = g;
		return;
	}
	CU(cuGraphDestroy(g));
	CHECK(cuGraphDestroy(g) == CUDA_ERROR_INVALID_VALUE, "destroyed twice");
}

static void end(void)
{
	CU(cuGraphExecDestroy(exec));
	if (kept) {
		CU(cuGraphDestroy(kept));
	}
	if (library) {
		CU(cuLibraryUnload(library));
		library = NULL;
		by_kernel = false;
		if (module) {
			CU(cuModuleGetFunction(&scale, module, "scale"));
		}
	}
	kept = NULL;
	exec = NULL;
}

/* ---- launches ---- */

static void run_model(unsigned n)
{
	for (unsigned i = 0; i < used_of(n); i++) {
		model[i] = 2 * model[i] + 1;
	}
}

static void replay(unsigned n)
{
	static unsigned host[WORDS];

	for (unsigned i = 0; i < n; i++) {
		CU(cuGraphLaunch(exec, stream));
		run_model(blocks);
		run_model(1);
	}
	CU(cuMemcpyDtoHAsync(host, at, sizeof(host), stream));
	CU(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < WORDS; i++) {
		CHECK(host[i] == model[i], "word %u is %u, not %u", i, host[i], model[i]);
	}
}

/* The program sees its kernel, its parameters and its shared memory, whatever runs. */
static void check_node(CUgraphNode node, unsigned n)
{
	CUDA_KERNEL_NODE_PARAMS p;

	CU(cuGraphKernelNodeGetParams_v2(node, &p));
	CHECK(p.func == scale || (void *)p.kern == (void *)scale, "another kernel");
	CHECK(p.gridDimX == n && p.sharedMemBytes == shared, "%u blocks, %u bytes", p.gridDimX,
	      p.sharedMemBytes);
}

static void set(unsigned n)
{
	struct params p;

	check_node(first, graph_blocks);
	fill(&p, n, true);
	CU(cuGraphExecKernelNodeSetParams_v2(exec, first, &p.p));
	check_node(first, graph_blocks); /* it is as it was */
	blocks = n;
}

static void stale(unsigned n)
{
	struct params p;

	fill(&p, n, false);
	CU(cuGraphKernelNodeSetParams_v2(first, &p.p));
	graph_blocks = n;
	check_node(first, n);
}

static void edit(unsigned n)
{
	CUgraphExecUpdateResultInfo info;

	stale(n);
	CU(cuGraphExecUpdate_v2(exec, kept, &info));
	blocks = n;
}

static void update(unsigned n)
{
	CUgraphNode before = first;
	CUgraphExecUpdateResultInfo info;
	CUgraph g = explicit(n);

	CU(cuGraphExecUpdate_v2(exec, g, &info));
	CHECK(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "%d", (int)info.result);
	check_node(first, n);
	CU(cuGraphDestroy(g));
	first = before;
	blocks = n;
}

static void replace(unsigned n)
{
	CUgraph child = explicit(n);

	CU(cuGraphExecChildGraphNodeSetParams(exec, child_node, child));
	CU(cuGraphDestroy(child));
	blocks = n;
}

static void check_graph(CUgraph g)
{
	CUgraphNode nodes[4];
	size_t n = 4;

	CU(cuGraphGetNodes(g, nodes, &n));
	for (size_t i = 0; i < n; i++) {
		CUgraphNodeType type;
		CUgraph child;

		CU(cuGraphNodeGetType(nodes[i], &type));
		if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
			CU(cuGraphChildGraphNodeGetGraph(nodes[i], &child));
			check_graph(child);
		} else {
			CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL, "type %d", (int)type);
			check_node(nodes[i], i ? 1 : blocks);
		}
	}
}

static void record(void)
{
	CUgraph g;

	CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CU(cuGraphLaunch(exec, stream));
	CU(cuStreamEndCapture(stream, &g));
	check_graph(g);
	CU(cuGraphDestroy(g));
}

static void make_memory(void)
{
	CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CU(cuMemAlloc(&at, sizeof(model)));
	memset(model, 0, sizeof(model));
	CU(cuMemcpyHtoD(at, model, sizeof(model)));
}

static void other_context(void)
{
	CUmodule before = module;
	CUgraphExec ended;
	CUcontext c;

	CU(cuCtxCreate(&c, 0, device));
	make_memory();
	load();
	make("explicit", 7);
	replay(1);
	ended = exec;
	CU(cuCtxDestroy(c));
	(void)cuGraphExecDestroy(ended); /* whatever the driver answers */
	exec = NULL;
	CU(cuCtxSetCurrent(context));
	make_memory();
	module = before;
	CU(cuModuleGetFunction(&scale, module, "scale"));
}

static bool obey_number(const char *line)
{
	static const struct {
		const char *word;
		void (*run)(unsigned n);
	} known[] = { { "replay", replay }, { "set", set },	  { "stale", stale },
		      { "edit", edit },	    { "update", update }, { "replace", replace } };
	char word[16];
	unsigned n;

	if (sscanf(line, "%15s %u", word, &n) != 2) {
		return false;
	}
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(word, known[i].word) == 0) {
			known[i].run(n);
			return true;
		}
	}
	return false;
}

static bool obey(const char *line)
{
	char kind[16];
	unsigned n;

	if (sscanf(line, "make %15s %u", kind, &n) == 2) {
		make(kind, n);
	} else if (strcmp(line, "load\n") == 0) {
		load();
	} else if (strcmp(line, "code\n") == 0) {
		load_code();
	} else if (strcmp(line, "unload\n") == 0) {
		CU(cuModuleUnload(module));
		module = NULL;
	} else if (strcmp(line, "remove\n") == 0) {
		CU(cuGraphDestroyNode(first));
	} else if (strcmp(line, "record\n") == 0) {
		record();
	} else if (strcmp(line, "end\n") == 0) {
		end();
	} else if (strcmp(line, "context\n") == 0) {
		other_context();
	} else if (!obey_number(line)) {
		CHECK(strcmp(line, "exit\n") == 0, "unknown line %s", line);
		return false;
	}
	return true;
}

int main(void)
{
	char line[64];

	CU(cuInit(0));
	CU(cuDeviceGet(&device, 0));
	CU(cuDevicePrimaryCtxRetain(&context, device));
	CU(cuCtxSetCurrent(context));
	make_memory();
	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && obey(line)) {
		printf("ok\n");
		fflush(stdout);
	}
	return 0;
}
