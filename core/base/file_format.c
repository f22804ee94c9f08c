/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises files of foreign formats by their first bytes.
 */
#include "core/base/file_format.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *magic;
    size_t size;
    const char *what;
} formats[] = {
    { "PAR1", 4,
      "a Parquet file; [data] train_files takes it, and xray data convert FILE "
      "OUT.jsonl makes JSON lines of it" },
    { "ARROW1", 6,
      "an Arrow file; [data] train_files takes it, and xray data convert FILE "
      "OUT.jsonl makes JSON lines of it" },
    { "version https://git-lfs", 23,
      "a Git LFS pointer instead of the file; git lfs pull fetches it" },
    { "\x1f\x8b\x08", 3, "a gzip file; gunzip unpacks it" },
    { "\x28\xb5\x2f\xfd", 4, "a zstd file; unzstd unpacks it" },
    { "\xfd"
      "7zXZ",
      5, "an xz file; unxz unpacks it" },
    { "BZh", 3, "a bzip2 file; bunzip2 unpacks it" },
    { "PK\x03\x04", 4, "a zip archive, as PyTorch's .bin and .pt files are" },
    { "GGUF", 4, "a GGUF file; weights are read from safetensors" },
    { "\xff\xfe", 2,
      "UTF-16 text; iconv -f UTF-16 -t UTF-8 makes UTF-8 of it" },
    { "\xfe\xff", 2,
      "UTF-16 text; iconv -f UTF-16 -t UTF-8 makes UTF-8 of it" },
};

size_t xr_bom_size(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static int is_html_page(const char *text, size_t size)
{
    static const char *const starts[] = { "<!doctype html", "<html" };
    size_t at = xr_bom_size(text, size);
    while (at < size && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        size_t length = strlen(starts[i]);
        if (size - at >= length &&
            strncasecmp(text + at, starts[i], length) == 0)
            return 1;
    }
    return 0;
}

xray_status xr_format_check(const void *data, size_t size, const char *where,
                            xr_err *err)
{
    const char *what = NULL;
    for (size_t i = 0; !what && i < sizeof formats / sizeof formats[0]; i++)
        if (size >= formats[i].size &&
            memcmp(data, formats[i].magic, formats[i].size) == 0)
            what = formats[i].what;
    if (!what && is_html_page(data, size))
        what = "an HTML page, as from a failed download; fetch the file again";
    return what ? xr_fail(err, XRAY_E_CONFIG, "%s: this is %s", where, what)
                : XRAY_OK;
}
