import ast, builtins, sys, traceback


def parsed(text):
    try:
        return ast.parse(text, sys.argv[1]), None
    except (SyntaxError, ValueError) as error:
        return None, "".join(traceback.format_exception_only(type(error), error))


def undefined(tree):
    used, defined = set(), set(dir(builtins)) | {"__file__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else defined).add(node.id)
        elif isinstance(node, ast.alias):
            defined.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(getattr(node, "name", None), str):
            defined.add(node.name)
    # What `from x import *` defines is not known.
    return set() if "*" in defined else used - defined


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
print(line_for_imports(sys.argv[2], new), *sorted(undefined(new)))
