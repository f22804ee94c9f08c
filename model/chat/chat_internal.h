/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the compiled templates of a model for the files of this folder.
 */
#ifndef XM_CHAT_INTERNAL_H
#define XM_CHAT_INTERNAL_H

#include "model/chat/jinja.h"

struct xm_chat {
    struct xm_chat_named {
        char *name;
        xm_jtemplate tmpl;
    } * named;
    size_t count;
    cJSON *special; /* values of the special tokens by name, or NULL */
};

/* Compiles a further template and adds it to `chat`. */
xray_status xm_chat_add(xm_chat *chat, const char *name, const char *source,
                        size_t size, const char *where, xr_err *err);

#endif
