/* `expect ring NAME ...`: the next record that nobody has looked at yet. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "sim/sim_int.h"

int sim_expect_ring(struct sim *s, const char *at)
{
	return sim_wrong(s, at, NULL, "ring buffers are not offered yet");
}
