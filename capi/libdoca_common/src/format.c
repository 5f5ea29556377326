/* Rust cannot define functions with any number of arguments, and doca_log() is one. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* In log.rs; text is NULL if there is no format. */
uint32_t ferroce_doca_log_text(uint32_t level, int source, const char *fname, int line,
			       const char *func, const char *text);

uint32_t ferroce_doca_log_format(uint32_t level, int source, const char *fname, int line,
				 const char *func, const char *format, ...)
{
	char text[4096];
	va_list arguments;

	if (format == NULL)
		return ferroce_doca_log_text(level, source, fname, line, func, NULL);
	va_start(arguments, format);
	if (vsnprintf(text, sizeof(text), format, arguments) < 0)
		text[0] = '\0';
	va_end(arguments);
	return ferroce_doca_log_text(level, source, fname, line, func, text);
}
