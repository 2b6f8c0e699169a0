/* An event buffer of the resource manager, bound to the context switch log of a GPU: ctrl2080gr.h,
 * cl90cd.h, cl90cdfecs.h of the open kernel modules. Unprivileged users receive the events of their
 * own processes. */
#include "bench/control/switch_trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "bench/control/try_controls.h"
#include "gpu/rm.h"

#define CLASS_MEMORY 0x90ceu
#define CLASS_EVENT_BUFFER 0x90cdu
#define BIND 0x20801238u
#define ENABLE 0x90cd0101u
#define FLUSH 0x90cd0104u
#define RECORDS 4096u
#define RECORD_BYTES 32u
#define READ_ONLY 1u

struct memory_params { /* NV_MEMORY_ALLOCATION_PARAMS */
	uint32_t owner, type, flags, width, height, pitch, attr, attr2, format, coverage, z, pad;
	uint64_t low, high, size, alignment, offset, limit, address;
	uint32_t tags, space, internal, tag, node, pad2;
};
#define CACHED (1u << 29)	  /* attr */
#define USER_READ_ONLY (1u << 22) /* attr2 */

struct buffer_params { /* NV_EVENT_BUFFER_ALLOC_PARAMETERS */
	uint64_t header, records;
	uint32_t record_bytes, n_records;
	uint64_t variable;
	uint32_t variable_bytes, free_threshold;
	uint64_t notify;
	uint32_t variable_threshold, subdevice, flags, header_memory, record_memory,
		variable_memory;
};
_Static_assert(sizeof(struct memory_params) == 128 && sizeof(struct buffer_params) == 72,
	       "nvos.h, cl90cd.h");

struct bind_params {
	uint32_t buffer, record_bytes, detail, filter;
	uint8_t all_users, pad[3];
	uint32_t reason;
};

struct enable_params {
	uint8_t enable, pad[3];
	uint32_t flags;
};
#define KEEP_NEWEST 2u

struct header {
	uint32_t get, put;
	uint64_t count, dropped, variable_dropped;
};

struct trace {
	int control;
	uint32_t client, device, subdevice, buffer, memory[2];
	const volatile struct header *header;
	const volatile uint8_t *records;
};

static int step(const char *what, int err)
{
	if (err) {
		bench_say("trace: %s refused: %d, status 0x%x", what, err, gpu_rm_last_status());
	}
	return err;
}

static int device_of(struct trace *t, uint32_t device_id, int number)
{
	struct gpu_rm_device_params p = { .device_id = device_id };
	char path[32];
	uint32_t which = 0;
	int gpu;

	snprintf(path, sizeof(path), "/dev/nvidia%d", number);
	gpu = gpu_rm_os.open(path);
	if (gpu < 0 || step("tying the device", gpu_rm_register(gpu, t->control)) ||
	    step("a client",
		 gpu_rm_alloc(t->control, 0, 0, &t->client, GPU_RM_CLASS_CLIENT, NULL, 0))) {
		return -1;
	}
	p.client_share = t->client;
	return step("the device", gpu_rm_alloc(t->control, t->client, t->client, &t->device,
					       GPU_RM_CLASS_DEVICE, &p, sizeof(p))) ||
			       step("the subdevice",
				    gpu_rm_alloc(t->control, t->client, t->device, &t->subdevice,
						 GPU_RM_CLASS_SUBDEVICE, &which, sizeof(which)))
		       ? -1
		       : 0;
}

static const volatile void *map(struct trace *t, uint32_t memory, size_t bytes)
{
	int fd = gpu_rm_os.open("/dev/nvidiactl");
	struct gpu_rm_map m = { .client = t->client,
				.device = t->client,
				.memory = memory,
				.length = bytes,
				.flags = READ_ONLY,
				.status = UINT32_MAX,
				.fd = fd };
	void *at;

	if (fd < 0 ||
	    gpu_rm_os.ioctl(t->control,
			    _IOC(_IOC_READ | _IOC_WRITE, 'F', GPU_RM_NR_MAP_MEMORY, sizeof(m)),
			    &m) < 0 ||
	    m.status) {
		bench_say("trace: mapping its memory refused: status 0x%x", m.status);
		return NULL;
	}
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED) {
		bench_say("trace: its memory cannot be mapped: %s", strerror(errno));
		return NULL;
	}
	return at;
}

static int memory_of(struct trace *t, int i, size_t bytes)
{
	struct memory_params p = { .attr = CACHED, .attr2 = USER_READ_ONLY, .size = bytes };

	return step("memory", gpu_rm_alloc(t->control, t->client, t->client, &t->memory[i],
					   CLASS_MEMORY, &p, sizeof(p)));
}

static int buffer_of(struct trace *t)
{
	struct buffer_params p = { .record_bytes = RECORD_BYTES,
				   .n_records = RECORDS,
				   .subdevice = t->subdevice };
	struct bind_params b = { .record_bytes = RECORD_BYTES, .detail = 0 };
	struct enable_params e = { .enable = 1, .flags = KEEP_NEWEST };
	int err;

	if (memory_of(t, 0, 4096) || memory_of(t, 1, RECORDS * RECORD_BYTES)) {
		return -1;
	}
	p.header_memory = t->memory[0];
	p.record_memory = t->memory[1];
	err = step("the event buffer", gpu_rm_alloc(t->control, t->client, t->client, &t->buffer,
						    CLASS_EVENT_BUFFER, &p, sizeof(p)));
	if (err) {
		return err;
	}
	b.buffer = t->buffer;
	err = gpu_rm_control(t->control, t->client, t->subdevice, BIND, &b, sizeof(b));
	if (err) {
		bench_say("trace: reason %u", b.reason);
	}
	return step("binding", err) ||
			       step("enabling", gpu_rm_control(t->control, t->client, t->buffer,
							       ENABLE, &e, sizeof(e)))
		       ? -1
		       : 0;
}

struct trace *bench_trace_open(uint32_t device_id, int number)
{
	struct trace *t = calloc(1, sizeof(*t));

	if (!t) {
		return NULL;
	}
	t->control = gpu_rm_os.open("/dev/nvidiactl");
	if (t->control < 0 || device_of(t, device_id, number) || buffer_of(t)) {
		return NULL; /* not cleaned up: the process exits soon, which frees everything */
	}
	t->header = map(t, t->memory[0], 4096);
	t->records = t->header ? map(t, t->memory[1], RECORDS * RECORD_BYTES) : NULL;
	return t->records ? t : NULL;
}

uint32_t bench_trace_read(struct trace *t, struct bench_trace_record *ret, uint32_t max)
{
	uint32_t n, put;

	(void)step("flushing", gpu_rm_control(t->control, t->client, t->buffer, FLUSH, NULL, 0));
	put = load_acquire(&t->header->put) % RECORDS;
	n = t->header->count < RECORDS - 1 ? (uint32_t)t->header->count : RECORDS - 1;
	n = n < max ? n : max;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = (put + RECORDS - n + i) % RECORDS;

		/* The first eight bytes are the record's kind. */
		memcpy(&ret[i], (const void *)(uintptr_t)(t->records + at * RECORD_BYTES + 8),
		       sizeof(ret[i]));
	}
	return n;
}
