// Registers as many memory regions as it is told, and stays.
#include "bad.h"

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	struct objects on = make_objects(open_device(0));
	for (int each = atoi(argv[1]); each > 1; each--)
		CHECK(ibv_reg_mr(on.pd, on.buffer, SIZE, 0));
	pause();
	return 0;
}
