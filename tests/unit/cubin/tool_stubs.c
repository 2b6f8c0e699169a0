/* tool-stubs print OBJECT ARCH PAD: prints the entry stub that has the programs of a tool, for a
 * kernel with 14 parameters; its first line is a comment with the bytes of padding.
 * tool-stubs part OBJECT ARCH PAD: without programs of block_exit, as of a tool that runs in part.
 * tool-stubs check A PAD B PAD: checks what a compiler has made of two of these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/shm.h"
#include "bpf/load/policy.h"
#include "bpf/run/policy_image.h"
#include "cubin/cubin.h"
#include "ptx/probe_stub.h"

#define FILE_MAX ((size_t)16 << 20)
#define PARAMS 14u

static int fail(const char *what, int err, struct report *r)
{
	struct buf why;

	buf_init(&why);
	report_text(r, &why);
	fprintf(stderr, "%s: error %d: %s\n", what, err, buf_text(&why));
	buf_finish(&why);
	return 1;
}

static struct buf read_file(const char *path)
{
	struct buf b;

	buf_init(&b);
	if (buf_read_file(&b, path, FILE_MAX) < 0) {
		fprintf(stderr, "cannot read %s\n", path);
		exit(1);
	}
	return b;
}

static int open_tool(const struct ebpf_built *b, struct ebpf_policy *ret)
{
	int fds[EBPF_REGIONS], err = 0;

	for (int r = 0; r < EBPF_REGIONS; r++) {
		bool made = r != EBPF_REGION_DAEMON && b->region_bytes[r];

		fds[r] = made ? shm_create("tool-stubs", b->region_bytes[r], SHM_NOEXEC) : -1;
		err = made && fds[r] < 0 ? fds[r] : err;
	}
	err = err ? err : ebpf_policy_open(ret, b->image_fd, fds, EBPF_OPEN_NO_JIT);
	for (int r = 0; r < EBPF_REGIONS; r++) {
		if (fds[r] >= 0) {
			close(fds[r]);
		}
	}
	return err;
}

/* Addresses are as far apart as those of maps may be. */
static int print_stub(const struct ebpf_policy *p, unsigned arch, uint32_t pad, bool part,
		      struct report *r)
{
	static uint64_t offsets[PTX_PROBE_MAPS_MAX], envs[PTX_PROBES_MAX];
	static struct ptx_kernel_param places[PARAMS];
	const struct ptx_kernel_params params = { places, PARAMS };
	const struct ptx_stub_kernel kernel = { "kernel", &params };
	struct ptx_probe probes[PTX_PROBES_MAX];
	struct ptx_stub_form form;
	struct buf out;
	uint32_t n = 0;
	int err;

	for (uint32_t i = 0; i < PTX_PROBE_MAPS_MAX; i++) {
		offsets[i] = (i + 1) * UINT64_C(0x1000000);
	}
	for (uint32_t i = 0; i < PARAMS; i++) {
		places[i] = (struct ptx_kernel_param){ 8 * i, i % 3 ? 8 : 4 };
	}
	for (uint32_t i = 0; i < p->n_devices; i++) {
		const struct ebpf_image_device *d = &p->devices[i];

		if (part && ptx_probe_is_late(d->hook)) {
			continue;
		}
		envs[n] = UINT64_C(0x7f1200000000);
		probes[n++] = (struct ptx_probe){ .hook = d->hook,
						  .lanes = d->lane,
						  .fields = d->fields,
						  .name = d->prefix,
						  .text = strndup(p->device_text + d->text_offset,
								  d->text_bytes),
						  .map_offsets = offsets };
	}
	buf_init(&out);
	err = ptx_probe_stub(&out, arch, pad, &kernel, probes, envs, n, &form, r);
	if (!err) {
		printf("// %u\n%s", form.pad, buf_text(&out));
	}
	buf_finish(&out);
	for (uint32_t i = 0; i < n; i++) {
		free(unqual(probes[i].text));
	}
	return err;
}

static int print(const char *path, unsigned arch, uint32_t pad, bool part, struct report *r)
{
	struct buf elf = read_file(path);
	struct ebpf_policy tool;
	struct ebpf_built built;
	int err = ebpf_policy_build(&built, elf.data, elf.len, "tool", 1, EBPF_BUILD_NO_JIT, r);

	if (!err) {
		err = open_tool(&built, &tool);
		if (!err) {
			err = print_stub(&tool, arch, pad, part, r);
			ebpf_policy_close(&tool);
		}
		ebpf_built_finish(&built);
	}
	buf_finish(&elf);
	return err ? fail(path, err, r) : 0;
}

static int check(char **argv, struct report *r)
{
	struct buf a = read_file(argv[0]), b = read_file(argv[2]);
	struct cubin_stub *s = NULL;
	int err = cubin_stub_open(&s, a.data, a.len, (uint32_t)strtoul(argv[1], NULL, 10), b.data,
				  b.len, (uint32_t)strtoul(argv[3], NULL, 10), PTX_GATE_ENTRY,
				  sizeof(struct ptx_gate_arg), r);

	err = err ? err : cubin_stub_check_programs(s, r);
	cubin_stub_close(s);
	buf_finish(&a);
	buf_finish(&b);
	return err ? fail("check", err, r) : 0;
}

int main(int argc, char **argv)
{
	struct report r;
	int status = 2;

	report_init(&r);
	if (argc == 5 && (strcmp(argv[1], "print") == 0 || strcmp(argv[1], "part") == 0)) {
		status = print(argv[2], (unsigned)strtoul(argv[3], NULL, 10),
			       (uint32_t)strtoul(argv[4], NULL, 10), argv[1][1] == 'a', &r);
	} else if (argc == 6 && strcmp(argv[1], "check") == 0) {
		status = check(argv + 2, &r);
	} else {
		fprintf(stderr,
			"usage: tool-stubs print|part OBJECT ARCH PAD | check A PAD B PAD\n");
	}
	report_finish(&r);
	return status;
}
