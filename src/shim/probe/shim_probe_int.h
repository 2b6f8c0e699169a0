/* The room's own interface: tools, kernels and their forms. */
#ifndef GBPF_SHIM_PROBE_SHIM_PROBE_INT_H
#define GBPF_SHIM_PROBE_SHIM_PROBE_INT_H

#include <pthread.h>

#include "base/report.h"
#include "base/strmap.h"
#include "bpf/run/policy_image.h"
#include "ptx/block_gate.h"
#include "ptx/probe_bracket.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
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

/* A tool's memory in one context: its environment, then its maps, then its constants. */
struct shim_probe_block {
	CUcontext ctx; /* NULL: free */
	CUdeviceptr mem;
	size_t bytes;
	CUdevice device; /* that gpu_own_memory_add() has counted it on */
};

struct shim_probe_tool {
	uint64_t version; /* 0: free */
	uint64_t replaces;
	uint32_t budget_ppm;   /* 0: no limit */
	uint32_t every;	       /* as in its memory; shim_probe_build_mutex */
	uint32_t every_wanted; /* shim_probe_mutex */
	bool partial; /* it may run in kernels whose forms lack places of some of its programs */
	bool verify;  /* its forms are compared with the kernels */
	uint64_t launches, probed; /* [atomic] of kernels whose tools have a budget */
	char kernel[PROTO_PATTERN];
	struct ebpf_policy p; /* its image, and the region that gbpfd sees */
	uint32_t refs;	      /* forms that run it */
	bool ending;	      /* takes no further kernels */
	bool retires;	      /* it has one of retire, and is among the observers */
	bool submits;	      /* it has a program of submit */
	uint32_t unsettled;  /* [atomic] p is about to be replaced: programs of submit do not run */
	bool announced;	     /* the present gbpfd knows it */
	uint64_t end_number; /* of the order that ended it */
	bool ordered;	     /* gbpfd awaits that it has ended */
	struct ebpf_policy *fresh; /* owned; the same image with another region, to be taken */
	struct shim_probe_block blocks[SHIM_PROBE_CONTEXTS_MAX]; /* under shim_probe_build_mutex */
	uint64_t *initial; /* owned; maps with which a block begins; NULL: there is no block yet */
	uint64_t *gone;	   /* owned; counted in contexts that have ended; NULL: none has */
	struct proto_probe_state told; /* as last sent */
	uint64_t told_ns;
	bool tell; /* a state must be sent although nothing has changed */
	char why[PROTO_TEXT];
};

/* A module of brackets in a context. The structs are only reused: a launch may look at one of a
 * context that has ended. */
struct shim_probe_bracket {
	struct shim_probe_bracket *next;
	uint32_t refs; /* forms that have it, or will; shim_probe_build_mutex */
	CUcontext ctx;
	struct buf text;
	uint32_t n; /* programs */
	uint64_t envs[PTX_PROBES_MAX];
	struct ptx_bracket_parts parts;
	void *image; /* owned; machine code */
	size_t image_bytes;
	CUmodule module;	     /* NULL: not loaded yet */
	CUfunction begin, late, end; /* NULL: it has none */
	uint64_t *done;		     /* [atomic] owned; a page, registered while loaded */
	CUdeviceptr done_at;	     /* its address; 0: it is not registered */
	uint64_t submitted;	     /* [atomic] launches that will count there */
	uint32_t stalled; /* [atomic] value of *done, and 1, at which a launch has waited without
			     effect */
};

/* How comparisons of a form with the kernel have ended. */
enum shim_probe_verified {
	SHIM_PROBE_UNVERIFIED, /* none yet */
	SHIM_PROBE_EQUAL,
	SHIM_PROBE_DIFFERS,
	SHIM_PROBE_NOT_VERIFIED, /* they cannot be compared */
};

/* Form structs are never freed, only reused: a launch may look at one that has ended. */
struct shim_probe_form {
	struct shim_probe_form *next; /* of the free, or of the retired ones */
	uint32_t users;		      /* [atomic] launches that are being submitted */
	uint32_t refusal; /* [atomic] CUresult with which the driver has refused a launch that it
			     accepts of the program's kernel; 0: none */
	bool told, told_left_out; /* the tools know of the refusal, of nodes; shim_probe_mutex */
	uint32_t held;		  /* [atomic] nodes of executable graphs that run it; changed under
				     shim_probe_mutex */
	bool ended;		  /* its context has, while nodes held it; shim_probe_mutex */
	uint32_t verify_left;	  /* [atomic] launches to be compared */
	enum shim_probe_verified verified;	     /* shim_probe_mutex */
	char verified_why[SHIM_PROBE_VERIFIED_TEXT]; /* shim_probe_mutex; unless EQUAL */
	const char *left_out; /* [atomic] why a node of a graph does not run it, NULL: each does */
	uint64_t number;      /* of no other form */
	uint64_t seen;	      /* retired: round of the probe thread */
	bool draining, drained; /* retired: what was deferred with its clone is, or was, drained */
	CUevent last;		/* retired: behind its last launch; NULL: not recorded yet */
	bool finished;		/* retired: its launches have ended, and its tools are free */
	bool library;		/* of a library's kernel, which exists in each context */
	uint32_t budget_ppm;	/* the least of its tools'; 0: one has no limit */
	uint32_t unmixed; /* [atomic] a node of a graph runs it in each launch, whatever the budget:
			     1; reported to its tools: 2 */
	CUcontext ctx;
	CUmodule module;		    /* NULL: the program's kernel runs, between brackets */
	CUfunction handle;		    /* NULL likewise */
	struct shim_probe_bracket *bracket; /* a reference; NULL: no program of begin or end */
	uint64_t kernel_hash;		    /* of its name */
	uint32_t n_tools;
	bool code;	   /* a copy of the machine code: launches pass the stub's argument */
	CUdeviceptr late;  /* table of its programs of block_exit (ptx/probe_late.h); 0: none */
	CUdevice late_on;  /* that gpu_own_memory_add() has counted it on */
	uint32_t unseen;   /* instructions that programs of gdev_access do not see */
	bool needs_shared; /* launches take PTX_PROBE_SMEM */
	uint32_t parts;	   /* bits of tools some of whose programs it lacks */
	bool submits;	   /* one of the tools has a program of submit */
	uint64_t hash;	   /* of the kernel's name */
	bool has_clone;
	struct shim_clone clone;	     /* preemptible, of handle */
	const struct ptx_block_image *block; /* owned; with the clone's parameters */
	struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
};

/* Launches of a kernel with one grid and block (probe_mix.c). Kinds: without and with the form. */
struct shim_probe_shape {
	uint64_t key;	   /* [atomic] 0: free */
	uint32_t share;	   /* [atomic] of its launches that take the form; of a budget */
	uint32_t sum;	   /* [atomic] of the shares of its launches, modulo 2^32 */
	uint32_t turn;	   /* [atomic] launches that could be timed */
	uint32_t due[2];   /* [atomic] the next launch of that kind is to be timed */
	uint32_t begun[2]; /* [atomic] timed launches */
	uint32_t asked;	   /* [atomic] before and after were asked for */
	uint64_t launches; /* [atomic] since it has the form */
	/* Under the timers' lock. */
	uint32_t n[2]; /* [atomic] results */
	uint32_t ns[2][SHIM_PROBE_TIMES];
	uint32_t before, after; /* resident blocks of a multiprocessor without and with the form */
	uint32_t dims[SHIM_PROBE_DIMS]; /* grid, block, dynamic shared memory */
};

struct shim_probe_mix {
	struct shim_probe_shape shapes[SHIM_PROBE_SHAPES];
	/* Under the timers' lock. */
	unsigned next;	       /* place for a new shape */
	uint32_t share;	       /* [atomic] with which a new shape begins */
	uint32_t begun;	       /* [atomic] timed launches since it has the form */
	uint64_t epoch;	       /* [atomic] incremented when the form or the kernel is another one */
	uint64_t kernel_epoch; /* epoch since which it is this kernel */
};

/* A handle of the program that a tool has matched; of a library's kernel, in one context. As those
 * of forms, these structs are only reused: a launch may have looked one up before its kernel was
 * forgotten, and reads again whose it is once it holds the form. */
struct shim_probe_kernel {
	struct shim_probe_kernel *next; /* of the free ones */
	const void *handle;		/* [atomic] */
	CUcontext ctx;			/* [atomic] in which it was launched first */
	uint32_t library;		/* [atomic] a library's kernel */
	struct shim_probe_form *form;	/* [atomic] NULL: the program's own kernel is launched */
	uint64_t seen; /* [atomic] value of shim_probe_generation for which the form was decided; 0:
			  none was yet */
	struct shim_probe_mix mix;
	const void *owner;
	enum shim_kernel_kind kind;
	char *name; /* owned */
	/* On its way, under shim_probe_build_mutex: for the tools of that generation. */
	struct shim_probe_made *made; /* owned; NULL: not compiled, or no tool is left */
	uint64_t made_for, tried;     /* generation; round of the probe thread */
	uint32_t n_tools;
	struct shim_probe_tool *tools[SHIM_PROBE_TOOLS_MAX];
};

/* docs/LOCKING.md has the order. */
extern pthread_mutex_t
	shim_probe_build_mutex;		 /* held over driver calls that build, load and unload */
extern pthread_mutex_t shim_probe_mutex; /* guards tools, kernels and what is sent */
extern bool shim_probe_stopped; /* shim_probe_build_mutex; the process exits: the probe thread calls
				   the driver no more */
extern uint64_t shim_probe_generation; /* [atomic] incremented, under shim_probe_mutex, when the set
					  of tools changes */
extern uint64_t shim_probe_forms_generation; /* [atomic] incremented after a kernel was given a
						form, or none, or the set of tools has changed */
extern struct shim_probe_tool *shim_probe_tools[SHIM_PROBE_TOOLS_MAX]; /* shim_probe_mutex */

/* ---- probe_tools.c ---- */
/* Fills the tools that a kernel is to run. Returns their number. Caller holds shim_probe_mutex. */
uint32_t shim_probe_tools_for(const char *name, struct shim_probe_tool *ret[SHIM_PROBE_TOOLS_MAX]);
/* Whether program i of a tool is for a kernel of that name. */
bool shim_probe_tool_matches(const struct shim_probe_tool *t, uint32_t i, const char *name);
/* Whether the tool has a program of gdev_access for a kernel of that name. */
bool shim_probe_tool_sees(const struct shim_probe_tool *t, const char *name);
/* Notes why a kernel cannot have the tool's programs. Caller holds shim_probe_mutex. */
void shim_probe_tool_refused(struct shim_probe_tool *t, const char *kernel, const char *why);
/* Ends tools that no form runs: their maps are copied a last time, and their memory becomes unused.
 * Returns whether there were any. Caller holds shim_probe_build_mutex. */
bool shim_probe_tools_end(void);
/* Reports to each tool that kernels in conditional nodes of a graph cannot be reached. */
void shim_probe_tools_note_bodies(void);
/* Ends tools that no form runs, reads timers, and sends states that have changed; on the probe
 * thread. Returns false if that is to be called again; *ret_ns: for the figures alone, after this
 * time, 0: not. */
bool shim_probe_tools_settle(uint64_t *ret_ns);

/* ---- probe_kernels.c ---- */
/* Returns the record of a handle that is launched in a context; NULL: no tool matches it. Builds
 * its form at once if the handle is newer than the tools, so that no launch of it goes without,
 * unless the context is busy for long. */
struct shim_probe_kernel *shim_probe_kernel_find(const void *handle, CUcontext ctx);
/* The same, without building. */
struct shim_probe_kernel *shim_probe_kernel_known(const void *handle, CUcontext ctx);
/* By handle and, of libraries' kernels, context. */
extern struct strmap shim_probe_kernels; /* shim_probe_mutex; > struct shim_probe_kernel */
/* Gives tools the reasons of refusals that they do not know. Caller holds shim_probe_mutex. */
void shim_probe_kernels_note_refusals(void);
/* Counts kernels with, without, and waiting for the tool. Caller holds shim_probe_mutex. */
void shim_probe_kernels_count(const struct shim_probe_tool *t, struct proto_probe_state *ret);

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
/* Takes the form, which no kernel has any more. Caller holds shim_probe_build_mutex. */
void shim_probe_form_retire(struct shim_probe_form *f);
/* Drains deferred launches, and runs that may be resumed, where they have the handle of a retired
 * form's clone. Caller holds no lock. */
void shim_probe_forms_drain(void);
/* Frees the tools of retired forms whose launches have ended, also if the context, which is
 * current, never becomes idle. Caller holds shim_probe_build_mutex. */
void shim_probe_forms_finish(CUcontext ctx);
/* Returns whether a context has retired forms: finished ones, or others. */
bool shim_probe_forms_remain(CUcontext ctx, bool finished);
/* Unloads the retired forms of a context: those whose launches have ended, if it is idle, as long
 * as launches are paused, or all if it ends. Returns whether others remain. Caller holds
 * shim_probe_build_mutex. */
bool shim_probe_forms_sweep(CUcontext ctx, bool idle, bool context_ends);
extern struct shim_probe_form *shim_probe_retired; /* shim_probe_build_mutex; not unloaded yet */

/* ---- probe_settle.c ---- */
/* Compiles the form that the tools ask for, for all of them but the newest where they are refused.
 * Returns false if the kernel is decided: it has that form, or none is left to be loaded. Its
 * context is current. Caller holds shim_probe_build_mutex, so the tools stay. */
bool shim_probe_kernel_compile(struct shim_probe_kernel *k);
/* Whether it was compiled for the present set of tools. */
bool shim_probe_kernel_is_compiled(const struct shim_probe_kernel *k);
/* Loads what was compiled. */
void shim_probe_kernel_load(struct shim_probe_kernel *k);
void shim_probe_kernel_forget_made(struct shim_probe_kernel *k);
/* Sets the form's attributes as the kernel's are now. The form's context is current. */
void shim_probe_form_follow(const void *handle, struct shim_probe_form *f);
/* Gives each kernel the form that the tools ask for; on the probe thread. Returns false if that is
 * to be called again, because a context is not idle. */
bool shim_probe_kernels_settle(void);

/* ---- probe_build.c ---- */
/* A form that is compiled and not loaded yet. */
struct shim_probe_made;
/* Makes the form of a kernel that runs these tools, in the current context, which waits for no work
 * of the program; and loads it, which does. 0, or -errno with the report. Caller holds
 * shim_probe_build_mutex. */
int shim_probe_compile(const struct shim_probe_kernel *k, struct shim_probe_tool *const *tools,
		       uint32_t n, struct shim_probe_made **ret, struct report *r);
int shim_probe_load(struct shim_probe_made *m, struct shim_probe_form *f, struct report *r);
void shim_probe_made_free(struct shim_probe_made *m); /* accepts NULL */

/* ---- probe_part.c; caller holds shim_probe_build_mutex ---- */
/* Programs that a form leaves out. */
struct shim_probe_cut {
	unsigned step;
	uint32_t programs[SHIM_PROBE_TOOLS_MAX]; /* of each tool, bits */
	uint32_t tools;				 /* bits of tools that lack one */
};
/* Chooses what to leave out next of tools that may run in part, after a form with all programs, or
 * with the last choice, was refused. Returns false if nothing is left to be tried. */
bool shim_probe_cut_next(struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n);
/* Reports to the tools what the kernel's form lacks; why: the first refusal. */
void shim_probe_cut_tell(const struct shim_probe_cut *c, const struct shim_probe_kernel *k,
			 struct shim_probe_tool *const *tools, uint32_t n,
			 const struct report *why);
/* Returns whether programs around launches could run without those inside, if the tool that has
 * both might run in part. */
bool shim_probe_cut_would_help(const struct shim_probe_kernel *k,
			       struct shim_probe_tool *const *tools, uint32_t n);
/* Unloads the form's module. context_ends: it ends with its context. */
void shim_probe_unload(struct shim_probe_form *f, bool context_ends);
/* Sets the attributes of a form to those of the program's kernel. The form's context is current. */
void shim_probe_follow_attributes(const void *handle, struct shim_probe_form *f);

/* ---- probe_brackets.c; caller holds shim_probe_build_mutex ---- */
/* Returns brackets with these programs for the current context, which is ctx, as a reference; they
 * may be others' too. Waits for no work of the program. tools: of each program. 0, or -errno with
 * the report. */
int shim_probe_bracket_make(struct shim_probe_bracket **ret, CUcontext ctx, unsigned arch,
			    const struct ptx_probe *probes, struct shim_probe_tool *const *tools,
			    uint32_t n, struct report *r);
/* Loads them unless they are. 0 or -errno. */
int shim_probe_bracket_load(struct shim_probe_bracket *b, struct report *r);
/* Gives a reference back. Accepts NULL. */
void shim_probe_bracket_put(struct shim_probe_bracket *b);
/* Unloads those of a context without a reference; the context is idle, or ends. */
void shim_probe_brackets_sweep(CUcontext ctx, bool context_ends);

/* ---- probe_around.c; any thread ---- */
/* cuLaunchKernel, of the kind of default stream that the program's call means. */
typedef CUresult shim_probe_launcher(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
				     unsigned bx, unsigned by, unsigned bz, unsigned smem,
				     CUstream s, void **params, void **extra);

/* A launch between its brackets. */
struct shim_probe_around {
	struct shim_probe_form *form;	    /* NULL: it has no brackets */
	struct shim_probe_bracket *bracket; /* of it */
	shim_probe_launcher *launch;
	CUstream stream;
	CUresult refusal; /* of `begin`; then there is no `end` */
	struct ptx_bracket_arg arg;
	struct ptx_gate_arg stub; /* of a form that reports ends of blocks */
};

/* Launches the bracket in front of a launch of the form, if it has one. */
void shim_probe_around_begin(struct shim_probe_around *a, struct shim_probe_form *f,
			     shim_probe_launcher *launch, const uint32_t dims[SHIM_PROBE_DIMS],
			     CUstream s);
/* Launches the bracket behind it; r: the launch's result. */
void shim_probe_around_end(struct shim_probe_around *a, CUresult r);

/* ---- probe_memory.c; caller holds shim_probe_build_mutex ---- */
/* Returns the address of the tool's environment in the current context, creating its memory; 0: no
 * memory, with the report. */
uint64_t shim_probe_memory_env(struct shim_probe_tool *t, CUcontext ctx, struct report *r);
/* Returns the address of the data of a map, given that of the environment; 0: not in memory of the
 * GPU. */
uint64_t shim_probe_memory_map(const struct shim_probe_tool *t, uint64_t env, uint32_t map);
/* Copies the tool's maps to its region. 0 or -errno. */
int shim_probe_memory_drain(struct shim_probe_tool *t);
/* Allocates the table of ptx/probe_late.h in the current context, which is ctx. 0, or -errno with
 * the report. The end frees it once the context is idle, and accepts 0. */
int shim_probe_memory_late(CUcontext ctx, CUdeviceptr *ret, CUdevice *ret_device, struct report *r);
void shim_probe_memory_late_end(CUcontext ctx, CUdeviceptr table, CUdevice on);
/* Frees memory of a context once that is idle. */
void shim_probe_memory_discard(CUcontext ctx, CUdeviceptr mem);
/* Sets the blocks that run the tool's programs, also in running kernels. 0, or -EIO: not in all
 * contexts. */
int shim_probe_memory_control(struct shim_probe_tool *t, uint32_t every);
/* The context is about to end: its values are kept, and the memory is freed. */
void shim_probe_memory_leave(struct shim_probe_tool *t, CUcontext ctx);
/* The tool ends: its memory becomes unused. Freeing waits for all work of the context. */
void shim_probe_memory_abandon(struct shim_probe_tool *t);
/* Frees unused memory of a context, which is current and idle, as long as launches are paused, or
 * has failed, or is about to end. Returns whether some remains. */
bool shim_probe_memory_sweep(CUcontext ctx, bool idle);
bool shim_probe_memory_remains(CUcontext ctx);
/* Returns a context with unused memory that was not marked for that round; NULL: none. */
CUcontext shim_probe_memory_unused(uint64_t round);
void shim_probe_memory_mark(CUcontext ctx, uint64_t round);
/* The context is about to end. */
void shim_probe_memory_drop_stream(CUcontext ctx);
void shim_probe_memory_forget_streams(void); /* in the child after fork */
/* Copies bytes to the device by a stream of its own, and waits. 0 or -EIO. */
int shim_probe_memory_write(CUdeviceptr to, const void *from, size_t bytes);

/* ---- probe_verify.c; any thread, which holds no lock ---- */
/* Compares the form with its kernel, whose launch is about to be made, on copies. params NULL: the
 * launch is of a kind that cannot be repeated. Returns whether the form has run: then the launch
 * is to take the kernel itself. Caller is a user of the form. */
bool shim_probe_verify(struct shim_probe_kernel *k, struct shim_probe_form *f,
		       const uint32_t dims[SHIM_PROBE_DIMS], void **params);

/* ---- probe_submit.c ---- */
/* A launch, for programs of submit. */
struct shim_probe_submitted {
	uint64_t blocks;
	uint32_t threads, smem, flags; /* GBPF_F_* */
};
/* Runs the programs of submit of the form's tools: the driver has taken a launch, which was handed
 * to it at that time. Caller is a user of the form. */
void shim_probe_run_submit(const struct shim_probe_form *f, const struct shim_probe_submitted *s,
			   uint64_t now_ns);
/* Sets whether launches of the form run programs of submit, and measures the clocks if they do.
 * Caller holds shim_probe_build_mutex. */
void shim_probe_prepare_submit(struct shim_probe_form *f, const struct shim_probe_kernel *k);
/* Measures the clocks of the tool's contexts again if that is due, under the same mutex. */
void shim_probe_clocks_renew(const struct shim_probe_tool *t);
void shim_probe_clock_forget(CUcontext ctx);

/* ---- probe_quiet.c ---- */
enum shim_probe_quiet {
	SHIM_PROBE_BUSY,
	SHIM_PROBE_QUIET,
	SHIM_PROBE_FAILED, /* the context has an error that does not go away: nothing runs in it */
};
#define SHIM_PROBE_BACKLOG_NS                                                                      \
	8000000u /* duration of present work for which a pause is worth while */
/* Waits until the present work of the current context is done, backlog_ns at most. QUIET: the
 * context is idle and launches are paused, for some milliseconds at most, until the end is called.
 * Caller holds shim_probe_build_mutex. */
enum shim_probe_quiet shim_probe_quiet_begin(uint64_t backlog_ns);
void shim_probe_quiet_end(void);
/* Returns whether there is time for a call that needs the context idle. Then no launch comes in
 * until the end, for 20 ms at most. */
bool shim_probe_quiet_step(void);
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

/* ---- probe_settings.c ---- */
/* Returns the longest slice, in bytes, whose form has addresses of maps as constants of its text;
 * 0: none has. */
uint32_t shim_probe_text_max(void);
enum ptx_probe_branches shim_probe_branches(void);

/* ---- probe_thread.c ---- */
int shim_probe_thread_start(struct shim_session *s); /* once; 0 or -errno */
void shim_probe_thread_wake(void);
struct shim_session *shim_probe_session(void);

/* ---- probe_coverage.c ---- */
/* gbpfd asks which kernels can be probed; on the session's thread. */
void shim_probe_cover(struct shim_session *s, const struct proto_probe_order *m);
/* Forgets what is asked. Caller holds shim_probe_mutex. */
void shim_probe_cover_lost(void);
/* Looks at the kernels that were launched, and answers; on the probe thread. Returns false if that
 * is to be called again. */
bool shim_probe_cover_settle(void);

/* ---- probe_launch.c ---- */
void shim_probe_lead(void); /* from now on launches look for forms */
/* Returns the record of a kernel that a tool matches, NULL: none does. By the thread's cache. */
struct shim_probe_kernel *shim_probe_find(const void *handle, CUcontext ctx);

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
