"""What experiments use to save and draw: run records, progress, tables, figures and a one-file report."""
