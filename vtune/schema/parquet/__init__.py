"""The one way in and out of sample and trajectory files.

Of the rows read, only the ids are kept, to detect duplicates.
"""

from vtune.schema.parquet.pictures import load_picture, with_pictures
from vtune.schema.parquet.samples import read_samples, scan_samples, write_samples
from vtune.schema.parquet.tables import (
    at_row,
    columns,
    count_rows,
    fingerprint,
    group_sizes,
    read_group,
    read_row,
    scan_columns,
    scan_groups,
    scan_rows,
    write_rows,
)
from vtune.schema.parquet.texts import data_sources, distinct, tally
from vtune.schema.parquet.trajectories import (
    read_trajectories,
    scan_trajectories,
    with_inputs,
    write_trajectories,
)

__all__ = [
    "at_row",
    "columns",
    "count_rows",
    "data_sources",
    "distinct",
    "fingerprint",
    "group_sizes",
    "load_picture",
    "read_group",
    "read_row",
    "read_samples",
    "read_trajectories",
    "scan_columns",
    "scan_groups",
    "scan_rows",
    "scan_samples",
    "scan_trajectories",
    "tally",
    "with_inputs",
    "with_pictures",
    "write_rows",
    "write_samples",
    "write_trajectories",
]
