/* A library that looks like Open MPI, or with OTHER like another MPI, for tests of `ferroce drill openmpi`
 * that need no download. */

#include <string.h>

#ifdef OTHER
#define VERSION "MPICH Version: 5.0.2"
#else
#define VERSION "Open MPI v5.0.99, package: fake"
#endif

int MPI_Get_library_version(char *text, int *length)
{
	strcpy(text, VERSION);
	*length = strlen(VERSION);
	return 0;
}
