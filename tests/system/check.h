/* The end of a program of the system tests that finds something wrong. */
#ifndef GBPF_TESTS_SYSTEM_CHECK_H
#define GBPF_TESTS_SYSTEM_CHECK_H

#include <stdio.h>
#include <stdlib.h>

/* Exits unless the condition holds, with the line and a message: a format and its values. */
#define CHECK(right, ...)                                                                          \
	do {                                                                                       \
		if (!(right)) {                                                                    \
			fprintf(stderr, "line %d: %s: ", __LINE__, #right);                        \
			fprintf(stderr, __VA_ARGS__);                                              \
			fputc('\n', stderr);                                                       \
			exit(EXIT_FAILURE);                                                        \
		}                                                                                  \
	} while (0)

#endif
