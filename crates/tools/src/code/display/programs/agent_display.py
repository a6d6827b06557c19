"""Puts pictures and tables of this process where `agent` looks for them: the directory $AGENT_DISPLAY_DIR.

Each file appears whole: it is written under another name and renamed.
"""

import itertools
import os

_numbers = itertools.count(1)
# More than this is not text that anybody reads.
MAX_TEXT = 4 << 20


def save(ending, write):
    """Calls write(path) for a new file whose name ends in `ending`. True if the file is there afterwards."""
    directory = os.environ.get("AGENT_DISPLAY_DIR")
    if not directory:
        return False
    path = os.path.join(directory, "%d-%04d%s" % (os.getpid(), next(_numbers), ending))
    partial = path + ".partial"
    try:
        os.makedirs(directory, exist_ok=True)
        write(partial)
        os.replace(partial, path)
    except OSError:
        return False
    return True


def save_text(ending, text):
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        return False

    def write(path):
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)

    return save(ending, write)


def save_bytes(ending, data):
    def write(path):
        with open(path, "wb") as file:
            file.write(data)

    return isinstance(data, (bytes, bytearray)) and save(ending, write)


# Shows a figure in another way than as a picture: for a kept interpreter whose client has a notebook.
show_figure = None


def display(value):
    """Saves the richest form of a value that has one: a picture, or HTML. True if there was one."""
    for method, ending, keep in (
        ("_repr_png_", ".png", save_bytes),
        ("_repr_jpeg_", ".jpg", save_bytes),
        ("_repr_svg_", ".svg", save_text),
        ("_repr_html_", ".html", save_text),
    ):
        represent = getattr(type(value), method, None)
        if not callable(represent):
            continue
        try:
            data = represent(value)
        except Exception:
            continue
        if isinstance(data, tuple):
            data = data[0]
        if data and keep(ending, data):
            return True
    return False


def flush():
    """Saves the figures that were drawn and not shown; for the end of a cell of an interpreter that is kept."""
    import sys

    backend = sys.modules.get("agent_matplotlib")
    if backend is not None:
        backend.show()
