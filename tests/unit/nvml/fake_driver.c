/* A libnvidia-ml that has three functions, whose arguments lie in all places that the calling
 * convention has: general registers, vector registers and the stack. */
#include "base/compiler.h"

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlDeviceGetFanSpeed(int a, int b, int c, int d, int e, int f, int g, int h, double x,
				 double y);
EXPORT const char *nvmlErrorString(int r);

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetFanSpeed(int a, int b, int c, int d, int e, int f, int g, int h, double x,
			  double y)
{
	int r = a;
	const int rest[] = { b, c, d, e, f, g, h, (int)x, (int)y };

	for (unsigned i = 0; i < ARRAY_SIZE(rest); i++) {
		r = r * 3 + rest[i];
	}
	return r;
}

const char *nvmlErrorString(int r)
{
	return r == 77 ? "of the driver" : "other";
}
