/* Replaces ptxas where a framework compiles PTX to machine code itself: the real ptxas gets the
 * text with clones in it, and with the list of its entries (block_mark.h), by which the shim
 * recognizes the machine code when it is loaded, and with the program's own text (stored.h), of
 * which the shim can make probed forms of its kernels. If any of this fails, the real ptxas gets
 * the program's own command line, and its output and exit status are returned. */
#include "ptxas/ptxas.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/strmap.h"
#include "ptx/block_image.h"
#include "ptx/module.h"
#include "ptx/prepare.h"
#include "ptx/stored.h"

#define INSIDE                                                                                     \
	"GBPF_PTXAS_INSIDE" /* set for the real one: finding ourselves again would not end         \
			     */
#define OUTPUT_MAX ((size_t)64 << 20)
#define EXIT_NOT_FOUND 127

static void NORETURN become(const char *real, char **argv)
{
	argv[0] = (char *)(uintptr_t)real;
	execv(real, argv);
	fprintf(stderr, "gbpf: ptxas: %s cannot be executed: %s\n", real, strerror(errno));
	_exit(EXIT_NOT_FOUND);
}

/* Runs the real one with its output going to these files (-1: inherited). Returns its exit status;
 * -1: it did not run. */
static int run(const char *real, char **argv, int out, int err)
{
	pid_t child = fork();
	int status = 0;

	if (child < 0) {
		return -1;
	}
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if ((out >= 0 && dup2(out, STDOUT_FILENO) < 0) ||
		    (err >= 0 && dup2(err, STDERR_FILENO) < 0)) {
			_exit(EXIT_NOT_FOUND);
		}
		become(real, argv);
	}
	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR) {
			return -1;
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* gbpf run --probes. */
static bool prepares(void)
{
	const char *v = getenv("GBPF_PROBES");

	return v && strcmp(v, "1") == 0;
}

/* Changes the version's text: frameworks key their cache of compiled code by it, and code with
 * clones, and code that is prepared for probes, differs. */
static int say_version(const char *real, char **argv)
{
	int status = run(real, argv, -1, -1);

	if (status < 0) {
		become(real, argv);
	}
	if (status == 0) {
		printf("gBPF twins of form %u with PTX%s\n", PTX_BLOCK_ABI,
		       prepares() ? ", prepared" : "");
	}
	return fflush(stdout) ? 1 : status;
}

/* Returns the descriptor, moved above 2: standard streams may be closed, and run() replaces them.
 */
static int above_streams(int fd)
{
	int above = fd;

	if (fd >= 0 && fd <= STDERR_FILENO) {
		above = fcntl(fd, F_DUPFD, STDERR_FILENO + 1);
		fd_close(fd);
	}
	return above;
}

/* Returns an anonymous file with the text; -1: error. */
static int file_of(const struct buf *text)
{
	int fd = above_streams(memfd_create("gbpf-ptxas", 0)); /* the real one inherits it */
	size_t done = 0;

	while (fd >= 0 && text && done < text->len) {
		ssize_t n = write(fd, text->data + done, text->len - done);

		if (n <= 0) {
			return fd_close(fd);
		}
		done += (size_t)n;
	}
	return fd;
}

/* Appends the program's text with clones, or as it is, and a copy of it to be stored. */
static int add_text(const struct ptx_block_image *i, const struct buf *own, bool clones,
		    struct buf *text)
{
	int err;

	if (i->why != PROTO_BLOCK_OK || memchr(own->data, 0, own->len)) {
		return -EINVAL; /* no PTX, or PTX that cannot be read */
	}
	err = clones ? ptx_block_image_marked(i, text) : buf_add(text, own->data, own->len);
	if (!err) {
		err = ptx_stored_print(text, own->data, own->len);
		err = err == -EFBIG && clones ? 0 : err;
	}
	return err;
}

/* Prepares the text for probes that are attached later (ptx/prepare.h), as the shim does with
 * modules that it loads as PTX. The machine code and the stored text are then of one module, so
 * what a slice names is found in what runs. A text that cannot be read is left as it is. */
static int prepare(struct buf *own)
{
	struct ptx_module *m = NULL;
	struct report r;
	int err;

	report_init(&r);
	err = ptx_module_parse(&m, own->data, own->len, "input", &r);
	report_finish(&r);
	if (err) {
		return err == -ENOMEM ? err : 0;
	}
	err = ptx_prepare(m, hash_bytes(own->data, own->len));
	if (err > 0) {
		buf_clear(own);
		err = ptx_module_print(m, own);
	}
	ptx_module_free(m);
	return err;
}

/* Reads the program's input and adds clones, if these are wanted, and the text itself. Returns 0,
 * or -errno: nothing to rewrite. */
static int rewrite(const char *path, unsigned arch, bool clones, bool prepared, struct buf *text)
{
	const struct ptx_block_image *i = NULL;
	struct stat st;
	struct buf own;
	int err;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) {
		return -EINVAL; /* not a regular file: the real one must read it */
	}
	buf_init(&own);
	err = buf_read_file(&own, path, PTX_BLOCK_IMAGE_MAX);
	err = err || !prepared || !own.len || memchr(own.data, 0, own.len) ? err : prepare(&own);
	err = err	? err
	      : own.len ? ptx_block_image_open(&i, own.data, own.len,
					       (struct ptx_device){ .arch = arch }, path)
			: -EINVAL;
	err = err ? err : add_text(i, &own, clones, text);
	ptx_block_image_close(i);
	buf_finish(&own);
	return err;
}

/* Returns true if the messages report spills: a clone that needs too many registers costs more than
 * it gains, and the program may take the warning for one about its own kernel. */
static bool spills(const char *messages)
{
	for (const char *p = messages; (p = strstr(p, "spilled")) != NULL; p++) {
		const char *clone = strstr(p, PTX_BLOCK_SUFFIX), *end = strchr(p, '\n');

		if (clone && (!end || clone < end)) {
			return true;
		}
	}
	return false;
}

/* Writes the real one's messages with the input's own name in them. */
static void forward(const char *text, FILE *to, const char *given, const char *own)
{
	const char *at;

	while ((at = strstr(text, given)) != NULL) {
		fwrite(text, 1, (size_t)(at - text), to);
		fputs(own, to);
		text = at + strlen(given);
	}
	fputs(text, to);
}

/* Returns false also if this is not text: machine code may go there (-o /dev/stdout). */
static bool read_back(int fd, struct buf *b)
{
	return lseek(fd, 0, SEEK_SET) == 0 && buf_read_fd(b, fd, OUTPUT_MAX) == 0 &&
	       strlen(buf_text(b)) == b->len;
}

/* Returns true if the text was compiled and all messages are written. */
static bool compile(const char *real, char **argv, int input, const struct buf *text)
{
	int in = file_of(text), fd[2] = { file_of(NULL), file_of(NULL) };
	char *own = argv[input], given[32];
	struct buf said[2] = { { 0 }, { 0 } };
	bool done;

	snprintf(given, sizeof(given), "/proc/self/fd/%d", in);
	argv[input] = given;
	done = in >= 0 && fd[0] >= 0 && fd[1] >= 0 && run(real, argv, fd[0], fd[1]) == 0 &&
	       read_back(fd[0], &said[0]) && read_back(fd[1], &said[1]) &&
	       !spills(buf_text(&said[0])) && !spills(buf_text(&said[1]));
	argv[input] = own;
	if (done) {
		forward(buf_text(&said[0]), stdout, given, own);
		forward(buf_text(&said[1]), stderr, given, own);
		fflush(stdout);
	}
	for (unsigned i = 0; i < 2; i++) {
		buf_finish(&said[i]);
		fd_close(fd[i]);
	}
	fd_close(in);
	return done;
}

/* Returns true if the program's text was compiled, with clones or without. */
static bool try(const char *real, char **argv, const struct ptxas_command *c, bool clones,
		bool prepared)
{
	struct buf text;
	bool done;

	buf_init(&text);
	done = rewrite(argv[c->input], c->arch, clones, prepared, &text) == 0 &&
	       compile(real, argv, c->input, &text);
	buf_finish(&text);
	return done;
}

static bool wanted(void)
{
	const char *v = getenv("GBPF_BLOCK");

	return !v || (strcmp(v, "0") != 0 && strcmp(v, "off") != 0);
}

static int not_found(void)
{
	const char *given = getenv("GBPF_PTXAS");

	if (given && given[0]) {
		fprintf(stderr, "gbpf: ptxas: GBPF_PTXAS names no other ptxas than gBPF's: %s\n",
			given);
	} else {
		fputs("gbpf: ptxas: there is no other ptxas than gBPF's here. GBPF_PTXAS can say "
		      "where one is\n",
		      stderr);
	}
	return EXIT_NOT_FOUND;
}

int main(int argc, char **argv)
{
	const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
	struct ptxas_command c = ptxas_command(argc, argv);
	char real[PTXAS_PATH];

	if (argc < 1) {
		return 2;
	}
	if (getenv(INSIDE) || !ptxas_find(real, slash ? slash + 1 : argv[0])) {
		return not_found();
	}
	signal(SIGCHLD,
	       SIG_DFL); /* if it were ignored, the exit status of the real one would be lost */
	setenv(INSIDE, "1", 1);
	if (!wanted()) {
		become(real, argv);
	}
	if (c.version) {
		return say_version(real, argv);
	}
	if (c.input && prepares() &&
	    (try(real, argv, &c, true, true) || try(real, argv, &c, false, true))) {
		return 0;
	}
	if (c.input && (try(real, argv, &c, true, false) || try(real, argv, &c, false, false))) {
		return 0;
	}
	become(real, argv);
}
