"""Published layouts of datasets, one file per layout; `table` names them."""
