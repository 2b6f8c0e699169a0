/* The entry stub, compiled by the driver: once per process and architecture, at the first image.
 * The compilation and the self-test are made without a lock; other threads that load an image
 * meanwhile wait for this one, which waits neither for the program's threads nor, beyond the
 * self-test's limit, for its work on the device. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/capture_state.h"

#define MAX_ARCHITECTURES 8u
#define DRIVER_VERSION_MIN 12050 /* cuKernelGetLibrary is the latest function */

struct slot {
	unsigned arch;		 /* 0: free */
	bool ready;		 /* false: a thread is making it */
	struct cubin_stub *stub; /* NULL: no machine code is patched */
};

static pthread_mutex_t stubs_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stubs_changed = PTHREAD_COND_INITIALIZER;
static struct slot stubs[MAX_ARCHITECTURES]; /* stubs_mutex */

int shim_code_compile(const char *ptx, size_t bytes, void **ret, size_t *ret_bytes)
{
	CUlinkState s = NULL;
	void *image = NULL;
	size_t n = 0;
	int err = -ENOEXEC;

	if (shim_driver.cuLinkCreate_v2(0, NULL, NULL, &s) != CUDA_SUCCESS) {
		return -ENOEXEC;
	}
	if (shim_driver.cuLinkAddData_v2(s, CU_JIT_INPUT_PTX, unqual(ptx), bytes + 1, "gbpf", 0,
					 NULL, NULL) == CUDA_SUCCESS &&
	    shim_driver.cuLinkComplete(s, &image, &n) == CUDA_SUCCESS && image && n) {
		*ret = malloc(n);
		err = *ret ? 0 : -ENOMEM;
	}
	if (!err) {
		memcpy(*ret, image, n);
		*ret_bytes = n;
	}
	shim_driver.cuLinkDestroy(s);
	return err;
}

/* Compiles the gate with so much padding in front of its argument. */
static int compile_gate(unsigned arch, uint32_t pad, void **ret, size_t *ret_bytes)
{
	struct buf text;
	int err;

	buf_init(&text);
	err = ptx_gate_stub(&text, arch, pad);
	if (!err) {
		err = shim_code_compile(buf_text(&text), text.len, ret, ret_bytes);
	}
	buf_finish(&text);
	return err;
}

static struct cubin_stub *open_gate(unsigned arch)
{
	struct cubin_stub *s = NULL;
	void *a = NULL, *b = NULL;
	size_t a_bytes = 0, b_bytes = 0;
	struct report r;

	report_init(&r);
	if (compile_gate(arch, PTX_GATE_PAD_A, &a, &a_bytes) == 0 &&
	    compile_gate(arch, PTX_GATE_PAD_B, &b, &b_bytes) == 0 &&
	    cubin_stub_open(&s, a, a_bytes, PTX_GATE_PAD_A, b, b_bytes, PTX_GATE_PAD_B,
			    PTX_GATE_ENTRY, SHIM_CODE_ARG_BYTES, &r) < 0) {
		s = NULL;
	}
	report_finish(&r);
	free(a);
	free(b);
	return s;
}

/* Returns true if the driver can tell which kernel a handle names, so that a handle that was
 * obtained in an unknown way is recognized, too. */
static bool driver_names_kernels(void)
{
	int version = 0;

	return shim_driver.cuDriverGetVersion(&version) == CUDA_SUCCESS &&
	       version >= DRIVER_VERSION_MIN;
}

static struct cubin_stub *make(unsigned arch)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	CUstreamCaptureMode before = shim_capture_exempt();
	struct cubin_stub *s = driver_names_kernels() ? open_gate(arch) : NULL;

	if (s && shim_code_test(s) < 0) {
		cubin_stub_close(s);
		s = NULL;
	}
	pthread_once(&once, shim_code_read_waiting);
	shim_capture_restore(before);
	return s;
}

/* Returns the slot of the architecture, a free one, or NULL. Caller holds stubs_mutex. */
static struct slot *slot_of(unsigned arch)
{
	for (unsigned i = 0; i < MAX_ARCHITECTURES; i++) {
		if (!stubs[i].arch || stubs[i].arch == arch) {
			return &stubs[i];
		}
	}
	return NULL;
}

const struct cubin_stub *shim_code_stub(unsigned arch)
{
	struct cubin_stub *made = NULL;
	struct slot *s;

	pthread_mutex_lock(&stubs_mutex);
	s = slot_of(arch);
	if (s && !s->arch) {
		s->arch = arch;
		pthread_mutex_unlock(&stubs_mutex);
		made = make(arch);
		pthread_mutex_lock(&stubs_mutex);
		s->stub = made;
		s->ready = true;
		pthread_cond_broadcast(&stubs_changed);
	}
	while (s && !s->ready) {
		pthread_cond_wait(&stubs_changed, &stubs_mutex);
	}
	made = s ? s->stub : NULL;
	pthread_mutex_unlock(&stubs_mutex);
	return made;
}
