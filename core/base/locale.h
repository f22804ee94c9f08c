/* SPDX-License-Identifier: Apache-2.0
 *
 * Switches the calling thread to the "C" locale, so that numbers are read and
 * written the same way whatever locale the program has set.
 */
#ifndef XR_LOCALE_H
#define XR_LOCALE_H

#include <locale.h>

typedef struct xr_locale {
    locale_t c;     /* (locale_t)0: the locale was not changed */
    locale_t saved; /* the thread's previous locale */
} xr_locale;

static inline xr_locale xr_locale_use_c(void)
{
    xr_locale l = { newlocale(LC_ALL_MASK, "C", (locale_t)0), (locale_t)0 };
    if (l.c)
        l.saved = uselocale(l.c);
    return l;
}

static inline void xr_locale_restore(xr_locale l)
{
    if (!l.c)
        return;
    (void)uselocale(l.saved);
    freelocale(l.c);
}

#endif
