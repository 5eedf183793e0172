"""Device code: arrays in, arrays out. No files, no flags, no model names."""
