/* SPDX-License-Identifier: Apache-2.0
 *
 * A device whose memory the host cannot read, for tests that hand host memory
 * to operators: each call copies what it needs to the device and its results
 * back. What `alloc` gives is host memory too, with a block of the device
 * behind it.
 */
#ifndef CUDA_TEST_STAGED_H
#define CUDA_TEST_STAGED_H

#include <xray/device.h>

/* Such a device around a real one, which its `destroy` destroys too; *out_ops
 * lives as long. NULL: no memory. */
void *staged_around(const xray_device_ops *real, void *self,
                    const xray_device_ops **out_ops);

#endif
