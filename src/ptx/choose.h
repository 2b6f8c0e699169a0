/* Which PTX of an image a device executes. The soft GPU, which executes it, and gBPF's passes,
 * whose clones and probed forms replace it, choose by the same function. Callers look for machine
 * code first. */
#ifndef GBPF_PTX_CHOOSE_H
#define GBPF_PTX_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>

#include "ptx/fatbin.h"

/* The section by which the soft GPU's own machine code is recognized. */
#define PTX_SOFT_CODE ".gbpf.soft"

enum ptx_rule {
	PTX_RULE_DRIVER, /* NVIDIA's: .target up to the device's; sm_90a on 9.0 only, sm_100f
			    on 10.x only */
	PTX_RULE_SOFT, /* the soft GPU's: the same, and where that finds no text any other target */
};

/* sm_90a: 90, 'a'. */
struct ptx_target {
	unsigned arch; /* 0: none was found */
	char suffix;   /* 'a': one device only; 'f': its family; 0 */
};

struct ptx_device {
	unsigned arch; /* compute capability, major * 10 + minor */
	enum ptx_rule rule;
	/* CU_JIT_TARGET: PTX is chosen as for this architecture, if it is lower; 0: not given. A
	 * driver (580, H200) loads modules for no other architecture than the device's, and looks
	 * for kernels of libraries in the PTX of the one that is asked for. */
	unsigned target;
};

static inline unsigned ptx_device_target(struct ptx_device d)
{
	return d.target && d.target < d.arch ? d.target : d.arch;
}

/* Of PTX and of the machine code that the device executes instead, if they differ in features. */
struct ptx_difference {
	struct ptx_target text, code; /* code.arch 0: there is no such PTX */
};

/* Begin with { device, max }; used for all containers of one image. */
struct ptx_chooser {
	struct ptx_device device;
	size_t max;		 /* longest text, in bytes */
	size_t unpacked;	 /* bytes decompressed so far, which have a limit */
	bool code;		 /* there are parts other than PTX */
	bool too_new;		 /* there is PTX for the device of a .version that is not read */
	struct ptx_target other; /* of PTX that the device does not execute, where none was taken */
	const char *error;	 /* after an error: static text for messages */
	/* Of the machine code in the last container that the device executes; arch 0: none; not
	 * known of the soft GPU. */
	struct ptx_target native;
	/* Of the first container whose PTX, which was taken, differs from that code. */
	struct ptx_difference differs;
	bool other_arch; /* the PTX of a container is for another architecture than that code */
};

/* Returns true for machine code that a GPU executes: the device runs it, and it is for the
 * architecture that was asked for. */
bool ptx_device_executes(struct ptx_device d, const struct ptx_fatbin_entry *e);
/* Returns true if PTX and machine code of one container, which the device executes, may have been
 * compiled from different source: the PTX is for an older major architecture (__CUDA_ARCH__), or
 * their suffixes differ (__CUDA_ARCH_FEAT_SM90_ALL of sm_90a, __CUDA_ARCH_FAMILY_SPECIFIC__ of
 * sm_100f). Minor numbers do not count (docs/MACHINE-CODE.md, "PTX in place of machine code").
 * False without code. */
bool ptx_target_differs(struct ptx_target text, struct ptx_target code);
/* Finds the soft GPU's own machine code in a container that is not linked with others, which the
 * soft GPU executes instead of PTX. Returns 1 and the unpacked code (caller frees), 0: there is
 * none of at most max bytes, or -ENOMEM. */
int ptx_choose_soft_code(struct ptx_device device, struct ptx_fatbin_walk w, size_t max, char **ret,
			 size_t *ret_bytes);
/* Returns true if the device executes the text, which is not in a container. */
bool ptx_choose_text(struct ptx_chooser *c, const char *text, size_t bytes);
/* Takes the PTX of one container: for the highest architecture that the device supports, and for
 * exactly this device (sm_90a) before text for all later ones. By the soft GPU's rule, if there is
 * none: for the nearest architecture above, for one device only if there is no other. Text of a
 * .version that is not read is passed over by that rule, and if it is for other devices. Otherwise
 * the choice ends there: a driver executes it, or refuses the image (580: error 222). Returns 1 and
 * the text (caller frees; followed by a zero byte); 0: no text for the device; -EINVAL: corrupt;
 * -EFBIG; -ENOMEM. */
int ptx_choose(struct ptx_chooser *c, struct ptx_fatbin_walk w, char **ret, size_t *ret_bytes);

#endif
