/* Which kernels the launches of executable graphs ran, for coverage: each kernel node counts a
 * launch of its kernel for each launch of its graph. Counted when the question is asked and, from
 * then on, when the graph ends and when a node gets another kernel, so that launches pay nothing.
 */
#include "sched/sched.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/probe/probe_graph_int.h"

/* Launches of an exec that are being counted. */
struct batch {
	uint64_t launches, ns;	/* of the graph */
	uint64_t all_ns;	/* sum of the durations of its kernels; 0: one is not known */
	uint64_t lost, lost_ns; /* of nodes that cannot be changed */
	const char *why;	/* they cannot */
};

void shim_probe_exec_count_begin(struct shim_probe_exec *x)
{
	const struct sched_kernel *graph = shim_kernel_counted_graph(load_relaxed(&x->exec));

	x->accounted = graph ? sched_kernel_launches(graph) : 0; /* of others with the handle */
	x->looked_up = false;
}

#define RECENT 256u

/* Finds the kernels of all places. To find that of a function of a library takes long, and graphs
 * have few different kernels. */
static void look_up(struct shim_probe_exec *x)
{
	const struct shim_probe_place *recent[RECENT] = { NULL };

	for (uint32_t i = 0; i < x->n_places; i++) {
		struct shim_probe_place *p = &x->places[i];
		const void *key = p->kern ? (const void *)p->kern : (const void *)p->func;
		unsigned slot = (unsigned)(((uintptr_t)key >> 4) % RECENT);
		const struct shim_probe_place *same = recent[slot];

		if (!p->kernel && same && same->kern == p->kern && same->func == p->func) {
			p->kernel = same->kernel;
		} else if (!p->kernel) {
			const void *handle = shim_kernel_noted(p->kern, p->func);

			p->kernel = handle ? shim_kernel_counted(handle) : NULL;
		}
		recent[slot] = p;
	}
	x->looked_up = true;
}

/* Returns the sum of the durations of all kernels; 0: one is not known. */
static uint64_t durations(const struct shim_probe_exec *x)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < x->n_places; i++) {
		const struct sched_kernel *k = x->places[i].kernel;
		uint64_t ns = k ? sched_kernel_duration(k) : 0;

		if (!ns) {
			return 0;
		}
		sum += ns;
	}
	return sum;
}

/* Returns the node's part of the graph's time, which copies and gaps are a part of, too. */
static uint64_t part_of(const struct shim_probe_exec *x, const struct shim_probe_place *p,
			const struct batch *b)
{
	double share = b->all_ns ? (double)sched_kernel_duration(p->kernel) / (double)b->all_ns
				 : 1.0 / x->n_places;

	return (uint64_t)((double)b->ns * MIN(share, 1.0));
}

/* Returns why a tool cannot run in the node of a place; NULL: it can. */
static const char *why_not(const struct shim_probe_exec *x, uint32_t i)
{
	const struct shim_probe_place *p = &x->places[i];
	const struct shim_probe_node *n = x->copy || !x->nodes ? NULL : &x->nodes[i];

	if (x->lost || !p->kernel || x->copy) {
		return x->lost ? x->lost : !p->kernel ? "its kernel is not known" : NULL;
	}
	return p->gone	      ? "the node was destroyed"
	       : n && n->lost ? n->lost
	       : p->edited && !(n && n->kept)
		       ? "the node was changed before a tool asked for its kernel"
		       : NULL;
}

static void count_node(const struct shim_probe_exec *x, uint32_t i, struct batch *b)
{
	const struct shim_probe_place *p = &x->places[i];
	const char *why = why_not(x, i);
	uint64_t ns = part_of(x, p, b);

	if (why) {
		b->lost += b->launches;
		b->lost_ns += ns;
		b->why = why;
	} else {
		sched_kernel_add_graph(shim.sched, p->kernel, b->launches, ns);
	}
}

void shim_probe_exec_account(struct shim_probe_exec *x)
{
	struct sched_kernel *graph = shim_kernel_counted_graph(load_relaxed(&x->exec));
	struct batch b = { .launches = graph ? sched_kernel_launches(graph) - x->accounted : 0 };

	if (!b.launches || !x->looked_up) {
		return;
	}
	x->accounted += b.launches;
	b.ns = b.launches * sched_kernel_duration(graph);
	b.all_ns = durations(x);
	for (uint32_t i = 0; i < x->n_places; i++) {
		count_node(x, i, &b);
	}
	if (b.lost) {
		sched_kernel_add_graph(shim.sched, graph, b.lost, b.lost_ns);
		sched_kernel_set_form(shim.sched, graph, PROTO_FORM_NONE, b.why);
	}
	sched_kernel_cover(shim.sched, graph, b.launches, b.all_ns ? 0 : b.ns);
}

void shim_probe_exec_recount(struct shim_probe_exec *x, struct shim_probe_place *p,
			     const CUDA_KERNEL_NODE_PARAMS *now)
{
	if (p->kern != now->kern || p->func != now->func) {
		shim_probe_exec_account(x);
		p->kern = now->kern;
		p->func = now->func;
		p->kernel = NULL;
	}
}

/* Which kernels such a graph ran is not known, so it counts itself. */
static void tell_bodies(const struct shim_probe_exec *x)
{
	struct sched_kernel *graph = shim_kernel_counted_graph(x->exec);

	if (graph) {
		sched_kernel_set_form(shim.sched, graph, PROTO_FORM_UNKNOWN,
				      "kernels in bodies of conditional nodes are not known");
	}
}

void shim_probe_graphs_account(void)
{
	for (struct shim_probe_exec *x = load_acquire(&shim_probe_execs); x; x = x->next) {
		if (!load_acquire(&x->exec) || !shim_probe_exec_lock(x)) {
			continue;
		}
		lock_take(&shim_probe_graphs_mutex);
		if (x->exec && x->n_places && !x->bodies) {
			look_up(x);
			shim_probe_exec_account(x);
		} else if (x->exec && x->bodies) {
			tell_bodies(x);
		}
		lock_release(&shim_probe_graphs_mutex);
		shim_probe_exec_end(x);
	}
}
