/* A library that looks like Open MPI, or with OTHER like another MPI, for tests of `ferroce drill openmpi`
 * that need no download. Its processes wait for each other in vain. */

#include <string.h>
#include <unistd.h>

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

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
	(void)argc, (void)argv, (void)required, (void)provided;
	for (;;)
		pause();
}
