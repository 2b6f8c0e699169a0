/* Names of helpers that gBPF does not have, for messages: those of Linux by its own header, and
 * what to use instead of those that programs often call. */
#include "bpf/load/verify/helper_names.h"

#include <linux/bpf.h>
#include <stddef.h>

#include "base/compiler.h"

static const char *const linux_names[] = {
#define NAME(name) [BPF_FUNC_##name] = "bpf_" #name
	__BPF_FUNC_MAPPER(NAME)
};

static const struct {
	int32_t id;
	const char *name; /* NULL: linux_names has it */
	const char *instead;
} known[] = {
	{ 4, NULL,
	  "the context has what a program may read; gbpf_arg reads a kernel's parameters" },
	{ 8, NULL, "use ctx->sm inside kernels" },
	{ 14, NULL,
	  "use ctx->tenant in a policy; maps of programs inside kernels have values for each "
	  "process, which `gbpf map dump` shows" },
	{ 15, NULL, "use ctx->uid in gbpf/submit" },
	{ 16, NULL, "choose the program by its name: `gbpf probe attach --to NAME`" },
	{ 35, NULL, "use ctx->tenant in a policy; inside kernels there are no tasks" },
	{ 112, NULL, "the context has what a program may read" },
	{ 113, NULL, "gbpf_arg reads a kernel's parameters; its memory cannot be read" },
	{ 114, NULL, "the context has what a program may read" },
	{ 115, NULL, "the context has what a program may read" },
	{ 125, NULL, "use bpf_ktime_get_ns" },
	{ 160, NULL, "use bpf_ktime_get_ns" },
	/* bpftime's */
	{ 507, "bpf_cuda_exit", "programs observe a kernel; none can end its threads" },
};

const char *ebpf_verify_foreign_helper(int32_t id, const char **ret_instead)
{
	*ret_instead = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (known[i].id == id) {
			*ret_instead = known[i].instead;
			if (known[i].name) {
				return known[i].name;
			}
		}
	}
	return id > 0 && (size_t)id < ARRAY_SIZE(linux_names) ? linux_names[id] : NULL;
}
