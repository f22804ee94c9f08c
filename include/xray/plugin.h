/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/plugin.h - the descriptor with which a plugin introduces itself.
 *
 * A plugin is a shared object that exports one symbol, xray_plugin_query, and
 * carries one ELF note, so that the host can list it without running its code.
 * It holds any number of components; each implements one interface under one
 * name. The whole of a plugin's own part is a table of options, a table of
 * callbacks, a component, a descriptor, and one line:
 *
 *     XRAY_PLUGIN_DEFINE(mine, descriptor, "mine", "1.0", "xray.reward/0:mine")
 *
 * docs/plugins.md goes through it step by step.
 */
#ifndef XRAY_PLUGIN_H
#define XRAY_PLUGIN_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ids of the numerics contracts that docs/numerics.md defines. */
#define XRAY_NUMERICS_FP32 "xray.fp32/2"
#define XRAY_NUMERICS_FP32_BF16_WEIGHTS "xray.fp32-bf16-weights/2"
#define XRAY_NUMERICS_FP32_SHARED_KV "xray.fp32-shared-kv/1"
#define XRAY_NUMERICS_BF16 "xray.bf16/1"
#define XRAY_NUMERICS_BF16_SHARED_KV "xray.bf16-shared-kv/1"
#define XRAY_NUMERICS_CUDA_BF16 "xray.cuda-bf16/4"
#define XRAY_NUMERICS_CUDA_BF16_ACTIVATIONS "xray.cuda-bf16-activations/3"

/* One implementation of one interface. */
typedef struct xray_component {
    xray_header header;
    const char *iface; /* "xray.algo/0": the interface that `ops` implements */
    const char *name;  /* "grpo": the name that an INI file selects it by */
    const char *summary; /* one line for lists of components */
    const void *ops;     /* the interface's table, which starts with a header */
    const xray_option *options;
    uint32_t option_count;
    uint32_t option_stride; /* sizeof(xray_option) as the plugin compiled it */
    uint64_t config_size;   /* sizeof the struct that the options fill */
    const char *numerics;   /* id of the numerics contract: XRAY_NUMERICS_*, the
                             * author's own, or NULL for none. A plan may name
                             * another one for its options (xray_plan). Where
                             * trainer and engine keep the same contract on one
                             * device, their log-probs are compared bit for bit.
                             */
} xray_component;

typedef struct xray_plugin {
    xray_header header;
    uint32_t abi_needed; /* XRAY_ABI_NEEDED: the oldest host that can run it */
    uint32_t component_count;
    const char *name;
    const char *version;
    const char *vendor;
    const char *license; /* SPDX expression */
    const xray_component *const *components;
} xray_plugin;

/* Returns the descriptor, which has static storage, or NULL if `host_abi` is
 * too old for the plugin. Must be quick, and must not touch a device, a file or
 * the environment. [control] */
typedef const xray_plugin *(*xray_plugin_query_fn)(uint32_t host_abi);

/* Returns 1 if a host of ABI `host` runs a plugin whose author compiled against
 * `built` and needs at least `needed`. The minors of a draft do not mix. From
 * major 1 on a host serves every plugin of its major that does not need a
 * newer minor. */
static inline uint32_t xray_abi_serves(uint32_t host, uint32_t built,
                                       uint32_t needed)
{
    if (host >> 16 != built >> 16 || needed > host)
        return 0;
    return host >> 16 || host == built ? 1 : 0;
}

/* The oldest minor that this plugin runs on. A plugin that tests every newer
 * member with XRAY_HAS defines it before the first #include. */
#ifndef XRAY_ABI_NEEDED_MINOR_N
#define XRAY_ABI_NEEDED_MINOR_N XRAY_ABI_MINOR_N
#endif
#define XRAY_ABI_NEEDED XRAY_ABI_MAKE(XRAY_ABI_MAJOR, XRAY_ABI_NEEDED_MINOR_N)

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

/* The exported functions have the same name whether compiled as C or C++. */
#ifdef __cplusplus
#define XRAY_EXTERN_C extern "C"
#else
#define XRAY_EXTERN_C extern
#endif

/* Defines the query function and the ELF note. `ident` is a C identifier: the
 * function is called xray_plugin_query_<ident>, so that several plugins can be
 * linked into one program. `provides` lists the components, such as
 * "xray.algo/0:grpo xray.reward/0:rule". */
#define XRAY_PLUGIN_DEFINE(ident, descriptor, name, version, provides)                                                     \
    XRAY_NOTE_(                                                                                                            \
        "{\"manifest\":1,\"abi\":\"" XRAY_STR(XRAY_ABI_MAJOR_N) "." XRAY_STR(XRAY_ABI_MINOR_N) "\",\"needs\":\"" XRAY_STR( \
            XRAY_ABI_MAJOR_N) "." XRAY_STR(XRAY_ABI_NEEDED_MINOR_N) "\","                                                  \
                                                                    "\"name\""                                             \
                                                                    ":\"" name                                             \
                                                                    "\","                                                  \
                                                                    "\"versio"                                             \
                                                                    "n\":"                                                 \
                                                                    "\"" version                                           \
                                                                    "\","                                                  \
                                                                    "\"provid"                                             \
                                                                    "es\":"                                                \
                                                                    "\"" provides                                          \
                                                                    "\"}");                                                \
    XRAY_EXTERN_C const xray_plugin *XRAY_CAT(xray_plugin_query_,                                                          \
                                              ident)(uint32_t host_abi);                                                   \
    const xray_plugin *XRAY_CAT(xray_plugin_query_, ident)(uint32_t host_abi)                                              \
    {                                                                                                                      \
        return xray_abi_serves(host_abi, XRAY_ABI, XRAY_ABI_NEEDED)                                                        \
                   ? &(descriptor)                                                                                         \
                   : NULL;                                                                                                 \
    }

/* Defines the function that a module exports, once per module, to be the query
 * function of `ident`. The CMake package's xray_add_plugin does this in a file
 * of its own; a module that is built in another way writes this line after
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

/* The values of XRAY_ABI_* without the suffix u, for use in strings. */
#define XRAY_ABI_MAJOR_N 0
#define XRAY_ABI_MINOR_N 3

#ifdef __cplusplus
}
#endif
#endif
