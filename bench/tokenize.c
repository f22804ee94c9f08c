/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the speed of a tokenizer on a text, on one thread: bench-tokenize
 * DIR FILE [CHUNK]. The file is encoded as one text, and cut at line ends into
 * texts of about CHUNK bytes (2000). bench/tokenize_peer.py compares it with
 * the Hugging Face library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "model/text/tokenizer.h"

#define ROUNDS 7

typedef struct job {
    const xm_tokenizer *tok;
    const char *text;
    size_t size;
    size_t chunk;
    int spans;
} job;

/* Reads processor time, because on a loaded machine the wall clock includes
 * other programs. */
static double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static size_t find_chunk_end(const job *j, size_t from)
{
    if (j->size - from <= j->chunk)
        return j->size;
    const char *end =
        memchr(j->text + from + j->chunk, '\n', j->size - from - j->chunk);
    return end ? (size_t)(end - j->text) + 1 : j->size;
}

/* Encodes all chunks; returns the seconds and counts the ids. It stops at the
 * first error, which it prints. */
static double encode_chunks(const job *j, size_t *out_ids)
{
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    xr_err err = { "" };
    double start = read_clock();
    *out_ids = 0;
    for (size_t from = 0; from < j->size;) {
        size_t to = find_chunk_end(j, from);
        xray_status status;
        ids.count = 0;
        spans.count = 0;
        if (j->spans)
            status = xm_tokenizer_encode_spans(
                j->tok, j->text + from, to - from, 1, &ids, &spans, &err);
        else
            status = xm_tokenizer_encode(j->tok, j->text + from, to - from, 1,
                                         &ids, &err);
        if (status) {
            (void)fprintf(stderr, "%s\n", err.text);
            break;
        }
        *out_ids += ids.count;
        from = to;
    }
    double seconds = read_clock() - start;
    xm_ids_free(&ids);
    xm_token_spans_free(&spans);
    return seconds;
}

static void measure_encoding(const job *j, const char *name)
{
    double best = 0;
    size_t count = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double seconds = encode_chunks(j, &count);
        best = best == 0 || seconds < best ? seconds : best;
    }
    printf("%s %.2f MB/s, %zu ids\n", name, (double)j->size / best / 1e6,
           count);
}

static void measure_decoding(const job *j)
{
    xm_ids ids = { 0 };
    xr_str text = { 0 };
    double best = 0;
    (void)xm_tokenizer_encode(j->tok, j->text, j->size, 1, &ids, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        double start = read_clock();
        xr_str_clear(&text);
        (void)xm_tokenizer_decode(j->tok, ids.data, ids.count, 1, &text, NULL);
        double seconds = read_clock() - start;
        best = best == 0 || seconds < best ? seconds : best;
    }
    printf("decode %.2f MB/s, %zu bytes\n", (double)text.size / best / 1e6,
           text.size);
    xm_ids_free(&ids);
    xr_str_free(&text);
}

int main(int argc, char **argv)
{
    xm_tokenizer *tok;
    xr_err err = { "" };
    char *text;
    size_t size;
    if (argc < 3 || argc > 4) {
        (void)fprintf(stderr, "usage: bench-tokenize DIR FILE [CHUNK]\n");
        return 2;
    }
    double start = read_clock();
    if (xm_tokenizer_open(argv[1], &err, &tok)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("open %.3f s\n", read_clock() - start);
    if (xr_file_read(argv[2], (size_t)1 << 30, &err, &text, &size)) {
        (void)fprintf(stderr, "%s\n", err.text);
        xm_tokenizer_close(tok);
        return 1;
    }
    size_t chunk = argc == 4 ? (size_t)strtoul(argv[3], NULL, 10) : 2000;
    job j = { tok, text, size, size, 0 };
    measure_encoding(&j, "whole");
    j.chunk = chunk;
    measure_encoding(&j, "chunks");
    j.spans = 1;
    measure_encoding(&j, "spans");
    measure_decoding(&j);
    free(text);
    xm_tokenizer_close(tok);
    return 0;
}
