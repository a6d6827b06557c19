import ast, builtins, importlib, json, sys, traceback


def parsed(text):
    try:
        return ast.parse(text, sys.argv[1]), None
    except (SyntaxError, ValueError) as error:
        return None, "".join(traceback.format_exception_only(type(error), error))


def undefined(tree):
    """The names that are used and not defined, with the attributes that are asked of them; None for a use without one."""
    used, defined, bases = {}, set(dir(builtins)) | {"__file__"}, set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            bases.add(node.value)
            used.setdefault(node.value.id, set()).add(node.attr)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.Name) and node not in bases:
            used.setdefault(node.id, set()).add(None)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(getattr(node, "name", None), str):
            defined.add(node.name)
    # What `from x import *` defines is not known.
    return {} if "*" in defined else {name: used[name] for name in used if name not in defined}


def can_be_imported(name, attributes):
    if name not in sys.argv[4].split():
        return True
    return None not in attributes and all(hasattr(importlib.import_module(name), it) for it in attributes)


def line_for_imports(text, tree):
    line = int(text.startswith("#!"))
    for node in tree.body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and getattr(node, "module", None) != "__future__":
            break
        line = node.end_lineno
    return line


def definitions(node, prefix=""):
    """Functions and classes with the names of the classes around them; none that is defined twice."""
    found, twice = {}, set()
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = prefix + child.name
            if name in found:
                twice.add(name)
            found[name] = child
        if isinstance(child, ast.ClassDef):
            found.update(definitions(child, name + "."))
    return {name: child for name, child in found.items() if name not in twice}


def indentation(text, node):
    """What stands in front of a statement that has its lines for itself; None for one that shares them."""
    lines = text.encode().split(b"\n")
    before = lines[node.lineno - 1][: node.col_offset]
    behind = lines[node.end_lineno - 1][node.end_col_offset :]
    return None if before.strip() or behind.strip() else before


def docstrings(old_text, old, new_text, new):
    """Docstrings of `old` that `new` lacks or has otherwise: their first and last line there, the first line of `new` that they
    replace, and the line after those."""
    found = definitions(new)
    for name, node in definitions(old).items():
        other, text = found.get(name), ast.get_docstring(node)
        if other is None or text is None or ast.get_docstring(other) == text:
            continue
        docstring, first = node.body[0], other.body[0]
        is_missing = ast.get_docstring(other) is None
        line = min([first.lineno] + [it.lineno for it in getattr(first, "decorator_list", [])])
        end = line if is_missing else first.end_lineno + 1
        margin = indentation(old_text, docstring)
        lines = new_text.encode().split(b"\n")
        new_margin = lines[first.lineno - 1][: first.col_offset] if is_missing else indentation(new_text, first)
        if margin is not None and margin == new_margin:
            yield docstring.lineno, docstring.end_lineno, line, end


def without_body(tree):
    """The functions that have a docstring and nothing else."""
    functions = {name: it for name, it in definitions(tree).items() if not isinstance(it, ast.ClassDef)}
    return [name for name, it in functions.items() if len(it.body) == 1 and ast.get_docstring(it) is not None]


def report(old_text, old, new_text, new):
    lacked = undefined(old)
    missing = [name for name, uses in undefined(new).items() if name not in lacked and can_be_imported(name, uses)]
    stubs = without_body(old)
    return {
        "imports_behind": line_for_imports(new_text, new),
        "missing": sorted(missing)[:8],
        "docstrings": sorted(docstrings(old_text, old, new_text, new), key=lambda it: it[2])[:16],
        "removed": [it.name for name, it in definitions(old).items() if name not in definitions(new)][:1],
        "without_body": stubs[:1] if stubs and set(stubs) <= set(without_body(new)) else [],
    }


new, error = parsed(sys.argv[2])
if new is None:
    print(error)
    was_right = sys.argv[3].strip() and parsed(sys.argv[3])[0] is not None
    sys.exit(3 if was_right else 4)
old, _ = parsed(sys.argv[3])
print(json.dumps(report(sys.argv[3] if old else "", old or ast.parse(""), sys.argv[2], new)))
