/*
 * Ferroce: the histogram of the timeouts of adaptive retransmission.
 *
 * A context holds a configuration and is idle or running: doca_telemetry_adp_retx_start() gives the
 * configuration to the device, and then the counts can be read. Nobody owns a device's histogram:
 * whoever starts a context last configures it, and
 * doca_telemetry_adp_retx_detect_hist_conf_change() tells the others.
 *
 * Bins are half open. Bin 0 begins at 0 and is bin0_width wide, bin 1 follows with bin1_width;
 * those after it are as wide as bin 1 (FIXED) or each twice as wide as the one before it (DOUBLE).
 * The last bin has no end.
 *
 * All functions answer INVALID_VALUE to NULL and to what is no live object. DRIVER: the device
 * cannot be reached, or has gone; OPERATING_SYSTEM: the user may not.
 */
#ifndef DOCA_TELEMETRY_ADP_RETX_H_
#define DOCA_TELEMETRY_ADP_RETX_H_

#include <stdint.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_dev;
struct doca_devinfo;
struct doca_telemetry_adp_retx;

/* Unit of the widths; bits, for doca_telemetry_adp_retx_cap_get_hist_time_units(). */
enum doca_telemetry_adp_retx_hist_time_unit {
	DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_NSEC = 0x1,
	DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_USEC = 0x2,
	DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_USEC_100 = 0x4,
	DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_MSEC = 0x8,
};

/* How wide the bins after bin 1 are. */
enum doca_telemetry_adp_retx_hist_bin_width_mode {
	DOCA_TELEMETRY_ADP_RETX_HIST_BIN_WIDTH_MODE_FIXED = 0,
	DOCA_TELEMETRY_ADP_RETX_HIST_BIN_WIDTH_MODE_DOUBLE = 1,
};

/* Whether the device has adaptive retransmission, and a histogram of it.
 * NOT_SUPPORTED: it does not; NOT_FOUND: it has gone, or the card has no fwctl node;
 * OPERATING_SYSTEM: the user may not open that. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_cap_is_supported(
	const struct doca_devinfo *devinfo);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_cap_histogram_is_supported(
	const struct doca_devinfo *devinfo);
/* Most bins, and the units of the widths. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_cap_get_hist_max_bins(
	const struct doca_devinfo *devinfo, uint32_t *max_bins);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_cap_get_hist_time_units(
	const struct doca_devinfo *devinfo, uint32_t *time_units);

/* An idle context: 1 bin, widths of 1 microsecond, FIXED, all functions, nothing counted.
 * DRIVER: the device cannot tell what it can do. The context outlives the device's handle. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_create(
	struct doca_dev *dev, struct doca_telemetry_adp_retx **adp_retx);
/* BAD_STATE: it runs. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_destroy(
	struct doca_telemetry_adp_retx *adp_retx);

/* BAD_STATE: it runs already; INVALID_VALUE: the device does not accept the configuration, for
 * example because it has no such function; NOT_SUPPORTED: it has no histogram. The counts begin
 * at 0 if bins or functions differ from what was counted before, and else go on. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_start(
	struct doca_telemetry_adp_retx *adp_retx);
/* The device goes on as it is configured. BAD_STATE: the context is idle. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_stop(
	struct doca_telemetry_adp_retx *adp_retx);

/* Setters answer BAD_STATE while the context runs. Getters can be called at any time. */

/* Number of bins, 1 to the most that the device has. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_num_bins(
	struct doca_telemetry_adp_retx *adp_retx, uint32_t num_bins);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_num_bins(
	struct doca_telemetry_adp_retx *adp_retx, uint32_t *num_bins);

/* Width of bin 0 in units, not 0. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_bin0_width(
	struct doca_telemetry_adp_retx *adp_retx, uint16_t bin0_width);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_bin0_width(
	struct doca_telemetry_adp_retx *adp_retx, uint16_t *bin0_width);

/* Width of bin 1 in units, not 0. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_bin1_width(
	struct doca_telemetry_adp_retx *adp_retx, uint16_t bin1_width);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_bin1_width(
	struct doca_telemetry_adp_retx *adp_retx, uint16_t *bin1_width);

/* Width of the bins after bin 1. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_bin_width_mode(
	struct doca_telemetry_adp_retx *adp_retx, enum doca_telemetry_adp_retx_hist_bin_width_mode bin_width_mode);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_bin_width_mode(
	struct doca_telemetry_adp_retx *adp_retx,
	enum doca_telemetry_adp_retx_hist_bin_width_mode *bin_width_mode);

/* Unit of the widths, one that the device has. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_time_unit(
	struct doca_telemetry_adp_retx *adp_retx, enum doca_telemetry_adp_retx_hist_time_unit time_unit);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_time_unit(
	struct doca_telemetry_adp_retx *adp_retx, enum doca_telemetry_adp_retx_hist_time_unit *time_unit);

/* The only function that is counted; unset, the device's and all that belong to it. If vhca_set
 * is 0 afterwards, vhca_id is 0. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_vhca_id(
	struct doca_telemetry_adp_retx *adp_retx, uint16_t vhca_id);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_unset_hist_vhca_id(
	struct doca_telemetry_adp_retx *adp_retx);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_vhca_id(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t *vhca_set, uint16_t *vhca_id);

/* Whether each read sets the counts to 0; anything but 0 is yes. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_clear_on_read(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t clear_on_read);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_clear_on_read(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t *clear_on_read);

/* Whether timeouts are counted; anything but 0 is yes. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_set_hist_count_enable(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t count_enable);
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_get_hist_count_enable(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t *count_enable);

/* Whether the device is configured in another way than the context. If so, the getters tell what
 * the device does from now on. BAD_STATE: the context is idle. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_detect_hist_conf_change(
	struct doca_telemetry_adp_retx *adp_retx, uint8_t *change_detected);

/* The counts into bins, which must have room for the most bins that the device can have, and how
 * many these are. BAD_STATE: the context is idle; NOT_SUPPORTED: the device has no histogram. */
DOCA_EXPERIMENTAL doca_error_t doca_telemetry_adp_retx_read_hist_bins(
	struct doca_telemetry_adp_retx *adp_retx, uint32_t *bins_populated, uint64_t *bins);

FERROCE_END_DECLS

#endif
