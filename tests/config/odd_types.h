/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines a table with bounds, units and similar names for the suites of the
 * decoder.
 */
#ifndef XR_ODD_TYPES_H
#define XR_ODD_TYPES_H

#include "tests/config/config_testing.h"

typedef struct odd_types {
    uint32_t flag;
    uint32_t reserved;
    int64_t count;
    int64_t free_count;
    double rate;
    uint64_t memory;
    int64_t wait;
    int64_t seconds;
    const char *name;
    const char *file;
    int64_t mode;
    xray_list list;
    xray_list files;
    const char *token;
    int64_t strange;
    int64_t maybe;
    uint64_t room;
} odd_types;

static const xray_choice modes[] = { { "linear", 7, "" },
                                     { "cosine", 9, "" },
                                     { "liner", 11, "" },
                                     { NULL, 0, NULL } };

static const xray_option options[] = {
    XRAY_BOOL(odd_types, flag, "false", 0u, "0.1", ""),
    XRAY_INT(odd_types, count, "3", 1, 10, NULL, 0u, "0.1", ""),
    XRAY_INT(odd_types, free_count, "-5", 1, 0, NULL, 0u, "0.1", ""),
    XRAY_REAL(odd_types, rate, "0.5", 0.25, 0.75, NULL, 0u, "0.1", ""),
    XRAY_BYTES(odd_types, memory, "1K", 1, 0, 0u, "0.1", ""),
    XRAY_DURATION(odd_types, wait, "2s", 5e8, 36e11, NULL, 0u, "0.1", ""),
    XRAY_DURATION(odd_types, seconds, "7", 0, 1e15, "s", 0u, "0.1", ""),
    XRAY_STRING(odd_types, name, "nobody", 0u, "0.1", ""),
    XRAY_PATH(odd_types, file, "", 0u, "0.1", ""),
    XRAY_CHOICE(odd_types, mode, "linear", modes, 0u, "0.1", ""),
    XRAY_LIST(odd_types, list, "a,b", 0u, "0.1", ""),
    XRAY_LIST(odd_types, files, "", XRAY_OPT_PATHS, "0.1", ""),
    XRAY_STRING(odd_types, token, "", XRAY_OPT_SECRET, "0.1", ""),
    XRAY_TRISTATE(odd_types, maybe, "auto", 0u, "0.1", ""),
    XRAY_BYTES(odd_types, room, "64M", 1024, 0x1p40, 0u, "0.1", ""),
};

#endif
