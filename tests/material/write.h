/* SPDX-License-Identifier: Apache-2.0
 *
 * What the writers of the test material share: files below one root, and draws
 * by name. None of it is the product's code, but for Philox.
 */
#ifndef MATERIAL_WRITE_H
#define MATERIAL_WRITE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Where the files are written to, and the folder with this program's sources.
 */
typedef struct material {
    char root[3000];
    const char *source;
} material;

/* Says what went wrong and ends the program: the fixture has failed. */
_Noreturn void die(const char *what, const char *where);

/* A file below the root, with the folders that lead to it. */
FILE *file_open(const material *m, const char *name);
void file_close(FILE *file, const char *name);
void file_write(const material *m, const char *name, const void *data,
                size_t size);
void file_copy(const material *m, const char *from, const char *name);
/* A whole file of the sources, with a zero behind it. */
char *source_read(const material *m, const char *name, size_t *size);
/* The next line of a text, cut off with a zero; NULL behind the last one. */
char *line_next(char **text);
void *memory_make(size_t count, size_t size);

/* Draw `i` of a stream, from 0 to n - 1. */
uint32_t draw(uint64_t stream, uint32_t i, uint32_t n);

void rows_write(const material *m);
/* What the small model is trained on, to standard output. */
void stories_print(void);
void models_write(const material *m);
void cases_write(const material *m);
void tokenizers_write(const material *m);

#endif
