/* SPDX-License-Identifier: Apache-2.0
 *
 * Has Parquet and Arrow files converted to lines of JSON, and keeps the lines.
 */
#define _GNU_SOURCE /* memfd_create */
#include "core/data/columns.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>

#include "core/base/child.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/data/duckdb.h"
#include "core/data/text_file.h"

/* Files of hundreds of megabytes take about a minute. */
#define CONVERSION_SECONDS 1800.0

/* Part of the names of kept lines; another one when the lines' form changes. */
#define FORM "1"

/* The file is standard input: its name is in no query and no pattern. */
#define FILE_NAME "/proc/self/fd/0"

#define READER_NAME 2 /* index in the tables below */

/* TZ makes times with a zone come out in UTC. */
static const char *const duckdb[] = { "env",
                                      "TZ=UTC",
                                      "duckdb",
                                      "-init",
                                      "/dev/null",
                                      "-batch",
                                      "-c",
                                      "SET autoinstall_known_extensions=false;"
                                      "SET autoload_known_extensions=false;"
                                      "COPY (FROM read_parquet('" FILE_NAME
                                      "')) TO '/dev/stdout' (FORMAT json)",
                                      NULL };

/* The current folder is no place for modules. Values come out as DuckDB writes
 * them. */
static const char *const pyarrow[] = {
    "env",
    "TZ=UTC",
    "python3",
    "-c",
    "import sys\n"
    "sys.path = [p for p in sys.path if p]\n"
    "try:\n"
    "    import pyarrow as pa\n"
    "except ImportError:\n"
    "    sys.exit(127)\n"
    "import datetime, decimal, json\n"
    "def trim(text):\n"
    "    return text.rstrip('0').rstrip('.') if '.' in text else text\n"
    "def text(v):\n"
    "    if isinstance(v, decimal.Decimal):\n"
    "        return float(v)\n"
    "    if isinstance(v, datetime.datetime) and v.tzinfo:\n"
    "        v = v.astimezone(datetime.timezone.utc).replace(tzinfo=None)\n"
    "        return trim(str(v)) + '+00'\n"
    "    if isinstance(v, (datetime.datetime, datetime.time)):\n"
    "        return trim(str(v))\n"
    "    if isinstance(v, bytes):\n"
    "        return ''.join(chr(b) if 32 <= b < 127 and b not in b'\\\\\\'\"'\n"
    "                       else '\\\\x%02X' % b for b in v)\n"
    "    return str(v)\n"
    "file = pa.OSFile('" FILE_NAME "')\n"
    "magic = file.read(6)\n"
    "file.seek(0)\n"
    "if magic[:4] == b'PAR1':\n"
    "    import pyarrow.parquet\n"
    "    batches = pyarrow.parquet.ParquetFile(file).iter_batches(4096)\n"
    "elif magic == b'ARROW1':\n"
    "    reader = pa.ipc.open_file(file)\n"
    "    batches = map(reader.get_batch, range(reader.num_record_batches))\n"
    "elif magic[:4] == b'FEA1':\n"
    "    import pyarrow.feather\n"
    "    batches = pyarrow.feather.read_table(file).to_batches()\n"
    "else:\n"
    "    batches = pa.ipc.open_stream(file)\n"
    "line = json.JSONEncoder(ensure_ascii=False, separators=(',', ':'),\n"
    "                        default=text).encode\n"
    "for batch in batches:\n"
    "    for row in batch.to_pylist(maps_as_pydicts='strict'):\n"
    "        sys.stdout.buffer.write(line(row).encode() + b'\\n')\n",
    NULL
};

/* A file whose rows are read. */
typedef struct column_file {
    const char *path;
    const char *from; /* the same, or what was unpacked */
    int parquet;
    int packed; /* in gzip or zstd */
} column_file;

/* Bytes by which the formats are told apart. */
#define HEAD 8

static int begins_with(const unsigned char *head, size_t size,
                       const char *magic)
{
    size_t length = strlen(magic);
    return size >= length && memcmp(head, magic, length) == 0;
}

xray_status xr_columns_find(const char *path, xr_err *err, int *out_found)
{
    static const char *const magics[] = { "PAR1", "ARROW1", "FEA1",
                                          "\xff\xff\xff\xff" };
    unsigned char head[HEAD];
    size_t size = 0;
    xray_status status = xr_text_peek(path, err, head, sizeof head, &size);
    *out_found = 0;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        *out_found |= begins_with(head, size, magics[i]);
    return status;
}

/* ---- conversion --------------------------------------------------------- */

/* Returns the length of the number that is none of JSON's and begins here; 0 if
 * none does. */
static size_t measure_nonfinite(const char *at, const char *end)
{
    static const char *const names[] = { "NaN", "-NaN", "Infinity",
                                         "-Infinity" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t size = strlen(names[i]);
        if ((size_t)(end - at) >= size && memcmp(at, names[i], size) == 0)
            return size;
    }
    return 0;
}

/* JSON has no NaN and no infinities: such a number is no value. */
static void replace_nonfinite(xr_str *lines)
{
    xr_str fixed = { 0 };
    int quoted = 0;
    const char *from = lines->data;
    const char *end = from + lines->size;
    for (const char *at = from; at < end; at++) {
        if (quoted && *at == '\\')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted && (*at == 'N' || *at == 'I' || *at == '-')) {
            size_t size = measure_nonfinite(at, end);
            if (!size)
                continue;
            xr_str_append(&fixed, from, (size_t)(at - from));
            xr_str_puts(&fixed, "null");
            from = at + size;
            at = from - 1;
        }
    }
    if (from == lines->data)
        return;
    xr_str_append(&fixed, from, (size_t)(end - from));
    xr_str_free(lines);
    *lines = fixed;
}

static xray_status run_reader(const char *const *argv, const char *path,
                              const xray_call_service *calls, xr_err *err,
                              xr_str *out)
{
    uint64_t size;
    xr_child child = { .name = argv[READER_NAME],
                       .argv = argv,
                       .seconds = CONVERSION_SECONDS };
    xray_status status = xr_file_open(path, err, &child.input, &size);
    if (status != XRAY_OK)
        return status;
    status = xr_child_run(&child, calls, err, out);
    (void)close(child.input);
    return status;
}

/* The library, which starts soonest, then the programs. */
static xray_status try_reader(size_t which, const char *path,
                              const xray_call_service *calls, xr_err *err,
                              xr_str *out)
{
    static const char *const *const programs[] = { duckdb, pyarrow };
    xr_str_clear(out);
    return which == 0 ? xr_duckdb_read(path, calls, err, out)
                      : run_reader(programs[which - 1], path, calls, err, out);
}

/* A reader that fails does not end the search, since another one may know more
 * of the format; the sentence is that of the first that could be started. */
static xray_status convert_file(const column_file *file,
                                const xray_call_service *calls, xr_err *err,
                                xr_str *out)
{
    const char *path = file->path;
    int parquet = file->parquet;
    xr_err first = { "" };
    for (size_t i = parquet ? 0 : 2; i < 3; i++) {
        xr_err why = { "" };
        xray_status status = try_reader(i, file->from, calls, &why, out);
        if (status == XRAY_OK) {
            if (out->size)
                replace_nonfinite(out);
            return out->failed
                       ? xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path)
                       : XRAY_OK;
        }
        if (status != XRAY_E_UNSUPPORTED && status != XRAY_E_IO)
            return xr_fail(err, status, "%s: %s", path, why.text);
        if (status == XRAY_E_IO && !first.text[0])
            first = why;
    }
    if (first.text[0])
        return xr_fail(err, XRAY_E_CONFIG, "%s: %s", path, first.text);
    return xr_fail(err, XRAY_E_CONFIG,
                   parquet ? "%s: Parquet is read by DuckDB or by pyarrow, and "
                             "neither is here; pip install duckdb-cli, or pip "
                             "install pyarrow"
                           : "%s: Arrow files are read by pyarrow in python3, "
                             "which is not here; pip install pyarrow",
                   path);
}

/* ---- files in gzip and zstd --------------------------------------------- */

static int write_bytes(int fd, const char *at, size_t left)
{
    while (left) {
        ssize_t n = write(fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        left -= (size_t)n;
    }
    return 1;
}

/* Unpacks a file to memory that has a descriptor, since readers want a file. */
static xray_status unpack_file(const char *path, const xray_call_service *calls,
                               xr_err *err, int *out_fd)
{
    char *text = NULL;
    size_t size = 0;
    xray_status status = xr_text_read(path, calls, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    *out_fd = memfd_create("unpacked", MFD_CLOEXEC);
    if (*out_fd < 0 || !write_bytes(*out_fd, text, size))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    free(text);
    return status;
}

static xray_status convert_packed(const column_file *file,
                                  const xray_call_service *calls, xr_err *err,
                                  xr_str *out)
{
    char from[32];
    int fd = -1;
    xray_status status = unpack_file(file->path, calls, err, &fd);
    (void)snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    const column_file unpacked = { file->path, from, file->parquet, 1 };
    if (status == XRAY_OK)
        status = convert_file(&unpacked, calls, err, out);
    if (fd >= 0)
        (void)close(fd);
    return status;
}

/* ---- kept lines --------------------------------------------------------- */

/* Names the file that keeps the lines; XRAY_E_UNSUPPORTED if there is no place
 * for it. */
static xray_status name_kept_file(const xr_map_file *file,
                                  const xray_call_service *calls, xr_err *err,
                                  char *out)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    uint64_t hash;
    xray_status status =
        xr_hash64_long(file->data, file->size, calls, err, &hash);
    if (status != XRAY_OK)
        return status;
    int absolute = cache && *cache == '/';
    if (!absolute && !(home && *home == '/'))
        return XRAY_E_UNSUPPORTED;
    int size = snprintf(out, XR_PATH_CAP,
                        "%s%s/xray/rows/" FORM "-%016llx-%zu.jsonl.zst",
                        absolute ? cache : home, absolute ? "" : "/.cache",
                        (unsigned long long)hash, file->size);
    return size > 0 && (size_t)size < XR_PATH_CAP ? XRAY_OK
                                                  : XRAY_E_UNSUPPORTED;
}

/* A file that zstd finds damaged, or one without rows, keeps nothing. */
static int read_kept(const char *kept, const xray_call_service *calls,
                     char **out_text, size_t *out_size)
{
    if (xr_text_read(kept, calls, NULL, out_text, out_size) != XRAY_OK)
        return 0;
    if (*out_size && **out_text == '{' && (*out_text)[*out_size - 1] == '\n')
        return 1;
    free(*out_text);
    *out_text = NULL;
    return 0;
}

/* Lines that cannot be kept are converted again the next time. */
static void keep_lines(const char *kept, const xr_str *lines)
{
    size_t cap = ZSTD_compressBound(lines->size);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    char *dir = xr_path_parent(kept);
    void *packed = malloc(cap);
    if (zstd && dir && packed && lines->size &&
        xr_dir_make(dir, NULL) == XRAY_OK) {
        (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, 1);
        (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
        size_t size =
            ZSTD_compress2(zstd, packed, cap, lines->data, lines->size);
        if (!ZSTD_isError(size))
            (void)xr_file_write(kept, packed, size, NULL);
    }
    free(packed);
    free(dir);
    (void)ZSTD_freeCCtx(zstd);
}

/* Names the file that keeps the lines, and tells how the file is read. */
static xray_status inspect_file(column_file *out,
                                const xray_call_service *calls, xr_err *err,
                                char *kept)
{
    unsigned char head[HEAD];
    size_t size = 0;
    xr_map_file file;
    xray_status status = xr_text_peek(out->path, err, head, sizeof head, &size);
    if (status == XRAY_OK)
        status = xr_file_map(out->path, err, &file);
    if (status != XRAY_OK)
        return status;
    out->parquet = begins_with(head, size, "PAR1");
    out->packed = file.size < size || memcmp(file.data, head, size) != 0;
    status = name_kept_file(&file, calls, err, kept);
    xr_file_unmap(&file);
    return status;
}

xray_status xr_columns_read(const char *path, const xray_call_service *calls,
                            xr_err *err, char **out_text, size_t *out_size)
{
    char kept[XR_PATH_CAP];
    xr_str lines = { 0 };
    column_file file = { .path = path, .from = path };
    xray_status has_place = inspect_file(&file, calls, err, kept);
    if (has_place != XRAY_OK && has_place != XRAY_E_UNSUPPORTED)
        return has_place;
    if (has_place == XRAY_OK && read_kept(kept, calls, out_text, out_size))
        return XRAY_OK;
    xray_status status = file.packed ? convert_packed(&file, calls, err, &lines)
                                     : convert_file(&file, calls, err, &lines);
    if (status == XRAY_OK && has_place == XRAY_OK)
        keep_lines(kept, &lines);
    if (status == XRAY_OK && !lines.data)
        lines.data = xr_strdup("");
    if (status == XRAY_OK && !lines.data)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    if (status != XRAY_OK) {
        xr_str_free(&lines);
        return status;
    }
    *out_text = lines.data;
    *out_size = lines.size;
    return XRAY_OK;
}
