# The kept Python interpreter. It is read from standard input by the command that starts it, with `requests` (a binary
# reader on a descriptor of its own) and `channel`, `output` (descriptors) in its globals.
#
# `channel` first gets the line "ready". A request is a line "NONCE FLAGS DISPLAY CODE" (two lengths), then the display
# directory and the code. The answer goes to `channel`: a line "NONCE STATUS EXIT VALUE ERROR" (two lengths), then the two
# texts. What the program prints goes to `output`, and a mark with the nonce stands behind it when the cell has ended.
import _ast
import _signal
import builtins
import io
import os
import sys

AWAIT = getattr(_ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
COROUTINE = 0x80
MAX_TEXT = 64 * 1024
LIBRARIES_WERE_INSTALLED = 1
EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "text/html": "html",
    "text/markdown": "md",
    "application/pdf": "pdf",
    "application/json": "json",
    "application/vnd.plotly.v1+json": "plotly.json",
}
METHODS = (
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_json_", "application/json"),
)
NOTHING = object()

process = os.getpid()
null = os.open(os.devnull, os.O_RDWR)
module = type(sys)("__main__")
module.__builtins__ = builtins
namespace = module.__dict__
sys.modules["__main__"] = module
sys.argv = [""]
os.environ["PYTHONUNBUFFERED"] = "1"
sources = {}
state = {"running": False, "loop": None, "files": 0, "display": ""}


def stream(descriptor):
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)


def interrupt(_signal_number, _frame):
    if state["running"]:
        raise KeyboardInterrupt


def restore():
    """Undoes what an earlier cell did to the standard streams and the signal."""
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(getattr(sys, name, None), "closed", True):
            setattr(sys, name, stream(descriptor))
    _signal.signal(_signal.SIGINT, interrupt)


def write(descriptor, data):
    try:
        while data:
            data = data[os.write(descriptor, data):]
    except OSError:
        # The program closed it: nobody can be answered any more.
        os._exit(70)


def shortened(text):
    if len(text) > MAX_TEXT:
        half = MAX_TEXT // 2
        text = text[:half] + "\n[…]\n" + text[-half:]
    return text.encode("utf-8", "backslashreplace")


def wait_for(coroutine):
    import asyncio

    loop = state["loop"]
    if loop is None or loop.is_closed():
        loop = state["loop"] = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(coroutine)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt:
        task.cancel()
        try:
            loop.run_until_complete(task)
        except (asyncio.CancelledError, Exception):
            pass
        raise


def execute(compiled):
    result = eval(compiled, namespace)
    return wait_for(result) if compiled.co_flags & COROUTINE else result


def run(code, name):
    """Runs the code; the value of a last expression, or NOTHING."""
    tree = compile(code, name, "exec", _ast.PyCF_ONLY_AST | AWAIT, True)
    last = None
    if tree.body and isinstance(tree.body[-1], _ast.Expr):
        last = tree.body.pop()
    if tree.body:
        execute(compile(tree, name, "exec", AWAIT, True))
    if last is None:
        return NOTHING
    value = execute(compile(_ast.Expression(last.value), name, "eval", AWAIT, True))
    # As in a notebook, a semicolon hides the value.
    return NOTHING if value is None or code.rstrip().endswith(";") else value


def representations(value):
    """What the value can be shown as, beside its text: media types and data."""
    if isinstance(value, type):
        return {}
    found = {}
    bundle = getattr(value, "_repr_mimebundle_", None)
    if bundle is not None:
        try:
            data = bundle(include=None, exclude=None)
            data = data[0] if isinstance(data, tuple) else data
            found.update(data or {})
        except Exception:
            pass
    for method, media_type in METHODS:
        if media_type not in found and hasattr(type(value), method):
            try:
                data = getattr(value, method)()
                found[media_type] = data[0] if isinstance(data, tuple) else data
            except Exception:
                pass
    return found


def to_bytes(media_type, data):
    if isinstance(data, bytes):
        return data
    if media_type.endswith("json") and not isinstance(data, str):
        import json

        return json.dumps(data).encode()
    if media_type in ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"):
        import base64

        return base64.b64decode(data)
    return str(data).encode("utf-8", "backslashreplace")


def save(value):
    """Writes what a value can be shown as into the display directory."""
    directory = state["display"]
    if not directory:
        return
    for media_type, data in representations(value).items():
        extension = EXTENSIONS.get(media_type)
        if extension is None or data is None:
            continue
        state["files"] += 1
        path = os.path.join(directory, "%d-d%04d.%s" % (process, state["files"], extension))
        try:
            with open(path + ".tmp", "wb") as file:
                file.write(to_bytes(media_type, data))
            os.replace(path + ".tmp", path)
        except Exception:
            pass


def display(*values):
    """Shows values: their text, and whatever else they can be shown as."""
    for value in values:
        print(repr(value))
        save(value)


builtins.display = display


def is_library(path):
    if path.startswith("<cell "):
        return False
    if path.startswith("<frozen") or "site-packages" in path or "dist-packages" in path:
        return True
    return path.startswith(os.path.dirname(os.__file__) + os.sep) or path == "<agent>"


def keep_own_frames(exception, seen):
    if exception is None or id(exception) in seen:
        return
    seen.add(id(exception))
    stack = exception.stack
    first = next((i for i, frame in enumerate(stack) if frame.filename.startswith("<cell ")), 0)
    kept = [frame for frame in stack[first:] if not is_library(frame.filename)]
    stack[:] = kept or [frame for frame in stack[-1:] if frame.filename != "<agent>"]
    for other in (exception.__cause__, exception.__context__, *(getattr(exception, "exceptions", None) or ())):
        keep_own_frames(other, seen)


def know_sources():
    import linecache

    for name, code in sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(True), name)


def describe(error):
    try:
        import traceback

        know_sources()
        described = traceback.TracebackException(type(error), error, error.__traceback__)
        keep_own_frames(described, set())
        return "".join(described.format())
    except BaseException as second:
        return "%s (its traceback cannot be shown: %s)\n" % (type(error).__name__, type(second).__name__)


def exit_code(error):
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def use_libraries():
    import importlib
    import site

    path = site.getusersitepackages()
    if path not in sys.path and os.path.isdir(path):
        site.addsitedir(path)
    importlib.invalidate_caches()


def cell(number, code):
    """One cell: status, exit code, value, error."""
    name = "<cell %d>" % number
    sources[name] = code
    if "linecache" in sys.modules:
        know_sources()
    try:
        try:
            state["running"] = True
            value = run(code, name)
            if value is NOTHING:
                return "ok", 0, b"", b""
            namespace["_"] = value
            text = shortened(repr(value))
            save(value)
            return "ok", 0, text, b""
        finally:
            state["running"] = False
    except SystemExit as error:
        return "exit", exit_code(error), b"", b""
    except KeyboardInterrupt as error:
        return "interrupted", 130, b"", shortened(describe(error))
    except BaseException as error:
        return "error", 1, b"", shortened(describe(error))


def flush():
    """What was drawn and not shown is shown, and what is buffered is written."""
    shown = sys.modules.get("agent_display")
    if shown is not None:
        try:
            shown.flush()
        except Exception:
            pass
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except Exception:
            pass


def serve():
    number = 0
    while True:
        header = requests.readline().split()
        if len(header) != 4:
            os._exit(0)
        nonce, flags, display_length, code_length = header
        state["display"] = requests.read(int(display_length)).decode("utf-8", "surrogateescape")
        code = requests.read(int(code_length)).decode("utf-8", "replace")
        state["files"] = 0
        os.environ["AGENT_DISPLAY_DIR"] = state["display"]
        restore()
        if int(flags) & LIBRARIES_WERE_INSTALLED:
            use_libraries()
        number += 1
        status, code, value, error = cell(number, code)
        flush()
        if os.getpid() != process:
            # A fork of the program that came back here.
            os._exit(code)
        write(output, b"\x1e" + nonce + b"\x1e")
        answer = "%s %s %d %d %d\n" % (nonce.decode(), status, code, len(value), len(error))
        write(channel, answer.encode() + value + error)


# As on a terminal, a line at a time, so that both streams keep their order.
sys.stdout, sys.stderr = stream(1), stream(2)
restore()
write(channel, b"\x1eready\n")
while True:
    try:
        serve()
    except KeyboardInterrupt:
        # An interrupt that arrived when its cell had ended already.
        pass
