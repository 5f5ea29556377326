/* Whatever goes wrong ends a program with a line that says what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define die(...)                                                        \
	do {                                                            \
		fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);         \
		fprintf(stderr, __VA_ARGS__);                           \
		fprintf(stderr, "\n");                                  \
		exit(1);                                                \
	} while (0)

#define check(condition)                                                \
	do {                                                            \
		if (!(condition))                                       \
			die("%s (errno: %s)", #condition, strerror(errno)); \
	} while (0)
