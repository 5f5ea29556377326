/* Ferroce: progress engines, which these libraries do not have.
 * The functions are there so that programs link, and answer NOT_SUPPORTED. */
#ifndef DOCA_PE_H_
#define DOCA_PE_H_

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_pe;

DOCA_STABLE doca_error_t doca_pe_create(struct doca_pe **pe);
DOCA_STABLE doca_error_t doca_pe_destroy(struct doca_pe *pe);
/* 0: there was nothing to do. */
DOCA_STABLE uint8_t doca_pe_progress(struct doca_pe *pe);

FERROCE_END_DECLS

#endif
