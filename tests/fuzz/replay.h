/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares a replay among its files: the inputs, what was seen of one, and the
 * goldens.
 */
#ifndef XR_FUZZ_REPLAY_H
#define XR_FUZZ_REPLAY_H

#include "core/base/str.h"
#include "tests/fuzz/fuzz.h"

/* An input of a corpus (a file) or of a set (a part of a file). */
typedef struct replay_input {
    char *name;
    uint8_t *data;
    size_t size;
    size_t head;     /* bytes that stay as they are */
    size_t places;   /* at which it is cut and changed */
    unsigned number; /* of several that the golden has one line for, from 1 */
} replay_input;

typedef struct replay_inputs {
    replay_input *items;
    size_t count;
    size_t cap;
} replay_inputs;

/* Reads corpus/NAME and sets/NAME of the folder, in the order of their names.
 * Whatever is wrong ends the process with a sentence. */
void inputs_read(const char *folder, const char *target, replay_inputs *out);
/* Adds one file. */
void inputs_add_file(replay_inputs *inputs, const char *path, const char *name);
void inputs_free(replay_inputs *inputs);

/* Between these two the target's reports are collected, as lines. */
void seen_begin(const char *name, const char *how);
const xr_str *seen_end(void);
/* Makes the folder the working directory; reports do not show where it is. */
void seen_work_in(const char *path);
void seen_free(void);

/* Compares the lines with those of the golden, and prints what differs. Returns
 * 1 if nothing does. */
int golden_is(const char *golden, const char *lines);

#endif
