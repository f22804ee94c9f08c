/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/plugin.h - what a plugin gives the host.
 *
 * A plugin is a shared object that exports one symbol, xray_plugin_query, and
 * carries one ELF note, so that it can be listed without running its code.
 */
#ifndef XRAY_PLUGIN_H
#define XRAY_PLUGIN_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One implementation of one interface. */
/* The contracts of docs/numerics.md, by id. */
#define XRAY_NUMERICS_FP32 "xray.fp32/1"
#define XRAY_NUMERICS_FP32_BF16_WEIGHTS "xray.fp32-bf16-weights/1"
#define XRAY_NUMERICS_CUDA_BF16 "xray.cuda-bf16/1"

typedef struct xray_component {
    xray_header header;
    const char *iface;   /* "xray.algo/0": which vtable `ops` is */
    const char *name;    /* "grpo": what the INI file says */
    const char *summary; /* one line */
    const void *ops;     /* interface vtable, starts with xray_header */
    const xray_option *options;
    uint32_t option_count;
    uint32_t option_stride; /* sizeof(xray_option) as the plugin compiled it */
    uint64_t config_size;   /* sizeof the struct the options fill */
    const char *numerics;   /* id of the numerics contract, XRAY_NUMERICS_* or
                             * the author's own, or NULL. Where trainer and engine
                             * name the same one on one device, log-probs are
                             * compared bitwise. */
} xray_component;

typedef struct xray_plugin {
    xray_header header;
    uint32_t abi_needed; /* oldest host ABI this plugin can run on */
    uint32_t component_count;
    const char *name;
    const char *version;
    const char *vendor;
    const char *license; /* SPDX expression */
    const xray_component *const *components;
} xray_plugin;

/* Returns the descriptor, or NULL if `host_abi` is too old. Must be quick, must
 * not touch a device, a file or the environment. Static storage. [control] */
typedef const xray_plugin *(*xray_plugin_query_fn)(uint32_t host_abi);

#define XRAY_NOTE_NAME "XRAY"
#define XRAY_NOTE_MANIFEST 1u
#define XRAY_PLUGIN_QUERY "xray_plugin_query"

#define XRAY_STR_(x) #x
#define XRAY_STR(x) XRAY_STR_(x)
#define XRAY_CAT_(a, b) a##b
#define XRAY_CAT(a, b) XRAY_CAT_(a, b)

#define XRAY_NOTE_(json)                                                      \
    static const struct {                                                     \
        uint32_t namesz, descsz, type;                                        \
        char name[8];                                                         \
        char desc[(sizeof(json) + 3u) & ~3u];                                 \
    } xray_note_ __attribute__((used, aligned(4), section(".note.xray"))) = { \
        sizeof(XRAY_NOTE_NAME), sizeof(json), XRAY_NOTE_MANIFEST,             \
        XRAY_NOTE_NAME, json                                                  \
    }

/* These functions have one name in C and in C++. */
#ifdef __cplusplus
#define XRAY_EXTERN_C extern "C"
#else
#define XRAY_EXTERN_C extern
#endif

/* Defines the query function and the note. `ident` is a C identifier: the
 * function is xray_plugin_query_<ident>, so that several plugins can be linked
 * into one program. `provides` is a string such as
 * "xray.algo/0:grpo xray.reward/0:rule". */
#define XRAY_PLUGIN_DEFINE(ident, descriptor, name, version, provides)        \
    XRAY_NOTE_(                                                               \
        "{\"manifest\":1,\"abi\":\"" XRAY_STR(XRAY_ABI_MAJOR_N) "." XRAY_STR( \
            XRAY_ABI_MINOR_N) "\",\"name\":\"" name                           \
                              "\",\"version\":\"" version                     \
                              "\",\"provides\":\"" provides "\"}");           \
    XRAY_EXTERN_C const xray_plugin *XRAY_CAT(xray_plugin_query_,             \
                                              ident)(uint32_t host_abi);      \
    const xray_plugin *XRAY_CAT(xray_plugin_query_, ident)(uint32_t host_abi) \
    {                                                                         \
        return host_abi == XRAY_ABI ? &(descriptor) : NULL; /* a draft */     \
    }

/* Defines the function that a module exports, once a module, as the query
 * function of `ident`. xray_add_plugin of the CMake package does that in a file
 * of its own; a module that is built otherwise says it behind
 * XRAY_PLUGIN_DEFINE. */
#define XRAY_PLUGIN_ENTRY(ident)                                         \
    XRAY_EXTERN_C const xray_plugin *XRAY_CAT(xray_plugin_query_,        \
                                              ident)(uint32_t host_abi); \
    XRAY_EXTERN_C XRAY_EXPORT const xray_plugin *xray_plugin_query(      \
        uint32_t host_abi);                                              \
    const xray_plugin *xray_plugin_query(uint32_t host_abi)              \
    {                                                                    \
        return XRAY_CAT(xray_plugin_query_, ident)(host_abi);            \
    }

/* The numbers of XRAY_ABI_*, without the suffix, for use in strings. */
#define XRAY_ABI_MAJOR_N 0
#define XRAY_ABI_MINOR_N 1

#ifdef __cplusplus
}
#endif
#endif
