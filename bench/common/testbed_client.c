/* The coordinator's side of a bench-client: start it in its place, send commands, wait. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/shm.h"
#include "bench/common/testbed.h"

#define COMPILE_NS 90000000000ull

/* Prefixes the client's own command with the environment, and `gbpf run`. */
void bench_testbed_put_in_place(struct bench_testbed *w, struct bench_testbed_command *k,
				const struct bench_testbed_place *p, const char *name)
{
	const char *path = getenv("LD_LIBRARY_PATH"), *visible = getenv("CUDA_VISIBLE_DEVICES");

	if (p->lane == LANE_MPS) {
		bench_command_env(k, "CUDA_MPS_PIPE_DIRECTORY=%s", w->mps_dir);
		if (p->mps_priority >= 0) {
			bench_command_env(k, "CUDA_MPS_CLIENT_PRIORITY=%d", p->mps_priority);
		}
	}
	if (p->lane == LANE_OWN || p->lane == LANE_MPS) {
		if (w->soft) { /* lets programs find libcuda that do not name its path */
			bench_command_env(k, "LD_LIBRARY_PATH=%.*s%s%s",
					  (int)(strrchr(w->libcuda, '/') - w->libcuda), w->libcuda,
					  path && path[0] ? ":" : "", path ? path : "");
		}
		return;
	}
	bench_command_env(k, "GBPF_RUNTIME_DIR=%s", p->daemon->dir);
	bench_command_env(k, "GBPF_STATE_DIR=%s/state", p->daemon->dir);
	bench_command_add(k, "%s", w->gbpf);
	bench_command_add(k, "run");
	bench_command_option(k, "--device", w->soft ? "soft" : "nvidia");
	bench_command_option(k, "--class", "%s", p->class_name);
	bench_command_option(k, "--name", "%s", name);
	if (p->mem) {
		bench_command_option(k, "--mem", "%" PRIu64, p->mem);
	}
	if (p->swap || p->vgpu) { /* a process that sees more than one device has no swap */
		visible = visible && visible[0] ? visible : "0";
		bench_command_env(k, "CUDA_VISIBLE_DEVICES=%.*s", (int)strcspn(visible, ","),
				  visible);
	}
	if (p->swap) {
		bench_command_option(k, "--swap", "%" PRIu64, p->swap);
	}
	if (p->vgpu) {
		bench_command_option(k, "--vgpu", "%s", p->vgpu);
	}
	if (p->compute) {
		bench_command_option(k, "--compute", "%u", p->compute);
	}
	if (p->copy) {
		bench_command_option(k, "--copy", "%u", p->copy);
	}
	if (p->burst) {
		bench_command_option(k, "--burst", "on");
	}
	if (p->lane != LANE_GBPF_AUTO) {
		bench_command_option(k, "--lane",
				     p->lane == LANE_GBPF_SHARED ? "shared" : "process");
	}
	bench_command_add(k, "--");
}

static int make_page(struct bench_testbed_client *c)
{
	int fd = shm_create("bench-page", sizeof(struct bench_page), SHM_NOEXEC);

	c->page = fd < 0 ? NULL : shm_map(fd, sizeof(struct bench_page), 1);
	if (!c->page) {
		fd_close(fd);
		return bench_testbed_fail(c->w, "%s: out of memory for its page", c->name);
	}
	c->page->magic = PAGE_MAGIC;
	return fd;
}

int bench_client_start(struct bench_testbed *w, struct bench_testbed_client *c, const char *name,
		       const struct bench_testbed_place *where, const char *role,
		       const struct bench_testbed_command *k)
{
	struct bench_testbed_command all;
	int fd;

	*c = (struct bench_testbed_client){ .w = w };
	snprintf(c->name, sizeof(c->name), "%s", name);
	snprintf(c->log, sizeof(c->log), "%s/%s.log", w->dir, name);
	fd = make_page(c);
	if (fd < 0) {
		return -1;
	}
	bench_command_init(&all);
	bench_testbed_put_in_place(w, &all, where, name);
	bench_command_add(&all, "%s", w->client);
	bench_command_add(&all, "%s", role);
	bench_command_option(&all, "--page", "%d", fd);
	if (where->lane == LANE_OWN || where->lane == LANE_MPS) {
		bench_command_option(&all, "--libcuda", "%s", w->libcuda);
	}
	for (unsigned i = 0; i < k->n; i++) {
		bench_command_add(&all, "%s", k->argv[i]);
	}
	for (unsigned i = 0; i < k->n_env; i++) {
		bench_command_env(&all, "%s", k->env[i]);
	}
	c->pid = bench_testbed_spawn(w, &all, c->log, fd, NULL);
	bench_command_finish(&all);
	fd_close(fd);
	c->pid = c->pid > 0 ? c->pid : 0;
	return c->pid ? 0 : -1;
}

static int failed(struct bench_testbed_client *c, const char *why)
{
	char line[200] = "", text[200];
	FILE *f = fopen(c->log, "re");

	/* its last line of output */
	while (f && fgets(text, sizeof(text), f)) {
		if (text[0] != '\n') {
			memcpy(line, text, sizeof(line));
		}
	}
	if (f) {
		fclose(f);
	}
	line[strcspn(line, "\n")] = 0;
	return bench_testbed_fail(c->w, "%s: %s%s%s", c->name, why, line[0] ? ": " : "", line);
}

int bench_client_await(struct bench_testbed_client *c, uint64_t timeout_ns)
{
	uint64_t deadline = clock_now_ns() + timeout_ns;

	for (;;) {
		uint32_t done = load_acquire(&c->page->done);
		uint32_t state = load_acquire(&c->page->state);

		if (state == PAGE_FAILED) {
			return bench_testbed_fail(c->w, "%s: %.*s", c->name, PAGE_TEXT - 1,
						  c->page->error);
		}
		if (state == PAGE_READY && done == c->commands) {
			return 0;
		}
		if (!bench_testbed_lives(c->w, c->pid)) {
			return failed(c, "exited");
		}
		if (bench_testbed_interrupted()) {
			return bench_testbed_fail(c->w, "interrupted");
		}
		if (clock_now_ns() > deadline) {
			return failed(c, state == PAGE_READY ? "no answer in time"
							     : "not ready in time");
		}
		futex_wait_shared(&c->page->done, done, 20000000);
	}
}

void bench_client_send(struct bench_testbed_client *c, enum bench_page_op op)
{
	c->page->op = op;
	store_release(&c->page->command, ++c->commands);
	futex_wake_shared(&c->page->command, 1 << 30);
}

void bench_client_stop(struct bench_testbed_client *c)
{
	if (c->pid > 0) {
		/* after an interruption it may be measuring and not look at commands */
		uint64_t grace_ns = bench_testbed_interrupted() ? 200000000u : 2000000000u;
		uint64_t deadline = clock_now_ns() + grace_ns;

		bench_client_send(c, PAGE_EXIT);
		while (bench_testbed_lives(c->w, c->pid) && clock_now_ns() < deadline) {
			clock_sleep_ns(1000000);
		}
		bench_testbed_end(c->w, c->pid, 0);
	}
	if (c->page) {
		shm_unmap(c->page, sizeof(struct bench_page));
	}
	*c = (struct bench_testbed_client){ 0 };
}

int bench_client_calibrate(struct bench_testbed *w, struct bench_testbed_client *c,
			   unsigned threads, double block_us, uint64_t timeout_ns)
{
	const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };
	struct bench_testbed_command k;
	int err;

	bench_command_init(&k);
	bench_command_option(&k, "--threads", "%u", threads);
	bench_command_option(&k, "--lc-us", "%g", block_us);
	bench_command_option(&k, "--block-us", "%g", block_us);
	if (w->soft) {
		bench_command_option(&k, "--at-once", "1");
	}
	err = bench_client_start(w, c, "calibrate", &own, "calibrate", &k);
	bench_command_finish(&k);
	return err ? err : bench_client_await(c, timeout_ns);
}

int bench_client_compile(struct bench_testbed *w, char image[TESTBED_IMAGE])
{
	const struct bench_testbed_place own = { .lane = LANE_OWN, .mps_priority = -1 };
	struct bench_testbed_command k;
	struct bench_testbed_client c;
	int err;

	snprintf(image, TESTBED_IMAGE, "%s/kernels.cubin", w->dir);
	bench_command_init(&k);
	bench_command_option(&k, "--image", "%s", image);
	err = bench_client_start(w, &c, "compile", &own, "compile", &k);
	bench_command_finish(&k);
	err = err ? err : bench_client_await(&c, COMPILE_NS);
	bench_client_stop(&c);
	return err;
}

void bench_testbed_cpu(pid_t pid, double *ret_first, double *ret_others)
{
	char path[96];
	struct dirent *e;
	DIR *d;

	*ret_first = *ret_others = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		unsigned long long ns = 0;
		FILE *f;

		if (e->d_name[0] == '.') {
			continue;
		}
		snprintf(path, sizeof(path), "/proc/%d/task/%.16s/schedstat", (int)pid, e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%llu", &ns) == 1) {
			*(strtol(e->d_name, NULL, 10) == pid ? ret_first : ret_others) +=
				(double)ns;
		}
		if (f) {
			fclose(f);
		}
	}
	if (d) {
		closedir(d);
	}
}
