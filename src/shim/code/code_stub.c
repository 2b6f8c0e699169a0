/* The entry stub, compiled by the driver: once per process and architecture, at the first image.
 * The compilation and the self-test are made without a lock; other threads that load an image
 * meanwhile wait for this one, which waits neither for the program's threads nor, beyond the
 * self-test's limit, for its work on the device. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "shim/capture_state.h"

#define MAX_ARCHITECTURES 8u
#define TRIES_MAX 4u
#define DRIVER_VERSION_MIN 12050 /* cuKernelGetLibrary is the latest function */

struct slot {
	unsigned arch; /* 0: free */
	bool ready;    /* false: a thread is making it, */
	CUcontext ctx; /* in this context */
	bool again;    /* it was no fault of the stub: make it at the next image */
	unsigned tries;
	struct cubin_stub *stub; /* NULL: no machine code is patched */
	enum proto_block_why why;
};

static struct lock stubs_mutex = LOCK_INITIALIZER(STUBS);
static pthread_cond_t stubs_changed = PTHREAD_COND_INITIALIZER;
static struct slot stubs[MAX_ARCHITECTURES] GUARDED_BY(stubs_mutex);

/* Compiles the gate with that much padding in front of its argument. */
static int compile_gate(unsigned arch, uint32_t pad, void **ret, size_t *ret_bytes,
			struct report *r)
{
	struct buf text;
	int err;

	buf_init(&text);
	err = ptx_gate_stub(&text, arch, pad);
	if (err) {
		(void)report_set(r, err, "stub", "no text for this architecture");
	} else {
		err = shim_code_compile(buf_text(&text), text.len, arch, ret, ret_bytes, r);
	}
	buf_finish(&text);
	return err;
}

static int open_gate(struct cubin_stub **ret, unsigned arch, struct report *r)
{
	void *a = NULL, *b = NULL;
	size_t a_bytes = 0, b_bytes = 0;
	int err = compile_gate(arch, PTX_GATE_PAD_A, &a, &a_bytes, r);

	err = err ? err : compile_gate(arch, PTX_GATE_PAD_B, &b, &b_bytes, r);
	err = err ? err
		  : cubin_stub_open(ret, a, a_bytes, PTX_GATE_PAD_A, b, b_bytes, PTX_GATE_PAD_B,
				    PTX_GATE_ENTRY, SHIM_CODE_ARG_BYTES, r);
	free(a);
	free(b);
	return err;
}

/* Returns true if the driver can tell which kernel a handle names, so that a handle that was
 * obtained in an unknown way is recognized, too. */
static bool driver_names_kernels(void)
{
	int version = 0;

	return shim_driver.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
	       version >= DRIVER_VERSION_MIN;
}

/* Reports why no machine code is patched in this process. */
static void note_failure(unsigned arch, const char *what, const struct report *r)
{
	struct buf reason, text;

	buf_init(&reason);
	buf_init(&text);
	report_text(r, &reason);
	buf_printf(&text, "no machine code is patched for sm_%u: %s: %s", arch, what,
		   buf_text(&reason));
	sched_note_once(shim.sched, "machine-code", buf_text(&text));
	buf_finish(&reason);
	buf_finish(&text);
}

/* Returns why there is no stub, and stores a word for it. *ret_again: another attempt may have
 * another result. */
static enum proto_block_why try_make(struct cubin_stub **ret, unsigned arch, const char **ret_what,
				     bool *ret_again, struct report *r)
{
	int err;

	*ret_what = "driver";
	if (!driver_names_kernels()) {
		(void)report_set(r, -ENOSYS, "stub", "it is older than CUDA 12.5");
		return PROTO_BLOCK_OLD_DRIVER;
	}
	*ret_what = "entry stub";
	err = open_gate(ret, arch, r);
	*ret_again = err == -ENOMEM;
	if (err < 0) {
		*ret = NULL;
		return PROTO_BLOCK_STUB;
	}
	*ret_what = "self-test";
	err = shim_code_test(*ret, arch, r);
	if (!err) {
		return PROTO_BLOCK_OK;
	}
	cubin_stub_close(*ret);
	*ret = NULL;
	*ret_again = err == -ENOMEM || err == -ECANCELED;
	return err == -ETIMEDOUT ? PROTO_BLOCK_TEST_TIME : PROTO_BLOCK_TEST_FAILED;
}

static struct cubin_stub *make(unsigned arch, enum proto_block_why *ret_why, bool *ret_again)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	CUstreamCaptureMode before = shim_capture_exempt();
	struct cubin_stub *s = NULL;
	const char *what;
	struct report r;

	report_init(&r);
	*ret_again = false;
	*ret_why = try_make(&s, arch, &what, ret_again, &r);
	if (!s) {
		note_failure(arch, what, &r);
	}
	report_finish(&r);
	pthread_once(&once, shim_code_read_waiting);
	shim_capture_restore(before);
	return s;
}

/* Returns the slot of the architecture, a free one, or NULL. */
static struct slot *slot_of(unsigned arch) REQUIRES(stubs_mutex)
{
	for (unsigned i = 0; i < MAX_ARCHITECTURES; i++) {
		if (!stubs[i].arch || stubs[i].arch == arch) {
			return &stubs[i];
		}
	}
	return NULL;
}

/* ---- fork ---- */

static void before_fork(void) ACQUIRES(stubs_mutex)
{
	lock_take(&stubs_mutex);
	shim_code_handles_before_fork();
	shim_code_waiting_before_fork();
}

static void after_fork_parent(void) RELEASES(stubs_mutex)
{
	shim_code_waiting_after_fork(false);
	shim_code_handles_after_fork();
	lock_release(&stubs_mutex);
}

static void after_fork_child(void) RELEASES(stubs_mutex)
{
	shim_code_waiting_after_fork(true);
	shim_code_handles_after_fork();
	for (unsigned i = 0; i < MAX_ARCHITECTURES; i++) {
		if (stubs[i].arch && !stubs[i].ready) { /* its thread is not there */
			stubs[i].why = PROTO_BLOCK_STUB;
			stubs[i].ready = true;
		}
	}
	lock_release(&stubs_mutex);
}

/* Whoever takes one of the locks has come here first. */
static pthread_once_t survives = PTHREAD_ONCE_INIT;

static void survive_fork(void)
{
	(void)pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- stubs ---- */

/* Makes the slot's stub. The mutex is released meanwhile. */
static void fill(struct slot *s, unsigned arch) REQUIRES(stubs_mutex)
{
	enum proto_block_why why = PROTO_BLOCK_STUB;
	struct cubin_stub *made;
	CUcontext ctx = NULL;
	bool again;

	(void)shim_driver.cuCtxGetCurrent(&ctx);
	s->arch = arch;
	s->ctx = ctx;
	s->ready = false;
	s->tries++;
	lock_release(&stubs_mutex);
	made = make(arch, &why, &again);
	lock_take(&stubs_mutex);
	s->stub = made;
	s->why = why;
	s->again = again && s->tries < TRIES_MAX;
	s->ready = true;
	pthread_cond_broadcast(&stubs_changed);
}

const struct cubin_stub *shim_code_stub(unsigned arch, enum proto_block_why *ret_why)
{
	const struct cubin_stub *made;
	struct slot *s;

	pthread_once(&survives, survive_fork);
	lock_take(&stubs_mutex);
	s = slot_of(arch);
	if (s && (!s->arch || (s->ready && s->again))) {
		fill(s, arch);
	}
	while (s && !s->ready) {
		lock_wait(&stubs_mutex, &stubs_changed);
	}
	made = s ? s->stub : NULL;
	if (!made) {
		*ret_why = s ? s->why : PROTO_BLOCK_STUB;
	}
	lock_release(&stubs_mutex);
	return made;
}

static bool is_busy_in(CUcontext ctx) REQUIRES(stubs_mutex)
{
	for (unsigned i = 0; i < MAX_ARCHITECTURES; i++) {
		if (stubs[i].arch && !stubs[i].ready && stubs[i].ctx == ctx) {
			return true;
		}
	}
	return false;
}

static uint64_t await_stub(CUcontext ctx)
{
	pthread_once(&survives, survive_fork);
	lock_take(&stubs_mutex);
	while (is_busy_in(ctx)) {
		lock_wait(&stubs_mutex, &stubs_changed);
	}
	lock_release(&stubs_mutex);
	return 0;
}

const struct shim_part shim_stub_part = { .context_ending = await_stub };
