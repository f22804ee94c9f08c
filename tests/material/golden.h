/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the writers of goldens: results of the float64 decoder for the small
 * model.
 */
#ifndef MATERIAL_GOLDEN_H
#define MATERIAL_GOLDEN_H

#include "tests/material/decoder.h"
#include "tests/material/material.h"

/* Writes prompts with their log-probabilities and greedy continuations. */
void golden_write(const material *m, const char *name, const tensor *model);
/* Writes the mean loss of a text and its derivatives, by central differences.
 */
void golden_write_derivatives(const material *m, const char *name,
                              tensor *model);

#endif
