// Holds UDP port 4791 on all addresses, as the kernel's rdma_rxe does, while the program that the
// arguments name runs.
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int count, char **arguments)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(4791) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (count < 2 || fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any)) {
		perror("hold_port");
		return 99;
	}
	execvp(arguments[1], arguments + 1);
	perror(arguments[1]);
	return 99;
}
