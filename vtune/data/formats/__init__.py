"""Published layouts of data sets, one file per layout; `table` names them."""
