"""Files that are whole or not there: written beside, then renamed."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> bool:
    """Write a file whole, or leave it alone when it already says so. Returns whether it was written."""
    content = content.encode() if isinstance(content, str) else content
    if path.exists() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)  # mkstemp makes files that others cannot read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return True
