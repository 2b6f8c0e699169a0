/* Debuggers and other tools that look at the program's machine code. */
#ifndef GBPF_SHIM_TOOL_H
#define GBPF_SHIM_TOOL_H

#include <stdbool.h>

/* Returns true if a debugger of GPU code is attached, or the program was started under a tool that
 * reads or instruments machine code. */
bool shim_tool_attached(void);

#endif
