/* The file of a verdict: a head with the statistics, then the object. */
#include "daemon/policy/verdict_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/disk_cache.h"
#include "base/fd.h"

#define PROGRAM_MAX ((size_t)1 << 30)

static const char magic[8] = "gBPFpass";

struct sum {
	uint64_t n[2];
};

struct head {
	char magic[8];
	uint32_t head_bytes, n;
	struct sum program; /* that wrote the file */
	uint64_t object_bytes, verify_ns;
	char name[EBPF_NAME_BYTES];
	struct ebpf_verify_stats stats[EBPF_MAX_PROGS];
	struct sum sum; /* of all fields above, and of the object */
};

static struct {
	bool on;
	struct sum program;
	struct disk_cache disk;
} verdicts; /* set once */

static struct sum sum_of(const void *data, size_t bytes)
{
	XXH128_hash_t h = XXH3_128bits(data, bytes);

	return (struct sum){ { h.low64, h.high64 } };
}

/* The verifier and the table of hooks are in this program, so its bytes identify them. */
static void set_up(void)
{
	struct buf program;

	buf_init(&program);
	verdicts.on = disk_cache_settings(&verdicts.disk) == 0 &&
		      disk_cache_make(&verdicts.disk, NULL) == 0 &&
		      buf_read_file(&program, "/proc/self/exe", PROGRAM_MAX) == 0;
	verdicts.program = sum_of(program.data, program.len);
	buf_finish(&program);
}

/* The folder is checked each time: it may have been replaced since. */
static bool usable(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, set_up);
	return verdicts.on && disk_cache_make(&verdicts.disk, NULL) == 0;
}

/* Sets all fields but those of the verdict and the sum. */
static void expect(struct head *h, const char *name, const struct buf *object)
{
	memset(h, 0, sizeof(*h));
	memcpy(h->magic, magic, sizeof(magic));
	h->head_bytes = sizeof(*h);
	h->program = verdicts.program;
	h->object_bytes = object->len;
	snprintf(h->name, sizeof(h->name), "%s", name);
}

/* Different objects may share it: the file has the object. */
static void file_name(const struct head *expected, const struct buf *object, char out[48])
{
	struct sum of[2] = { sum_of(expected, offsetof(struct head, stats)),
			     sum_of(object->data, object->len) };
	struct sum all = sum_of(of, sizeof(of));

	snprintf(out, 48, "verdict-%016llx%016llx", (unsigned long long)all.n[0],
		 (unsigned long long)all.n[1]);
}

static struct sum sum_file(const struct head *h, const struct buf *object)
{
	struct sum of[2] = { sum_of(h, offsetof(struct head, sum)),
			     sum_of(object->data, object->len) };

	return sum_of(of, sizeof(of));
}

static bool is_expected(const struct head *h, const struct head *expected)
{
	return memcmp(h->magic, expected->magic, sizeof(h->magic)) == 0 &&
	       h->head_bytes == expected->head_bytes &&
	       memcmp(&h->program, &expected->program, sizeof(h->program)) == 0 &&
	       h->object_bytes == expected->object_bytes &&
	       memcmp(h->name, expected->name, sizeof(h->name)) == 0 && h->n &&
	       h->n <= EBPF_MAX_PROGS;
}

static int check(const struct buf *file, const struct head *expected, const struct buf *object,
		 struct daemon_verdict *ret)
{
	struct head h;
	struct sum sum;

	if (file->len != sizeof(h) + object->len) {
		return -EBADMSG;
	}
	memcpy(&h, file->data, sizeof(h));
	sum = sum_file(&h, object);
	if (!is_expected(&h, expected) || memcmp(&h.sum, &sum, sizeof(sum)) != 0 ||
	    memcmp(file->data + sizeof(h), object->data, object->len) != 0) {
		return -EBADMSG;
	}
	ret->n = h.n;
	ret->verify_ns = h.verify_ns;
	memcpy(ret->stats, h.stats, sizeof(ret->stats));
	return 0;
}

int daemon_verdict_read(const char *name, const struct buf *object, struct daemon_verdict *ret)
{
	struct head expected;
	struct buf file;
	char leaf[48];
	int fd, err;

	if (!usable()) {
		return -ENOENT;
	}
	expect(&expected, name, object);
	file_name(&expected, object, leaf);
	fd = disk_cache_get(&verdicts.disk, leaf);
	if (fd < 0) {
		return fd;
	}
	buf_init(&file);
	err = buf_read_fd(&file, fd, sizeof(expected) + object->len);
	err = err ? err : check(&file, &expected, object, ret);
	buf_finish(&file);
	fd_close(fd);
	return err;
}

/* ---- writing ---- */

static int write_file(int fd, void *arg)
{
	const struct buf *file = arg;
	size_t done = 0;

	while (done < file->len) {
		ssize_t n = write(fd, file->data + done, file->len - done);

		if (n == 0 || (n < 0 && errno != EINTR)) {
			return n ? -errno : -EIO;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

void daemon_verdict_write(const char *name, const struct buf *object,
			  const struct daemon_verdict *v)
{
	struct head h;
	struct buf file;
	char leaf[48];

	if (!usable() || !v->n || v->n > EBPF_MAX_PROGS) {
		return;
	}
	expect(&h, name, object);
	file_name(&h, object, leaf);
	h.n = v->n;
	h.verify_ns = v->verify_ns;
	memcpy(h.stats, v->stats, sizeof(h.stats));
	h.sum = sum_file(&h, object);
	buf_init(&file);
	if (buf_add(&file, &h, sizeof(h)) == 0 && buf_add(&file, object->data, object->len) == 0) {
		fd_close(disk_cache_put(&verdicts.disk, leaf, file.len, write_file, &file));
	}
	buf_finish(&file);
}
