/* Objects that callers pass as descriptors. On the worker: must use its arguments alone. */
#include "daemon/policy/object_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"
#include "daemon/policy/policy_store.h"

int daemon_object_read(int fd, struct buf *object, struct report *r)
{
	long size = shm_checked_size(fd, DAEMON_STORE_OBJECT_MAX);

	if (size < 0) {
		return report_set(r, size == -EFBIG ? -E2BIG : -EINVAL,
				  size == -EFBIG ? "limit" : "usage",
				  size == -EFBIG ? "the object has more than 16 MiB"
						 : "the descriptor passed is not a memfd sealed in "
						   "size, or is empty");
	}
	object->data = malloc((size_t)size + 1);
	if (!object->data) {
		return report_set(r, -ENOMEM, "memory", "out of memory");
	}
	object->cap = (size_t)size + 1;
	while (object->len < (size_t)size) {
		ssize_t n = pread(fd, object->data + object->len, (size_t)size - object->len,
				  (off_t)object->len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n <= 0) {
			return report_set(r, -EIO, "read", "the object cannot be read");
		}
		object->len += (size_t)n;
	}
	object->data[object->len] = 0;
	return 0;
}

int daemon_object_exit(int err, const struct report *r)
{
	if (err == -EACCES || (err == -E2BIG && strcmp(r->code, "limit") != 0)) {
		return 4;
	}
	return err == -E2BIG ? 7 : 1;
}
