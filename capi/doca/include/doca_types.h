/* Ferroce: types that several of these headers need. */
#ifndef DOCA_TYPES_H_
#define DOCA_TYPES_H_

#include <stdint.h>

/* What a program attaches to an object. */
union doca_data {
	void *ptr;
	uint64_t u64;
};

/* What a device is on its PCI bus. Ferroce's devices are PFs. */
enum doca_pci_func_type {
	DOCA_PCI_FUNC_TYPE_PF = 0,
	DOCA_PCI_FUNC_TYPE_VF = 1,
	DOCA_PCI_FUNC_TYPE_SF = 2,
};

#endif
