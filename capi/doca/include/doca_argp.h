/*
 * Ferroce: command lines.
 *
 * A program makes its parameters between doca_argp_init() and doca_argp_start(), which reads the
 * command line and calls back for each parameter that is there. -h, -v, -l, --sdk-log-level and -j
 * are there without being registered.
 */
#ifndef DOCA_ARGP_H_
#define DOCA_ARGP_H_

#include <stdarg.h>
#include <doca_compat.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_log.h>

FERROCE_BEGIN_DECLS

/* Gets the parameter's value, see the types, and the program_config of doca_argp_init(). Anything
 * but DOCA_SUCCESS ends doca_argp_start() with it. */
typedef doca_error_t (*doca_argp_param_cb_t)(void *param, void *config);

/* What a callback gets. Parameters of the types DEVICE and DEVICE_REP are refused. */
enum doca_argp_type {
	DOCA_ARGP_TYPE_UNKNOWN = 0,
	DOCA_ARGP_TYPE_STRING = 1,     /* char *, for the time of the call */
	DOCA_ARGP_TYPE_INT = 2,        /* int * */
	DOCA_ARGP_TYPE_BOOLEAN = 3,    /* bool *; on a command line the name alone is true */
	DOCA_ARGP_TYPE_DEVICE = 4,
	DOCA_ARGP_TYPE_DEVICE_REP = 5,
	DOCA_ARGP_TYPE_DOUBLE = 6,     /* double * */
};

struct doca_argp_param;

/* Begins; program_name NULL takes that of the command line. BAD_STATE: has begun already. */
DOCA_EXPERIMENTAL doca_error_t doca_argp_init(const char *program_name, void *program_config);
/* Ends, and with it all parameters. BAD_STATE: has not begun. */
DOCA_EXPERIMENTAL doca_error_t doca_argp_destroy(void);

/* A parameter without properties. BAD_STATE: before doca_argp_init(). */
DOCA_EXPERIMENTAL doca_error_t doca_argp_param_create(struct doca_argp_param **param);
/* Properties, until the parameter is registered. What is wrong is logged, and fails there. */
DOCA_EXPERIMENTAL void doca_argp_param_set_short_name(struct doca_argp_param *param,
						      const char *name);
DOCA_EXPERIMENTAL void doca_argp_param_set_long_name(struct doca_argp_param *param,
						     const char *name);
DOCA_EXPERIMENTAL void doca_argp_param_set_description(struct doca_argp_param *param,
						       const char *description);
DOCA_EXPERIMENTAL void doca_argp_param_set_callback(struct doca_argp_param *param,
						    doca_argp_param_cb_t callback);
DOCA_EXPERIMENTAL void doca_argp_param_set_type(struct doca_argp_param *param,
						enum doca_argp_type type);
/* Adds a parameter, which belongs to the library from now on, also if it is refused.
 * BAD_STATE: before doca_argp_init() or after doca_argp_start(); INVALID_VALUE: it has no name, no
 * type or no callback, or another one has its name. */
DOCA_EXPERIMENTAL doca_error_t doca_argp_register_param(struct doca_argp_param *input_param);
/* What -v calls in place of printing the version; the program ends when it returns. */
DOCA_EXPERIMENTAL doca_error_t doca_argp_register_version_callback(doca_argp_param_cb_t callback);

/* Reads the command line. -h and -v print to standard output and end the program.
 * BAD_STATE: before doca_argp_init() or again; INVALID_VALUE: an option or a value is wrong, which
 * standard error tells; NOT_FOUND, IO_FAILED: the JSON file cannot be read. */
DOCA_EXPERIMENTAL doca_error_t doca_argp_start(int argc, char **argv);

FERROCE_END_DECLS

#endif
