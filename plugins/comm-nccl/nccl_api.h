/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of NCCL and of the CUDA driver that this plugin calls. Both
 * libraries are found at run time, so that the plugin builds and is listed
 * where neither is installed. (A stream of the runtime is a stream of the
 * driver, whichever runtime created it.) The types are those of NCCL 2.18 and
 * later as C has them; tests/nccl compares them with NCCL's headers where these
 * are installed.
 */
#ifndef NCCL_API_H
#define NCCL_API_H

#include <limits.h>
#include <stddef.h>

#include <xray/host.h>

#define NCCL_ID_BYTES 128

/* ncclResult_t */
#define NCCL_SUCCESS 0
#define NCCL_IN_PROGRESS 7

/* ncclDataType_t and ncclRedOp_t */
#define NCCL_INT8 0
#define NCCL_FLOAT32 7
#define NCCL_BFLOAT16 9
#define NCCL_SUM 0
#define NCCL_MAX 2

/* CUresult and the flags of its objects */
#define NCCL_CUDA_SUCCESS 0
#define NCCL_CUDA_NOT_READY 600
#define NCCL_CUDA_EVENT_PLAIN 2u /* without timing */

typedef struct nccl_id { /* ncclUniqueId */
    char bytes[NCCL_ID_BYTES];
} nccl_id;

/* ncclConfig_t of version 2.18. `traffic` is in a gap of that version, where
 * later ones have a member. */
typedef struct nccl_settings {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_size;
    int least_ctas;
    int most_ctas;
    const char *net;
    int split_share;
    int traffic;
} nccl_settings;

#define NCCL_SETTINGS                                                    \
    {                                                                    \
        sizeof(nccl_settings), 0xcafebeefu, 21800u, 0, INT_MIN, INT_MIN, \
            INT_MIN, NULL, INT_MIN, INT_MIN                              \
    }

typedef struct nccl_api {
    /* ---- NCCL ---- */
    int (*version)(int *out);
    int (*unique_id)(nccl_id *out);
    int (*init)(void **out_comm, int ranks, nccl_id id, int rank,
                nccl_settings *settings);
    int (*finalize)(void *comm);
    int (*destroy)(void *comm);
    int (*abort)(void *comm);
    int (*async_error)(void *comm, int *out);
    const char *(*error_text)(int result);
    const char *(*last_error)(void *comm);
    int (*all_reduce)(const void *in, void *out, size_t count, int type, int op,
                      void *comm, void *stream);
    int (*reduce_scatter)(const void *in, void *out, size_t count, int type,
                          int op, void *comm, void *stream);
    int (*all_gather)(const void *in, void *out, size_t count, int type,
                      void *comm, void *stream);
    int (*broadcast)(const void *in, void *out, size_t count, int type,
                     int root, void *comm, void *stream);
    int (*send)(const void *buf, size_t count, int type, int peer, void *comm,
                void *stream);
    int (*recv)(void *buf, size_t count, int type, int peer, void *comm,
                void *stream);
    int (*group_start)(void);
    int (*group_end)(void);
    /* ---- the CUDA driver ---- */
    int (*cuda_init)(unsigned flags);
    int (*device)(int *out, int index);
    int (*bus_id)(char *out, int bytes, int device);
    int (*context_take)(void **out,
                        int device); /* retains the device's primary context */
    int (*context_drop)(int device);
    int (*context_set)(void *context); /* of the calling thread */
    int (*cuda_text)(int error, const char **out);
    int (*event_create)(void **out, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*stream_wait)(void *stream, void *event, unsigned flags);
} nccl_api;

/* Loads both libraries, which stay loaded. `nccl` and `cuda` are names or
 * paths, or empty for the usual names. A library that is missing or too old is
 * reported as XRAY_E_DEVICE. */
xray_status nccl_api_load(const xray_host *host, const char *nccl,
                          const char *cuda, nccl_api *out);

#endif
