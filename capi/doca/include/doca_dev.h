/*
 * Ferroce: devices.
 *
 * All functions answer INVALID_VALUE to NULL and to what is no live object. There are no
 * representors: the functions of the others (rep) answer NOT_SUPPORTED.
 */
#ifndef DOCA_DEV_H_
#define DOCA_DEV_H_

#include <stdint.h>
#include <doca_compat.h>
#include <doca_error.h>
#include <doca_types.h>

FERROCE_BEGIN_DECLS

struct doca_devinfo;
struct doca_devinfo_rep;
struct doca_dev;
struct doca_dev_rep;

enum doca_devinfo_rep_filter {
	DOCA_DEVINFO_REP_FILTER_ALL = 0,
	DOCA_DEVINFO_REP_FILTER_NET = 1 << 1,
	DOCA_DEVINFO_REP_FILTER_EMULATED = 1 << 2,
};

/* Room for texts, with the zero at their end. */
#define DOCA_DEVINFO_VUID_SIZE 128
#define DOCA_DEVINFO_IPV4_ADDR_SIZE 4
#define DOCA_DEVINFO_IPV6_ADDR_SIZE 16
#define DOCA_DEVINFO_MAC_ADDR_SIZE 6
#define DOCA_DEVINFO_IFACE_NAME_SIZE 256
#define DOCA_DEVINFO_IBDEV_NAME_SIZE 64
#define DOCA_DEVINFO_PCI_ADDR_SIZE 13
#define DOCA_DEVINFO_PCI_BDF_SIZE 8
#define DOCA_DEVINFO_REP_VUID_SIZE 128
#define DOCA_DEVINFO_REP_PCI_ADDR_SIZE 13
#define DOCA_DEVINFO_REP_PCI_BDF_SIZE 8

/* The user's devices in the order of `ferroce dev`, then the cards of this system.
 * OPERATING_SYSTEM, DRIVER: they cannot be read; NO_MEMORY. */
DOCA_STABLE doca_error_t doca_devinfo_create_list(struct doca_devinfo ***dev_list,
						  uint32_t *nb_devs);
/* Ends the list and its entries; devices that were opened stay. */
DOCA_STABLE doca_error_t doca_devinfo_destroy_list(struct doca_devinfo **dev_list);

/* NOT_FOUND: the device has gone; OPERATING_SYSTEM, DRIVER: it cannot be used. Whether a card can be
 * used is asked when its registers are. */
DOCA_STABLE doca_error_t doca_dev_open(struct doca_devinfo *devinfo, struct doca_dev **dev);
DOCA_STABLE doca_error_t doca_dev_close(struct doca_dev *dev);
/* What is known of an open device, until it is closed. NULL for what is no open device. */
DOCA_STABLE struct doca_devinfo *doca_dev_as_devinfo(const struct doca_dev *dev);

/* Room for DOCA_DEVINFO_PCI_ADDR_SIZE bytes: "0000:1a:00.0". */
DOCA_STABLE doca_error_t doca_devinfo_get_pci_addr_str(const struct doca_devinfo *devinfo,
						       char *pci_addr_str);
/* "1a:00.0" stands for "0000:1a:00.0". INVALID_VALUE: no PCI address. */
DOCA_STABLE doca_error_t doca_devinfo_is_equal_pci_addr(const struct doca_devinfo *devinfo,
							const char *pci_addr_str, uint8_t *is_equal);
/* Texts into a buffer of size bytes. INVALID_VALUE: it is too small; NOT_FOUND: the device's
 * address is on no interface, or the card has no such name. */
DOCA_STABLE doca_error_t doca_devinfo_get_iface_name(const struct doca_devinfo *devinfo,
						     char *iface_name, uint32_t size);
DOCA_STABLE doca_error_t doca_devinfo_get_ibdev_name(const struct doca_devinfo *devinfo,
						     char *ibdev_name, uint32_t size);
/* A device of Ferroce's has one function, 0. NOT_SUPPORTED: a card. */
DOCA_EXPERIMENTAL doca_error_t doca_devinfo_get_vhca_id(const struct doca_devinfo *devinfo,
							uint16_t *vhca_id);
DOCA_EXPERIMENTAL doca_error_t doca_devinfo_get_pci_func_type(
	const struct doca_devinfo *devinfo, enum doca_pci_func_type *pci_func_type);
/* NOT_SUPPORTED: a device is no SF. */
DOCA_EXPERIMENTAL doca_error_t doca_devinfo_get_sf_index(const struct doca_devinfo *devinfo,
							 uint32_t *sf_index);

DOCA_STABLE doca_error_t doca_devinfo_rep_create_list(struct doca_dev *dev, int filter,
						      struct doca_devinfo_rep ***dev_list_rep,
						      uint32_t *nb_devs_rep);
DOCA_STABLE doca_error_t doca_devinfo_rep_destroy_list(struct doca_devinfo_rep **dev_list_rep);
DOCA_STABLE doca_error_t doca_dev_rep_open(struct doca_devinfo_rep *devinfo,
					   struct doca_dev_rep **dev_rep);
DOCA_STABLE doca_error_t doca_dev_rep_close(struct doca_dev_rep *dev);
DOCA_STABLE doca_error_t doca_devinfo_rep_get_vuid(const struct doca_devinfo_rep *devinfo_rep,
						   char *rep_vuid, uint32_t size);
DOCA_STABLE doca_error_t doca_devinfo_rep_is_equal_pci_addr(
	const struct doca_devinfo_rep *devinfo_rep, const char *pci_addr_str, uint8_t *is_equal);

FERROCE_END_DECLS

#endif
