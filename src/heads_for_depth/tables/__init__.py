"""The only place where numbers are rounded: records, claims and counts in, frames and values of text out."""
