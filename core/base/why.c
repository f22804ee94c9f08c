/* SPDX-License-Identifier: Apache-2.0 */
#include "core/base/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

const char *xr_why(int code, char *buffer)
{
    static const struct {
        int code;
        int limit;
        char letter;  /* of ulimit */
        unsigned one; /* what ulimit counts in, bytes or files */
    } limits[] = { { EMFILE, RLIMIT_NOFILE, 'n', 1 },
                   { EFBIG, RLIMIT_FSIZE, 'f', 1024 },
                   { ENOMEM, RLIMIT_AS, 'v', 1024 } };
    struct rlimit set;
    (void)snprintf(buffer, XR_WHY_CAP, "%s", strerror(code));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (limits[i].code == code && getrlimit(limits[i].limit, &set) == 0 &&
            set.rlim_cur != RLIM_INFINITY)
            (void)snprintf(buffer, XR_WHY_CAP, "%s (ulimit -%c is %llu)",
                           strerror(code), limits[i].letter,
                           (unsigned long long)set.rlim_cur / limits[i].one);
    return buffer;
}
