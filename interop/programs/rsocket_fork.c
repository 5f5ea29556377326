// A child of a fork has none of its parent's sockets, and can make its own.
#include <errno.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void expect(int holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: errno %d\n", what, errno);
	exit(1);
}

int main(void)
{
	int kinds[] = { SOCK_STREAM, SOCK_DGRAM };
	for (int i = 0; i < 2; i++) {
		int socket = rsocket(AF_INET, kinds[i], 0);
		expect(socket >= 0, "rsocket");
		pid_t child = fork();
		if (child == 0) {
			char byte;
			expect(rrecv(socket, &byte, 1, MSG_DONTWAIT) == -1 && errno == EBADF, "the child's rrecv");
			expect(rclose(socket) == -1 && errno == EBADF, "the child's rclose");
			int own = rsocket(AF_INET, kinds[i], 0);
			expect(own >= 0 && rclose(own) == 0, "the child's own socket");
			_exit(0);
		}
		int status;
		expect(waitpid(child, &status, 0) == child && status == 0, "the child");
		expect(rclose(socket) == 0, "rclose");
	}
	puts("done");
	return 0;
}
