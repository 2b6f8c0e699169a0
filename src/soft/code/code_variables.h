/* Variables of a module and their addresses in constant bank 4. As ptxas does, the writer gives
 * each variable in global memory a word there and a relocation, by which a loader would fill it.
 * Code of the soft GPU reads no bank, so a word without a relocation, which a copy of a module has,
 * is carried out in the text: functions use its value instead of the variable. Internal to the
 * room. */
#ifndef GBPF_SOFT_CODE_CODE_VARIABLES_H
#define GBPF_SOFT_CODE_CODE_VARIABLES_H

#include "base/report.h"
#include "ptx/module.h"
#include "soft/code/code_view.h"

#define SOFT_VARIABLES_BANK ".nv.constant4"
#define SOFT_VARIABLES_RELOCS ".rela.nv.constant4"
#define SOFT_CONSTANTS_BANK ".nv.constant3"

/* Calls f for each variable that has a symbol, in the order of the bank: local ones first. */
typedef void soft_variable_fn(void *arg, const struct ptx_variable *v, uint64_t bytes, bool global);
void soft_variables_each(const struct ptx_module *m, soft_variable_fn *f, void *arg);
/* Returns true if the module has variables in constant memory. */
bool soft_variables_constants(const struct ptx_module *m);

/* Returns true if some word of the bank has an address instead of a relocation. */
bool soft_variables_placed(const struct soft_view *v);
/* Lets the functions of m use these addresses. 0; -EINVAL with the reason; -ENOMEM. Names live as
 * long as m. */
int soft_variables_place(struct ptx_module *m, const struct soft_view *v, struct report *r);

#endif
