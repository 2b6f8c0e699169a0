/* Imports ioctl, as a driver library does. */
#include <sys/ioctl.h>

__attribute__((visibility("default"))) int library_ioctl(int fd, unsigned long request, void *arg);
__attribute__((visibility("default"))) void *library_pointer(void);

int library_ioctl(int fd, unsigned long request, void *arg)
{
	return ioctl(fd, request, arg);
}

#ifndef LATE /* an import whose address is not taken is bound at the first call */
void *library_pointer(void)
{
	return __extension__(void *) ioctl;
}
#endif
