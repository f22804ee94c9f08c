/* SPDX-License-Identifier: Apache-2.0
 *
 * Must not compile: it says of a member what is not so.
 */
#include "tests/abi/layout.h"

#include <xray/plugin.h>

AT(xray_component, iface, 16);
