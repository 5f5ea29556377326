//! The device, sans-IO: PD, MR, CQ, SRQ, QP, registers, counters, histogram, impairments.
