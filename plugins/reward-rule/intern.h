/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers distinct byte strings 0, 1, 2 ... in the order they come.
 */
#ifndef RULE_INTERN_H
#define RULE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "plugins/reward-rule/text.h"

/* Zero-initialise; keeps its memory between texts. */
typedef struct rule_intern {
    rule_text *keys; /* [count], the caller's bytes */
    uint32_t *slots; /* [slot_count], number + 1, or 0 */
    size_t count;
    size_t key_cap;
    size_t slot_count; /* a power of two, or 0 */
} rule_intern;

void rule_intern_free(rule_intern *set);

/* Empties the set and makes room for `cap` strings. 0, or -1 when memory runs
 * out. */
int rule_intern_reset(rule_intern *set, size_t cap);

/* The number of the string; at most `cap` different ones. The bytes must stay
 * until the next reset. */
size_t rule_intern_add(rule_intern *set, rule_text key);

#endif
