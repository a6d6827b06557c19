# The dialect of notebooks, a part of the driver that stands before it: cells that are indented, lines for the shell, magics,
# and `IPython.display` where IPython is not installed.
import os


class UsageError(Exception):
    """A magic that does not exist, or is used in a way that it does not have."""


def undented(code):
    """The code without the indentation of its first line."""
    first = next((line for line in code.splitlines() if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" \t"))]
    if not indent:
        return code
    lines = code.splitlines(True)
    return "".join(line[len(indent):] if line.startswith(indent) else line for line in lines)


def translated(code):
    """Python for a cell. What is Python already stays as it is, line for line."""
    code = undented(code)
    start = code.lstrip("\n")
    if start.startswith("%%"):
        first, _, body = start.partition("\n")
        name, _, rest = first[2:].partition(" ")
        return "__agent__.cell(%r, %r, %r)" % (name.strip(), rest.strip(), body)
    if not any(mark in code for mark in "!%?") or is_python(code):
        return code
    return "".join(translated_lines(code.splitlines(True)))


def is_python(code):
    try:
        compile(code, "<cell>", "exec", _ast.PyCF_ONLY_AST | AWAIT, True)
        return True
    except (SyntaxError, ValueError):
        return False


def translated_lines(lines):
    quote, depth, is_continued = "", 0, False
    lines = iter(lines)
    for line in lines:
        found = None if quote or depth or is_continued else translated_line(line, lines)
        if found is None:
            quote, depth, is_continued = after(line, quote, depth)
        yield line if found is None else found


def translated_line(line, following):
    """A line for the shell or a magic as Python; `None` for every other line."""
    text = line.strip()
    indent = line[: len(line) - len(line.lstrip())]
    target = ""
    if text[:1] not in ("!", "%", "?"):
        left, equals, right = text.partition("=")
        if equals and right.lstrip()[:1] in ("!", "%"):
            target, text = left.rstrip() + " = ", right.strip()
    ends = line[len(line.rstrip("\r\n")):]
    while text.endswith("\\") and text[:1] in ("!", "%"):
        more = next(following, None)
        if more is None:
            break
        # The number of lines stays, so that tracebacks name the right one.
        text, ends = text[:-1] + more.strip(), ends + "\n"
    if text.startswith("!"):
        call = ("lines" if target or text.startswith("!!") else "command", text.lstrip("!"))
        return "%s%s__agent__.%s(%r)%s" % (indent, target, call[0], call[1], ends)
    if text.startswith("%") and text[1:2].isalpha():
        name, _, rest = text[1:].partition(" ")
        return "%s%s__agent__.line(%r, %r)%s" % (indent, target, name, rest.strip(), ends)
    name = text.strip("?")
    if text != name and name.replace(".", "_").isidentifier():
        return "%s__agent__.line('pinfo', %r)%s" % (indent, name, ends)
    return None


def after(line, quote, depth):
    """Whether a string or a bracket is open behind a line, and whether the line goes on."""
    at = 0
    while at < len(line):
        rest = line[at:]
        if quote:
            if rest.startswith("\\"):
                at += 2
                continue
            if rest.startswith(quote):
                at += len(quote)
                quote = ""
                continue
        elif rest[0] == "#":
            return "", depth, False
        elif rest[0] in "\"'":
            quote = rest[:3] if rest[:3] in ('"""', "'''") else rest[0]
            at += len(quote)
            continue
        else:
            depth = max(0, depth + (rest[0] in "([{") - (rest[0] in ")]}"))
        at += 1
    return quote if len(quote) == 3 else "", depth, line.rstrip("\r\n").endswith("\\")


def expanded(command):
    """A command with `$name` and `{expression}` of Python's replaced; those that have no value are the shell's own."""
    import re

    def value(match):
        text = match.group(0)
        try:
            if text in ("$$", "{{", "}}"):
                return text[0]
            if text.startswith("$"):
                return str(namespace[match.group(1)])
            return str(eval(match.group(2), namespace))
        except Exception:
            return text

    return re.sub(r"\$\$|\$([A-Za-z_]\w*)|\{\{|\}\}|\{([^{}\n]+)\}", value, command)


class Magics:
    """What a translated cell calls."""

    # Commands that are magics too.
    COMMANDS = ("ls", "ll", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "head", "tail", "man", "conda", "mamba", "uv")
    # Set up what is there without them.
    WITHOUT_EFFECT = ("matplotlib", "load_ext", "reload_ext", "autoreload", "config", "pylab", "precision", "colors", "xmode")

    def shell(self, command, is_captured=False, script=None, environment=()):
        """Runs a command, whose output is the cell's. What it printed, if it is captured."""
        import signal
        import subprocess

        flush()
        # Of an image that manages its own libraries, a sandbox is the place to add some.
        variables = dict(os.environ, PIP_BREAK_SYSTEM_PACKAGES="1", **dict(environment))
        argv = command if isinstance(command, list) else [SHELL, "-c", expanded(command)]
        process = subprocess.Popen(
            argv,
            env=variables,
            stdin=subprocess.DEVNULL if script is None else subprocess.PIPE,
            stdout=subprocess.PIPE if is_captured else None,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(None if script is None else script.encode())
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        namespace["_exit_code"] = process.returncode
        return (printed or b"").decode("utf-8", "replace") if is_captured else process.returncode

    def command(self, command):
        self.shell(command)

    def lines(self, command):
        return self.shell(command, True).splitlines()

    def line(self, name, rest):
        own = getattr(self, "line_" + name, None)
        if own is not None:
            return own(rest)
        if name in self.WITHOUT_EFFECT:
            return None
        if name in self.COMMANDS:
            self.shell("%s %s" % ("ls -l" if name == "ll" else name, rest))
            return None
        return self.ipython("Line magic function `%%%s` not found." % name, "run_line_magic", name, rest)

    def cell(self, name, rest, body):
        own = getattr(self, "cell_" + name, None)
        if own is not None:
            return own(rest, body)
        return self.ipython("Cell magic `%%%%%s` not found." % name, "run_cell_magic", name, rest, body)

    def ipython(self, missing, method, *arguments):
        """Has IPython do it, where that is installed."""
        try:
            from IPython.core.interactiveshell import InteractiveShell
        except ImportError:
            raise UsageError(missing) from None
        own = builtins.display, sys.displayhook, sys.excepthook
        shell = InteractiveShell.instance(user_module=module, user_ns=namespace)
        builtins.display, sys.displayhook, sys.excepthook = own
        return getattr(shell, method)(*arguments)

    def line_pip(self, rest):
        self.shell("%s -m pip %s" % (quoted(sys.executable), rest))

    def line_system(self, rest):
        return self.lines(rest)

    line_sx = line_system

    def line_pwd(self, _rest):
        return os.getcwd()

    def line_cd(self, rest):
        os.chdir(os.path.expanduser(expanded(rest).strip("\"'") or "~"))
        print(os.getcwd())

    def line_env(self, rest):
        name, separator, value = rest.partition("=" if "=" in rest else " ")
        if not rest:
            return dict(os.environ)
        if not separator:
            return os.environ.get(name)
        os.environ[name.strip()] = expanded(value.strip())
        print("env: %s=%s" % (name.strip(), os.environ[name.strip()]))
        return None

    line_set_env = line_env

    def line_who(self, _rest):
        print("\t".join(name for name in namespace if not name.startswith("_")) or "Interactive namespace is empty.")

    def line_pinfo(self, rest):
        import inspect

        value = eval(rest, namespace)
        print("Type:      %s\nString form: %s\nDocstring: %s" % (type(value).__name__, value, inspect.getdoc(value)))

    def line_run(self, rest):
        import shlex

        path, *arguments = shlex.split(expanded(rest))
        own, sys.argv = sys.argv, [path] + arguments
        try:
            with open(path, encoding="utf-8") as file:
                exec(compile(file.read(), path, "exec"), namespace)
        finally:
            sys.argv = own

    def line_time(self, rest):
        return self.cell_time("", rest)

    def cell_time(self, rest, body):
        import time

        wall, cpu = time.perf_counter(), time.process_time()
        value = run(rest + "\n" + body if rest else body, "<timed>")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print("CPU times: %s\nWall time: %s" % (duration(cpu), duration(wall)))
        return None if value is NOTHING else value

    def line_timeit(self, rest):
        return self.cell_timeit(rest, "")

    def cell_timeit(self, rest, body):
        import timeit

        loops, runs, words = 0, 7, rest.split(" ")
        while words and words[0][:2] in ("-n", "-r"):
            option = words.pop(0)
            number = int(option[2:] or words.pop(0))
            loops, runs = (number, runs) if option[1] == "n" else (loops, number)
        first = " ".join(words)
        # With a body, the first line prepares it.
        timer = timeit.Timer(body or first, first if body and first else "pass", globals=namespace)
        loops = loops or timer.autorange()[0]
        times = [time / loops for time in timer.repeat(runs, loops)]
        mean = sum(times) / len(times)
        spread = (sum((time - mean) ** 2 for time in times) / len(times)) ** 0.5
        print(
            "%s ± %s per loop (mean ± std. dev. of %d runs, %s loops each)"
            % (duration(mean), duration(spread), runs, format(loops, ","))
        )

    def cell_bash(self, rest, body, program="bash"):
        code = self.shell([program] + rest.split(), script=body)
        if code != 0:
            import subprocess

            raise subprocess.CalledProcessError(code, program)

    def cell_sh(self, rest, body):
        self.cell_bash(rest, body, "sh")

    def cell_script(self, rest, body):
        program, _, rest = rest.partition(" ")
        self.cell_bash(rest, body, program)

    def cell_python(self, rest, body):
        self.cell_bash(rest, body, sys.executable)

    cell_python3 = cell_python

    def cell_system(self, rest, body):
        return self.lines("\n".join(filter(None, (rest, body))))

    cell_sx = cell_system

    def cell_writefile(self, rest, body):
        is_appended = rest.startswith("-a ")
        path = os.path.expanduser(expanded(rest[3:] if is_appended else rest).strip("\"' "))
        verb = "Appending to" if is_appended else "Overwriting" if os.path.exists(path) else "Writing"
        with open(path, "a" if is_appended else "w", encoding="utf-8") as file:
            file.write(body)
        print("%s %s" % (verb, path))

    cell_file = cell_writefile

    def cell_capture(self, rest, body):
        import contextlib

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            run(body, "<captured>")
        names = [name for name in rest.split() if not name.startswith("-")]
        if names:
            captured = type("Captured", (), {"stdout": out.getvalue(), "stderr": err.getvalue()})
            namespace[names[0]] = captured()

    def cell_html(self, _rest, body):
        display({"text/html": body}, raw=True)

    def cell_markdown(self, _rest, body):
        display({"text/markdown": body}, raw=True)

    def cell_latex(self, _rest, body):
        display({"text/latex": body}, raw=True)

    def cell_svg(self, _rest, body):
        display({"image/svg+xml": body}, raw=True)

    def cell_javascript(self, _rest, body):
        display({"application/javascript": body}, raw=True)

    cell_HTML, cell_SVG, cell_js = cell_html, cell_svg, cell_javascript


SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


def quoted(text):
    import shlex

    return shlex.quote(text)


def duration(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1:
            return "%.3g %s" % (seconds * factor, unit)
    return "%.3g ns" % (seconds * 1e9)


class Shown:
    """One of IPython's objects for display: data of a media type, from a text, a file or an address."""

    media_type = "text/plain"
    method = ""

    def __init__(self, data=None, url=None, filename=None, metadata=None, **_options):
        self.data, self.url, self.filename, self.metadata = data, url, filename, metadata or {}
        if data is None and filename is not None:
            with open(filename, "rb") as file:
                self.data = file.read()
        elif data is None and url is not None:
            import urllib.request

            with urllib.request.urlopen(url) as answer:
                self.data = answer.read()
        if isinstance(self.data, bytes) and not self.media_type.startswith("image/"):
            self.data = self.data.decode("utf-8", "replace")

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.media_type: self.data}


class Image(Shown):
    media_type = "image/png"

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, **options):
        if isinstance(data, str):
            (filename, url, data) = (filename, data, None) if "://" in data else (data, url, None)
        Shown.__init__(self, data, url, filename, **options)
        kinds = ((b"\xff\xd8", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))
        self.media_type = next((kind for start, kind in kinds if (self.data or b"").startswith(start)), "image/png")


def kinds_of_display():
    """The classes of `IPython.display`."""
    kinds = {"Image": Image}
    for name, media_type in (
        ("HTML", "text/html"),
        ("Markdown", "text/markdown"),
        ("Latex", "text/latex"),
        ("Math", "text/latex"),
        ("JSON", "application/json"),
        ("GeoJSON", "application/geo+json"),
        ("Javascript", "application/javascript"),
        ("SVG", "image/svg+xml"),
        ("Pretty", "text/plain"),
        ("Code", "text/plain"),
    ):
        kinds[name] = type(name, (Shown,), {"media_type": media_type})
    math = kinds["Math"]
    math._repr_mimebundle_ = lambda self, include=None, exclude=None: {
        "text/latex": "$\\displaystyle %s$" % self.data.strip("$")
    }
    return kinds


def clear_output(wait=False):
    """Nothing that was shown is taken back."""


def update_display(value, display_id=None, **options):
    display(value, **options)


class Handle:
    """What `display(…, display_id=…)` returns: an update is shown anew."""

    def __init__(self, display_id=None):
        self.display_id = display_id

    def display(self, value, **options):
        display(value, **options)

    update = display


def changed(spec, change):
    """The specification of a module that is changed once it has been imported."""
    execute = getattr(spec.loader, "exec_module", None)

    def exec_module(module):
        execute(module)
        change(module)

    try:
        spec.loader.exec_module = exec_module
    except AttributeError:
        pass
    return spec


def show_what_is_saved(module):
    """A notebook shows the picture that a cell saves."""
    save_picture = module.Image.save

    def save(self, fp, format=None, **options):
        if state["notebook"] and isinstance(fp, str):
            display(self)
        save_picture(self, fp, format, **options)

    module.Image.save = save


class NotebookModules:
    """Finds `IPython.display` where IPython is not installed, and has an installed one display as the driver does."""

    # Saves pictures, which a notebook shows.
    PICTURES = "PIL.Image"
    NAMES = (PICTURES, "IPython", "IPython.core", "IPython.display", "IPython.core.display", "IPython.core.display_functions")
    is_looking = False

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.NAMES or cls.is_looking:
            return None
        import importlib.util

        cls.is_looking = True
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            found = None
        finally:
            cls.is_looking = False
        if name == cls.PICTURES:
            return found and changed(found, show_what_is_saved)
        if found is None or found.loader is None:
            parent = sys.modules.get("IPython")
            if parent is not None and getattr(parent, "__file__", None):
                return None
            return importlib.util.spec_from_loader(name, cls(), is_package=name in ("IPython", "IPython.core"))
        if name.startswith("IPython.core.display"):
            return changed(found, lambda module: setattr(module, "display", display))
        return found

    def create_module(self, _spec):
        return None

    def exec_module(self, module):
        if module.__name__ == "IPython":
            module.__version__, module.version_info = "9.0.0", (9, 0, 0)
            module.get_ipython = lambda: None
        own = {
            "display": display,
            "clear_output": clear_output,
            "update_display": update_display,
            "DisplayHandle": Handle,
            "DisplayObject": Shown,
        }
        if module.__name__ != "IPython.core":
            module.__dict__.update(own)
        if module.__name__ in ("IPython.display", "IPython.core.display"):
            module.__dict__.update(kinds_of_display())
