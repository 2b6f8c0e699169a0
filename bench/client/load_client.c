/* bench-client ROLE --page FD ...: one client of a bench; see load_client.h. */
#include "bench/client/load_client.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/fd.h"

#define MAX_IMAGE (1u << 20)

struct bench_client_calls cuda;
static pid_t parent;
static struct bench_client me = { .threads = 256,
				  .grid = 132,
				  .streams = 1,
				  .depth = 2,
				  .kernels = 40,
				  .iterations = 1000,
				  .libcuda = "libcuda.so.1" };

void bench_client_fail(const char *fmt, ...)
{
	char text[PAGE_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(stderr, "bench-client: %s\n", text);
	if (me.page) {
		memcpy(me.page->error, text, sizeof(text));
		store_release(&me.page->state, (uint32_t)PAGE_FAILED);
	}
	_exit(1);
}

void bench_client_check(CUresult r, const char *call)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS) {
		return;
	}
	cuda.cuGetErrorName(r, &name);
	bench_client_fail("%.120s: %s", call, name ? name : "unknown error");
}

static void find(void *lib, const char *name, void *slot)
{
	void *p = dlsym(lib, name);

	if (!p) {
		bench_client_fail("the driver library lacks %s", name);
	}
	memcpy(slot, &p, sizeof(p));
}

static unsigned attribute(struct bench_client *c, CUdevice_attribute what)
{
	int v = 0;

	CU(cuDeviceGetAttribute(&v, what, c->device));
	return v > 0 ? (unsigned)v : 0;
}

/* Reads the file of machine code. Returns its contents; the caller frees them. */
static void *read_image(const char *path)
{
	FILE *f = fopen(path, "rbe");
	char *to = f ? malloc(MAX_IMAGE) : NULL;
	size_t bytes = to ? fread(to, 1, MAX_IMAGE, f) : 0;

	if (!bytes || bytes == MAX_IMAGE) {
		bench_client_fail("%.150s: no image of at most %u bytes", path, MAX_IMAGE - 1);
	}
	fclose(f);
	return to;
}

static void load_kernels(struct bench_client *c)
{
	void *image = c->image && strcmp(c->role, "compile") != 0 ? read_image(c->image) : NULL;

	CU(cuModuleLoadData(&c->module, image ? image : ptx_bench_kernels));
	free(image);
}

void bench_client_open(struct bench_client *c)
{
	void *lib = dlopen(c->libcuda, RTLD_NOW | RTLD_GLOBAL);
	int v = 0;

	if (!lib) {
		bench_client_fail("%s", dlerror());
	}
#define CLIENT_CALL(name) find(lib, #name, &cuda.name);
	CLIENT_CALLS(CLIENT_CALL)
#undef CLIENT_CALL
	bench_client_learn(c, lib);
	CU(cuInit(0));
	CU(cuDeviceGet(&c->device, 0));
	CU(cuDeviceGetName(c->page->device, sizeof(c->page->device), c->device));
	CU(cuDevicePrimaryCtxRetain(&c->ctx, c->device));
	CU(cuCtxSetCurrent(c->ctx));
	c->page->sms = attribute(c, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
	c->page->threads_per_sm = attribute(c, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
	/* older drivers do not know this attribute */
	c->page->mps = cuda.cuDeviceGetAttribute(&v, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, c->device) ==
			       CUDA_SUCCESS &&
		       v > 0;
	load_kernels(c);
	CU(cuModuleGetFunction(&c->block, c->module, "bench_block"));
	CU(cuModuleGetFunction(&c->timed, c->module, "bench_timed"));
	CU(cuModuleGetFunction(&c->stamp, c->module, "bench_stamp"));
	c->lib = lib;
}

CUstream bench_client_stream(struct bench_client *c)
{
	int least = 0, greatest = 0;
	CUstream s = NULL;

	if (c->default_stream) {
		return NULL;
	}
	if (c->priority != PRIORITY_NONE) {
		CU(cuCtxGetStreamPriorityRange(&least, &greatest));
	}
	CU(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING,
				      c->priority == PRIORITY_HIGH  ? greatest
				      : c->priority == PRIORITY_LOW ? least
								    : 0));
	return s;
}

void bench_client_ready(struct bench_client *c)
{
	bench_client_slice(c, c->lib); /* new streams may have channels of their own */
	store_release(&c->page->state, (uint32_t)PAGE_READY);
	futex_wake_shared(&c->page->done, 1 << 30);
}

bool bench_client_has_next(struct bench_client *c)
{
	return load_acquire(&c->page->command) != c->told;
}

enum bench_page_op bench_client_next(struct bench_client *c)
{
	while (!bench_client_has_next(c)) {
		futex_wait_shared(&c->page->command, c->told, 500000000);
		if (getppid() != parent) {
			return PAGE_EXIT;
		}
	}
	c->told = load_acquire(&c->page->command);
	return c->page->op;
}

void bench_client_answer(struct bench_client *c)
{
	store_release(&c->page->done, c->told);
	futex_wake_shared(&c->page->done, 1 << 30);
}

static void map_page(struct bench_client *c, int fd)
{
	void *p = mmap(NULL, sizeof(struct bench_page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED || ((struct bench_page *)p)->magic != PAGE_MAGIC) {
		bench_client_fail("invalid --page %d: not a page of a bench", fd);
	}
	c->page = p;
	close(fd);
}

static double number(const char *name, const char *text)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || *end || !(v >= 0 && v <= 1e9)) {
		bench_client_fail("invalid %s '%s': expected a number from 0 to 1e9", name, text);
	}
	return v;
}

static bool parse_number(struct bench_client *c, const char *name, const char *text)
{
	const struct {
		const char *name;
		unsigned *at;
	} table[] = {
		{ "--grid", &c->grid },		{ "--threads", &c->threads },
		{ "--streams", &c->streams },	{ "--depth", &c->depth },
		{ "--kernels", &c->kernels },	{ "--slice-us", &c->slice_us },
		{ "--hint-us", &c->hint_us },	{ "--trace", &c->trace },
		{ "--at-once", &c->at_once },	{ "--ballast-mb", &c->ballast_mb },
		{ "--think-us", &c->think_us }, { "--moving-mb", &c->moving_mb },
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].name, name) == 0) {
			*table[i].at = (unsigned)number(name, text);
			return true;
		}
	}
	return false;
}

static bool parse_one(struct bench_client *c, const char *name, const char *text)
{
	if (parse_number(c, name, text)) {
		return true;
	}
	if (strcmp(name, "--page") == 0) {
		map_page(c, (int)number(name, text));
	} else if (strcmp(name, "--libcuda") == 0) {
		c->libcuda = text;
	} else if (strcmp(name, "--image") == 0) {
		c->image = text;
	} else if (strcmp(name, "--iterations") == 0) {
		c->iterations = (int)number(name, text);
	} else if (strcmp(name, "--lc-us") == 0) {
		c->block_us[0] = number(name, text);
	} else if (strcmp(name, "--block-us") == 0) {
		c->block_us[1] = number(name, text);
	} else if (strcmp(name, "--rate") == 0) {
		c->rate = number(name, text);
	} else if (strcmp(name, "--load") == 0) {
		c->load = text;
	} else if (strcmp(name, "--priority") == 0) {
		c->priority = strcmp(text, "high") == 0	 ? PRIORITY_HIGH
			      : strcmp(text, "low") == 0 ? PRIORITY_LOW
							 : PRIORITY_NONE;
	} else {
		return false;
	}
	return true;
}

static void parse(struct bench_client *c, int argc, char **argv)
{
	c->role = argc > 1 ? argv[1] : "";
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--default-stream") == 0) {
			c->default_stream = true;
		} else if (strcmp(argv[i], "--burst") == 0) {
			c->burst = true;
		} else if (strcmp(argv[i], "--stamps") == 0) {
			c->stamps = true;
		} else if (i + 1 < argc && parse_one(c, argv[i], argv[i + 1])) {
			i++;
		} else {
			bench_client_fail("unknown option %s", argv[i]);
		}
	}
	if (!c->image && strcmp(c->role, "compile") == 0) {
		bench_client_fail("compile needs --image");
	}
	if (!c->page || c->threads < 1 || c->threads > 1024 || c->grid < 1 || c->streams < 1 ||
	    c->depth < 1 || c->iterations < 1 || c->kernels < 1) {
		bench_client_fail("invalid combination of options");
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(struct bench_client *c);
	} roles[] = {
		{ "calibrate", bench_client_calibrate }, { "latency", bench_client_latency },
		{ "batch", bench_client_batch },	 { "model", bench_client_model },
		{ "tenant", bench_client_tenant },	 { "steady", bench_client_steady },
		{ "compile", bench_client_compile },	 { "share", bench_client_share },
	};

	parent = getppid();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* ignore the terminal's: the coordinator ends this process */
	parse(&me, argc, argv);
	me.page->pid = (uint32_t)getpid();
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++) {
		if (strcmp(roles[i].name, me.role) == 0) {
			bench_client_open(&me);
			roles[i].run(&me);
			return 0;
		}
	}
	bench_client_fail("unknown role %s", me.role);
}
