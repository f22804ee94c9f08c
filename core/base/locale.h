/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in the "C" locale, for the calling thread only, whatever the program
 * around us has set.
 */
#ifndef XR_LOCALE_H
#define XR_LOCALE_H

#include <locale.h>

typedef struct xr_locale {
    locale_t c;     /* (locale_t)0: nothing was changed */
    locale_t saved; /* what the thread had */
} xr_locale;

static inline xr_locale xr_locale_c(void)
{
    xr_locale l = { newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0 };
    if (l.c)
        l.saved = uselocale(l.c);
    return l;
}

static inline void xr_locale_back(xr_locale l)
{
    if (!l.c)
        return;
    (void)uselocale(l.saved);
    freelocale(l.c);
}

#endif
