/* SPDX-License-Identifier: Apache-2.0
 *
 * Gives distinct byte strings the numbers 0, 1, 2 and so on, in the order in
 * which they are added.
 */
#ifndef RULE_INTERN_H
#define RULE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "plugins/reward-rule/text.h"

/* It begins filled with zeros and keeps its memory between texts. */
typedef struct rule_intern {
    rule_text *keys; /* [count], the caller's bytes */
    uint32_t *slots; /* [slot_count], number + 1, or 0 */
    size_t count;
    size_t key_cap;
    size_t slot_count; /* a power of two, or 0 */
} rule_intern;

void rule_intern_free(rule_intern *set);

/* Empties the set and reserves capacity for `cap` strings. Returns 0, or -1 if
 * memory runs out. */
int rule_intern_reset(rule_intern *set, size_t cap);

/* Returns the number of the string. At most `cap` different strings may be
 * added; their bytes must stay valid until the next reset. */
size_t rule_intern_add(rule_intern *set, rule_text key);

#endif
