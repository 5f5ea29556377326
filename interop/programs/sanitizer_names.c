// Names that Rust's compiler expects of the thread sanitizer, and the library of older gccs does not have. It sees
// these calls in any case, because it replaces the functions themselves.

#include <string.h>

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
