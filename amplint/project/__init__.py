"""What a file defines: imports, functions, classes, names; the project they form."""
