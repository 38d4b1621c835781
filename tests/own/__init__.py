"""Parts as users write them: each a file that a recipe names under `uses`."""
