/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes errno values together with the process limits that cause them.
 */
#include "core/base/system_error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

const char *xr_system_error(int code, char *buffer)
{
    static const struct {
        int code;
        int limit;
        char letter;  /* option of ulimit */
        unsigned one; /* unit of ulimit's number: bytes, or 1 for files */
    } limits[] = { { EMFILE, RLIMIT_NOFILE, 'n', 1 },
                   { EFBIG, RLIMIT_FSIZE, 'f', 1024 },
                   { ENOMEM, RLIMIT_AS, 'v', 1024 } };
    struct rlimit set;
    (void)snprintf(buffer, XR_SYSTEM_ERROR_CAP, "%s", strerror(code));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (limits[i].code == code && getrlimit(limits[i].limit, &set) == 0 &&
            set.rlim_cur != RLIM_INFINITY)
            (void)snprintf(buffer, XR_SYSTEM_ERROR_CAP,
                           "%s (ulimit -%c is %llu)", strerror(code),
                           limits[i].letter,
                           (unsigned long long)set.rlim_cur / limits[i].one);
    return buffer;
}
