/*
 * Ferroce: log lines.
 *
 * There are two kinds: those of the program, which doca_log() writes, and those of the libraries
 * (the SDK), which tell why a call was refused. Each kind goes to its own backends only.
 */
#ifndef DOCA_LOG_H_
#define DOCA_LOG_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <doca_compat.h>
#include <doca_error.h>

FERROCE_BEGIN_DECLS

/* A level tells what it names and everything above it in this list. */
enum doca_log_level {
	DOCA_LOG_LEVEL_DISABLE = 10,
	DOCA_LOG_LEVEL_CRIT = 20,
	DOCA_LOG_LEVEL_ERROR = 30,
	DOCA_LOG_LEVEL_WARNING = 40,
	DOCA_LOG_LEVEL_INFO = 50,
	DOCA_LOG_LEVEL_DEBUG = 60,
	DOCA_LOG_LEVEL_TRACE = 70,
};

struct doca_log_backend;

/* Program's lines: INFO, DEBUG and TRACE to standard output, the others to standard error. A second
 * call changes nothing. */
DOCA_EXPERIMENTAL doca_error_t doca_log_backend_create_standard(void);

/* Libraries' lines to fptr, which must stay open to the end of the program.
 * INVALID_VALUE: NULL. */
DOCA_EXPERIMENTAL doca_error_t doca_log_backend_create_with_file_sdk(FILE *fptr,
								     struct doca_log_backend **backend);

/* The most that a backend for the libraries' lines tells, WARNING before.
 * INVALID_VALUE: NULL, no such backend, no such level. */
DOCA_EXPERIMENTAL doca_error_t doca_log_backend_set_sdk_level(struct doca_log_backend *backend,
							      uint32_t level);

/* The most that is told of the program's lines, INFO before. INVALID_VALUE: no such level. */
DOCA_EXPERIMENTAL doca_error_t doca_log_level_set_global_lower_limit(uint32_t level);

/* The most that all backends tell of the libraries' lines, and those to come.
 * INVALID_VALUE: no such level. */
DOCA_EXPERIMENTAL doca_error_t doca_log_level_set_global_sdk_limit(uint32_t level);

/* A number for a part of the program; the same name has the same one. INVALID_VALUE: NULL. */
DOCA_EXPERIMENTAL doca_error_t doca_log_register_source(const char *source_name, int *source);

/* Writes a line; text beyond 4095 bytes is cut off.
 * INVALID_VALUE: format is NULL, no such level, no such source. */
DOCA_EXPERIMENTAL doca_error_t doca_log(uint32_t level, int source, const char *fname, int line,
					const char *func, const char *format, ...)
	__attribute__((format(printf, 6, 7)));

/* Stands once in a file that logs, and gives it its name. */
#define DOCA_LOG_REGISTER(SOURCE)                                                     \
	static int log_source;                                                        \
	static void __attribute__((constructor(101), used)) doca_log_ctor_(void)      \
	{                                                                             \
		(void)doca_log_register_source(#SOURCE, &log_source);                 \
	}

#define DOCA_LOG(level, format, ...) \
	doca_log(level, log_source, __FILE__, __LINE__, __func__, format, ##__VA_ARGS__)
#define DOCA_LOG_CRIT(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_CRIT, format, ##__VA_ARGS__)
#define DOCA_LOG_ERR(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_ERROR, format, ##__VA_ARGS__)
#define DOCA_LOG_WARN(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_WARNING, format, ##__VA_ARGS__)
#define DOCA_LOG_INFO(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_INFO, format, ##__VA_ARGS__)
#define DOCA_LOG_DBG(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_DEBUG, format, ##__VA_ARGS__)
#define DOCA_LOG_TRC(format, ...) DOCA_LOG(DOCA_LOG_LEVEL_TRACE, format, ##__VA_ARGS__)

FERROCE_END_DECLS

#endif
