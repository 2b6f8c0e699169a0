/* Runs .ptxt files through the driver API on the GPU of libcuda.so.1, to compare the expected
 * results with hardware. A child process runs the cases in order; a case that faults or hangs ends
 * its child, and a new child continues with the next case. Usage: on_gpu [--plain] FILE...: --plain
 * turns the optimizer off. Prints one line for each case that differs from the file, with every
 * value, and totals. Exit code 1 if a case differs. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../unit/exec/ptxt.h"
#include "cuabi/api.h"

#define CASE_MS 10000
#define BUFFER_BYTES 16384
#define STACK_BYTES 8192

static bool plain; /* no optimizations, so that unused loads are kept */

enum verdict { SAME, DIFFERS, UNLIKE_FAULT, NOT_LOADED, ACCEPTED, REFUSED, DEAD, VERDICTS };
static const char *const verdicts[VERDICTS] = { "same",
						"differs",
						"other fault",
						"not loaded",
						"accepted what the soft GPU refuses",
						"refused as by the soft GPU",
						"dead" };

/* Message from a child to its parent: a case has begun (verdict VERDICTS) or ended. */
struct message {
	int index, verdict;
	char name[128];
};

struct child {
	const char *path;
	int first, index, out;
};

static CUresult quietly(CUresult r, const char *what)
{
	const char *name = "?";

	if (r != CUDA_SUCCESS) {
		cuGetErrorName(r, &name);
		printf("  %s: %s\n", what, name);
	}
	return r;
}

static CUresult wanted_fault(const char *name)
{
	return strcmp(name, "address") == 0  ? CUDA_ERROR_ILLEGAL_ADDRESS
	       : strcmp(name, "align") == 0  ? CUDA_ERROR_MISALIGNED_ADDRESS
	       : strcmp(name, "trap") == 0   ? CUDA_ERROR_LAUNCH_FAILED
	       : strcmp(name, "assert") == 0 ? CUDA_ERROR_ASSERT
	       : strcmp(name, "insn") == 0   ? CUDA_ERROR_ILLEGAL_INSTRUCTION
					     : CUDA_SUCCESS;
}

/* Prints the inputs of an element. */
static void say_inputs(const struct ptxt_case *c, uint32_t i)
{
	for (uint32_t k = 0; k < c->n_buffers; k++) {
		const struct ptxt_buffer *b = &c->buffers[k];

		if (!b->has_expect && i < b->n) {
			printf(" 0x%llx",
			       (unsigned long long)b->in[i].bits &
				       (ptxt_bytes(b->kind) == 8
						? UINT64_MAX
						: (UINT64_C(1) << 8 * ptxt_bytes(b->kind)) - 1));
		}
	}
	printf("%s\n", i % c->stride ? " (guard is false)" : "");
}

/* Compares element by element, so that every difference is printed; the comparison itself prints
 * nothing. */
static int compare(const struct ptxt_case *c, const struct ptxt_buffer *b, unsigned argument,
		   const uint8_t *data)
{
	unsigned bytes = ptxt_bytes(b->kind);
	int bad = 0;

	for (uint32_t i = 0; b->has_expect && i < b->n; i++) {
		struct ptxt_buffer one = *b;
		uint64_t have = 0;

		one.n = 1;
		one.expect = &b->expect[i];
		memcpy(&have, data + (size_t)i * bytes, bytes);
		if (ptxt_compare(c, &one, argument, data + (size_t)i * bytes)) {
			printf("  argument %u, element %u: hardware 0x%0*llx, case 0x%0*llx; "
			       "inputs",
			       argument, i / c->stride, (int)bytes * 2, (unsigned long long)have,
			       (int)bytes * 2,
			       (unsigned long long)b->expect[i].bits &
				       (bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1));
			say_inputs(c, i);
			bad++;
		}
	}
	return bad;
}

/* Stores the parameters contiguously, as the engine's runner does. */
static size_t put_params(const struct ptxt_case *c, uint8_t *block, CUdeviceptr *addresses)
{
	static uint8_t data[BUFFER_BYTES];
	size_t at = 0;

	for (uint32_t i = 0; i < c->n_buffers; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];
		unsigned bytes = ptxt_bytes(b->kind), width = b->is_param ? bytes : 8;

		for (uint32_t k = 0; k < b->n; k++) {
			memcpy(data + (size_t)k * bytes, &b->in[k].bits, bytes);
		}
		if (!b->is_param &&
		    (quietly(cuMemAlloc_v2(&addresses[i], BUFFER_BYTES), "memory") ||
		     quietly(cuMemcpyHtoD_v2(addresses[i], data, (size_t)b->n * bytes), "copy"))) {
			return 0;
		}
		at = (at + width - 1) / width * width;
		memcpy(block + at, b->is_param ? &b->in[0].bits : (const uint64_t *)&addresses[i],
		       width);
		at += width;
	}
	return at;
}

static enum verdict launch(const struct ptxt_case *c, CUfunction f)
{
	CUdeviceptr addresses[PTXT_BUFFERS] = { 0 };
	static uint8_t data[BUFFER_BYTES], block[256];
	size_t bytes = put_params(c, block, addresses);
	void *extra[] = { CU_LAUNCH_PARAM_BUFFER_POINTER, block, CU_LAUNCH_PARAM_BUFFER_SIZE,
			  &bytes, CU_LAUNCH_PARAM_END };
	CUresult r;
	int bad = 0;

	r = cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
			   c->block[2], c->shared, NULL, NULL, extra);
	r = r ? r : cuCtxSynchronize();
	if (r != wanted_fault(c->fault)) {
		printf("  wanted: %s\n", *c->fault ? c->fault : "no fault");
		quietly(r, "had");
		return UNLIKE_FAULT;
	}
	for (uint32_t i = 0; i < c->n_buffers && r == CUDA_SUCCESS; i++) {
		const struct ptxt_buffer *b = &c->buffers[i];

		if (b->is_param) {
			continue;
		}
		if (quietly(cuMemcpyDtoH_v2(data, addresses[i], (size_t)b->n * ptxt_bytes(b->kind)),
			    "copy")) {
			return DEAD;
		}
		bad += compare(c, b, i, data);
		cuMemFree_v2(addresses[i]);
	}
	return bad ? DIFFERS : SAME;
}

/* Copies the name of the first entry of the module. */
static void entry_name(const char *ptx, char *ret, size_t n)
{
	const char *at = strstr(ptx, ".entry");
	size_t length = 0;

	if (at) {
		at += strlen(".entry");
		at += strspn(at, " \t\n");
		length = strcspn(at, " \t\n({");
	}
	snprintf(ret, n, "%.*s", (int)length, at ? at : "");
}

static enum verdict run(const struct ptxt_case *c)
{
	char log[2048] = "", name[128];
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
				   CU_JIT_OPTIMIZATION_LEVEL };
	void *values[] = { log, (void *)(uintptr_t)sizeof(log),
			   (void *)(uintptr_t)(plain ? 0 : 4) };
	char *text = calloc(1, c->ptx.len + 1);
	enum verdict v;
	CUfunction f;
	CUmodule m;
	CUresult r;

	memcpy(text, c->ptx.data, c->ptx.len);
	entry_name(text, name, sizeof(name));
	r = cuModuleLoadDataEx(&m, text, 3, options, values);
	free(text);
	if (*c->refused) {
		return r == CUDA_SUCCESS ? ACCEPTED : REFUSED;
	}
	if (r != CUDA_SUCCESS || quietly(cuModuleGetFunction(&f, m, name), name)) {
		printf("  %.1500s\n", log);
		return NOT_LOADED;
	}
	v = launch(c, f);
	cuModuleUnload(m);
	return v;
}

static int tell(const struct child *t, const struct ptxt_case *c, int verdict)
{
	struct message m = { .index = t->index, .verdict = verdict };

	snprintf(m.name, sizeof(m.name), "%s", c->name);
	fflush(stdout);
	return write(t->out, &m, sizeof(m)) == sizeof(m) ? 0 : -1;
}

static int one_case(const struct ptxt_case *c, void *arg)
{
	struct child *t = arg;
	enum verdict v;

	if (t->index++ < t->first) {
		return 0;
	}
	tell(t, c, VERDICTS);
	v = run(c);
	tell(t, c, (int)v);
	if (*c->fault || v == UNLIKE_FAULT || v == DEAD) {
		_exit(0); /* the fault has destroyed the context */
	}
	return 0;
}

static void child(const char *path, int first, int out)
{
	struct child t = { .path = path, .first = first, .out = out };
	CUcontext context;
	CUdevice device;

	if (!freopen("/dev/null", "w", stderr) || cuInit(0) || cuDeviceGet(&device, 0) ||
	    cuCtxCreate_v2(&context, 0, device) ||
	    cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK_BYTES)) {
		printf("  no GPU\n");
		fflush(stdout);
		_exit(3);
	}
	_exit(ptxt_file(path, one_case, &t) < 0 ? 2 : 4);
}

struct totals {
	int n[VERDICTS];
	int next; /* number of the next case */
	bool ended, broken;
};

static void count(struct totals *t, const struct message *m)
{
	if (m->verdict == VERDICTS) {
		return;
	}
	t->n[m->verdict]++;
	t->next = m->index;
	if (m->verdict != SAME && m->verdict != REFUSED) {
		printf("%s: %s\n", m->name, verdicts[m->verdict]);
	}
}

static void from_case(const char *path, struct totals *t)
{
	struct message m, last = { .index = 0 };
	struct pollfd p;
	int fds[2], status = 0;
	bool waiting = false;
	pid_t pid;

	if (pipe(fds) < 0) {
		exit(3);
	}
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(fds[0]);
		child(path, t->next, fds[1]);
	}
	close(fds[1]);
	p = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	while (poll(&p, 1, CASE_MS) > 0 && read(fds[0], &m, sizeof(m)) == sizeof(m)) {
		waiting = m.verdict == VERDICTS;
		last = m;
		count(t, &m);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	close(fds[0]);
	if (waiting) {
		last.verdict = DEAD;
		count(t, &last);
	}
	t->ended = WIFEXITED(status) && WEXITSTATUS(status) == 4;
	t->broken = WIFEXITED(status) && (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3);
}

int main(int argc, char **argv)
{
	int bad = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	plain = argc > 1 && strcmp(argv[1], "--plain") == 0;
	for (int i = 1 + plain; i < argc; i++) {
		struct totals t = { .next = 0 };

		while (!t.ended && !t.broken) {
			int before = t.next;

			from_case(argv[i], &t);
			t.broken = t.broken || (!t.ended && t.next == before);
		}
		printf("%s:", argv[i]);
		for (int v = 0; v < VERDICTS; v++) {
			if (t.n[v]) {
				printf(" %d %s;", t.n[v], verdicts[v]);
				bad += v != SAME && v != REFUSED;
			}
		}
		puts(t.broken ? " NOT COMPLETE" : "");
		bad += t.broken;
	}
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}
