/* SPDX-License-Identifier: Apache-2.0
 *
 * An actor's record (xray/runtime.h): its phase, and bytes of its object.
 */
#ifndef XR_RECORD_H
#define XR_RECORD_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the phase with its NUL; the object's bytes follow. */
#define XR_RECORD_PHASE 64u

/* Writes the phase, of which 63 bytes are kept. May be called by any thread. */
void xr_record_put_phase(void *record, const char *text);
/* Reads the phase as one line; `size` of `out` includes the NUL. */
void xr_record_get_phase(const void *record, char *out, size_t size);

#endif
