/*
 * Calls every function of the DOCA libraries, as others' programs do.
 *
 *   doca_adp_retx table PCI           wrong calls, and what each must answer
 *   doca_adp_retx flags ARGS...       prints the parameters that it was given
 *   doca_adp_retx count PCI UNIT MODE BINS B0 B1 VHCA CLEAR FILE
 *                                     counts until FILE.stop is there, prints the bins
 *   doca_adp_retx watch PCI FILE      until another process configures the device, prints how
 *   doca_adp_retx hold PCI FILE       until the device goes away
 *   doca_adp_retx list                prints what is known of each device
 *   doca_adp_retx caps PCI            prints what each capability call answers
 *
 * Those that wait make FILE.ready when they have started. VHCA is -1 for all functions.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <doca_argp.h>
#include <doca_buf.h>
#include <doca_buf_inventory.h>
#include <doca_ctx.h>
#include <doca_dev.h>
#include <doca_error.h>
#include <doca_log.h>
#include <doca_mmap.h>
#include <doca_pe.h>
#include <doca_telemetry_adp_retx.h>
#include <doca_version.h>

#define ADP(name) doca_telemetry_adp_retx_##name

DOCA_LOG_REGISTER(INTEROP::ADP_RETX);

static unsigned checks;

static void check(int line, const char *call, bool good, const char *got)
{
	checks++;
	if (good)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, call, got);
	exit(1);
}

#define ANSWERS(code, call) do { \
		doca_error_t got_ = (call); \
		check(__LINE__, #call " is not " #code, got_ == DOCA_##code, doca_error_get_name(got_)); \
	} while (0)
#define OK(call) ANSWERS(SUCCESS, call)
#define INVALID(call) ANSWERS(ERROR_INVALID_VALUE, call)
#define BAD_STATE(call) ANSWERS(ERROR_BAD_STATE, call)
#define MISSING(call) ANSWERS(ERROR_NOT_SUPPORTED, call)
#define IS(what) check(__LINE__, #what, what, "it is not so")

/* What no function takes for one of its objects. */
static void *const nonsense = (void *)0xdeadbee0;

static struct doca_dev *open_device(const char *pci)
{
	struct doca_devinfo **list;
	struct doca_dev *dev = NULL;
	uint32_t count;
	uint8_t equal;

	OK(doca_devinfo_create_list(&list, &count));
	for (uint32_t i = 0; i < count && !dev; i++) {
		OK(doca_devinfo_is_equal_pci_addr(list[i], pci, &equal));
		if (equal)
			OK(doca_dev_open(list[i], &dev));
	}
	OK(doca_devinfo_destroy_list(list));
	check(__LINE__, "there is a device", dev != NULL, pci);
	return dev;
}

static void device_table(const char *pci)
{
	struct doca_devinfo **list, *info;
	struct doca_dev *dev;
	char text[DOCA_DEVINFO_IFACE_NAME_SIZE];
	enum doca_pci_func_type type;
	uint32_t count, index;
	uint16_t vhca;
	uint8_t equal;

	INVALID(doca_devinfo_create_list(NULL, &count));
	INVALID(doca_devinfo_create_list(&list, NULL));
	INVALID(doca_devinfo_destroy_list(NULL));
	INVALID(doca_devinfo_destroy_list((struct doca_devinfo **)nonsense));
	OK(doca_devinfo_create_list(&list, &count));
	IS(count == 1);
	info = list[0];
	INVALID(doca_dev_open(NULL, &dev));
	INVALID(doca_dev_open(nonsense, &dev));
	INVALID(doca_dev_open(info, NULL));
	INVALID(doca_dev_close(NULL));
	INVALID(doca_dev_close(nonsense));
	IS(doca_dev_as_devinfo(NULL) == NULL);
	IS(doca_dev_as_devinfo(nonsense) == NULL);
	INVALID(doca_devinfo_get_pci_addr_str(NULL, text));
	INVALID(doca_devinfo_get_pci_addr_str(info, NULL));
	OK(doca_devinfo_get_pci_addr_str(info, text));
	IS(strcmp(text, pci) == 0);
	INVALID(doca_devinfo_is_equal_pci_addr(NULL, pci, &equal));
	INVALID(doca_devinfo_is_equal_pci_addr(info, NULL, &equal));
	INVALID(doca_devinfo_is_equal_pci_addr(info, pci, NULL));
	INVALID(doca_devinfo_is_equal_pci_addr(info, "fr0", &equal));
	OK(doca_devinfo_is_equal_pci_addr(info, "ff:1f.7", &equal));
	IS(!equal);
	INVALID(doca_devinfo_get_iface_name(NULL, text, sizeof(text)));
	INVALID(doca_devinfo_get_iface_name(info, NULL, sizeof(text)));
	INVALID(doca_devinfo_get_iface_name(info, text, 2));
	OK(doca_devinfo_get_iface_name(info, text, 3));
	IS(strcmp(text, "lo") == 0);
	INVALID(doca_devinfo_get_ibdev_name(NULL, text, sizeof(text)));
	INVALID(doca_devinfo_get_ibdev_name(info, NULL, sizeof(text)));
	INVALID(doca_devinfo_get_ibdev_name(info, text, 0));
	OK(doca_devinfo_get_ibdev_name(info, text, 4));
	IS(strcmp(text, "fr0") == 0);
	INVALID(doca_devinfo_get_vhca_id(NULL, &vhca));
	INVALID(doca_devinfo_get_vhca_id(info, NULL));
	OK(doca_devinfo_get_vhca_id(info, &vhca));
	IS(vhca == 0);
	INVALID(doca_devinfo_get_pci_func_type(NULL, &type));
	INVALID(doca_devinfo_get_pci_func_type(info, NULL));
	OK(doca_devinfo_get_pci_func_type(info, &type));
	IS(type == DOCA_PCI_FUNC_TYPE_PF);
	INVALID(doca_devinfo_get_sf_index(NULL, &index));
	INVALID(doca_devinfo_get_sf_index(info, NULL));
	MISSING(doca_devinfo_get_sf_index(info, &index));

	/* An open device outlives the list; the list's entries do not, and nothing lives twice. */
	OK(doca_dev_open(info, &dev));
	OK(doca_devinfo_destroy_list(list));
	INVALID(doca_devinfo_destroy_list(list));
	INVALID(doca_devinfo_get_ibdev_name(info, text, sizeof(text)));
	INVALID(doca_dev_open(info, &dev));
	info = doca_dev_as_devinfo(dev);
	OK(doca_devinfo_get_ibdev_name(info, text, sizeof(text)));
	OK(doca_dev_close(dev));
	INVALID(doca_dev_close(dev));
	INVALID(doca_devinfo_get_ibdev_name(info, text, sizeof(text)));
	INVALID(ADP(cap_is_supported)(info));
}

static void missing_table(void)
{
	uint8_t byte;
	MISSING(doca_devinfo_rep_create_list(NULL, 0, NULL, NULL));
	MISSING(doca_devinfo_rep_destroy_list(NULL));
	MISSING(doca_devinfo_rep_get_vuid(NULL, NULL, 0));
	MISSING(doca_devinfo_rep_is_equal_pci_addr(NULL, NULL, &byte));
	MISSING(doca_dev_rep_open(NULL, NULL));
	MISSING(doca_dev_rep_close(NULL));
	MISSING(doca_mmap_create(NULL));
	MISSING(doca_mmap_destroy(NULL));
	MISSING(doca_mmap_add_dev(NULL, NULL));
	MISSING(doca_buf_set_data(NULL, NULL, 0));
	MISSING(doca_buf_chain_list(NULL, NULL));
	MISSING(doca_buf_inventory_create(1, NULL));
	MISSING(doca_buf_inventory_destroy(NULL));
	MISSING(doca_buf_inventory_start(NULL));
	MISSING(doca_buf_inventory_buf_get_by_addr(NULL, NULL, NULL, 0, NULL));
	MISSING(doca_pe_create(NULL));
	MISSING(doca_pe_destroy(NULL));
	IS(doca_pe_progress(NULL) == 0);
	MISSING(doca_ctx_stop(NULL));
	MISSING(doca_ctx_get_state(NULL, NULL));
}

static doca_error_t keep(void *value, void *config)
{
	(void)value, (void)config;
	return DOCA_SUCCESS;
}

static void log_and_argp_table(void)
{
	struct doca_argp_param *param, *other;
	struct doca_log_backend *backend;
	char *arguments[] = { "table", "-vid", "3", NULL };
	int source;

	INVALID(doca_log_register_source(NULL, &source));
	INVALID(doca_log_register_source("X", NULL));
	INVALID(doca_log_backend_create_with_file_sdk(NULL, &backend));
	INVALID(doca_log_backend_create_with_file_sdk(stderr, NULL));
	INVALID(doca_log_backend_set_sdk_level(NULL, DOCA_LOG_LEVEL_INFO));
	INVALID(doca_log_backend_set_sdk_level(nonsense, DOCA_LOG_LEVEL_INFO));
	INVALID(doca_log_level_set_global_lower_limit(55));
	INVALID(doca_log_level_set_global_sdk_limit(0));
	INVALID(doca_log(45, log_source, "f", 1, "f", "%d", 1));
	INVALID(doca_log(DOCA_LOG_LEVEL_INFO, 4711, "f", 1, "f", "%d", 1));
	INVALID(doca_log(DOCA_LOG_LEVEL_INFO, log_source, "f", 1, "f", NULL));
	OK(doca_log(DOCA_LOG_LEVEL_INFO, log_source, NULL, 1, NULL, "%d", 1));
	IS(strcmp(doca_error_get_name(DOCA_ERROR_DRIVER), "DOCA_ERROR_DRIVER") == 0);
	IS(strcmp(doca_error_get_name((doca_error_t)32), "unrecognized error code") == 0);
	IS(doca_error_get_descr((doca_error_t)-1)[0] != 0);
	IS(strcmp(doca_version(), doca_version_runtime()) == 0);

	BAD_STATE(doca_argp_destroy());
	BAD_STATE(doca_argp_param_create(&param));
	BAD_STATE(doca_argp_register_param(NULL));
	BAD_STATE(doca_argp_start(3, arguments));
	BAD_STATE(doca_argp_register_version_callback(keep));
	OK(doca_argp_init(NULL, NULL));
	BAD_STATE(doca_argp_init(NULL, NULL));
	INVALID(doca_argp_param_create(NULL));
	INVALID(doca_argp_register_param(NULL));
	INVALID(doca_argp_register_param(nonsense));
	INVALID(doca_argp_register_version_callback(NULL));
	doca_argp_param_set_short_name(NULL, "x");
	doca_argp_param_set_short_name(nonsense, "x");
	OK(doca_argp_param_create(&param));
	INVALID(doca_argp_register_param(param));
	INVALID(doca_argp_register_param(param));
	for (int lacks = 0; lacks < 4; lacks++) {
		OK(doca_argp_param_create(&param));
		doca_argp_param_set_short_name(param, lacks == 0 ? NULL : "vid");
		doca_argp_param_set_type(param, lacks == 1 ? DOCA_ARGP_TYPE_DEVICE : DOCA_ARGP_TYPE_INT);
		doca_argp_param_set_callback(param, lacks == 2 ? NULL : keep);
		if (lacks == 3)
			OK(doca_argp_register_param(param));
		else
			INVALID(doca_argp_register_param(param));
	}
	OK(doca_argp_param_create(&other));
	INVALID(doca_argp_start(0, arguments));
	INVALID(doca_argp_start(3, NULL));
	OK(doca_argp_start(3, arguments));
	BAD_STATE(doca_argp_start(3, arguments));
	BAD_STATE(doca_argp_register_param(other));
	OK(doca_argp_destroy());
	BAD_STATE(doca_argp_destroy());
}

struct settings {
	uint32_t bins;
	uint16_t b0, b1, vhca;
	uint8_t vhca_set, clear, count;
	enum ADP(hist_bin_width_mode) mode;
	enum ADP(hist_time_unit) unit;
};

static struct settings get(struct doca_telemetry_adp_retx *ctx)
{
	struct settings it;
	memset(&it, 0, sizeof(it));
	OK(ADP(get_hist_num_bins)(ctx, &it.bins));
	OK(ADP(get_hist_bin0_width)(ctx, &it.b0));
	OK(ADP(get_hist_bin1_width)(ctx, &it.b1));
	OK(ADP(get_hist_bin_width_mode)(ctx, &it.mode));
	OK(ADP(get_hist_time_unit)(ctx, &it.unit));
	OK(ADP(get_hist_vhca_id)(ctx, &it.vhca_set, &it.vhca));
	OK(ADP(get_hist_clear_on_read)(ctx, &it.clear));
	OK(ADP(get_hist_count_enable)(ctx, &it.count));
	return it;
}

static void set(struct doca_telemetry_adp_retx *ctx, struct settings it)
{
	OK(ADP(set_hist_num_bins)(ctx, it.bins));
	OK(ADP(set_hist_bin0_width)(ctx, it.b0));
	OK(ADP(set_hist_bin1_width)(ctx, it.b1));
	OK(ADP(set_hist_bin_width_mode)(ctx, it.mode));
	OK(ADP(set_hist_time_unit)(ctx, it.unit));
	OK(it.vhca_set ? ADP(set_hist_vhca_id)(ctx, it.vhca) : ADP(unset_hist_vhca_id)(ctx));
	OK(ADP(set_hist_clear_on_read)(ctx, it.clear));
	OK(ADP(set_hist_count_enable)(ctx, it.count));
}

/* Each setter with a good value, all answering the same. */
#define SETTERS(ANSWER, ctx) do { \
		ANSWER(ADP(set_hist_num_bins)(ctx, 2)); \
		ANSWER(ADP(set_hist_bin0_width)(ctx, 3)); \
		ANSWER(ADP(set_hist_bin1_width)(ctx, 4)); \
		ANSWER(ADP(set_hist_bin_width_mode)(ctx, DOCA_TELEMETRY_ADP_RETX_HIST_BIN_WIDTH_MODE_DOUBLE)); \
		ANSWER(ADP(set_hist_time_unit)(ctx, DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_MSEC)); \
		ANSWER(ADP(set_hist_vhca_id)(ctx, 0)); \
		ANSWER(ADP(unset_hist_vhca_id)(ctx)); \
		ANSWER(ADP(set_hist_clear_on_read)(ctx, 2)); \
		ANSWER(ADP(set_hist_count_enable)(ctx, 1)); \
	} while (0)

/* Each function of a context that does not exist. */
static void no_context(struct doca_telemetry_adp_retx *ctx)
{
	struct settings it;
	uint64_t bins[255];
	uint32_t count;
	uint8_t changed;

	SETTERS(INVALID, ctx);
	INVALID(ADP(get_hist_num_bins)(ctx, &it.bins));
	INVALID(ADP(get_hist_bin0_width)(ctx, &it.b0));
	INVALID(ADP(get_hist_bin1_width)(ctx, &it.b1));
	INVALID(ADP(get_hist_bin_width_mode)(ctx, &it.mode));
	INVALID(ADP(get_hist_time_unit)(ctx, &it.unit));
	INVALID(ADP(get_hist_vhca_id)(ctx, &it.vhca_set, &it.vhca));
	INVALID(ADP(get_hist_clear_on_read)(ctx, &it.clear));
	INVALID(ADP(get_hist_count_enable)(ctx, &it.count));
	INVALID(ADP(start)(ctx));
	INVALID(ADP(stop)(ctx));
	INVALID(ADP(destroy)(ctx));
	INVALID(ADP(detect_hist_conf_change)(ctx, &changed));
	INVALID(ADP(read_hist_bins)(ctx, &count, bins));
}

static void telemetry_table(const char *pci)
{
	struct doca_telemetry_adp_retx *ctx;
	struct doca_dev *dev = open_device(pci);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	uint32_t max_bins, units, count;
	struct settings before, after;
	uint64_t bins[255];
	uint8_t byte;
	uint16_t word;

	for (int i = 0; i < 2; i++) {
		void *bad = i ? nonsense : NULL;
		INVALID(ADP(cap_is_supported)(bad));
		INVALID(ADP(cap_histogram_is_supported)(bad));
		INVALID(ADP(cap_get_hist_max_bins)(bad, &max_bins));
		INVALID(ADP(cap_get_hist_time_units)(bad, &units));
		INVALID(ADP(create)(bad, &ctx));
		no_context(bad);
	}
	OK(ADP(cap_is_supported)(info));
	OK(ADP(cap_histogram_is_supported)(info));
	INVALID(ADP(cap_get_hist_max_bins)(info, NULL));
	OK(ADP(cap_get_hist_max_bins)(info, &max_bins));
	INVALID(ADP(cap_get_hist_time_units)(info, NULL));
	OK(ADP(cap_get_hist_time_units)(info, &units));
	IS(max_bins >= 5 && max_bins <= 255 && units == 0xf);
	INVALID(ADP(create)(dev, NULL));
	OK(ADP(create)(dev, &ctx));

	before = get(ctx);
	IS(before.bins == 1 && before.b0 == 1 && before.b1 == 1 && before.mode == 0);
	IS(before.unit == DOCA_TELEMETRY_ADP_RETX_HIST_TIME_UNIT_USEC);
	IS(!before.vhca_set && !before.clear && !before.count);
	INVALID(ADP(set_hist_num_bins)(ctx, 0));
	INVALID(ADP(set_hist_num_bins)(ctx, max_bins + 1));
	INVALID(ADP(set_hist_bin0_width)(ctx, 0));
	INVALID(ADP(set_hist_bin1_width)(ctx, 0));
	INVALID(ADP(set_hist_bin_width_mode)(ctx, 2));
	INVALID(ADP(set_hist_time_unit)(ctx, 0));
	INVALID(ADP(set_hist_time_unit)(ctx, 6));
	INVALID(ADP(set_hist_time_unit)(ctx, 0x10));
	after = get(ctx);
	IS(memcmp(&before, &after, sizeof(after)) == 0);
	INVALID(ADP(get_hist_num_bins)(ctx, NULL));
	INVALID(ADP(get_hist_bin0_width)(ctx, NULL));
	INVALID(ADP(get_hist_bin1_width)(ctx, NULL));
	INVALID(ADP(get_hist_bin_width_mode)(ctx, NULL));
	INVALID(ADP(get_hist_time_unit)(ctx, NULL));
	INVALID(ADP(get_hist_vhca_id)(ctx, NULL, &word));
	INVALID(ADP(get_hist_vhca_id)(ctx, &byte, NULL));
	INVALID(ADP(get_hist_clear_on_read)(ctx, NULL));
	INVALID(ADP(get_hist_count_enable)(ctx, NULL));

	BAD_STATE(ADP(stop)(ctx));
	BAD_STATE(ADP(detect_hist_conf_change)(ctx, &byte));
	BAD_STATE(ADP(read_hist_bins)(ctx, &count, bins));
	OK(ADP(set_hist_vhca_id)(ctx, 7));
	INVALID(ADP(start)(ctx));
	OK(ADP(unset_hist_vhca_id)(ctx));

	SETTERS(OK, ctx);
	after = get(ctx);
	IS(after.bins == 2 && after.b0 == 3 && after.b1 == 4 && after.mode == 1 && after.unit == 8);
	IS(after.clear == 1 && after.count == 1);
	OK(ADP(start)(ctx));
	BAD_STATE(ADP(start)(ctx));
	BAD_STATE(ADP(destroy)(ctx));
	SETTERS(BAD_STATE, ctx);
	INVALID(ADP(detect_hist_conf_change)(ctx, NULL));
	INVALID(ADP(read_hist_bins)(ctx, NULL, bins));
	INVALID(ADP(read_hist_bins)(ctx, &count, NULL));
	OK(ADP(detect_hist_conf_change)(ctx, &byte));
	IS(!byte);
	OK(ADP(read_hist_bins)(ctx, &count, bins));
	IS(count == 2);
	/* The context does not need the handle by which it was made. */
	OK(doca_dev_close(dev));
	OK(ADP(read_hist_bins)(ctx, &count, bins));
	OK(ADP(stop)(ctx));
	BAD_STATE(ADP(stop)(ctx));
	OK(ADP(destroy)(ctx));
	no_context(ctx);
}

static doca_error_t print_text(void *value, void *config)
{
	printf("%s text %s\n", (char *)config, (char *)value);
	return strcmp(value, "refuse") ? DOCA_SUCCESS : DOCA_ERROR_TOO_BIG;
}

static doca_error_t print_number(void *value, void *config)
{
	printf("%s number %d\n", (char *)config, *(int *)value);
	return DOCA_SUCCESS;
}

static doca_error_t print_switch(void *value, void *config)
{
	printf("%s switch %s\n", (char *)config, *(bool *)value ? "on" : "off");
	return DOCA_SUCCESS;
}

static doca_error_t print_factor(void *value, void *config)
{
	printf("%s factor %g\n", (char *)config, *(double *)value);
	return DOCA_SUCCESS;
}

static doca_error_t print_version(void *value, void *config)
{
	printf("version %s %s\n", value ? "?" : doca_version_runtime(), (char *)config);
	return DOCA_SUCCESS;
}

static void add(const char *shorter, const char *longer, enum doca_argp_type type,
		doca_argp_param_cb_t callback)
{
	struct doca_argp_param *param;
	OK(doca_argp_param_create(&param));
	doca_argp_param_set_short_name(param, shorter);
	doca_argp_param_set_long_name(param, longer);
	doca_argp_param_set_description(param, "described");
	doca_argp_param_set_callback(param, callback);
	doca_argp_param_set_type(param, type);
	OK(doca_argp_register_param(param));
}

static int flags(int argc, char **argv)
{
	doca_error_t result;
	OK(doca_argp_init("flags", "got"));
	add("p", "pci-addr", DOCA_ARGP_TYPE_STRING, print_text);
	add("vid", "vhca-id", DOCA_ARGP_TYPE_INT, print_number);
	add("c", "clear", DOCA_ARGP_TYPE_BOOLEAN, print_switch);
	add("f", "factor", DOCA_ARGP_TYPE_DOUBLE, print_factor);
	OK(doca_argp_register_version_callback(print_version));
	result = doca_argp_start(argc, argv);
	printf("%s\n", doca_error_get_name(result));
	DOCA_LOG_DBG("a line of %s, %d and %.1f", "text", 42, 0.5);
	DOCA_LOG_ERR("one of %d %d %d %d", 1, 2, 3, 4);
	(void)ADP(start)(NULL);
	OK(doca_argp_destroy());
	return 0;
}

static void make(const char *file, const char *end)
{
	char path[4096];
	FILE *made;
	snprintf(path, sizeof(path), "%s.%s", file, end);
	made = fopen(path, "w");
	check(__LINE__, "a file can be made", made != NULL, path);
	fclose(made);
}

static bool is_there(const char *file, const char *end)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s.%s", file, end);
	return access(path, F_OK) == 0;
}

static struct doca_telemetry_adp_retx *running(const char *pci, struct settings it)
{
	struct doca_telemetry_adp_retx *ctx;
	OK(ADP(create)(open_device(pci), &ctx));
	set(ctx, it);
	OK(ADP(start)(ctx));
	return ctx;
}

static void count(char **argv)
{
	struct settings it = {
		.unit = atoi(argv[1]), .mode = atoi(argv[2]), .bins = atoi(argv[3]), .b0 = atoi(argv[4]),
		.b1 = atoi(argv[5]), .vhca = atoi(argv[6]), .vhca_set = atoi(argv[6]) >= 0,
		.clear = atoi(argv[7]), .count = 1,
	};
	struct doca_telemetry_adp_retx *ctx = running(argv[0], it);
	uint64_t bins[255], sums[255] = { 0 };
	uint32_t populated;
	bool last = false;

	make(argv[8], "ready");
	while (!last) {
		usleep(20000);
		last = is_there(argv[8], "stop");
		OK(ADP(read_hist_bins)(ctx, &populated, bins));
		IS(populated == it.bins);
		for (uint32_t i = 0; i < populated; i++)
			sums[i] = it.clear ? sums[i] + bins[i] : bins[i];
	}
	OK(ADP(stop)(ctx));
	OK(ADP(destroy)(ctx));
	for (uint32_t i = 0; i < it.bins; i++)
		printf("%" PRIu64 "\n", sums[i]);
}

static const struct settings four = { .unit = 8, .bins = 4, .b0 = 1, .b1 = 1, .count = 1 };

static void watch(char **argv)
{
	struct doca_telemetry_adp_retx *ctx = running(argv[0], four);
	uint64_t bins[255];
	uint32_t populated;
	uint8_t changed = 0;
	struct settings it;

	OK(ADP(detect_hist_conf_change)(ctx, &changed));
	IS(!changed);
	make(argv[1], "ready");
	while (!changed) {
		usleep(5000);
		OK(ADP(detect_hist_conf_change)(ctx, &changed));
	}
	it = get(ctx);
	printf("bins %u widths %u %u mode %d unit %d vhca %u %u clear %u count %u\n", it.bins, it.b0,
	       it.b1, it.mode, it.unit, it.vhca_set, it.vhca, it.clear, it.count);
	OK(ADP(detect_hist_conf_change)(ctx, &changed));
	IS(!changed);
	OK(ADP(read_hist_bins)(ctx, &populated, bins));
	IS(populated == it.bins);
	OK(ADP(stop)(ctx));
	OK(ADP(destroy)(ctx));
}

static void hold(char **argv)
{
	struct doca_dev *dev = open_device(argv[0]);
	struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	struct doca_telemetry_adp_retx *ctx = running(argv[0], four);
	struct doca_telemetry_adp_retx *other;
	uint64_t bins[255];
	uint32_t number;
	uint8_t changed;

	make(argv[1], "ready");
	while (!is_there(argv[1], "stop"))
		usleep(5000);
	ANSWERS(ERROR_DRIVER, ADP(read_hist_bins)(ctx, &number, bins));
	ANSWERS(ERROR_DRIVER, ADP(detect_hist_conf_change)(ctx, &changed));
	ANSWERS(ERROR_NOT_FOUND, ADP(cap_is_supported)(info));
	ANSWERS(ERROR_NOT_FOUND, ADP(cap_histogram_is_supported)(info));
	ANSWERS(ERROR_DRIVER, ADP(cap_get_hist_max_bins)(info, &number));
	ANSWERS(ERROR_DRIVER, ADP(cap_get_hist_time_units)(info, &number));
	ANSWERS(ERROR_DRIVER, ADP(create)(dev, &other));
	IS(get(ctx).bins == 4);
	OK(ADP(stop)(ctx));
	ANSWERS(ERROR_DRIVER, ADP(start)(ctx));
	OK(ADP(destroy)(ctx));
	OK(doca_dev_close(dev));
}

static void list(void)
{
	struct doca_devinfo **infos;
	char pci[DOCA_DEVINFO_PCI_ADDR_SIZE], text[DOCA_DEVINFO_IFACE_NAME_SIZE];
	enum doca_pci_func_type type;
	struct doca_dev *dev;
	uint32_t count;
	uint16_t vhca;
	doca_error_t result;

	OK(doca_devinfo_create_list(&infos, &count));
	for (uint32_t i = 0; i < count; i++) {
		OK(doca_devinfo_get_pci_addr_str(infos[i], pci));
		OK(doca_devinfo_get_pci_func_type(infos[i], &type));
		printf("%s %s", pci, type == DOCA_PCI_FUNC_TYPE_VF ? "VF" : "PF");
		result = doca_devinfo_get_ibdev_name(infos[i], text, sizeof(text));
		printf(" %s", result == DOCA_SUCCESS ? text : doca_error_get_name(result));
		result = doca_devinfo_get_iface_name(infos[i], text, sizeof(text));
		printf(" %s", result == DOCA_SUCCESS ? text : doca_error_get_name(result));
		result = doca_devinfo_get_vhca_id(infos[i], &vhca);
		if (result == DOCA_SUCCESS)
			printf(" %u", vhca);
		else
			printf(" %s", doca_error_get_name(result));
		OK(doca_dev_open(infos[i], &dev));
		result = ADP(cap_is_supported)(doca_dev_as_devinfo(dev));
		printf(" %s\n", doca_error_get_name(result));
		OK(doca_dev_close(dev));
	}
	OK(doca_devinfo_destroy_list(infos));
}

static void caps(const char *pci)
{
	struct doca_dev *dev = open_device(pci);
	const struct doca_devinfo *info = doca_dev_as_devinfo(dev);
	uint32_t number;

#define PRINT(call) printf("%s\n", doca_error_get_name(call))
	PRINT(ADP(cap_is_supported)(info));
	PRINT(ADP(cap_histogram_is_supported)(info));
	PRINT(ADP(cap_get_hist_max_bins)(info, &number));
	PRINT(ADP(cap_get_hist_time_units)(info, &number));
#undef PRINT
	OK(doca_dev_close(dev));
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct doca_log_backend *sdk;

	if (!strcmp(what, "table"))
		log_and_argp_table();
	OK(doca_log_backend_create_standard());
	OK(doca_log_backend_create_with_file_sdk(stderr, &sdk));
	OK(doca_log_backend_set_sdk_level(sdk, DOCA_LOG_LEVEL_WARNING));
	if (!strcmp(what, "flags"))
		return flags(argc - 1, argv + 1);
	if (!strcmp(what, "table") && argc == 3) {
		device_table(argv[2]);
		missing_table();
		telemetry_table(argv[2]);
		printf("%u checks\n", checks);
	} else if (!strcmp(what, "count") && argc == 11) {
		count(argv + 2);
	} else if (!strcmp(what, "watch") && argc == 4) {
		watch(argv + 2);
	} else if (!strcmp(what, "hold") && argc == 4) {
		hold(argv + 2);
	} else if (!strcmp(what, "list") && argc == 2) {
		list();
	} else if (!strcmp(what, "caps") && argc == 3) {
		caps(argv[2]);
	} else {
		fprintf(stderr, "see the head of doca_adp_retx.c\n");
		return 2;
	}
	return 0;
}
