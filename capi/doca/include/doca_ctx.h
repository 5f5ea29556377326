/* Ferroce: contexts of work, which these libraries do not have.
 * The functions are there so that programs link, and answer NOT_SUPPORTED. */
#ifndef DOCA_CTX_H_
#define DOCA_CTX_H_

#include <stddef.h>
#include <stdint.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_ctx;

enum doca_ctx_states {
	DOCA_CTX_STATE_IDLE = 0,
	DOCA_CTX_STATE_STARTING = 1,
	DOCA_CTX_STATE_RUNNING = 2,
	DOCA_CTX_STATE_STOPPING = 3,
};

DOCA_STABLE doca_error_t doca_ctx_stop(struct doca_ctx *ctx);
DOCA_STABLE doca_error_t doca_ctx_get_state(const struct doca_ctx *ctx,
					    enum doca_ctx_states *state);

FERROCE_END_DECLS

#endif
