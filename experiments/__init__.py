"""absl apps, one for each table or figure family: read flags, call the library, save."""
