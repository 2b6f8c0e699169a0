/* State shared by the parts of the simulator: the instances of the policy, the text of the
 * scenario, and the state of the run. */
#ifndef GBPF_SIM_SIM_INT_H
#define GBPF_SIM_SIM_INT_H

#include "base/nearest.h"
#include "bpf/load/policy.h"
#include "bpf/load/btf/typed.h"
#include "bpf/run/standard_maps.h"
#include "sim/hooks.h"
#include "sim/sim.h"
#include "sim/sim_memory.h"

#define SIM_MAX_TENANTS 64u
#define SIM_MAX_LINES 100000u
#define SIM_MAX_STEPS 10000000u /* maximum number of statements per run */
#define SIM_MAX_RECORDS 100000u /* maximum number of unexamined ring buffer records */
#define SIM_MAX_DEPTH 8u	/* maximum nesting of blocks */
#define SIM_NAME_BYTES 32u
#define SIM_STATS 32u /* greater than every GBPF_STAT_* */
#define SIM_START_NS UINT64_C(1000000000)

#define SIM_MAX_GPUS 16u
#define SIM_MAX_REGIONS 256u

/* ---- the policy's instances: for each GPU gbpfd's and one for each tenant ---- */

struct sim_instance {
	struct ebpf_policy *policy; /* owned */
	int fd;			    /* its TENANT region, or -1 */
	void *base;		    /* owned mapping of it, or NULL */
};

struct sim_tenant {
	char name[SIM_NAME_BYTES];
	uint32_t number, class_id, weight, uid, pid, lane;
	uint32_t gpu;		  /* a program that uses several is a tenant on each */
	uint32_t vgpu;		  /* place of its vGPU; EBPF_VGPUS: in none */
	uint32_t weight_asked;	  /* of the statement tenant; admit computes weight from it */
	uint32_t levels;	  /* available levels as bits; 0: those of its lane */
	uint32_t slice_us, level; /* last values set by the policy; 0 and GBPF_LEVEL_NONE: none */
	uint64_t stat[SIM_STATS]; /* indexed by GBPF_STAT_* */
	char explained[EBPF_PRINT_TEXT]; /* by gbpf_explain */
	struct sim_instance in;
	struct sim_memory mem;
	struct {
		uint64_t end_ns;	/* when its launches are done */
		uint64_t rest_until_ns; /* no fault is reported until then */
		uint64_t faults, in_place, wait_ns, lost_ns;
	} work; /* of the statement launch */
};

/* A region of a tenant (statement region). */
struct sim_region {
	char name[SIM_NAME_BYTES];
	uint32_t tenant;	   /* index */
	struct mem_swap_region *r; /* of the tenant's map; NULL: in the dry run */
};

/* A vGPU; its place is its index. */
struct sim_vgpu {
	char name[SIM_NAME_BYTES];
	struct ebpf_vgpu_row row; /* tenants, gpus, lanes and part of used come from the tenants */
	uint64_t used, swap;	  /* of the statement vgpu: memory that is no region; of the host */
};

/* A GPU, whose number is its index. */
struct sim_gpu {
	struct sim_testbed *w;
	struct sim_instance daemon;
	int global_fd;
	void *global; /* owned mapping */
	struct ebpf_tenant_ops ops;
	uint64_t last_tick_ns, ticks;
};

struct sim_testbed {
	struct ebpf_built built;
	int all_gpus_fd; /* memory of the maps that all GPUs share, or -1 */
	struct sim_gpu gpu[SIM_MAX_GPUS];
	unsigned n_gpus;
	struct sim_tenant tenant[SIM_MAX_TENANTS];
	unsigned n_tenants;
	struct sim_vgpu vgpu[EBPF_VGPUS];
	unsigned n_vgpus;
	uint64_t gpu_mem; /* bytes of each GPU; 0: not known */
	struct sim_region region[SIM_MAX_REGIONS];
	unsigned n_regions;
	struct sim_link link; /* of each GPU */
	unsigned open_flags;
};

/* Loads the policy. Returns 0, or an error as sim_run() does. */
int sim_testbed_init(struct sim_testbed *w, const struct sim_options *o, struct report *r);
void sim_testbed_finish(struct sim_testbed *w);
/* Creates the memory and gbpfd's instances of further GPUs, until there are n. Returns 0 or -errno.
 */
int sim_testbed_gpus(struct sim_testbed *w, unsigned n);
/* Creates the memory and the instance of a tenant. Returns 0 or -errno. */
int sim_testbed_add(struct sim_testbed *w, struct sim_tenant *t);
struct sim_tenant *sim_testbed_tenant(struct sim_testbed *w, const char *name, size_t len);
/* Fills the fields of a context as gBPF would; the scenario then sets its own. t NULL: a hook of
 * gbpfd. gpu: that of t, if there is one. */
void sim_testbed_defaults(struct sim_testbed *w, const struct sim_hook *h,
			  const struct sim_tenant *t, uint32_t gpu, void *ctx);
bool sim_testbed_fills(const struct sim_testbed *w, int hook);
/* Runs the program of a hook in that instance. */
int64_t sim_testbed_run(struct sim_testbed *w, const struct sim_hook *h, struct sim_instance *in,
			uint32_t gpu, void *ctx);
/* The scenario's clock. */
uint64_t sim_now(void);
void sim_set_now(uint64_t ns);

/* ---- the text ---- */

struct sim_line {
	const char *text; /* borrowed, not terminated */
	size_t len;
	uint32_t partner; /* line that opens a block: its end; line with '}': its start; else 0 */
	bool opens, closes;
};

struct sim_variable {
	char name[SIM_NAME_BYTES];
	uint64_t value;
};

/* A record read from a ring buffer, in the order of the events. */
struct sim_record {
	struct sim_record *next;
	uint32_t map;
	uint32_t bytes;
	uint8_t data[];
};

/* The last event. */
struct sim_decision {
	const struct sim_hook *hook; /* NULL: none yet */
	uint32_t line;
	bool filled;
	bool no_fault; /* a launch for which mem_fault did not run; the verdict is -1 */
	int64_t verdict;
	uint64_t ctx[SIM_CTX_BYTES / 8];
};

struct sim {
	const struct sim_options *o;
	struct sim_testbed testbed;
	struct sim_result *result;
	struct report *r;
	char *copy; /* owned */
	struct sim_line *lines;
	uint32_t n_lines;
	struct sim_variable vars[SIM_MAX_DEPTH + 24];
	unsigned n_vars;
	struct sim_decision last;
	struct sim_record *records, **last_record; /* owned: records not examined yet */
	uint32_t n_records;
	struct sim_instance *ran; /* the instance of the last event */
	uint8_t *values[4];	  /* owned: copies of elements, used in turn */
	unsigned turn;
	uint64_t random_state, steps;
	bool dry; /* dry run: only parses */
	/* the position in the text */
	uint32_t line;	/* from 0 */
	const char *at; /* into a terminated copy of the line without its comment */
	char current[512];
};

/* text.c. Each returns -EINVAL after setting the report with the place and a caret. */
int sim_text_init(struct sim *s);
void sim_text_open(struct sim *s, uint32_t line);
int sim_wrong(struct sim *s, const char *at, const char *hint, const char *fmt, ...)
	PRINTF_LIKE(4, 5);
void sim_blanks(struct sim *s);
bool sim_take(struct sim *s, const char *token); /* punctuation */
bool sim_take_word(struct sim *s, const char *word);
/* Refuses the name at `at`: the hint is the nearest of the names that were offered to n, or all of
 * them. fmt as in sim_wrong(). */
int sim_unknown(struct sim *s, const char *at, const struct nearest *n, const struct buf *all,
		const char *fmt, ...) PRINTF_LIKE(5, 6);
size_t sim_word(const struct sim *s); /* length of the word at the position; 0: none */
int sim_end(struct sim *s);	      /* checks that nothing follows */

/* expr.c */
struct sim_value {
	uint64_t v;
	bool is_signed;
};
/* field: the context field that gets the value, whose constants may be written in short form; or
 * NULL. */
int sim_expression(struct sim *s, const char *field, struct sim_value *ret);
/* As sim_expression(), but only up to an operator. */
int sim_operand(struct sim *s, struct sim_value *ret);
enum sim_compare { SIM_EQ, SIM_NE, SIM_LT, SIM_LE, SIM_GT, SIM_GE, SIM_NONE };
enum sim_compare sim_comparison(struct sim *s); /* takes a comparison operator; '=' is SIM_EQ */
bool sim_holds(enum sim_compare c, struct sim_value a, struct sim_value b);
extern const char *const sim_compare_text[];
uint64_t sim_random(struct sim *s);

/* place.c: a map's element, a global variable, or a part of one. */
struct sim_place {
	uint32_t map;
	struct ebpf_map *live; /* the map of the instance that is read */
	const uint8_t *base;   /* copy of the whole value; NULL: no such element */
	uint32_t type;	       /* BTF type of the whole value */
	size_t bytes;
	struct ebpf_typed_part part;
	bool whole_map; /* no key was given, but the map has keys */
	uint8_t key[EBPF_MAX_KEY_BYTES];
};
/* Parses the name of a map and its owner. */
int sim_place_map(struct sim *s, struct sim_place *ret);
int sim_place_parse(struct sim *s, struct sim_place *ret);
int sim_place_number(struct sim *s, const char *at, const struct sim_place *p,
		     struct sim_value *ret);
void sim_place_print(struct sim *s, const struct sim_place *p, struct buf *out);

/* properties.c */
struct sim_property {
	const char *name;
	uint32_t *field; /* the one of field and wide that is not NULL gets the value */
	uint64_t *wide;
	uint64_t min, max;
};
/* Sets the properties that follow, up to the end of the line. what: their owner, for messages.
 * Returns 0, or -EINVAL after a message. */
int sim_set_properties(struct sim *s, const struct sim_property *all, size_t n, const char *what);

/* tenant.c */
struct sim_pair { /* name=value */
	char name[SIM_NAME_BYTES];
	const char *at, *value_at;
	struct sim_value value;
};
int sim_take_name(struct sim *s, char out[SIM_NAME_BYTES], const char *what);
int sim_next_pair(struct sim *s, struct sim_pair *p);
/* Execute a statement; the position is after its first word. */
int sim_tenant_statement(struct sim *s);
int sim_stat_statement(struct sim *s);
/* Evaluates `slice_us of NAME`: the state of a tenant. Returns false, without moving the position,
 * if it is something else. */
bool sim_of_tenant(struct sim *s, struct sim_value *ret, int *ret_err);
/* Takes the name of a tenant, if given, or else takes nothing: then there must be only one. Returns
 * 0, or -EINVAL after a message, with that hint. */
int sim_take_tenant(struct sim *s, bool given, const char *hint, struct sim_tenant **ret);
/* Takes `explained of NAME`. Returns false, without moving the position, if it is something else;
 * else *ret, or *ret_err if there is no such tenant. */
bool sim_explained(struct sim *s, const struct sim_tenant **ret, int *ret_err);
/* Converts the name of a tenant for a field that takes a tenant number. */
bool sim_tenant_number(struct sim *s, const char *field, struct sim_value *ret);

/* sim_vgpu.c */
int sim_vgpu_statement(struct sim *s);
int sim_gpu_statement(struct sim *s);
/* Returns 0 if there is a GPU of that number, which stands at `at`; else -EINVAL after a message.
 */
int sim_need_gpu(struct sim *s, const char *at, uint64_t gpu);
/* Returns what no vGPU uses of the GPU's memory; 0 if its size is not known. */
uint64_t sim_gpu_free(const struct sim_testbed *w);
struct sim_vgpu *sim_vgpu_named(struct sim_testbed *w, const char *name, size_t len);
/* Converts the name of a vGPU for a field that takes a place. */
bool sim_vgpu_place(struct sim *s, const char *field, struct sim_value *ret);
/* Writes the standard maps about vGPUs. */
void sim_vgpus_write(struct sim_testbed *w);

/* sim_region.c: memory that can leave the device. */
int sim_region_statement(struct sim *s);
int sim_free_statement(struct sim *s);
int sim_link_statement(struct sim *s);
/* Returns the region of a tenant with that name, or NULL. */
struct sim_region *sim_region_named(struct sim_testbed *w, const struct sim_tenant *t,
				    const char *name, size_t len);
/* Refuses the name at the position as that of a region of the tenant. */
int sim_no_region(struct sim *s, const struct sim_tenant *t);
/* Returns what the limit of the tenant's vGPU leaves of the device; of *ret_room, the device's may
 * be less where the GPU is full. */
uint64_t sim_region_room(const struct sim_testbed *w, const struct sim_tenant *t,
			 struct sim_room *ret_room);
/* Shows policies what vGPUs use, after regions have moved. */
void sim_regions_moved(struct sim_testbed *w);
/* Evaluates `host_bytes of NAME`, `mem_faults of TENANT` and the like, as sim_of_tenant(). */
bool sim_of_memory(struct sim *s, struct sim_value *ret, int *ret_err);

/* sim_launch.c: launches that touch regions. */
int sim_launch_statement(struct sim *s);

/* settle.c: fills in the fields of the event's context that follow from others; at: where the
 * fields begin. Returns -EINVAL after a message if fields contradict each other. */
int sim_settle(struct sim *s, const struct sim_hook *h, const char *at, const void *defaults);
/* event.c: runs an event; the position is after its first word. */
int sim_event(struct sim *s, const struct sim_hook *h);
/* Runs admit for a tenant that runs already: `rejoin NAME`. */
int sim_rejoin(struct sim *s);

struct sim_field_value {
	const char *name;
	uint64_t value;
};
/* Runs a hook of a tenant with those values in its context, as an event. */
int sim_ask(struct sim *s, const struct sim_hook *h, struct sim_tenant *t,
	    const struct sim_field_value *values, size_t n);
/* Makes such a context that of the last event, without running anything. */
void sim_not_asked(struct sim *s, const struct sim_hook *h, const struct sim_tenant *t,
		   const struct sim_field_value *values, size_t n);
/* Refuses a name that is no field of the hook's context. */
int sim_unknown_field(struct sim *s, const struct sim_hook *h, const char *at, const char *name);

/* expect.c */
int sim_expect(struct sim *s);
/* Evaluates the condition of `if ... {`. */
int sim_condition(struct sim *s, bool *ret);
/* Returns 0 if the last event ran a program of the policy, else reports an error at `at`. */
int sim_need_decision(struct sim *s, const char *at);
/* Prints a number, with a unit if its name ends with _ns. */
void sim_print_number(FILE *to, const char *name, struct sim_value v);
/* Records a failed expectation, whose text begins at `at`. */
void sim_fail(struct sim *s, const char *at, const char *expected, const char *got);

/* records.c: collects the records that the last event wrote to ring buffers. The run owns them. */
int sim_ring_collect(struct sim *s);
void sim_ring_finish(struct sim *s);
int sim_expect_ring(struct sim *s, const char *at);

/* sim_prints.c: collects the lines that the last event printed. Returns 0 or -ENOMEM. */
int sim_print_collect(struct sim *s, const char *where);

/* match.c: compares bytes of a type with {member=value ...}. Returns 0 and sets *ret_holds, or
 * -EINVAL. base NULL: checks only the names. */
int sim_match(struct sim *s, uint32_t type, const void *base, size_t bytes, bool *ret_holds);

/* set.c: writes to a map, as `gbpf map set` does. */
int sim_set(struct sim *s);

#endif
