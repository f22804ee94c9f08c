# SPDX-License-Identifier: Apache-2.0
#
# Writes the Parquet and Arrow files of this folder with the libraries that users
# write theirs with: pip install duckdb pandas pyarrow.
import datetime
import decimal

import duckdb
import pandas
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

rows = [{"data_source": "openai/gsm8k",
         "prompt": [{"role": "user", "content": f"Caf\u00e9 {i}: \"1\" +\n {i}?"}],
         "ability": None if i == 1 else "math",
         "reward_model": {"style": "rule", "ground_truth": str(1 + i)},
         "extra_info": {"split": "train", "index": i, "tags": ["a", "b"][:i]}} for i in range(3)]
verl = pa.Table.from_pylist(rows)
pa.parquet.write_table(verl, "pyarrow.parquet")
pandas.DataFrame(rows).to_parquet("pandas.parquet", compression="zstd")
duckdb.sql("COPY verl TO 'duckdb.parquet' (FORMAT parquet)")
pa.feather.write_feather(verl, "file.feather")
with pa.ipc.new_stream("stream.arrow", verl.schema) as out:
    out.write_table(verl)
with pa.ipc.new_file("file.arrow", verl.schema) as out:
    out.write_table(verl)

utc = datetime.timezone.utc
pa.parquet.write_table(pa.table({
    "dec": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(5, 2)),
    "ts": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5, 500000), datetime.datetime(2024, 1, 2)], pa.timestamp("us")),
    "tz": pa.array([datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=utc), None], pa.timestamp("us", "UTC")),
    "day": pa.array([datetime.date(2024, 1, 2), None]),
    "bytes": pa.array([b"ab\x00\\", b""]),
    "map": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int32())),
    "nan": pa.array([float("nan"), float("-inf")]),
    "inf": pa.array([float("inf"), 0.5]),
    "single": pa.array([0.5, 0.1], pa.float32()),
    "big": pa.array([9007199254740993, -1]),
    "yes": pa.array([True, False]),
    "text": pa.array(["NaN \" Infinity", None]),
    "cat": pa.array(["x", "x"]).dictionary_encode(),
}), "types.parquet")
