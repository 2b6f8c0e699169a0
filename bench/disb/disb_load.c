/* Models and workloads of DISB. Rates and loads are those of its configuration files; the number of
 * kernels follows from the networks' layers, with batch normalization and activation fused into the
 * convolution before them (DenseNet has them before: kernels of their own). */
#include <string.h>

#include "bench/disb/disb.h"

enum { R152, D201, V19, I3, DB, WEATHER, GRAPH };

const struct bench_disb_model disb_models[DISB_MODELS] = {
	[R152] = { "R152", "ResNet-152: 155 convolutions, 50 additions, 3 others", 4.2, 208, 0 },
	[D201] = { "D201", "DenseNet-201: 200 convolutions, 200 normalizations, 98 joins, 6 others",
		   7.5, 504, 1 },
	[V19] = { "V19", "VGG-19: 16 convolutions, 5 poolings, 3 dense layers and their parts",
		  2.79, 43, 2 },
	[I3] = { "I3", "Inception-v3: 94 convolutions, 14 poolings, 13 others", 2.9, 121, 3 },
	[DB] = { "DB", "DistilBERT: 6 layers of 14, 4 others", 1.18, 88, 4 },
	[WEATHER] = { "weather", "a stencil code like miniWeather; length of our own choice", 3.0,
		      60, 0 },
	[GRAPH] = { "graph", "a graph search like BFS; length of our own choice", 1.0, 50, 0 },
};

const char *const disb_names[DISB_WORKLOADS] = {
	"A", "B", "C", "D", "E", "REAL", "Y", "Z", "micro"
};

static void add(struct bench_disb_workload *w, unsigned model, enum bench_schedule_kind load,
		double rate, bool rt)
{
	if (w->tasks < DISB_TASKS) {
		w->task[w->tasks++] = (struct bench_disb_task){ model, load, rate, rt };
	}
}

/* The five models. */
static void add_all(struct bench_disb_workload *w, enum bench_schedule_kind load, double rate,
		    bool rt)
{
	for (unsigned m = R152; m <= DB; m++) {
		add(w, m, load, rate, rt);
	}
}

int bench_disb_workload(const char *name, bool periodic, struct bench_disb_workload *w)
{
	enum bench_schedule_kind be = periodic ? SCHEDULE_PERIODIC : SCHEDULE_CLOSED;
	bool known = true;

	memset(w, 0, sizeof(*w));
	w->name = name;
	if (strcmp(name, "A") == 0) {
		add(w, V19, SCHEDULE_PERIODIC, 100, true);
		add(w, R152, be, 100, false);
	} else if (strcmp(name, "B") == 0) {
		add(w, V19, periodic ? SCHEDULE_PERIODIC : SCHEDULE_CLOSED, 220, true);
		add(w, R152, be, 220, false);
	} else if (strcmp(name, "C") == 0) {
		add(w, V19, SCHEDULE_PERIODIC, 100, true);
		add_all(w, be, 100, false);
	} else if (strcmp(name, "D") == 0) {
		add_all(w, SCHEDULE_PERIODIC, 20, true);
		add_all(w, be, 100, false);
	} else if (strcmp(name, "E") == 0) {
		add_all(w, SCHEDULE_POISSON, 20, true);
		add_all(w, periodic ? SCHEDULE_POISSON : SCHEDULE_CLOSED, 100, false);
	} else if (strcmp(name, "REAL") == 0) {
		add_all(w, SCHEDULE_TRACE, 0, true);
		add_all(w, be, 100, false);
	} else if (strcmp(name, "Y") == 0) {
		add(w, V19, SCHEDULE_PERIODIC, 100, true);
		add(w, WEATHER, SCHEDULE_PERIODIC, 150, false);
	} else if (strcmp(name, "Z") == 0) {
		add(w, V19, SCHEDULE_PERIODIC, 100, true);
		for (unsigned i = 0; i < 4; i++) {
			add(w, GRAPH, SCHEDULE_PERIODIC, 100, false);
		}
	} else if (strcmp(name, "micro") ==
		   0) { /* for tests: the smallest workload with both classes */
		add(w, DB, SCHEDULE_PERIODIC, 40, true);
		add(w, DB, be, 40, false);
	} else {
		known = false;
	}
	return known ? 0 : -1;
}

static bool together(const struct bench_disb_task *a, const struct bench_disb_task *b)
{
	return a->load == SCHEDULE_PERIODIC && b->load == SCHEDULE_PERIODIC &&
	       (unsigned)a->rate == (unsigned)b->rate;
}

/* Orders by the model's name, then by position. */
static bool is_before(const struct bench_disb_workload *w, unsigned a, unsigned b)
{
	int order = strcmp(disb_models[w->task[a].model].name, disb_models[w->task[b].model].name);

	return order < 0 || (order == 0 && a < b);
}

void bench_disb_offsets(const struct bench_disb_workload *w, const double *alone_ms,
			uint64_t *ret_ns)
{
	for (unsigned i = 0; i < w->tasks; i++) {
		ret_ns[i] = 0;
		for (unsigned k = 0; k < w->tasks; k++) {
			if (k != i && together(&w->task[i], &w->task[k]) && is_before(w, k, i)) {
				ret_ns[i] += (uint64_t)(alone_ms[w->task[k].model] * 1e6);
			}
		}
	}
}
