/* Files of a folder that a test makes, such as a sysfs of its own. */
#ifndef GBPF_TESTS_UNIT_PUT_FILE_H
#define GBPF_TESTS_UNIT_PUT_FILE_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Writes a file below the folder, and the folders that it needs. */
static inline void put_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	for (char *at = path + strlen(folder) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
	f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

#endif
