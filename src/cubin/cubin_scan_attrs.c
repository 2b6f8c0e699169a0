/* Reads the attributes of one kernel: parameters, limits, clusters, and those that rule patching
 * out. */
#include <errno.h>
#include <string.h>

#include "cubin/cubin_scan_int.h"

#define PARAM_RECORD_BYTES 12u
#define REGISTERS_MAX 255u

struct reading {
	const struct cubin_elf *elf;
	struct cubin_parts *parts;
	struct cubin_kernel *kernel;
	struct cubin_param *params;
	uint32_t seen; /* parameters read */
};

int cubin_scan_params(const struct cubin_elf *e, uint32_t info)
{
	const uint8_t *at = cubin_elf_data(e, info), *end = at + e->sections[info].sh_size;
	struct cubin_attr a;
	int n = 0, err;

	while ((err = cubin_attr_next(&at, end, &a)) > 0) {
		n += a.id == CUBIN_ATTR_KPARAM_INFO;
	}
	return err < 0 ? err : n;
}

/* u32 0, u16 ordinal, u16 offset, u32: bits 12-16 all set (constant bank), size from bit 18 on. */
static void read_param(struct reading *r, const struct cubin_attr *a)
{
	struct cubin_param *p;
	uint32_t form;

	r->seen++;
	if (a->format != 4 || a->len != PARAM_RECORD_BYTES ||
	    cubin_u16(a->data + 4) >= r->kernel->n_params) {
		r->parts->odd_params = true;
		return;
	}
	p = &r->params[cubin_u16(a->data + 4)];
	form = cubin_u32(a->data + 8);
	if (p->bytes || (form & 0x1f000) != 0x1f000) {
		r->parts->odd_params = true;
		return;
	}
	p->offset = cubin_u16(a->data + 6);
	p->bytes = form >> 18;
}

static void read_bank(struct reading *r, const struct cubin_attr *a)
{
	if (a->format != 4 || a->len != 8) {
		r->parts->odd_params = true;
		return;
	}
	r->parts->base = cubin_u16(a->data + 4);
	r->parts->bank_bytes = cubin_u16(a->data + 6);
}

/* Three numbers, which must multiply to at most max. */
static void read_dims(struct reading *r, const struct cubin_attr *a, uint32_t max, uint32_t dims[3],
		      uint32_t *product)
{
	uint64_t n = 1;

	if (a->format != 4 || a->len != 12) {
		r->parts->odd_form = true;
		return;
	}
	for (unsigned i = 0; i < 3; i++) {
		uint32_t v = cubin_u32(a->data + (size_t)4 * i);

		if (dims) {
			dims[i] = v;
		}
		n = v > max ? UINT32_MAX : MIN(n * v, UINT32_MAX);
	}
	if (n > max) {
		r->parts->odd_form = true;
	} else if (product) {
		*product = (uint32_t)n;
	}
}

static void read_attr(struct reading *r, const struct cubin_attr *a)
{
	struct cubin_kernel *k = r->kernel;

	switch (a->id) {
	case CUBIN_ATTR_KPARAM_INFO:
		read_param(r, a);
		break;
	case CUBIN_ATTR_PARAM_CBANK:
		read_bank(r, a);
		break;
	case CUBIN_ATTR_CBANK_PARAM_SIZE:
		r->parts->size_bytes = a->value;
		r->parts->odd_params |= a->format != 3;
		break;
	case CUBIN_ATTR_MAX_THREADS:
		read_dims(r, a, 1024, NULL, &k->max_threads);
		break;
	case CUBIN_ATTR_REQNTID:
		read_dims(r, a, 1024, k->required_block, &k->max_threads);
		break;
	case CUBIN_ATTR_CLUSTER:
		read_dims(r, a, 64, k->cluster, NULL);
		break;
	case CUBIN_ATTR_MAX_CLUSTER_RANK:
		k->max_cluster_rank = a->len == 4 ? cubin_u32(a->data) : 0;
		break;
	case CUBIN_ATTR_EXPLICIT_CLUSTER:
		k->explicit_cluster = true;
		break;
	case CUBIN_ATTR_BLOCKS_ARE_CLUSTERS:
		k->blocks_are_clusters = true;
		break;
	case CUBIN_ATTR_NUM_BARRIERS:
		k->barriers = MAX(k->barriers, a->value);
		r->parts->odd_form |= a->format != 2;
		break;
	case CUBIN_ATTR_EXITS:
	case CUBIN_ATTR_S2RCTAID:
	case CUBIN_ATTR_ATOM_SYS:
	case CUBIN_ATTR_WARP_WIDE:
	case CUBIN_ATTR_MEMBAR_SYS_WAR: /* lists that the stub's may be added to; lengths have 16
					   bits */
		r->parts->odd_form |= a->format != 4 || a->len % 4 || a->len > 0xf000;
		break;
	case CUBIN_ATTR_MAXREG_COUNT:
		r->parts->max_registers = a->value;
		break;
	case CUBIN_ATTR_REG_RECONFIG:
		k->sets_registers = true;
		break;
	case CUBIN_ATTR_GROUP_INSNS:
		k->group_insns = true;
		break;
	case CUBIN_ATTR_SYSCALLS:
		k->system_calls = true;
		break;
	case CUBIN_ATTR_INDIRECT_TARGETS:
		k->indirect = true;
		break;
	case CUBIN_ATTR_KPARAM_INFO_V2:
		r->parts->odd_params = true;
		break;
	case CUBIN_ATTR_COROUTINE:
	case CUBIN_ATTR_UCODE:
	case CUBIN_ATTR_TOOLS_PATCH:
	case CUBIN_ATTR_ENTRY_FRAGMENTS:
	case CUBIN_ATTR_STUB_KIND:
		r->parts->odd_form = true;
		break;
	case CUBIN_ATTR_CNP_WRAPPER:
	case CUBIN_ATTR_CNP_PATCH:
		k->why = k->why ? k->why : CUBIN_DEVICE_RUNTIME;
		break;
	case CUBIN_ATTR_OF_13_2:
		r->parts->odd_form |= a->format != 4 || a->len != 4 || cubin_u32(a->data) != 3;
		break;
	default:
		r->parts->odd_form |= a->id > CUBIN_ATTR_KNOWN_MAX;
		break;
	}
	if (a->id <= CUBIN_ATTR_KNOWN_MAX && r->parts->records[a->id] < 255) {
		r->parts->records[a->id]++;
	}
}

/* The parameters must lie side by side, in the order of their ordinals, within what the bank has.
 */
static void check_params(struct reading *r)
{
	uint32_t end = 0;

	for (uint32_t i = 0; i < r->kernel->n_params; i++) {
		const struct cubin_param *p = &r->params[i];

		if (!p->bytes || p->offset < end) {
			r->parts->odd_params = true;
		}
		end = p->offset + p->bytes;
	}
	if (end > r->parts->bank_bytes || r->parts->bank_bytes != r->parts->size_bytes ||
	    r->parts->records[CUBIN_ATTR_PARAM_CBANK] > 1 ||
	    r->parts->records[CUBIN_ATTR_CBANK_PARAM_SIZE] > 1) {
		r->parts->odd_params = true;
	}
	r->kernel->param_bytes = end;
}

int cubin_scan_attrs(const struct cubin_elf *e, struct cubin_parts *p, struct cubin_kernel *k,
		     struct cubin_param *params, struct report *r)
{
	struct reading reading = { .elf = e, .parts = p, .kernel = k, .params = params };
	const Elf64_Shdr *text = &e->sections[p->text];
	const uint8_t *at, *end;
	struct cubin_attr a;
	int err;

	k->params = params;
	if (e->abi == CUBIN_ABI_OLD) {
		k->barriers = (unsigned)(text->sh_flags >> 20) & 0x7f;
	}
	/* a linker may have raised one of the two */
	k->registers = MAX(k->registers, text->sh_info >> 24);
	p->odd_form = k->registers > REGISTERS_MAX;
	if (!p->info) {
		return 0;
	}
	at = cubin_elf_data(e, p->info);
	end = at + e->sections[p->info].sh_size;
	while ((err = cubin_attr_next(&at, end, &a)) > 0) {
		read_attr(&reading, &a);
	}
	check_params(&reading);
	return err < 0 ? cubin_refuse(r, "broken attributes of kernel '%s'", k->name) : 0;
}
