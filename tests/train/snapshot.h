/* SPDX-License-Identifier: Apache-2.0
 *
 * Complete tensors by name, put together from the boxes of several ranks.
 */
#ifndef TEST_TRAIN_SNAPSHOT_H
#define TEST_TRAIN_SNAPSHOT_H

#include <xray/setup.h>

#define SNAPSHOT_TENSORS 96

typedef struct snapshot {
    uint32_t count;
    uint32_t clashes; /* elements of which two tables have other bits */
    uint64_t stored;  /* elements of all tables */
    struct {
        char name[96];
        uint64_t count;
        float *data;
    } tensors[SNAPSHOT_TENSORS];
} snapshot;

/* Stores the boxes of a table, which may be NULL. */
void snapshot_store(snapshot *s, const xray_weights *table);
void snapshot_free(snapshot *s);
/* Prints the name and returns 1 if any element differs in its bits. */
int snapshot_differ(const snapshot *a, const snapshot *b);
/* The largest difference of two elements, divided by the largest element of
 * their tensor. */
double snapshot_distance(const snapshot *a, const snapshot *b);

#endif
