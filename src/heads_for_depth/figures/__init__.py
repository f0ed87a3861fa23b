"""One function per figure: plain data in, Figure out. No file access, no statistics."""
