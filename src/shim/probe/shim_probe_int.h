/* The room's own interface: tools, kernels and their forms. */
#ifndef GBPF_SHIM_PROBE_SHIM_PROBE_INT_H
#define GBPF_SHIM_PROBE_SHIM_PROBE_INT_H

#include "base/lock.h"
#include "base/report.h"
#include "base/strmap.h"
#include "bpf/run/policy_image.h"
#include "ptx/block_gate.h"
#include "ptx/probe.h"
#include "ptx/probe_bracket.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/object/launch_args.h"
#include "shim/probe/shim_probe.h"

struct shim_session;

#define SHIM_PROBE_TOOLS_MAX 16u
#define SHIM_PROBE_CONTEXTS_MAX 16u
#define SHIM_PROBE_MAP_BYTES ((size_t)256 << 20) /* of all tools in a context */
#define SHIM_PROBE_SHAPES 8u  /* of a kernel's launches, of which costs are known */
#define SHIM_PROBE_TIMES 16u  /* newest timed launches of a shape that count */
#define SHIM_PROBE_DIMS 7u    /* grid, block, dynamic shared memory */
#define SHIM_PROBE_ALL 65536u /* share of all launches */
#define SHIM_PROBE_VERIFY 3u  /* launches of a form that are compared with the kernel's own */
#define SHIM_PROBE_VERIFIED_TEXT 160u
#define SHIM_PROBE_ROWS 4096u /* of control words; a multiple of EBPF_PTX_CONTROL_ROWS */

/* A tool's memory in one context: on the GPU its environment, then its maps, then its constants; in
 * pinned host memory its maps with GBPF_F_HOST. */
struct shim_probe_block {
	CUcontext ctx; /* NULL: free */
	CUdeviceptr mem;
	size_t bytes;
	CUdevice device;      /* that gpu_own_memory_add() has counted it on */
	uint64_t *host;	      /* owned; NULL: no map is there */
	CUdeviceptr host_mem; /* its address for kernels */
	size_t host_bytes;
};

struct shim_probe_tool {
	uint64_t version; /* 0: free */
	uint64_t replaces;
	uint32_t number;     /* value of shim.probes_attached since it, or what it replaces, came */
	uint32_t budget_ppm; /* shim_probe_mutex; that its forms keep. 0: no limit */
	uint32_t budget_wanted;			   /* shim_probe_mutex */
	bool settable;				   /* its programs read control words */
	struct proto_probe_control control;	   /* that its memory has; shim_probe_build_mutex */
	struct proto_probe_control control_wanted; /* shim_probe_mutex */
	uint32_t *rows;			  /* owned; intervals in its memory, of rows that are used;
					     shim_probe_build_mutex. NULL: none, or not settable */
	struct shim_probe_places *places; /* owned; shim_probe_build_mutex. NULL: no form of it has
					     asked for a place, or it has no KERNEL_PLACES */
	bool partial; /* it may run in kernels whose forms lack places of some of its programs */
	bool verify;  /* its forms are compared with the kernels */
	bool held;    /* a process reads its values while it is attached; shim_probe_mutex */
	/* While the program exits, under shim_probe_mutex: number of the first order that drained
	 * it since; 0: none yet. And whether the holder has read the values of that. */
	uint64_t last_drain;
	bool last_read;
	uint64_t launches, probed; /* [atomic] counted for kernels whose tools all have a budget */
	char kernel[PROTO_PATTERN];
	struct ebpf_policy p; /* its image, and the region that gbpfd sees */
	/* Bytes of its WARP_SCRATCH maps for a warp, and the place of each map in them. */
	uint32_t scratch_bytes, scratch_at[EBPF_MAX_MAPS];
	uint32_t refs;	     /* forms that run it */
	bool ending;	     /* takes no further kernels */
	bool retires;	     /* it has a program of retire, and is registered as an observer */
	bool submits;	     /* it has a program of submit */
	uint32_t unsettled;  /* [atomic] p is about to be replaced: programs of submit do not run */
	bool announced;	     /* the present gbpfd knows it */
	uint64_t end_number; /* number of the order that ended it */
	bool ordered;	     /* gbpfd waits for PROBE_ENDED */
	struct ebpf_policy *fresh; /* owned; same image, region that replaces p's; NULL: none */
	struct shim_probe_block blocks[SHIM_PROBE_CONTEXTS_MAX]; /* under shim_probe_build_mutex */
	uint64_t *initial; /* owned; initial contents of the maps of a block; NULL: there is no
			      block yet */
	uint64_t *gone;	   /* owned; values of contexts that have ended; NULL: none has */
	struct proto_probe_state told; /* state that was sent last */
	uint64_t told_ns;
	bool tell; /* a state must be sent although nothing has changed */
	char why[PROTO_TEXT];
};

/* A module of brackets in a context. The structs are only reused: a launch may look at one of a
 * context that has ended. */
struct shim_probe_bracket {
	struct shim_probe_bracket *next;
	uint32_t refs; /* forms that use it or will; under shim_probe_build_mutex */
	CUcontext ctx;
	struct buf text;
	uint32_t n; /* programs */
	uint64_t envs[PTX_PROBES_MAX];
	struct ptx_bracket_parts parts;
	void *image; /* owned; machine code */
	size_t image_bytes;
	CUmodule module;	     /* NULL: not loaded yet */
	CUfunction begin, late, end; /* NULL: there is no such kernel */
	uint64_t *done;		     /* [atomic] owned; a page, registered while loaded */
	CUdeviceptr done_at;	     /* its address; 0: it is not registered */
	uint64_t submitted;	     /* [atomic] launches that add to *done when they end */
	uint32_t stalled; /* [atomic] 1 + value of *done at which a launch has waited in vain; 0:
			     none */
};

/* Result of the comparisons of a form with the kernel. */
enum shim_probe_verified {
	SHIM_PROBE_UNVERIFIED, /* none yet */
	SHIM_PROBE_EQUAL,
	SHIM_PROBE_DIFFERS,
	SHIM_PROBE_NOT_VERIFIED, /* they cannot be compared */
};

/* Form structs are never freed, only reused: a launch may look at one that has ended. */
struct shim_probe_form {
	struct shim_probe_form *next; /* next in the list of free or of retired forms */
	uint32_t users;		      /* [atomic] launches that are being submitted */
	uint32_t refusal; /* [atomic] CUresult of a launch that the driver refused with the form and
			     accepts with the program's kernel; 0: none */
	bool told, told_left_out; /* the refusal, or left_out, was reported to the tools; under
				     shim_probe_mutex */
	uint32_t held;		  /* [atomic] nodes of executable graphs that run it; changed under
				     shim_probe_mutex */
	bool ended;	      /* its context ended while nodes held it; under shim_probe_mutex */
	uint32_t verify_left; /* [atomic] launches that are still to be compared */
	enum shim_probe_verified verified;	     /* shim_probe_mutex */
	char verified_why[SHIM_PROBE_VERIFIED_TEXT]; /* unless EQUAL; shim_probe_mutex */
	const char *left_out; /* [atomic] why a node of a graph does not run it, NULL: each does */
	uint64_t number;      /* unique among all forms */
	uint64_t seen;	      /* retired: last round of the probe thread that looked at it */
	bool draining, drained; /* retired: its clone's deferred launches are, or were, drained */
	CUevent last;		/* retired: event behind its last launch; NULL: not recorded yet */
	bool finished;		/* retired: its launches have ended, and its tools are free */
	bool library;		/* form of a library's kernel, which exists in each context */
	uint32_t budget_ppm;	/* [atomic] min of its tools' budgets; 0: a tool has none */
	uint32_t unmixed; /* [atomic] 1: a node of a graph runs it in each launch, whatever the
			     budget; 2: that was reported to its tools */
	CUcontext ctx;
	CUmodule module;		    /* NULL: the program's kernel runs, between brackets */
	CUfunction handle;		    /* NULL: likewise */
	struct shim_probe_bracket *bracket; /* a reference; NULL: no program of begin or end */
	uint64_t kernel_hash;		    /* of its name */
	uint32_t row; /* a reference; of its kernel's control words; 0: that of all without one */
	uint32_t n_tools;
	bool code;	   /* a copy of the machine code: launches pass the stub's argument */
	CUdeviceptr late;  /* address of the table of its programs of block_exit (ptx/probe_late.h);
			      0: none */
	CUdevice late_on;  /* that gpu_own_memory_add() has counted it on */
	uint32_t unseen;   /* instructions that programs of gdev_access do not see */
	bool needs_shared; /* launches take ptx_probe_smem(), with warp_bytes */
	bool numbered;	   /* programs in it read the launch's number */
	uint32_t warp_bytes;
	uint32_t max_smem_bytes; /* [atomic] with needs_shared: that a launch of f may have */
	struct ptx_probe_number passing; /* its parameter, if it is one */
	uint32_t parts;			 /* tools some of whose programs it lacks, as bits */
	/* Programs of each tool that are in it, as bits: with a site, or without any. */
	uint32_t placed[SHIM_PROBE_TOOLS_MAX], unplaced[SHIM_PROBE_TOOLS_MAX];
	bool submits;  /* one of the tools has a program of submit */
	uint64_t hash; /* of the kernel's name */
	bool has_clone;
	struct shim_clone clone;	     /* preemptible clone of handle */
	const struct ptx_block_image *block; /* owned; image that holds the clone's parameters */
	struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
};

/* Dynamic shared memory that no GPU has: the driver refuses the launch. */
#define SHIM_PROBE_SMEM_REFUSED UINT32_MAX

/* Returns the dynamic shared memory of a launch of the form whose kernel would get `bytes`;
 * SHIM_PROBE_SMEM_REFUSED if the kernel may not have that, since the form may have more. */
static inline uint32_t shim_probe_form_smem(const struct shim_probe_form *f, uint32_t bytes,
					    uint32_t x, uint32_t y, uint32_t z)
{
	if (likely(!f->needs_shared)) {
		return bytes;
	}
	if (bytes > load_relaxed(&f->max_smem_bytes)) {
		return SHIM_PROBE_SMEM_REFUSED;
	}
	/* a product of numbers that the driver refuses may wrap around */
	return ptx_probe_smem(bytes, f->warp_bytes, (uint64_t)x * y * z);
}

/* Launches of a kernel with one grid and block (probe_mix.c). Kinds: without and with the form. */
struct shim_probe_shape {
	uint64_t key;	   /* [atomic] 0: free */
	uint32_t share;	   /* [atomic] share of its launches that take the form, of SHIM_PROBE_ALL;
			      with a budget */
	uint32_t sum;	   /* [atomic] sum of the shares of its launches, modulo 2^32 */
	uint32_t turn;	   /* [atomic] launches that could be timed */
	uint32_t every;	   /* [atomic] of which one of each kind is timed */
	uint32_t due[2];   /* [atomic] the next launch of that kind is to be timed */
	uint32_t begun[2]; /* [atomic] timed launches */
	uint32_t asked;	   /* [atomic] the driver was asked for `before` and `after` */
	uint64_t launches; /* [atomic] launches since the kernel has the form */
	/* Under the timers' lock. */
	uint32_t n[2]; /* [atomic] timed launches whose results are known */
	uint32_t ns[2][SHIM_PROBE_TIMES];
	uint32_t before, after; /* resident blocks of a multiprocessor without and with the form */
	uint32_t dims[SHIM_PROBE_DIMS]; /* grid, block, dynamic shared memory */
};

struct shim_probe_mix {
	struct shim_probe_shape shapes[SHIM_PROBE_SHAPES];
	/* Under the timers' lock. */
	unsigned next;	       /* place for a new shape */
	uint32_t share;	       /* [atomic] share with which a new shape begins */
	uint32_t begun;	       /* [atomic] timed launches since it has the form */
	uint64_t epoch;	       /* [atomic] incremented when the form or the kernel changes */
	uint64_t kernel_epoch; /* epoch at which the struct was given to this kernel */
};

/* A handle of the program that a tool has matched; for a library's kernel, the handle in one
 * context. These structs are never freed, only reused: a launch may have looked one up before its
 * kernel was forgotten, so it reads `handle` again once it holds the form. */
struct shim_probe_kernel {
	struct shim_probe_kernel *next; /* next in the list of free structs */
	const void *handle;		/* [atomic] */
	CUcontext ctx;			/* [atomic] context of its first launch */
	uint32_t library;		/* [atomic] a library's kernel */
	struct shim_probe_form *form;	/* [atomic] NULL: the program's own kernel is launched */
	uint64_t seen; /* [atomic] value of shim_probe_generation for which the form was decided; 0:
			  none was yet */
	struct shim_probe_mix mix;
	const void *owner;
	enum shim_kernel_kind kind;
	char *name; /* owned */
	/* The form that is being made, for the tools of generation made_for; under
	 * shim_probe_build_mutex. */
	struct shim_probe_made *made; /* owned; NULL: not compiled, or no tool is left */
	uint64_t made_for, tried; /* value of shim_probe_generation; last round of the probe thread
				     that tried it */
	uint32_t n_tools;
	struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
};

/* docs/LOCKING.md has the order. */
extern struct lock shim_probe_build_mutex; /* held over driver calls that build, load and unload */
extern struct lock shim_probe_mutex;	   /* guards tools, kernels and what is sent */
extern struct lock shim_probe_timer_mutex; /* guards timers and what is measured */
/* The process exits: the probe thread calls the driver no more. */
extern bool shim_probe_stopped GUARDED_BY(shim_probe_build_mutex);
extern uint64_t shim_probe_generation; /* [atomic] incremented, under shim_probe_mutex, when the set
					  of tools changes */
extern uint64_t shim_probe_forms_generation; /* [atomic] incremented after a kernel was given a
						form, or none, or the set of tools has changed */
extern struct shim_probe_tool *shim_probe_tools[SHIM_PROBE_TOOLS_MAX] GUARDED_BY(shim_probe_mutex);

/* ---- probe_tools.c ---- */
/* Fills the tools that a kernel is to run. Returns their number. */
uint32_t shim_probe_tools_for(const char *name, struct shim_probe_tool *ret[SHIM_PROBE_TOOLS_MAX])
	REQUIRES(shim_probe_mutex);
/* Returns whether program i of a tool is for a kernel of that name. */
bool shim_probe_tool_matches(const struct shim_probe_tool *t, uint32_t i, const char *name);
/* Returns whether the tool has a program of gdev_access for a kernel of that name. */
bool shim_probe_tool_sees(const struct shim_probe_tool *t, const char *name);
/* Notes why a kernel cannot have the tool's programs. */
void shim_probe_tool_refused(struct shim_probe_tool *t, const char *kernel, const char *why)
	REQUIRES(shim_probe_mutex);
/* Ends tools that no form runs: their maps are copied a last time, and their memory becomes unused.
 * Returns whether there were any. */
bool shim_probe_tools_end(void) REQUIRES(shim_probe_build_mutex);
/* Reports to each tool that kernels in conditional nodes of a graph cannot be reached. */
void shim_probe_tools_note_bodies(void);
/* Ends tools that no form runs, reads timers, and sends states that have changed; on the probe
 * thread. Returns false if that is to be called again; *ret_ns: for the figures alone, after this
 * time, 0: not. */
bool shim_probe_tools_settle(uint64_t *ret_ns);

/* ---- probe_exit.c ---- */
/* Waits while the program exits until the holders of tools have read the last values, as long as
 * there is a gbpfd, for a limited time. Caller holds no mutex. */
void shim_probe_exit_await(void);
/* An order to drain the tool has been taken, and is carried out next. */
void shim_probe_exit_note_drain(struct shim_probe_tool *t, uint64_t number)
	REQUIRES(shim_probe_mutex);
/* The holder has read the values of the order with that number. */
void shim_probe_exit_note_read(struct shim_probe_tool *t, uint64_t number)
	REQUIRES(shim_probe_mutex);
/* A tool or gbpfd has ended. */
void shim_probe_exit_changed(void) REQUIRES(shim_probe_mutex);
/* In a child after fork. */
void shim_probe_exit_forget(void) REQUIRES(shim_probe_mutex);

/* ---- probe_kernels.c ---- */
/* Returns the record of a handle that is launched in a context; NULL: no tool matches it. Builds
 * its form at once if the handle is newer than one of the tools, so that no launch of it goes
 * without, unless the context is busy for long. */
struct shim_probe_kernel *shim_probe_kernel_find(const void *handle, CUcontext ctx);
/* As shim_probe_kernel_find(), without building a form. */
struct shim_probe_kernel *shim_probe_kernel_known(const void *handle, CUcontext ctx);
/* By handle and, of libraries' kernels, context > struct shim_probe_kernel. */
extern struct strmap shim_probe_kernels GUARDED_BY(shim_probe_mutex);
/* Gives tools the reasons of refusals that they do not know. */
void shim_probe_kernels_note_refusals(void) REQUIRES(shim_probe_mutex);
/* Returns whether the kernel's form has the tool. */
static inline bool shim_probe_kernel_runs(const struct shim_probe_kernel *k,
					  const struct shim_probe_tool *t)
	REQUIRES(shim_probe_mutex)
{
	for (uint32_t i = 0; k->form && i < k->form->n_tools; i++) {
		if (k->form->tools[i] == t) {
			return true;
		}
	}
	return false;
}
/* Counts kernels with, without, and waiting for the tool. */
void shim_probe_kernels_count(const struct shim_probe_tool *t, struct proto_probe_state *ret)
	REQUIRES(shim_probe_mutex);

/* ---- probe_forms.c ---- */
/* Returns the form that a launch of the handle is to take, as a user of it; NULL: none. The kernel,
 * which was the handle's, may have been forgotten. */
struct shim_probe_form *shim_probe_form_begin(struct shim_probe_kernel *k, const void *handle);
/* The same while a stream captures: not for a launch. */
struct shim_probe_form *shim_probe_form_take(struct shim_probe_kernel *k, const void *handle);
void shim_probe_form_end(struct shim_probe_form *f);
/* A node of an executable graph runs the form, which the caller is a user of, or no longer does. */
void shim_probe_form_hold(struct shim_probe_form *f);
void shim_probe_form_unhold(struct shim_probe_form *f);
/* Notes that a node of a graph runs the program's kernel instead. why NULL: the driver answered r.
 * The text stays. */
void shim_probe_form_left_out(struct shim_probe_form *f, const char *why, CUresult r);
/* Notes that a node of a graph runs the form, whose budget it cannot keep. */
void shim_probe_form_unmixed(struct shim_probe_form *f);
struct shim_probe_form *shim_probe_form_new(void); /* NULL: no memory */
void shim_probe_form_free(struct shim_probe_form *f);
/* Notes that the driver has refused a launch of the form, but not that of the program's kernel. */
void shim_probe_form_refused(struct shim_probe_form *f, CUresult r);
/* Takes the form, which no kernel has any more. */
void shim_probe_form_retire(struct shim_probe_form *f) REQUIRES(shim_probe_build_mutex);
/* Drains deferred launches, and runs that may be resumed, where they have the handle of a retired
 * form's clone. Caller holds no lock. */
void shim_probe_forms_drain(void);
/* Frees the tools of retired forms whose launches have ended, also if the context, which is
 * current, never becomes idle. */
void shim_probe_forms_finish(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* Returns whether a context has retired forms: finished ones, or others. */
bool shim_probe_forms_remain(CUcontext ctx, bool finished) REQUIRES(shim_probe_build_mutex);
/* Unloads the retired forms of a context: those whose launches have ended, if it is idle, as long
 * as launches are paused, or all if it ends. Returns whether others remain. */
bool shim_probe_forms_sweep(CUcontext ctx, bool idle, bool context_ends)
	REQUIRES(shim_probe_build_mutex);
/* Not unloaded yet. */
extern struct shim_probe_form *shim_probe_retired GUARDED_BY(shim_probe_build_mutex);

/* ---- probe_settle.c ---- */
/* Compiles the form that the tools ask for, for all of them but the newest where they are refused.
 * Returns false if the kernel is decided: it has that form, or none is left to be loaded. Its
 * context is current. Under the mutex the tools stay. */
bool shim_probe_kernel_compile(struct shim_probe_kernel *k) REQUIRES(shim_probe_build_mutex);
/* Returns whether it was compiled for the present set of tools. */
bool shim_probe_kernel_is_compiled(const struct shim_probe_kernel *k)
	REQUIRES(shim_probe_build_mutex);
/* Loads what was compiled. */
void shim_probe_kernel_load(struct shim_probe_kernel *k) REQUIRES(shim_probe_build_mutex);
void shim_probe_kernel_forget_made(struct shim_probe_kernel *k) REQUIRES(shim_probe_build_mutex);
/* Sets the form's attributes as the kernel's are now. The form's context is current. */
void shim_probe_form_follow(const void *handle, struct shim_probe_form *f);
/* Updates all forms that run the tool for its budget. */
void shim_probe_budget_changed(const struct shim_probe_tool *t) REQUIRES(shim_probe_mutex);
/* Gives each kernel the form that the tools ask for; on the probe thread. Returns false if that is
 * to be called again, because a context is not idle. */
bool shim_probe_kernels_settle(void);

/* ---- probe_build.c ---- */
/* A form that is compiled and not loaded yet. */
struct shim_probe_made;
/* Makes the form of a kernel that runs these tools, in the current context, which waits for no work
 * of the program; and loads it, which does. 0, or -errno with the report; *ret_idle, if not 0:
 * because these tools, as bits, have no site in it, while the others have. */
int shim_probe_compile(const struct shim_probe_kernel *k, struct shim_probe_tool *const *tools,
		       uint32_t n, struct shim_probe_made **ret, uint32_t *ret_idle,
		       struct report *r) REQUIRES(shim_probe_build_mutex);
int shim_probe_load(struct shim_probe_made *m, struct shim_probe_form *f, struct report *r)
	REQUIRES(shim_probe_build_mutex);
/* Unloads the form's module. context_ends: it ends with its context. */
void shim_probe_unload(struct shim_probe_form *f, bool context_ends)
	REQUIRES(shim_probe_build_mutex);
/* Sets the attributes of a form to those of the program's kernel. The form's context is current. */
void shim_probe_follow_attributes(const void *handle, struct shim_probe_form *f);
/* Accepts NULL. */
void shim_probe_made_free(struct shim_probe_made *m) REQUIRES(shim_probe_build_mutex);

/* ---- probe_params.c ---- */
/* Where the parameters of a kernel lie. */
struct shim_probe_params {
	struct ptx_kernel_params all;
	struct ptx_kernel_param *at; /* owned */
};
/* Asks the driver. Returns &p->all; NULL: the driver does not report it, or there is no memory. The
 * caller finishes p in either case. */
const struct ptx_kernel_params *shim_probe_params(struct shim_probe_params *p,
						  const struct shim_probe_kernel *k);
void shim_probe_params_finish(struct shim_probe_params *p);

/* ---- probe_gaps.c ---- */
/* Adds what tool number i of the form, which is k's, has no site for. */
void shim_probe_gaps_add(struct proto_probe_state *s, const struct shim_probe_kernel *k,
			 const struct shim_probe_form *f, uint32_t i) REQUIRES(shim_probe_mutex);
bool shim_probe_gaps_differ(const struct proto_probe_state *a, const struct proto_probe_state *b);

/* ---- probe_part.c ---- */
/* Programs that a form leaves out. */
struct shim_probe_cut {
	unsigned step;
	uint32_t programs[SHIM_PROBE_TOOLS_MAX]; /* programs of each tool, as bits */
	uint32_t tools;				 /* tools that lack a program, as bits */
};
/* Chooses what to leave out next of tools that may run in part, after a form with all programs, or
 * with the last choice, was refused. Returns false if nothing is left to be tried. */
bool shim_probe_cut_next(struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n)
	REQUIRES(shim_probe_build_mutex);
/* Reports to the tools what the kernel's form lacks; why: the first refusal. */
void shim_probe_cut_tell(const struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n, const struct report *why)
	REQUIRES(shim_probe_build_mutex);
/* Returns whether programs around launches could run without those inside, if the tool that has
 * both might run in part. */
bool shim_probe_cut_would_help(const struct shim_probe_kernel *k,
			       struct shim_probe_tool *const *tools, uint32_t n)
	REQUIRES(shim_probe_build_mutex);

/* ---- probe_brackets.c ---- */
/* Stores a reference to brackets with these programs for the current context, which is ctx. Forms
 * share brackets with the same programs. Waits for no work of the program. tools: that of each
 * program. Returns 0, or -errno with the report. */
int shim_probe_bracket_make(struct shim_probe_bracket **ret, CUcontext ctx, unsigned arch,
			    const struct ptx_probe *probes, struct shim_probe_tool *const *tools,
			    uint32_t n, struct report *r) REQUIRES(shim_probe_build_mutex);
/* Loads them unless they are. 0 or -errno. */
int shim_probe_bracket_load(struct shim_probe_bracket *b, struct report *r)
	REQUIRES(shim_probe_build_mutex);
/* Gives a reference back. Accepts NULL. */
void shim_probe_bracket_put(struct shim_probe_bracket *b) REQUIRES(shim_probe_build_mutex);
/* Unloads those of a context without a reference; the context is idle, or ends. */
void shim_probe_brackets_sweep(CUcontext ctx, bool context_ends) REQUIRES(shim_probe_build_mutex);

/* ---- probe_around.c; any thread ---- */
/* A launch between its brackets. */
struct shim_probe_around {
	struct shim_probe_form *form;	    /* NULL: it has no brackets */
	struct shim_probe_bracket *bracket; /* of it */
	const struct shim_kernel_call *call;
	CUresult refusal; /* result of a refused `begin`; then `end` is not launched */
	uint64_t number;  /* of the launch; 0: it has none */
	uint8_t launched; /* brackets */
	struct ptx_bracket_arg arg;
	struct ptx_gate_arg stub; /* of a form of machine code: the launch's argument */
};

/* Gives a launch of the form its number, and launches the bracket in front of it, if these are
 * wanted. */
void shim_probe_around_begin(struct shim_probe_around *a, struct shim_probe_form *f,
			     const struct shim_kernel_call *c,
			     const uint32_t dims[SHIM_PROBE_DIMS]);
/* Launches the bracket behind it; r: the launch's result. */
void shim_probe_around_end(struct shim_probe_around *a, CUresult r);

/* ---- probe_launch_number.c; any thread ---- */
/* Returns the number of a launch of the form that is about to be made; 0: it has none. */
uint64_t shim_probe_number(const struct shim_probe_form *f);
/* Fills a with the parameters of a launch of a form with f->passing.passed, and its number, which
 * is borrowed. CUDA_SUCCESS, and caller closes a, or why they cannot be passed. */
CUresult shim_probe_number_args(struct shim_launch_args *a, const struct shim_probe_form *f,
				const uint64_t *number, void **params, void **extra);

/* ---- probe_memory.c ---- */
/* Returns the address of the tool's environment in the current context, creating its memory; 0: no
 * memory, with the report. */
uint64_t shim_probe_memory_env(struct shim_probe_tool *t, CUcontext ctx, struct report *r)
	REQUIRES(shim_probe_build_mutex);
/* Returns the address that kernels of a context use for the data of a map; 0: they do not reach it,
 * or the tool has no memory there. */
uint64_t shim_probe_memory_map(const struct shim_probe_tool *t, CUcontext ctx, uint32_t map)
	REQUIRES(shim_probe_build_mutex);
/* Returns this address minus that of the environment if it is the same in all contexts and
 * processes, else 0. */
uint64_t shim_probe_memory_offset(const struct shim_probe_tool *t, uint32_t map)
	REQUIRES(shim_probe_build_mutex);
/* Copies the tool's maps to its region. 0 or -errno. */
int shim_probe_memory_drain(struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex);
/* Allocates the table of ptx/probe_late.h in the current context, which is ctx. 0, or -errno with
 * the report. The end frees it once the context is idle, and accepts 0. */
int shim_probe_memory_late(CUcontext ctx, CUdeviceptr *ret, CUdevice *ret_device, struct report *r)
	REQUIRES(shim_probe_build_mutex);
void shim_probe_memory_late_end(CUcontext ctx, CUdeviceptr table, CUdevice on)
	REQUIRES(shim_probe_build_mutex);
/* Frees memory of a context once that is idle. */
void shim_probe_memory_discard(CUcontext ctx, CUdeviceptr mem) REQUIRES(shim_probe_build_mutex);
/* Sets the blocks that run the tool's programs as t->control says, also in running kernels, in the
 * rows from first on that lie in front of end and are used. 0, or -EIO: not in all contexts. */
int shim_probe_memory_control(struct shim_probe_tool *t, uint32_t first, uint32_t end)
	REQUIRES(shim_probe_build_mutex);
/* The context is about to end: its values are kept, and the memory is freed. */
void shim_probe_memory_leave(struct shim_probe_tool *t, CUcontext ctx)
	REQUIRES(shim_probe_build_mutex);
/* The tool ends: its memory becomes unused. Freeing waits for all work of the context. */
void shim_probe_memory_abandon(struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex);
/* Frees unused memory of a context, which is current and idle, as long as launches are paused, or
 * has failed, or is about to end. Returns whether some remains. */
bool shim_probe_memory_sweep(CUcontext ctx, bool idle) REQUIRES(shim_probe_build_mutex);
bool shim_probe_memory_remains(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* Returns a context with unused memory that was not marked for that round; NULL: none. */
CUcontext shim_probe_memory_unused(uint64_t round) REQUIRES(shim_probe_build_mutex);
void shim_probe_memory_mark(CUcontext ctx, uint64_t round) REQUIRES(shim_probe_build_mutex);
/* The context is about to end. */
void shim_probe_memory_drop_stream(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* In the child after fork. */
void shim_probe_memory_forget_streams(void) REQUIRES(shim_probe_build_mutex);
/* Copies bytes to the device by a stream of its own, and waits. 0 or -EIO. */
int shim_probe_memory_write(CUdeviceptr to, const void *from, size_t bytes)
	REQUIRES(shim_probe_build_mutex);

/* ---- probe_rows.c ---- */
/* Returns a reference to the row of the kernels of that name; 0: none is left. */
uint32_t shim_probe_row_take(const char *name) REQUIRES(shim_probe_build_mutex);
void shim_probe_row_put(uint32_t row) REQUIRES(shim_probe_build_mutex); /* accepts 0 */
bool shim_probe_row_is_used(uint32_t row) REQUIRES(shim_probe_build_mutex);
/* Returns the interval of the blocks that run a tool in the row's kernels; 0: none does. */
uint32_t shim_probe_row_interval(const struct proto_probe_control *c, uint32_t row)
	REQUIRES(shim_probe_build_mutex);
/* In the child after fork. */
void shim_probe_rows_forget(void) REQUIRES(shim_probe_build_mutex);

/* ---- probe_places.c ---- */
/* Returns the number that the tool's programs read as `place`, which the map KERNEL_PLACES lists;
 * the map's last index if it is full, PTX_PROBE_NO_NUMBER if the tool has no such map. */
uint32_t shim_probe_place_number(void *tool, const struct ptx_probe_place *place)
	REQUIRES(shim_probe_build_mutex);
/* Writes the list to the map, whose region has been replaced. */
void shim_probe_places_renew(const struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex);
/* Accepts NULL. */
void shim_probe_places_free(struct shim_probe_places *places) REQUIRES(shim_probe_build_mutex);

/* ---- probe_pinned.c ---- */
/* Gives a block pinned memory of the current context with the contents of `initial`, zeros if NULL.
 * Returns 0, or -ENOMEM with the report. */
int shim_probe_pinned_take(struct shim_probe_block *b, size_t bytes, const void *initial,
			   struct report *r) REQUIRES(shim_probe_build_mutex);
/* Gives it back; accepts a block without. current: its context is. */
void shim_probe_pinned_put(struct shim_probe_block *b, bool current)
	REQUIRES(shim_probe_build_mutex);
/* In the child after fork. */
void shim_probe_pinned_forget(void) REQUIRES(shim_probe_build_mutex);

/* ---- probe_verify.c; any thread, which holds no lock ---- */
/* Compares the form with its kernel, whose launch is about to be made, on copies. params NULL: the
 * launch is of a kind that cannot be repeated. Returns whether the form has run: then the launch
 * is to take the kernel itself. Caller is a user of the form. */
bool shim_probe_verify(struct shim_probe_kernel *k, struct shim_probe_form *f,
		       const uint32_t dims[SHIM_PROBE_DIMS], void **params);

/* ---- probe_submit.c ---- */
/* A launch, as programs of submit see it. */
struct shim_probe_submitted {
	uint64_t blocks;
	uint32_t threads, smem, flags; /* GBPF_F_* */
};
/* Runs the programs of submit of the form's tools: the driver has taken a launch, which was handed
 * to it at that time. Caller is a user of the form. */
void shim_probe_run_submit(const struct shim_probe_form *f, const struct shim_probe_submitted *s,
			   uint64_t now_ns);
/* Sets whether launches of the form run programs of submit, and measures the clocks if they do. */
void shim_probe_prepare_submit(struct shim_probe_form *f, const struct shim_probe_kernel *k)
	REQUIRES(shim_probe_build_mutex);
/* Measures the clocks of the tool's contexts again if that is due. */
void shim_probe_clocks_renew(const struct shim_probe_tool *t) REQUIRES(shim_probe_build_mutex);
void shim_probe_clock_forget(CUcontext ctx) REQUIRES(shim_probe_build_mutex);

/* ---- probe_quiet.c ---- */
enum shim_probe_quiet {
	SHIM_PROBE_BUSY,
	SHIM_PROBE_QUIET,
	SHIM_PROBE_FAILED, /* the context has an error that does not go away: nothing runs in it */
};
#define SHIM_PROBE_BACKLOG_NS                                                                      \
	8000000u /* max duration of present work for which launches are paused */
/* Waits until the present work of the current context is done, backlog_ns at most. QUIET: the
 * context is idle and launches are paused, for some milliseconds at most, until the end is called.
 */
enum shim_probe_quiet shim_probe_quiet_begin(uint64_t backlog_ns) REQUIRES(shim_probe_build_mutex);
void shim_probe_quiet_end(void);
/* The same, but pauses launches at once, for pause_ns at most if it does not return QUIET. */
enum shim_probe_quiet shim_probe_quiet_force(uint64_t pause_ns) REQUIRES(shim_probe_build_mutex);
/* Returns whether there is time for a call that needs the context idle. Then no launch comes in
 * until the end, for 20 ms at most. */
bool shim_probe_quiet_step(void) REQUIRES(shim_probe_build_mutex);
/* Returns QUIET if all work that was submitted in the current context is done, after waiting at
 * most that long. */
enum shim_probe_quiet shim_probe_work_done(uint64_t ns);
/* Stores an event behind all work that is submitted in the current context, NULL unless it returns
 * QUIET. Caller destroys it. */
enum shim_probe_quiet shim_probe_mark(CUevent *ret);
/* Returns QUIET if the work in front of the event is done, after waiting until a time at most. */
enum shim_probe_quiet shim_probe_mark_passed(CUevent e, uint64_t until);
extern uint64_t shim_probe_paused_until; /* [atomic] monotonic; 0: launches are not paused */
void shim_probe_wait_paused(void);

/* ---- probe_busy.c ---- */
/* Returns for how many ns the next try may pause launches before the work of a context is done; 0:
 * not at all. */
uint64_t shim_probe_busy_pause(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* Notes how long such a pause lasted. It held launches of all contexts. */
void shim_probe_busy_paused(uint64_t ns) REQUIRES(shim_probe_build_mutex);
/* Notes a try for which the context was not idle, after such a pause of paused_ns; 0: without one.
 */
void shim_probe_busy_failed(CUcontext ctx, uint64_t paused_ns) REQUIRES(shim_probe_build_mutex);
/* The context was idle, waits for nothing, or ends. */
void shim_probe_busy_forget(CUcontext ctx) REQUIRES(shim_probe_build_mutex);
/* Writes why kernels wait if a context has been busy for long; otherwise leaves the text as it is.
 */
void shim_probe_busy_text(char *to, size_t bytes) REQUIRES(shim_probe_build_mutex);

/* ---- probe_settings.c ---- */
/* Returns the longest slice, in bytes, whose form has addresses of maps as constants of its text;
 * 0: none has. */
uint32_t shim_probe_text_max(void);

/* ---- probe_thread.c ---- */
int shim_probe_thread_start(struct shim_session *s); /* once; 0 or -errno */
void shim_probe_thread_wake(void);
struct shim_session *shim_probe_session(void);

/* ---- probe_coverage.c ---- */
/* gbpfd asks which kernels can be probed; on the session's thread. */
void shim_probe_cover(struct shim_session *s, const struct proto_probe_order *m);
/* Forgets what is asked. */
void shim_probe_cover_lost(void) REQUIRES(shim_probe_mutex);
/* Looks at the kernels that were launched, and answers; on the probe thread. Returns false if that
 * is to be called again. */
bool shim_probe_cover_settle(void);

/* ---- probe_launch.c ---- */
void shim_probe_lead(void); /* from now on launches look for forms */
/* Returns the record of a kernel that a tool matches, NULL: none does. By the thread's cache. */
struct shim_probe_kernel *shim_probe_find(const void *handle, CUcontext ctx);
/* In a child after fork: nothing is attached. */
void shim_probe_forget(void);

/* ---- probe_graph_calls.c ---- */
/* Kernels have lost their forms, or the context, if it is not NULL, ends: execs run the program's
 * kernels. Caller holds no lock. */
void shim_probe_graphs_leave(CUcontext ctx);
bool shim_probe_graphs_settle(void);
void shim_probe_lead_graphs(void);
/* Counts the launches of all executable graphs at their kernels. */
void shim_probe_graphs_account(void);
void shim_probe_graphs_forget(void); /* in the child after fork */

#endif
