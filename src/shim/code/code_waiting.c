/* Kernels of machine code that wait for blocks of higher index, which is legal in cooperative
 * launches only: they hang when they are stopped, until their missing blocks are launched on
 * another stream. Which these are is found at run time, and remembered for later runs of programs
 * in a file of the user's state directory, a line for each: the hash of the kernel's code, and its
 * name. The file is small and may be removed at any time; processes share it by its flock. Launches
 * never come here. */
#include "shim/code/shim_code_int.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/paths.h"
#include "base/private_dir.h"
#include "base/private_file.h"

#define LEAF "waiting-kernels"
#define MAX_BYTES 65536u /* of the file: beyond it the older half is removed */
#define MAX_KNOWN 4096u	 /* more than lines fit the file */
#define MAX_UNSAVED 16u	 /* further ones are known in this process only */
#define HASH_DIGITS 16u
#define MAX_NAME 96u /* bytes of a name in the file */
#define LOCK_TRIES 100u
#define LOCK_STEP_NS 1000000u

static struct lock waiting_mutex = LOCK_INITIALIZER(CODE_WAITING);
static uint64_t known[MAX_KNOWN] GUARDED_BY(waiting_mutex);
static uint32_t n_known GUARDED_BY(waiting_mutex);
static char unsaved[MAX_UNSAVED][HASH_DIGITS + MAX_NAME + 3] GUARDED_BY(waiting_mutex); /* lines */
static uint32_t n_unsaved; /* [atomic] changed under waiting_mutex */

static bool is_known(uint64_t hash) REQUIRES(waiting_mutex)
{
	for (uint32_t i = 0; i < n_known; i++) {
		if (known[i] == hash) {
			return true;
		}
	}
	return false;
}

static void learn(uint64_t hash) REQUIRES(waiting_mutex)
{
	if (n_known < MAX_KNOWN && !is_known(hash)) {
		known[n_known++] = hash;
	}
}

bool shim_code_waits(const struct cubin_kernel *k)
{
	bool r;

	lock_take(&waiting_mutex);
	r = is_known(k->code_hash);
	lock_release(&waiting_mutex);
	return r;
}

void shim_code_note_waiting(const struct cubin_kernel *k)
{
	char *line;
	int n;

	lock_take(&waiting_mutex);
	if (k->code_hash && !is_known(k->code_hash)) {
		learn(k->code_hash);
		if (n_unsaved < MAX_UNSAVED) {
			line = unsaved[n_unsaved];
			n = snprintf(line, sizeof(unsaved[0]), "%016" PRIx64 " %.*s\n",
				     k->code_hash, (int)MAX_NAME, k->name);
			for (int i = 0; i < n - 1; i++) { /* a name may be anything */
				line[i] = line[i] > ' ' && line[i] <= '~' ? line[i]
					  : i == HASH_DIGITS		  ? ' '
									  : '?';
			}
			store_release(&n_unsaved, n_unsaved + 1);
		}
	}
	lock_release(&waiting_mutex);
}

/* ---- the file ---- */

/* Stores its path. Returns 0 or -errno. The environment of a program that runs with other rights
 * than its user's does not decide where files are. */
static int path_of_file(char *out, size_t cap)
{
	return getauxval(AT_SECURE) ? -EPERM : path_state(out, cap, LEAF);
}

/* A stopped process may hold the lock for ever. */
static int lock(int fd, int how)
{
	for (unsigned i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, how | LOCK_NB) == 0) {
			return 0;
		}
		if (errno != EWOULDBLOCK) {
			return -errno;
		}
		clock_sleep_ns(LOCK_STEP_NS);
	}
	return -EWOULDBLOCK;
}

/* Reads the lines in the last MAX_BYTES of the file. */
static int read_end(int fd, struct buf *ret)
{
	const char *first;
	struct stat st;
	off_t more;
	int err;

	if (fstat(fd, &st) < 0) {
		return -errno;
	}
	more = st.st_size > (off_t)MAX_BYTES ? st.st_size - (off_t)MAX_BYTES : 0;
	if (lseek(fd, more, SEEK_SET) < 0) {
		return -errno;
	}
	err = buf_read_fd(ret, fd, 2 * (size_t)MAX_BYTES);
	if (err || !more) {
		return err;
	}
	first = memchr(buf_text(ret), '\n', ret->len);
	buf_drop(ret, first ? (size_t)(first + 1 - buf_text(ret)) : ret->len);
	return 0;
}

/* Reads the hash of a line, which ends at `end`. Returns false if it is no line of ours. */
static bool parse(const char *line, const char *end, uint64_t *ret)
{
	uint64_t hash = 0;

	if (end - line < (ptrdiff_t)HASH_DIGITS + 2 || line[HASH_DIGITS] != ' ') {
		return false;
	}
	for (unsigned i = 0; i < HASH_DIGITS; i++) {
		char c = line[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) {
			return false;
		}
		hash = hash << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = hash;
	return hash != 0;
}

/* Learns all lines. Returns the number of damaged ones. */
static unsigned learn_all(const struct buf *b) REQUIRES(waiting_mutex)
{
	const char *at = buf_text(b), *end = at + b->len, *stop;
	unsigned damaged = 0;
	uint64_t hash;

	for (; at < end; at = stop + 1) {
		stop = memchr(at, '\n', (size_t)(end - at));
		if (stop && parse(at, stop, &hash)) {
			learn(hash);
		} else {
			damaged++;
		}
		if (!stop) {
			break;
		}
	}
	return damaged;
}

static void note(const char *path, const char *text)
{
	struct buf b;

	buf_init(&b);
	buf_printf(&b, "%s: %s", path, text);
	sched_note_once(shim.sched, "machine-code", buf_text(&b));
	buf_finish(&b);
}

static int open_file(const char *path, int flags, int how)
{
	int fd = private_file_open(path, flags), err = fd < 0 ? fd : lock(fd, how);

	if (err < 0 && fd >= 0) {
		fd_close(fd);
	}
	return err < 0 ? err : fd;
}

void shim_code_read_waiting(void)
{
	char path[4096], text[96];
	unsigned damaged = 0;
	int fd, err = path_of_file(path, sizeof(path));
	struct buf b;

	if (err < 0) {
		return;
	}
	buf_init(&b);
	fd = open_file(path, O_RDONLY, LOCK_SH);
	err = fd < 0 ? fd : read_end(fd, &b);
	if (!err) {
		lock_take(&waiting_mutex);
		damaged = learn_all(&b);
		lock_release(&waiting_mutex);
	}
	if (damaged) {
		snprintf(text, sizeof(text), "damaged lines ignored: %u; remove the file", damaged);
		note(path, text);
	} else if (err && err != -ENOENT) {
		snprintf(text, sizeof(text), "cannot read it: %.60s", strerror(-err));
		note(path, text);
	}
	if (fd >= 0) {
		fd_close(fd);
	}
	buf_finish(&b);
}

/* Appends the line to the contents unless they have it. Returns true if it did. */
static bool append(struct buf *b, const char *line)
{
	const char *half;

	if (memmem(buf_text(b), b->len, line, HASH_DIGITS + 1)) {
		return false; /* another process has saved it */
	}
	if (b->len && buf_text(b)[b->len - 1] != '\n') { /* the end of a damaged line */
		(void)buf_puts(b, "\n");
	}
	if (b->len + strlen(line) > MAX_BYTES) {
		half = memchr(buf_text(b) + b->len / 2, '\n', b->len - b->len / 2);
		buf_drop(b, half ? (size_t)(half + 1 - buf_text(b)) : b->len);
	}
	return buf_puts(b, line) == 0;
}

/* Writes the contents in place. A process that ends amid it leaves a damaged line at most. */
static int rewrite(int fd, const struct buf *b)
{
	size_t done = 0;
	ssize_t n = 1;

	while (done < b->len && n > 0) {
		n = pwrite(fd, buf_text(b) + done, b->len - done, (off_t)done);
		done += n > 0 ? (size_t)n : 0;
	}
	return n <= 0 || ftruncate(fd, (off_t)b->len) < 0 ? -errno : 0;
}

static int save(const char *path, char lines[][sizeof(unsaved[0])], uint32_t n)
{
	char dir[4096];
	bool changed = false;
	struct buf b;
	int fd, err = path_state(dir, sizeof(dir), NULL);

	err = err ? err : private_dir_make(dir, 0700, true, NULL);
	fd = err ? err : open_file(path, O_RDWR | O_CREAT, LOCK_EX);
	if (fd < 0) {
		return fd;
	}
	buf_init(&b);
	err = read_end(fd, &b);
	for (uint32_t i = 0; !err && i < n; i++) {
		changed |= append(&b, lines[i]);
	}
	err = err || !changed ? err : rewrite(fd, &b);
	buf_finish(&b);
	fd_close(fd);
	return err;
}

void shim_code_save_waiting(void)
{
	char lines[MAX_UNSAVED][sizeof(unsaved[0])], path[4096], text[160];
	uint32_t n;
	int err;

	if (likely(!load_acquire(&n_unsaved)) || path_of_file(path, sizeof(path)) < 0) {
		return;
	}
	lock_take(&waiting_mutex);
	n = n_unsaved;
	memcpy(lines, unsaved, sizeof(lines));
	store_release(&n_unsaved, 0u);
	lock_release(&waiting_mutex);
	err = save(path, lines, n);
	if (err) {
		snprintf(text, sizeof(text),
			 "cannot save which kernels wait for later blocks: %.60s", strerror(-err));
	} else {
		snprintf(text, sizeof(text),
			 "a kernel waits for later blocks and is never stopped: %.80s",
			 lines[n - 1] + HASH_DIGITS + 1);
		text[strcspn(text, "\n")] = 0;
	}
	note(path, text);
}

void shim_code_waiting_before_fork(void) ACQUIRES(waiting_mutex)
{
	lock_take(&waiting_mutex);
}

void shim_code_waiting_after_fork(bool is_child) RELEASES(waiting_mutex)
{
	if (is_child) {
		store_release(&n_unsaved, 0u); /* the parent saves them */
	}
	lock_release(&waiting_mutex);
}
