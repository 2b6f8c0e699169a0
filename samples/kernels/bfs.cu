/* One level of a breadth-first search over a graph in compressed rows. */
#include "cuda_words.h"

KERNEL bfs_level(const int *row, const int *col, int *level, int now, int *found, int n)
{
	int v = GLOBAL_INDEX;

	if (v >= n || level[v] != now) {
		return;
	}
	for (int e = row[v]; e < row[v + 1]; e++) {
		if (level[col[e]] < 0) {
			level[col[e]] = now + 1; /* several writers, one value */
			*found = 1;
		}
	}
}
