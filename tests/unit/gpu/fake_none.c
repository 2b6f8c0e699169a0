/* Does not import ioctl. */
#include <unistd.h>

__attribute__((visibility("default"))) int library_pid(void);

int library_pid(void)
{
	return getpid();
}
