/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a model folder and saves its weights again, in shards of at most BYTES:
 * resave FROM TO BYTES. This program serves tests/parity/hf_roundtrip.py and is
 * not a test.
 */
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/testing.h"

int main(int argc, char **argv)
{
    int64_t bytes = 0;
    xr_err err = { "" };
    fixture f;
    if (argc != 4 || xr_parse_int(argv[3], &bytes) || bytes < 1) {
        (void)fprintf(stderr, "resave FROM TO BYTES\n");
        return 2;
    }
    fixture_load(&f, argv[1]);
    xray_status status =
        xm_weights_save(f.weights, argv[2], (uint64_t)bytes, &err);
    fixture_end(&f);
    if (status != XRAY_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    return status != XRAY_OK;
}
