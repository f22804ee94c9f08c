/* SPDX-License-Identifier: Apache-2.0
 *
 * A device whose copies happen no earlier than the device promises: when they
 * are waited for.
 */
#ifndef TEST_COMM_LATE_H
#define TEST_COMM_LATE_H

#include <xray/device.h>

/* Has a device of the cpu keep the copies of each thread until it calls sync.
 * Ends the process where a thread has too many. */
void late_copies(xray_device_ops *ops);

#endif
