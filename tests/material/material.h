/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares what the writers of the test material share: files below one root,
 * and random draws by stream. Apart from Philox none of it is code of the
 * product.
 */
#ifndef MATERIAL_MATERIAL_H
#define MATERIAL_MATERIAL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The folder in which files are written, and the one with the repository's
 * sources. */
typedef struct material {
    char root[3000];
    const char *source;
} material;

/* Prints an error and ends the program, so that the fixture fails. */
_Noreturn void stop_with_error(const char *what, const char *where);

/* Opens a file below the root, and makes its folders. */
FILE *file_open(const material *m, const char *name);
void file_close(FILE *file, const char *name);
void file_write(const material *m, const char *name, const void *data,
                size_t size);
void file_copy(const material *m, const char *from, const char *name);
/* Reads a file of the sources and appends a zero. */
char *source_read(const material *m, const char *name, size_t *size);
/* Returns the next line of a text, ended by a zero; NULL after the last one. */
char *line_next(char **text);
void *allocate_zeroed(size_t count, size_t size);

/* Returns draw `i` of a stream, a number from 0 to n - 1. */
uint32_t draw_below(uint64_t stream, uint32_t i, uint32_t n);

void rows_write(const material *m);
/* Prints the text on which the small model is trained. */
void stories_print(void);
void models_write(const material *m);
void cases_write(const material *m);
void tokenizers_write(const material *m);

#endif
