/* Ferroce: inventories of buffers, which these libraries do not have.
 * The functions are there so that programs link, and answer NOT_SUPPORTED. */
#ifndef DOCA_BUF_INVENTORY_H_
#define DOCA_BUF_INVENTORY_H_

#include <stddef.h>
#include <stdint.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_buf;
struct doca_buf_inventory;
struct doca_mmap;

DOCA_STABLE doca_error_t doca_buf_inventory_create(size_t num_elements,
						   struct doca_buf_inventory **inventory);
DOCA_STABLE doca_error_t doca_buf_inventory_destroy(struct doca_buf_inventory *inventory);
DOCA_STABLE doca_error_t doca_buf_inventory_start(struct doca_buf_inventory *inventory);
DOCA_STABLE doca_error_t doca_buf_inventory_buf_get_by_args(struct doca_buf_inventory *inventory,
							    struct doca_mmap *mmap, void *addr,
							    size_t len, void *data, size_t data_len,
							    struct doca_buf **buf);

/* A buffer whose data is empty. */
static inline doca_error_t doca_buf_inventory_buf_get_by_addr(struct doca_buf_inventory *inventory,
							      struct doca_mmap *mmap, void *addr,
							      size_t len, struct doca_buf **buf)
{
	return doca_buf_inventory_buf_get_by_args(inventory, mmap, addr, len, addr, 0, buf);
}

FERROCE_END_DECLS

#endif
