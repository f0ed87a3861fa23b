"""What the report's engine costs beside the loop that a user would write, measured side by side on one machine."""
