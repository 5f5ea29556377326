/* Ferroce: versions. */
#ifndef DOCA_VERSION_H_
#define DOCA_VERSION_H_

#include <stddef.h>
#include <doca_compat.h>

FERROCE_BEGIN_DECLS

#define DOCA_VERSION_MAJOR 3
#define DOCA_VERSION_MINOR 3
#define DOCA_VERSION_PATCH 0
#define DOCA_VERSION_STRING "3.3.0"

/* The version that a program was compiled with. */
static inline const char *doca_version(void)
{
	return DOCA_VERSION_STRING;
}

/* The version that it runs with. */
DOCA_EXPERIMENTAL const char *doca_version_runtime(void);

FERROCE_END_DECLS

#endif
