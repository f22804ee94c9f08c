/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder of event files for tests. It shares no code with the tracker.
 */
#ifndef XR_TEST_TRACK_DECODE_H
#define XR_TEST_TRACK_DECODE_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C by its definition, one bit at a time. */
uint32_t decode_crc(const void *data, size_t size);
uint32_t decode_mask(uint32_t crc);

typedef struct decode_value {
    char tag[128];
    char plugin[32];
    uint64_t class;
    uint64_t dtype;
    uint64_t dims[2];
    size_t dim_count;
    float number; /* of float_val */
    double exact; /* of double_val */
    int has_number;
    int has_exact;
    const double *table; /* [table_count] of tensor_content, unaligned */
    size_t table_count;
    const unsigned char *text; /* of string_val */
    size_t text_size;
    const unsigned char *content; /* of the plugin's data */
    size_t content_size;
} decode_value;

typedef struct decode_event {
    double time;
    uint64_t step;
    char version[32]; /* "" if it is no first event */
    int restart;      /* 1: a session begins */
} decode_event;

/* A reader of a file is told these, in order. */
typedef struct decode_sink {
    void *ctx;
    void (*event)(void *ctx, const decode_event *event);
    void (*value)(void *ctx, const decode_event *event,
                  const decode_value *value);
    /* Of the run's settings: `kind` is 'n', 's' or 'b'. */
    void (*setting)(void *ctx, const char *name, char kind, const char *text);
} decode_sink;

/* Reads a whole file; returns NULL, or what is wrong with it. */
const char *decode_file(const unsigned char *data, size_t size,
                        const decode_sink *sink);

#endif
