"""Output formats, one module each: `render(report, *, sources, color) -> Iterator[str]`.

A renderer is a pure generator of lines without their newline. `sources` gives the lines of
a file of the report, or None where it cannot be read any more.
"""
