"""Published layouts of data sets, one file a layout; `table` names them."""
