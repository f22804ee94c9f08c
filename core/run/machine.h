/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of a machine from which times are predicted: what its data sheet
 * says, and how much of that programs reach.
 */
#ifndef XR_MACHINE_H
#define XR_MACHINE_H

#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

#define XR_MACHINE_NAME_CAP 32

/* Rates are those of one rank, which has one device. */
typedef struct xr_machine {
    char name[XR_MACHINE_NAME_CAP]; /* "h200"; "": figures alone were given */
    double flops;                   /* FLOP/s of products of bfloat16 */
    double flops32;                 /* FLOP/s of products of float32 */
    double memory;                  /* bytes/s of the device's memory */
    double capacity;                /* bytes of it */
    double node;                    /* ranks of a node */
    double link;            /* bytes/s to a rank of the node, each way */
    double network;         /* bytes/s to other nodes, each way */
    double host;            /* bytes/s to the memory of the host, each way */
    double link_latency;    /* seconds of a message in the node */
    double network_latency; /* seconds of a message to another node */
    double launch;          /* seconds that starting a kernel costs */
    double update;          /* seconds of the host for each update */
    /* Shares of the rates above that are reached, above 0 and at most 1. */
    double product_share;
    double attention_share;
    double memory_share;
    double link_share; /* of link, network and host */
} xr_machine;

/* Reads "h200", or "h200,network=25e9": a known machine, whose figures may be
 * replaced. Without a known machine the figures begin as 0, so flops (or
 * flops32) and memory must be given; shares begin as 1 and node as unlimited,
 * and a link that is not given is as fast as the memory, or the network as the
 * link. XRAY_E_CONFIG: the text is wrong. */
xray_status xr_machine_read(const char *text, xr_err *err, xr_machine *out);

/* Appends the figures that are neither 0 nor unlimited as a line for people:
 * "h200, flops 9.89e+14, ...". */
void xr_machine_text(const xr_machine *machine, xr_str *out);

#endif
