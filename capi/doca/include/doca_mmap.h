/* Ferroce: mapped memory, which these libraries do not have.
 * The functions are there so that programs link, and answer NOT_SUPPORTED. */
#ifndef DOCA_MMAP_H_
#define DOCA_MMAP_H_

#include <stddef.h>
#include <stdint.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_dev;
struct doca_mmap;

DOCA_STABLE doca_error_t doca_mmap_create(struct doca_mmap **mmap);
DOCA_STABLE doca_error_t doca_mmap_destroy(struct doca_mmap *mmap);
DOCA_STABLE doca_error_t doca_mmap_add_dev(struct doca_mmap *mmap, struct doca_dev *dev);

FERROCE_END_DECLS

#endif
