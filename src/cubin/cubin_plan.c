/* Decides which kernels are patched, and how large their sections become. */
#include "cubin/cubin_plan_int.h"

#include "cubin/cubin_insn_int.h"

#define PARAM_BYTES_MAX 32764u	   /* CUDA 12.1 and later */
#define REGISTERS_PER_BLOCK 65536u /* of every architecture since sm_70 */
#define THREADS_MAX 1024u
#define TEXT_ALIGN 128u
#define TAIL_INSNS 3u /* behind the stub: wait, displaced instruction, branch back */
#define RECORD_HEAD 4u
#define PARAM_RECORD 16u /* KPARAM_INFO */
#define BANK_RECORD 12u	 /* PARAM_CBANK */

static enum cubin_why check_bank(const struct cubin_scan *s, const struct cubin_parts *p,
				 struct cubin_kernel *k, const struct cubin_stub *stub)
{
	const Elf64_Shdr *bank = &s->elf->sections[p->bank];
	uint32_t bytes = p->bank_bytes;

	if (p->odd_params) {
		return CUBIN_PARAM_LAYOUT;
	}
	if (!p->bank || !cubin_elf_in_file(s->elf, p->bank)) {
		return CUBIN_NO_BANK;
	}
	if (p->records[CUBIN_ATTR_PARAM_CBANK] ? p->base != stub->base : !p->bank_symbol) {
		return CUBIN_PARAM_LAYOUT;
	}
	if (bank->sh_size != stub->base + bytes) {
		return CUBIN_NO_BANK;
	}
	k->arg_offset = ROUND_UP(bytes, 8u);
	if (k->arg_offset + stub->arg_bytes > PARAM_BYTES_MAX) {
		return CUBIN_NO_PARAM_ROOM;
	}
	return CUBIN_OK;
}

static enum cubin_why check_limits(const struct cubin_parts *p, struct cubin_kernel *k,
				   const struct cubin_stub *stub)
{
	uint32_t threads = k->max_threads ? k->max_threads : THREADS_MAX;

	k->patched_registers = MAX(k->registers, stub->registers);
	if (k->patched_registers > k->registers &&
	    (k->sets_registers ||
	     ROUND_UP(k->patched_registers, 8u) * threads > REGISTERS_PER_BLOCK ||
	     (p->max_registers && p->max_registers < k->patched_registers))) {
		return CUBIN_REGISTERS;
	}
	if (k->barriers > 16 || stub->barriers > 16 || p->records[CUBIN_ATTR_NUM_BARRIERS] > 1) {
		return CUBIN_BARRIERS;
	}
	return CUBIN_OK;
}

/* A list of places that the stub adds to must be one record. */
static bool lists_fit(const struct cubin_parts *p, const struct cubin_stub *stub)
{
	for (unsigned i = 0; i < stub->n_lists; i++) {
		if (p->records[stub->lists[i].id] > 1) {
			return false;
		}
	}
	return true;
}

enum cubin_why cubin_plan_form(const struct cubin_scan *s, const struct cubin_parts *p,
			       const struct cubin_kernel *k)
{
	if (k->why != CUBIN_OK) {
		return k->why;
	}
	if (!p->info || !k->registers) {
		return CUBIN_NO_INFO;
	}
	return p->odd_form || s->elf->sections[p->text].sh_addralign < CUBIN_INSN_BYTES
		       ? CUBIN_CODE_FORM
		       : CUBIN_OK;
}

static enum cubin_why decide(const struct cubin_scan *s, const struct cubin_parts *p,
			     struct cubin_kernel *k, const struct cubin_stub *stub)
{
	enum cubin_why why = cubin_plan_form(s, p, k);

	if (why) {
		return why;
	}
	if (!lists_fit(p, stub)) {
		return CUBIN_CODE_FORM;
	}
	why = check_bank(s, p, k, stub);
	if (!why) {
		why = check_limits(p, k, stub);
	}
	if (!why && !cubin_insn_loads_stack(cubin_insn_at(cubin_elf_data(s->elf, p->text)))) {
		why = CUBIN_FIRST_INSN;
	}
	return why;
}

size_t cubin_plan_kernels(struct cubin_scan *s, const struct cubin_stub *stub)
{
	size_t patched = 0;

	for (size_t i = 0; i < s->n; i++) {
		struct cubin_kernel *k = &s->kernels[i];

		k->why = decide(s, &s->parts[i], k, stub);
		patched += k->why == CUBIN_OK;
		if (k->why != CUBIN_OK) {
			k->arg_offset = 0;
			k->patched_registers = k->registers;
		}
	}
	return patched;
}

size_t cubin_plan_text(const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	size_t end = k->code_bytes + stub->bytes + (size_t)TAIL_INSNS * CUBIN_INSN_BYTES;

	return ROUND_UP(end, TEXT_ALIGN);
}

size_t cubin_plan_bank(const struct cubin_kernel *k, const struct cubin_stub *stub)
{
	return (size_t)stub->base + k->arg_offset + stub->arg_bytes;
}

size_t cubin_plan_info(const struct cubin_elf *e, const struct cubin_parts *p,
		       const struct cubin_stub *stub)
{
	size_t bytes = e->sections[p->info].sh_size + PARAM_RECORD;

	if (!p->records[CUBIN_ATTR_PARAM_CBANK]) {
		bytes += BANK_RECORD;
	}
	if (!p->records[CUBIN_ATTR_CBANK_PARAM_SIZE]) {
		bytes += RECORD_HEAD;
	}
	if (stub->barriers && e->abi == CUBIN_ABI_NEW && !p->records[CUBIN_ATTR_NUM_BARRIERS]) {
		bytes += RECORD_HEAD;
	}
	if (stub->uses_ctaid_z && !p->records[CUBIN_ATTR_CTAIDZ_USED]) {
		bytes += RECORD_HEAD;
	}
	for (unsigned i = 0; i < stub->n_lists; i++) {
		bytes += p->records[stub->lists[i].id] ? 0 : RECORD_HEAD;
		bytes += (size_t)4 * stub->lists[i].n;
	}
	return bytes;
}
