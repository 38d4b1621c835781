"""`vtune recipes`: the recipes that ship, and (`chain/`) whether recipes join, from import to audit."""
