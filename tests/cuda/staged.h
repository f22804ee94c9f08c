/* SPDX-License-Identifier: Apache-2.0
 *
 * A device whose memory the host cannot read, for tests that pass host memory
 * to operators: each call copies its operands to the device and its results
 * back. Memory from `alloc` is host memory, too, with a block of the device as
 * its counterpart.
 */
#ifndef CUDA_TEST_STAGED_H
#define CUDA_TEST_STAGED_H

#include <xray/device.h>

/* Wraps a real device, which its `destroy` destroys too; *out_ops lives as
 * long. Returns NULL if there is no memory. */
void *staged_around(const xray_device_ops *real, void *self,
                    const xray_device_ops **out_ops);

#endif
