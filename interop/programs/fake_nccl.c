/* A library that looks like NCCL and never connects, for tests of `ferroce drill nccl` that need no
 * download. -DVERSION=N is the version it claims; -DNO_TABLE leaves the table of functions out. */

#include <stddef.h>

#ifndef VERSION
#define VERSION 22707
#endif

int ncclGetVersion(int *version)
{
	*version = VERSION;
	return 0;
}

void _Z12ncclDebugLog17ncclDebugLogLevelmPKciS1_z(void)
{
}

#ifndef NO_TABLE
static int init(void *log, void *profiler)
{
	return 0;
}

static int devices(int *count)
{
	*count = 1;
	return 0;
}

static int properties(int device, void *into)
{
	return 0;
}

static int listen(int device, void *handle, void **end)
{
	static int one;

	*end = &one;
	return 0;
}

static int connect(int device, void *config, void *handle, void **end, void **of_device)
{
	*end = NULL;
	return 0;
}

static int accept(void *listening, void **end, void **of_device)
{
	*end = NULL;
	return 0;
}

void *ncclNetIb[24] = { "IB", init, devices, properties, listen, connect, accept };
#endif
