"""`vtune recipes`: what ships by name, and (`chain/`) whether recipes join, from import to audit."""
