"""Records -> what each notebook shows, as plain values: one module per question."""
