/* The document of `gbpf trace --json`: what is known of the trace, and the tool's figures. Names
 * and reasons come from traced programs, and may have been cut within a character. */
#include "cli/trace.h"

json_t *cli_trace_document(const struct cli_trace *t, const char *of, const char *kernel,
			   uint64_t ns, bool total, json_t *figures)
{
	return json_pack(
		"{s:s, s:o, s:o, s:f, s:b, s:I, s:I, s:o, s:I, s:I, s:o}", "tool", t->tool->name,
		"of", cli_json_text(of), "kernel", cli_json_text(kernel ? kernel : "*"), "seconds",
		(double)ns / 1e9, "total", (int)total, "kernels", (json_int_t)t->kernels_max,
		"refused", (json_int_t)t->refused, "why", cli_json_text(t->why), "unseen",
		(json_int_t)t->unseen, "falls_back", (json_int_t)t->falls_back, "figures", figures);
}
