/* Test rig of the soft GPU: implementation. */
#include "rig.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"

#include "../eventually.h"

char rig_dir[64];
pid_t rig_server;
static CUmodule module;

const char rig_ptx[] =
	".version 6.0\n"
	".target sm_70\n"
	".address_size 64\n"
	".visible .global .align 4 .u32 counter;\n"
	".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>;\n	.reg .b32 %r<9>;\n	.reg .b64 %rd<11>;\n"
	"	ld.param.u64 %rd1, [a];\n	ld.param.u64 %rd2, [b];\n	ld.param.u64 %rd3, "
	"[c];\n"
	"	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x;\n	mov.u32 %r3, %ntid.x;\n	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.s32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p1, %r5, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	mul.wide.u32 %rd4, %r5, 4;\n"
	"	add.s64 %rd5, %rd1, %rd4;\n	add.s64 %rd6, %rd2, %rd4;\n	add.s64 %rd7, "
	"%rd3, %rd4;\n"
	"	ld.global.u32 %r6, [%rd5];\n	ld.global.u32 %r7, [%rd6];\n"
	"	add.s32 %r8, %r6, %r7;\n"
	"	st.global.u32 [%rd7], %r8;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n"
	".visible .entry empty()\n{\n	ret;\n}\n"
	".visible .entry spin(.param .u64 out, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>;\n	.reg .b32 %r<6>;\n	.reg .b64 %rd<4>;\n"
	"	ld.param.u64 %rd1, [out];\n	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, 0;\n"
	"LOOP:\n"
	"	setp.ge.u32 %p1, %r2, %r1;\n"
	"	@%p1 bra END;\n"
	"	add.s32 %r2, %r2, 1;\n"
	"	bra LOOP;\n"
	"END:\n"
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mul.wide.u32 %rd2, %r3, 4;\n	add.s64 %rd3, %rd1, %rd2;\n"
	"	st.global.u32 [%rd3], %r2;\n"
	"	ret;\n"
	"}\n"
	".visible .entry wild()\n"
	"{\n"
	"	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n"
	"	mov.u64 %rd1, 16;\n	mov.u32 %r1, 1;\n"
	"	st.global.u32 [%rd1], %r1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry odd(.param .u64 p)\n"
	"{\n"
	"	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [p];\n	mov.u32 %r1, 1;\n"
	"	st.global.u32 [%rd1+2], %r1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry until(.param .u64 flag)\n"
	"{\n"
	"	.reg .pred %p<2>;\n	.reg .b32 %r<2>;\n	.reg .b64 %rd<2>;\n"
	"	ld.param.u64 %rd1, [flag];\n"
	"AGAIN:\n"
	"	ld.volatile.global.u32 %r1, [%rd1];\n"
	"	setp.eq.u32 %p1, %r1, 0;\n"
	"	@%p1 bra AGAIN;\n"
	"	ret;\n"
	"}\n"
	".visible .entry stamp(.param .u64 counter, .param .u64 out)\n"
	"{\n"
	"	.reg .b32 %r<3>;\n	.reg .b64 %rd<3>;\n"
	"	ld.param.u64 %rd1, [counter];\n	ld.param.u64 %rd2, [out];\n"
	"	atom.global.add.u32 %r1, [%rd1], 1;\n"
	"	st.global.u32 [%rd2], %r1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry copy_first(.param .u64 to, .param .u64 from)\n"
	"{\n"
	"	.reg .b32 %r<2>;\n	.reg .b64 %rd<3>;\n"
	"	ld.param.u64 %rd1, [to];\n	ld.param.u64 %rd2, [from];\n"
	"	ld.global.u32 %r1, [%rd2];\n	st.global.u32 [%rd1], %r1;\n"
	"	ret;\n"
	"}\n"
	".visible .entry tick(.param .u64 counter, .param .u64 stop)\n"
	"{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<4>;\n	.reg .b64 %rd<3>;\n"
	"	ld.param.u64 %rd1, [counter];\n	ld.param.u64 %rd2, [stop];\n"
	"AGAIN:\n"
	"	mov.u32 %r1, 0;\n"
	"INNER:\n"
	"	add.s32 %r1, %r1, 1;\n"
	"	setp.lt.u32 %p1, %r1, 100;\n"
	"	@%p1 bra INNER;\n"
	"	mov.u32 %r3, 1;\n"
	"	red.global.add.u32 [%rd1], %r3;\n"
	"	ld.volatile.global.u32 %r2, [%rd2];\n"
	"	setp.eq.u32 %p2, %r2, 0;\n"
	"	@%p2 bra AGAIN;\n"
	"	ret;\n"
	"}\n";

void rig_open(void)
{
	struct rlimit files;

	if (!getenv("SOFTGPU")) {
		fail_msg("SOFTGPU must name the server's program (meson test sets it)");
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) { /* some tests open a thousand connections */
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	snprintf(rig_dir, sizeof(rig_dir), "/tmp/gbpf-soft-XXXXXX");
	assert_non_null(mkdtemp(rig_dir));
	setenv("GBPF_RUNTIME_DIR", rig_dir, 1);
	setenv("GBPF_SOFTGPU", getenv("SOFTGPU"), 1);
	unsetenv("GBPF_SOFTGPU_SOCKET");
	unsetenv("CUDA_VISIBLE_DEVICES");
}

void rig_close(void)
{
	static const char *const names[] = { "softgpu.sock", "softgpu.sock.lock",
					     "softgpu.sock.start", "softgpu.log" };
	char path[96];

	if (!rig_dir[0]) { /* rig_open failed */
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", rig_dir, names[i]);
		unlink(path);
	}
	rmdir(rig_dir);
}

void rig_start(const char *const *args)
{
	const char *argv[24] = { getenv("SOFTGPU"), "--ready-fd", "9" };
	int n = 3, ready[2];
	char byte;

	while (args && *args) {
		argv[n++] = *args++;
	}
	assert_int_equal(pipe(ready), 0);
	rig_server = fork();
	assert_true(rig_server >= 0);
	if (rig_server == 0) {
		int null = open("/dev/null", O_RDWR);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(ready[1], 9);
		dup2(getenv("SOFT_TEST_LOG")
			     ? open(getenv("SOFT_TEST_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600)
			     : null,
		     2); /* the tests provoke faults */
		close(ready[0]);
		if (ready[1] != 9) {
			close(ready[1]);
		}
		execv(argv[0], (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

void rig_stop(int sig)
{
	if (rig_server <= 0) { /* none was started; kill(0) would signal this process group */
		return;
	}
	kill(rig_server, sig);
	waitpid(rig_server, NULL, 0);
	rig_server = 0;
}

void rig_restart(const char *const *args)
{
	rig_stop(SIGTERM);
	rig_start(args);
}

int rig_begin_small(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *const[]){ "--mem", "256M", "--sms", "2", "--workers", "2", NULL });
	return 0;
}

int rig_begin_tight(void **state)
{
	(void)state;
	rig_open();
	rig_start((const char *const[]){ "--mem", "64M", NULL });
	return 0;
}

int rig_end(void **state)
{
	(void)state;
	rig_stop(SIGTERM);
	rig_close();
	return 0;
}

pid_t rig_spawn(void (*fn)(void *), void *arg)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(200);		  /* a hang fails the test */
		signal(SIGSEGV, SIG_DFL); /* cmocka's handler would continue with the next test in
					     this child */
		signal(SIGBUS, SIG_DFL);
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	return pid;
}

int rig_wait(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int rig_run(void (*fn)(void *), void *arg)
{
	return rig_wait(rig_spawn(fn, arg));
}

int rig_connect(void)
{
	char path[96];
	int sock;

	snprintf(path, sizeof(path), "%s/softgpu.sock", rig_dir);
	sock = unix_connect(path, SOCK_SEQPACKET);
	assert_true(sock >= 0);
	return sock;
}

struct soft_stats rig_stats(void)
{
	struct soft_request q = { .op = SOFT_REQ_STATS };
	static struct soft_reply r;
	int fds[FD_PASS_MAX], sock;
	unsigned nfds;

	sock = rig_connect();
	assert_int_equal(msg_send(sock, &q, SOFT_REQUEST_MIN + 1, NULL, 0), 0);
	assert_true(msg_recv(sock, &r, sizeof(r), fds, &nfds) >= (ssize_t)SOFT_REPLY_MIN);
	close(sock);
	return r.stats;
}

struct soft_stats rig_stats_idle(void)
{
	struct soft_stats s;

	eventually((s = rig_stats(), s.clients <= 1 && s.contexts == 0));
	return s;
}

struct soft_stats rig_stats_unshared(void)
{
	struct soft_stats s;

	eventually((s = rig_stats_idle(), s.shares == 0 && s.memory_used == 0));
	return s;
}

void rig_check_descriptors(const struct soft_stats *before)
{
	eventually(rig_stats().descriptors <= before->descriptors);
}

void rig_check(bool ok, const char *what, const char *file, int line, long value)
{
	if (!ok) {
		fprintf(stderr, "%s:%d: not true: %s (%ld)\n", file, line, what, value);
		_exit(1);
	}
}

void rig_check_cu(CUresult r, CUresult expected, const char *what, const char *file, int line)
{
	if (r != expected) {
		fprintf(stderr, "%s:%d: %s gave %d instead of %d\n", file, line, what, r, expected);
		_exit(1);
	}
}

CUcontext rig_context(void)
{
	CUcontext ctx;

	CU(cuInit(0));
	CU(cuCtxCreate_v2(&ctx, 0, 0));
	CU(cuModuleLoadData(&module, rig_ptx));
	return ctx;
}

const struct cuabi_soft_table *rig_table(void)
{
	static const CUuuid id = CUABI_SOFT_UUID;
	const struct cuabi_soft_table *t;

	CU(cuGetExportTable((const void **)(uintptr_t)&t, &id));
	return t;
}

CUfunction rig_function(const char *name)
{
	CUfunction f;

	CU(cuModuleGetFunction(&f, module, name));
	return f;
}

void rig_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, void **params)
{
	CU(cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, s, params, NULL));
}

volatile uint32_t *rig_words(void)
{
	void *p;

	CU(cuMemAllocHost_v2(&p, 4096));
	memset(p, 0, 4096);
	return p;
}

void rig_tick(volatile uint32_t *w, unsigned blocks, CUstream s)
{
	CUdeviceptr counter = (CUdeviceptr)(uintptr_t)w, stop = counter + 64;
	CUmodule m;
	CUfunction f;

	CU(cuModuleLoadData(&m, rig_ptx));
	CU(cuModuleGetFunction(&f, m, "tick"));
	rig_launch(f, blocks, 32, s, (void *[]){ &counter, &stop });
}
