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
# What is shown is for a notebook: results with all their media types, and standard error apart.
IS_NOTEBOOK = 2
# What a pipe takes whole.
PIECE = 2048
EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
    "text/html": "html",
    "text/markdown": "md",
    "text/latex": "tex",
    "application/javascript": "js",
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
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_e2b_data_", "e2b/data"),
    ("_repr_e2b_chart_", "e2b/chart"),
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
state = {"running": False, "loop": None, "files": 0, "display": "", "notebook": False, "nonce": b"", "stderr": None}


def stream(descriptor):
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)


class ErrorStream(io.RawIOBase):
    """Standard error of a notebook's cell: each piece is marked in the output, so that both keep their order."""

    def writable(self):
        return True

    def fileno(self):
        return 2

    def write(self, data):
        data, nonce = bytes(data), state["nonce"]
        for at in range(0, len(data), PIECE):
            piece = data[at:at + PIECE]
            # Behind the end of its cell, there is nobody to tell it from the output.
            write(output, b"\x1e%b\x1f%d\n%b" % (nonce, len(piece), piece) if nonce else piece)
        return len(data)


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
    if state["notebook"] and sys.stderr is not state["stderr"]:
        if state["stderr"] is None:
            buffer = io.BufferedWriter(ErrorStream(), PIECE)
            state["stderr"] = io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True)
        sys.stderr = state["stderr"]
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
    code = translated(code)
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


def as_notebook(value, found):
    """What a notebook shows of a value besides: the columns of a table, the data of a chart, the value of plain data."""
    kind = type(value)
    name = "%s.%s" % (kind.__module__.partition(".")[0], kind.__name__)
    if name == "pandas.DataFrame":
        columns = value.to_dict(orient="list")
        found["e2b/data"] = {
            str(name): [item.isoformat() if hasattr(item, "isoformat") else item for item in items]
            for name, items in columns.items()
        }
    elif name == "matplotlib.Figure":
        picture = io.BytesIO()
        value.savefig(picture, format="png")
        found["image/png"] = picture.getvalue()
        chart = chart_of(value)
        if chart:
            found["e2b/chart"] = chart
    elif kind in (dict, list):
        found["application/json"] = value


def chart_of(figure):
    import agent_charts

    return agent_charts.chart(figure)


def write_file(ending, data):
    """Puts a file into the display directory."""
    directory = state["display"]
    if not directory:
        return
    state["files"] += 1
    path = os.path.join(directory, "%d-d%04d.%s" % (process, state["files"], ending))
    try:
        with open(path + ".tmp", "wb") as file:
            file.write(data)
        os.replace(path + ".tmp", path)
    except OSError:
        pass


def save(value, text=None, is_main=False, bundle=None):
    """Writes what a value can be shown as into the display directory."""
    found = representations(value) if bundle is None else bundle
    if state["notebook"]:
        save_bundle(value, found, text, is_main)
        return
    for media_type, data in found.items():
        extension = EXTENSIONS.get(media_type)
        if extension is None or data is None:
            continue
        try:
            data = to_bytes(media_type, data)
        except Exception:
            continue
        write_file(extension, data)


def save_bundle(value, found, text, is_main):
    """One file with everything that a value can be shown as, by media type."""
    import base64
    import json

    if value is not NOTHING:
        try:
            as_notebook(value, found)
        except Exception:
            pass
    if text is not None:
        found.setdefault("text/plain", text)
    data = {}
    for media_type, shown in found.items():
        if isinstance(shown, tuple):
            shown = shown[0]
        if shown is None:
            continue
        if isinstance(shown, bytes):
            is_text = media_type.startswith("text/") or media_type == "image/svg+xml"
            shown = shown.decode("utf-8", "replace") if is_text else base64.b64encode(shown).decode()
        try:
            data[str(media_type)] = json.loads(json.dumps(shown, default=plain))
        except (TypeError, ValueError):
            continue
    write_file("bundle.json", json.dumps({"is_main": is_main, "data": data}).encode())


def plain(value):
    """Numbers and tables of numpy's as JSON has them."""
    convert = getattr(value, "tolist", None) or getattr(value, "isoformat", None)
    if convert is None:
        raise TypeError(type(value).__name__)
    return convert()


def display(*values, raw=False, display_id=None, **_options):
    """Shows values: their text, and whatever else they can be shown as."""
    for value in values:
        bundle = dict(value) if raw and isinstance(value, dict) else None
        if state["notebook"]:
            flush_streams()
            save(NOTHING if bundle else value, None if bundle else repr(value), bundle=bundle)
        else:
            print(bundle.get("text/plain", "") if bundle else repr(value))
            save(value, bundle=bundle)
    return Handle(display_id) if display_id else None


builtins.display = display
builtins.__agent__ = Magics()


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


def library_directories():
    """Where libraries are installed: what was last changed when, also of the user's directory, which may not exist yet."""
    site = sys.modules.get("site")
    ends = ("site-packages", "dist-packages")
    found = [path for path in sys.path if isinstance(path, str) and path.endswith(ends)]
    if site is not None and site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    changes = {}
    for path in found:
        try:
            changes[path] = os.stat(path).st_mtime_ns
        except OSError:
            changes[path] = None
    return changes


def path_files(directory):
    try:
        return {name for name in os.listdir(directory) if name.endswith(".pth")}
    except OSError:
        return set()


def use_libraries():
    """Takes note of what was installed since the last time."""
    import importlib
    import site

    for directory in libraries["changed"]:
        known = set(sys.path)
        if directory not in known and os.path.isdir(directory):
            site.addsitedir(directory, known)
        elif directory in libraries["path_files"]:
            for name in sorted(path_files(directory) - libraries["path_files"][directory]):
                site.addpackage(directory, name, known)
    remember_libraries()
    importlib.invalidate_caches()


def remember_libraries():
    changed = library_directories()
    libraries["path_files"] = {directory: path_files(directory) for directory in changed}
    libraries["changed"] = changed


class LateLibraries:
    """The last finder of modules: it finds those that were installed after the interpreter had started."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if library_directories() == libraries["changed"]:
            return None
        use_libraries()
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, path, target)


libraries = {}
remember_libraries()
sys.meta_path.insert(0, NotebookModules)
sys.meta_path.append(LateLibraries)


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
            save(value, text.decode(), is_main=True)
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
    flush_streams()


def flush_streams():
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except Exception:
            pass


def show_figures_in_results():
    """Has the backend of matplotlib show its figures as values are."""
    try:
        import agent_display
    except ImportError:
        return
    agent_display.show_figure = display


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
        state["notebook"], state["nonce"] = bool(int(flags) & IS_NOTEBOOK), nonce
        if state["notebook"]:
            show_figures_in_results()
        os.environ["AGENT_DISPLAY_DIR"] = state["display"]
        restore()
        if int(flags) & LIBRARIES_WERE_INSTALLED:
            use_libraries()
        number += 1
        status, code, value, error = cell(number, code)
        flush()
        state["nonce"] = b""
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
