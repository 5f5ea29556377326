// A program that needs a name of a version that Ferroce's library lacks.
#include <infiniband/verbs.h>
#include <stdio.h>

void old_list(void);
__asm__(".symver old_list, ibv_get_device_list@IBVERBS_1.0");

int main(void)
{
	puts("begun");
	fflush(stdout);
	old_list();
	return 0;
}
