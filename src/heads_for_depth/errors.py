"""The one exception that a user of the project is meant to read."""

from __future__ import annotations


class BadInput(ValueError):
    """A value from outside that cannot be used: says which field, which value, and what would be right.

    The command line prints the sentence to stderr and exits with code 2.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        super().__init__(f"{field} is {value!r}: {remedy}")

    def __reduce__(self) -> tuple[type[BadInput], tuple[str, object, str]]:
        """Pickle the three parts, so that the sentence of a worker process reaches its parent."""
        return type(self), (self.field, self.value, self.remedy)
