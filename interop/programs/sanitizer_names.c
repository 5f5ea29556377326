// Names that Rust's compiler expects of the thread sanitizer, and the library of older gccs does not have. It sees
// these calls in any case, because it replaces the functions themselves.

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__tsan_memset(void *to, int byte, size_t size)
{
	return memset(to, byte, size);
}

void *__tsan_memcpy(void *to, const void *from, size_t size)
{
	return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, size_t size)
{
	return memmove(to, from, size);
}

/* The sanitizer puts off a signal that comes during recv until the next call of the thread, but none during poll. */
ssize_t recv(int socket, void *buffer, size_t length, int flags)
{
	struct pollfd readable = { .fd = socket, .events = POLLIN };

	if (!(flags & MSG_DONTWAIT))
		poll(&readable, 1, -1);
	return syscall(SYS_recvfrom, socket, buffer, length, flags, NULL, NULL);
}
