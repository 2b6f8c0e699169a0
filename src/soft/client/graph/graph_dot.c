/* cuGraphDebugDotPrint: prints a graph in the language of graphviz. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "soft/client/graph/graph.h"

static const char *const type_names[] = {
	[CU_GRAPH_NODE_TYPE_KERNEL] = "KERNEL",
	[CU_GRAPH_NODE_TYPE_MEMCPY] = "MEMCPY",
	[CU_GRAPH_NODE_TYPE_MEMSET] = "MEMSET",
	[CU_GRAPH_NODE_TYPE_HOST] = "HOST",
	[CU_GRAPH_NODE_TYPE_GRAPH] = "GRAPH",
	[CU_GRAPH_NODE_TYPE_EMPTY] = "EMPTY",
	[CU_GRAPH_NODE_TYPE_WAIT_EVENT] = "WAIT_EVENT",
	[CU_GRAPH_NODE_TYPE_EVENT_RECORD] = "EVENT_RECORD",
	[CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL] = "EXT_SEMAS_SIGNAL",
	[CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT] = "EXT_SEMAS_WAIT",
	[CU_GRAPH_NODE_TYPE_MEM_ALLOC] = "MEM_ALLOC",
	[CU_GRAPH_NODE_TYPE_MEM_FREE] = "MEM_FREE",
	[CU_GRAPH_NODE_TYPE_BATCH_MEM_OP] = "BATCH_MEM_OP",
};

static void print_details(struct buf *b, const struct soft_work *w)
{
	const struct soft_record_launch *r = &w->kernel.r;

	switch (w->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		buf_printf(b, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>",
			   soft_object_is(w->kernel.f, SOFT_OBJECT_FUNCTION) ? w->kernel.f->name
									     : "?",
			   r->grid[0], r->grid[1], r->grid[2], r->block[0], r->block[1],
			   r->block[2], r->shared_bytes);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		buf_printf(b, "\\n0x%llx to 0x%llx\\n%llu x %llu x %llu bytes",
			   (unsigned long long)w->copy.c.src, (unsigned long long)w->copy.c.dst,
			   (unsigned long long)w->copy.c.width,
			   (unsigned long long)w->copy.c.height,
			   (unsigned long long)w->copy.c.depth);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		buf_printf(b, "\\n0x%llx = 0x%x\\n%zu x %zu of %u bytes",
			   (unsigned long long)w->set.dst, w->set.value, w->set.width,
			   w->set.height, w->set.elementSize);
		break;
	default:
		break;
	}
}

/* A node's name contains the number of its graph, so that names in child graphs are unique. */
static void print_graph(struct buf *b, const CUgraph g, unsigned flags)
{
	buf_printf(b, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n", (unsigned long long)g->id,
		   (unsigned long long)g->id);
	for (uint32_t i = 0; i < g->n; i++) {
		const CUgraphNode n = g->nodes[i];

		buf_printf(b, "\"graph_%llu_node_%u\" [shape=\"record\" label=\"%u %s",
			   (unsigned long long)g->id, i, i, type_names[n->work.type]);
		if (flags) {
			print_details(b, &n->work);
		}
		if (flags & (CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE | CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) {
			buf_printf(b, "\\nnode %p", (void *)n);
		}
		buf_puts(b, "\"];\n");
	}
	for (uint32_t i = 0; i < g->n; i++) {
		for (uint32_t j = 0; j < g->nodes[i]->n_deps; j++) {
			buf_printf(b, "\"graph_%llu_node_%u\" -> \"graph_%llu_node_%u\";\n",
				   (unsigned long long)g->id, g->nodes[i]->deps[j].from->index,
				   (unsigned long long)g->id, i);
		}
	}
	for (uint32_t i = 0; i < g->n; i++) {
		if (g->nodes[i]->work.type == CU_GRAPH_NODE_TYPE_GRAPH) {
			print_graph(b, g->nodes[i]->work.child, flags);
		}
	}
	buf_puts(b, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph g, const char *path, unsigned int flags)
{
	CUresult e = soft_graph_check(g);
	struct buf b;
	int fd;

	if (e || !path) {
		return e ? e : CUDA_ERROR_INVALID_VALUE;
	}
	buf_init(&b);
	buf_puts(&b, "digraph dot {\n");
	print_graph(&b, g, flags);
	buf_puts(&b, "}\n");
	fd = b.failed ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (fd < 0) {
		e = b.failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
	} else if (write(fd, b.data, b.len) != (ssize_t)b.len) {
		e = CUDA_ERROR_OPERATING_SYSTEM;
	}
	if (fd >= 0) {
		close(fd);
	}
	buf_finish(&b);
	return e;
}
