/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "core/rl/session_parts.h"

#define NAME "abcdefghijklmnopqrstuvwxyz0123456789_.-"
#define KEY "abcdefghijklmnopqrstuvwxyz0123456789_"

/* The key at `at` if the section has it, with the bytes it takes; else 0. */
static size_t key_of(const xr_session *s, const char *section, const char *at,
                     char *out, size_t cap)
{
    size_t size = strspn(at, KEY);
    if (!size || size >= cap || (at[size] && !strchr(": =", at[size])))
        return 0;
    (void)snprintf(out, cap, "%.*s", (int)size, at);
    return xr_config_get(s->config, section, out) ? size : 0;
}

/* "[section] key" at `at`: the origin, NULL if it is none. */
static const char *bracketed(const xr_session *s, const char *at)
{
    char section[160];
    char key[80];
    size_t size = strspn(at + 1, NAME);
    if (at[size + 1] != ']' || at[size + 2] != ' ' || size >= sizeof(section))
        return NULL;
    (void)snprintf(section, sizeof(section), "%.*s", (int)size, at + 1);
    return key_of(s, section, at + size + 3, key, sizeof(key))
               ? xr_config_place(s->config, section, key)
               : NULL;
}

void xr_session_place(const xr_session *s, const char *section, xr_err *err)
{
    xr_err whole = *err;
    char key[80];
    const char *at = whole.text;
    for (;;) {
        if (*at == '[') {
            const char *origin = bracketed(s, at);
            if (origin)
                (void)xr_fail(err, XRAY_E_CONFIG, "%s: %s", origin, at);
            return;
        }
        if (section && key_of(s, section, at, key, sizeof(key))) {
            (void)xr_fail(err, XRAY_E_CONFIG, "%s: [%s] %s",
                          xr_config_place(s->config, section, key), section,
                          at);
            return;
        }
        size_t size = strspn(at, NAME);
        if (!size || at[size] != ':' || at[size + 1] != ' ')
            return;
        at += size + 2;
    }
}
