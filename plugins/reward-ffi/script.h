/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of worker.py.
 */
#ifndef REWARD_FFI_SCRIPT_H
#define REWARD_FFI_SCRIPT_H

extern const char fn_script[];

#endif
