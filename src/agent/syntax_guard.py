import ast, builtins, importlib, sys, traceback


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


new, error = parsed(sys.argv[2])
if new is None:
    print(error)
    was_right = sys.argv[3].strip() and parsed(sys.argv[3])[0] is not None
    sys.exit(3 if was_right else 4)
old = parsed(sys.argv[3])[0]
lacked = undefined(old) if old else {}
missing = [name for name, uses in undefined(new).items() if name not in lacked and can_be_imported(name, uses)]
print(line_for_imports(sys.argv[2], new), *sorted(missing))
