/* Libraries and kernels: functions of kernels, and a current context for queries about them. */
#ifndef GBPF_SOFT_CLIENT_MODULE_LIBRARY_H
#define GBPF_SOFT_CLIENT_MODULE_LIBRARY_H

#include "soft/client/process.h"

CUresult soft_library_function(CUkernel k, CUfunction *ret); /* in the current context */
/* Between enter and leave a context of the device is current: the thread's own or the primary one.
 * Call leave whether or not enter succeeded. */
CUresult soft_kernel_enter(CUkernel k, CUdevice dev, bool *ret_pushed);
void soft_kernel_leave(CUdevice dev, bool pushed);

#endif
