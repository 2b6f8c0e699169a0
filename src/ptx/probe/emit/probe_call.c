/* The call of a program's root, with what its parameters stand for: the environment, the addresses
 * of control words and maps, the fields and the arguments, which the scope around the call has in
 * registers. */
#include "ptx/probe/emit/probe_emit.h"

void ptx_probe_call(struct ptx_probe_work *p, const struct ptx_probe_program *g)
{
	uint32_t n_addresses = ptx_probe_n_addresses(g);

	ptx_probe_text(p, "\t.param .b64 ~e;\n\tst.param.b64 [~e], %%~e;\n");
	for (uint32_t i = 0; i < n_addresses; i++) {
		ptx_probe_root_address(p, g, i, "%~d");
		ptx_probe_text(p, "\t.param .b64 ~m%u;\n\tst.param.b64 [~m%u], %%~d;\n", i, i);
	}
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k)) {
			unsigned bits = g->fields[k].bytes * 8;

			ptx_probe_text(p, "\t.param .b%u ~a%u;\n\tst.param.b%u [~a%u], %%~f%u;\n",
				       bits, k, bits, k, k);
		}
	}
	for (uint32_t k = 0; k < g->n_args; k++) {
		unsigned bits = 8 * PTX_PROBE_ARG_WIDTH(g->args[k].bytes);

		ptx_probe_text(p, "\t.param .b%u ~q%u;\n\tst.param.b%u [~q%u], %%~r%u;\n", bits, k,
			       bits, k, k);
	}
	ptx_probe_text(p, "\tcall %s_f0, (~e", g->probe->name);
	for (uint32_t i = 0; i < n_addresses; i++) {
		ptx_probe_text(p, ", ~m%u", i);
	}
	for (uint32_t k = 0; k < g->n_fields; k++) {
		if (ptx_probe_reads(g, k)) {
			ptx_probe_text(p, ", ~a%u", k);
		}
	}
	for (uint32_t k = 0; k < g->n_args; k++) {
		ptx_probe_text(p, ", ~q%u", k);
	}
	ptx_probe_text(p, ");\n");
}
