"""What reading a file and a pytest run under nbval need, for `warm` to have made once: importing it is all."""

from __future__ import annotations

import nbformat
import pytest  # noqa: F401

import classroom.grading.intake
import classroom.grading.plugin  # noqa: F401
from classroom.grading.provisioner import register

nbformat.validate(nbformat.v4.new_notebook())  # type: ignore[no-untyped-call]  # compiles the schema, once
register()  # reads what every installed package offers, once
