/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of device-cuda as a struct.
 */
#ifndef CUDA_CONFIG_H
#define CUDA_CONFIG_H

#include <stdint.h>

#define CUDA_FLOAT32 0
#define CUDA_BFLOAT16 1

#define CUDA_PRODUCTS_OWN 0
#define CUDA_PRODUCTS_CUBLASLT 1 /* in bfloat16, if it can be loaded */

typedef struct cuda_config {
    int64_t index;     /* of the device; -1: chosen by XRAY_RANK */
    int64_t precision; /* CUDA_* */
    int64_t products;  /* CUDA_PRODUCTS_* */
    uint64_t memory;   /* bytes that plans assume; 0: what the device has */
} cuda_config;

#endif
