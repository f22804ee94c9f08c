#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Parquet files that pyarrow, pandas and DuckDB wrote have the same rows by each way
# in which they are read: DuckDB's C library, the command duckdb, and pyarrow. The
# package duckdb of Python exports the library's functions.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAIL: $*" >&2; exit 1; }
python=$(command -v python3) || { echo "skipped: python3 is not installed"; exit 77; }
files=$XRAY_SOURCE/tests/data/files
ways=()

# Each way has a PATH with nothing but its program.
mkdir -p "$work"/{library,command,pyarrow}
for way in library command pyarrow; do
    ln -s "$(command -v env)" "$work/$way/env"
done
read -r module preload < <("$python" -c '
import importlib.util, os, sysconfig
found = importlib.util.find_spec("_duckdb")
names = [sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "INSTSONAME")]
print(found.origin if found else "-", os.path.join(*names))' 2>/dev/null || echo "- -")
# A sanitizer's library wants to be the first that is loaded.
if [ -e "$module" ] && [ -e "$preload" ] && LD_PRELOAD=$preload "$XRAY_BIN" --version >/dev/null 2>&1; then
    ln -s "$module" "$work/library/libduckdb.so"
    ways+=(library)
else
    echo "DuckDB's library is not here: its rows are not compared"
fi
if command -v duckdb >/dev/null; then
    ln -s "$(command -v duckdb)" "$work/command/duckdb"
    ways+=(command)
else
    echo "the command duckdb is not here: its rows are not compared"
fi
if "$python" -c 'import pyarrow' 2>/dev/null; then
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$python" >"$work/pyarrow/python3"
    chmod +x "$work/pyarrow/python3"
    ways+=(pyarrow)
else
    echo "pyarrow is not here: its rows are not compared"
fi
[ ${#ways[@]} -gt 1 ] || { echo "skipped: fewer than two readers of Parquet are installed"; exit 77; }

# A nested file with numbers whose text is not their own, and one in gzip.
cp "$files"/*.parquet "$work"
gzip -c "$files/pandas.parquet" >"$work/packed.parquet.gz"
for way in "${ways[@]}"; do
    library=()
    [ "$way" != library ] || library=("LD_PRELOAD=$preload" "LD_LIBRARY_PATH=$work/library")
    for file in "$work"/*.parquet "$work/packed.parquet.gz"; do
        env "${library[@]}" PATH="$work/$way" XDG_CACHE_HOME="$work/$way/cache" "$XRAY_BIN" data convert "$file" \
            "$work/$way/$(basename "$file").jsonl" >/dev/null 2>"$work/err" || fail "$way: $(cat "$work/err")"
    done
    "$python" - "$work/${ways[0]}" "$work/$way" <<'END' || fail "$way gives other rows than ${ways[0]}"
import glob, json, os, sys
names = sorted(os.path.basename(path) for path in glob.glob(sys.argv[1] + "/*.jsonl"))
assert len(names) == 5, names
for name in names:
    one, other = ([json.loads(line) for line in open(os.path.join(folder, name))] for folder in sys.argv[1:])
    assert one and one == other, (name, one, other)
END
done
echo "parquet: ok: ${ways[*]}"
