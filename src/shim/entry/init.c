/* cuInit: a hello to gbpfd, whose answer decides the sharing mode in which to start the driver; the
 * real cuInit; then the session. Without gbpfd, or with GBPF_OFF=1, everything passes through; with
 * GBPF_STRICT=1 cuInit fails without gbpfd. When cuInit returns, the policy in force is prepared
 * and the tools that are attached are known, so that the program's first launch runs with them. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/paths.h"
#include "cuabi/api.h"
#include "gpu/gpu_run.h"
#include "policy/ctx.h"
#include "shim/code/shim_code.h"
#include "shim/defer/block_launch.h"
#include "shim/entry/parts.h"
#include "shim/kernel/clone.h"
#include "shim/kernel/kernel_handle.h"
#include "shim/mem/charge.h"
#include "shim/mem/copies.h"
#include "shim/mem/overhead.h"
#include "shim/mem/swap_pool.h"
#include "shim/mem/swap_region.h"
#include "shim/mem/swap_share.h"
#include "shim/object/driver_device.h"
#include "shim/probe/shim_probe.h"
#include "shim/session/lane_env.h"
#include "shim/session/session_agent.h"
#include "shim/session/session_ipc.h"

#define START_TIMEOUT_NS 1000000000u

static struct lock attach_mutex = LOCK_INITIALIZER(ATTACH);
static bool attempted GUARDED_BY(attach_mutex);
static CUresult attach_result GUARDED_BY(attach_mutex);
static TLS_FAST bool inside; /* set during cuInit: tools that the driver loads may call it */
static struct shim_session session;

static bool is_set(const char *name)
{
	const char *v = getenv(name);

	return v && strcmp(v, "1") == 0;
}

/* Runs before the driver's exit handlers, which were registered earlier. */
static void on_exit_process(void)
{
	if (shim_mem_joined()) {
		shim_swap_pool_stop();
		shim_mem_overhead_stop();
	}
	shim_copies_exit();
	if (shim_attached()) {
		shim_probe_exit();
		sched_set_off(shim.sched, true);
		shim_block_exit(); /* while the agent still advances runs */
		shim_agent_stop(&session);
		shim_code_save_waiting();
	}
}

/* The child has no agent and no session: its calls pass through, and the driver decides what a
 * forked child may do. */
static void on_fork_child(void)
{
	bool attached = shim_attached();

	shim.attached = 0;
	shim.deferred = 0;
	shim.error = 0;
	shim_parts_child();
	if (attached) {
		sched_after_fork_child(shim.sched);
		shim_session_abandon(&session);
	}
}

static void note_memory(const char *text)
{
	shim_session_note(&session, "memory", text);
}

static int ask_memory(const struct proto_mem_ask *ask)
{
	return shim_session_ask_memory(&session, ask);
}

static int own_pid(void)
{
	return load_relaxed(&session.pid);
}

static const struct shim_mem_session mem_session = { .note = note_memory,
						     .ask = ask_memory,
						     .is_agent = shim_agent_is_current,
						     .kernel_of = shim_kernel_glance,
						     .pid = own_pid,
						     .open_ipc = shim_session_open_ipc };

static uint64_t release_memory(const struct proto_mem_release *m)
{
	return m->row < PROTO_MAX_GPUS
		       ? shim_swap_release((int)m->row, m->bytes, m->most, m->reserve, m->hold_ns)
		       : 0;
}

/* Returns 0, -EPROTO, or -EPERM if the limit is more than any device has. */
static int join_vgpu(void)
{
	uint64_t limit = 0;
	size_t most = 0, bytes;
	int err = shim_mem_join(session.vgpu.page, session.vgpu.line, session.uuid, session.gpus,
				&mem_session);

	if (err == -EPROTO) {
		session.refused_here = true;
		snprintf(session.refusal, sizeof(session.refusal),
			 "a program in this virtual GPU has just written over its account; start "
			 "again, and end that program if it happens again ('gbpf events')");
	}
	if (err) {
		return err;
	}
	shim_session_release = release_memory;
	shim_session_give = shim_swap_give;
	for (uint32_t i = 0; i < session.gpus; i++) {
		if (shim_driver.cuDeviceTotalMem_v2(&bytes, (CUdevice)i) == CUDA_SUCCESS) {
			most = MAX(most, bytes);
			limit = MAX(limit, shim_mem_limited(shim_mem_row((CUdevice)i)));
		}
	}
	if (limit > most) {
		session.refused_here = true;
		snprintf(session.refusal, sizeof(session.refusal),
			 "the memory limit of %llu MiB exceeds the GPU's %llu MiB; use a lower one "
			 "('gbpf run --mem')",
			 (unsigned long long)(limit >> 20), (unsigned long long)(most >> 20));
		return -EPERM;
	}
	return 0;
}

static void on_hung(void *arg, CUfunction clone)
{
	(void)arg;
	shim_clone_exclude(clone);
	shim_probe_exclude(clone);
}

static void on_block_taken(const struct shim_launch *l, uint64_t now_ns)
{
	shim_probe_submitted(l->form, &l->call, now_ns);
}

static int attach(void)
{
	int err = shim_session_begin(&session);

	if (err) {
		shim_session_abandon(&session);
		return err;
	}
	gpu_run_on_hung(shim_device_gpu(), on_hung, NULL);
	shim_thread_setup();
	pthread_atfork(shim_copies_before_fork, shim_copies_after_fork, on_fork_child);
	if (session.vgpu.page) {
		err = join_vgpu();
		if (err) {
			shim_session_abandon(&session);
			return err;
		}
	}
	shim_copies_install();
	shim_probe_graphs_setup();
	atexit(on_exit_process);
	store_release(&shim.sched, session.sched);
	store_release(&shim.attached, 1u);
	shim_session_await_start(&session, clock_patience(START_TIMEOUT_NS));
	shim_agent_task = shim_code_save_waiting;
	err = shim_agent_start(&session);
	if (err) {
		sched_set_off(session.sched, true);
		store_release(&shim.attached, 0u);
	}
	return err;
}

static CUresult explain(int err)
{
	if (session.refusal[0]) {
		fprintf(stderr, "gbpf: %s%s\n",
			session.refused_here ? "" : "gbpfd refused this program: ",
			session.refusal);
		return CUDA_ERROR_NOT_PERMITTED;
	}
	if (getenv("GBPF_VGPU")) {
		fprintf(stderr,
			"gbpf: cannot connect to gbpfd, which counts the memory of this program's "
			"virtual GPU: %s; start it again with 'gbpf run'\n",
			strerror(-err));
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	if (is_set("GBPF_STRICT")) {
		fprintf(stderr,
			"gbpf: cannot connect to gbpfd, which GBPF_STRICT requires: %s; start "
			"gbpfd\n",
			strerror(-err));
		return CUDA_ERROR_SYSTEM_NOT_READY;
	}
	if (err == -EPERM) {
		fprintf(stderr,
			"gbpf: session socket belongs to another user; running without gBPF\n");
	}
	return CUDA_SUCCESS;
}

/* Prints, once, that a relative path in the environment keeps this process from gbpfd. Another
 * directory is not tried instead: it would be the gbpfd of the machine. */
static void warn_relative(void)
{
	static bool warned;
	char text[512];

	if (!warned && path_relative_variable()) {
		path_explain(-EINVAL, text, sizeof(text));
		fprintf(stderr, "gbpf: %s; running without gBPF\n", text);
		warned = true;
	}
}

static int say_hello(uint32_t only_lanes)
{
	int err = shim_session_init(&session);

	shim_probe_setup();
	shim_block_taken = on_block_taken;
	shim_block_number = shim_probe_number_next;
	if (!err) {
		session.lanes = only_lanes ? only_lanes : session.lanes;
		err = shim_session_hello(&session);
	}
	if (err == -EINVAL) {
		warn_relative();
	}
	if (err) {
		shim_session_abandon(&session);
		shim_lane_leave();
	} else {
		shim_lane_enter(&session.early.welcome);
	}
	return err;
}

/* Starts the driver. If it fails in the shared mode, it is started once more in the process mode:
 * MPS may be broken, and a program must not fail because of that. */
static CUresult start_driver(unsigned flags, int *err, bool *fell_back)
{
	CUresult r = shim_real.cuInit(flags);

	*fell_back = false;
	if (r == CUDA_SUCCESS || *err || session.lane != GBPF_LANE_SHARED) {
		return r;
	}
	shim_session_abandon(&session);
	*err = say_hello(1u << GBPF_LANE_PROCESS);
	*fell_back = !*err;
	return session.refusal[0] ? r : shim_real.cuInit(flags);
}

static CUresult begin(unsigned flags) REQUIRES(attach_mutex)
{
	int err = say_hello(0);
	bool fell_back;
	CUresult r;

	if (err == -EINVAL && path_relative_variable() && is_set("GBPF_STRICT")) {
		attempted = true;
		return attach_result = explain(err);
	}
	if (err && session.refusal[0]) { /* do not start the driver */
		attempted = true;
		return attach_result = explain(err);
	}
	if (err && proto_vgpu_is_set(&session.vgpu.is)) { /* it must not run without its limit */
		attempted = true;
		return attach_result = explain(err);
	}
	r = start_driver(flags, &err, &fell_back);
	if (r != CUDA_SUCCESS) {
		if (!err) {
			shim_session_abandon(&session);
		}
		return r; /* the next cuInit starts over */
	}
	attempted = true;
	err = err ? err : attach();
	if (!err && fell_back) {
		shim_session_note(
			&session, "lane",
			"the driver did not start in the shared lane: it runs in the process "
			"lane");
	}
	return attach_result = err ? explain(err) : CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags)
{
	CUresult r;

	if (inside || is_set("GBPF_OFF")) {
		return shim_real.cuInit(flags);
	}
	lock_take(&attach_mutex);
	inside = true;
	if (!attempted) {
		r = begin(flags);
	} else {
		r = attach_result == CUDA_SUCCESS ? shim_real.cuInit(flags) : attach_result;
	}
	inside = false;
	lock_release(&attach_mutex);
	return r;
}
