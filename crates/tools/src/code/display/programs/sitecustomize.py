"""Python imports this module at its start. It costs nothing until plotly or Pillow is imported: not even importlib.util is."""

import os
import sys


def _plotly(renderers_module):
    """fig.show() saves the figure as JSON, and as HTML without the library."""
    import agent_display
    from plotly.io._base_renderers import ExternalRenderer

    class Agent(ExternalRenderer):
        def render(self, figure):
            import plotly.io

            agent_display.save_text(".plotly.json", plotly.io.to_json(figure, validate=False))
            page = plotly.io.to_html(figure, include_plotlyjs="cdn", validate=False)
            agent_display.save_text(".html", page)

    renderers_module.renderers["agent"] = Agent()
    if not os.environ.get("PLOTLY_RENDERER"):
        renderers_module.renderers.default = "agent"


def _pillow(show_module):
    """Image.show() saves the image."""
    import agent_display

    class Agent(show_module.Viewer):
        def show(self, image, **options):
            if image.mode not in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA"):
                image = image.convert("RGB")
            return agent_display.save(".png", lambda path: image.save(path, format="PNG"))

    show_module.register(Agent(), 0)


class _AfterImport:
    """Calls a function with a module once it has been imported."""

    hooks = {"plotly.io._renderers": _plotly, "PIL.ImageShow": _pillow}

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.pop(name, None)
        if hook is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        execute = getattr(spec and spec.loader, "exec_module", None)
        if execute is None:
            return None

        def exec_module(module):
            execute(module)
            try:
                hook(module)
            except Exception:
                # Another version of the library: it works as it does without agent.
                pass

        try:
            spec.loader.exec_module = exec_module
        except AttributeError:
            return None
        return spec


def _next_sitecustomize():
    """Runs the one of the distribution or the virtual environment, which this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    finders = (finder for finder in sys.meta_path if getattr(finder, "__name__", "") == "PathFinder")
    spec = next((finder.find_spec("sitecustomize", path) for finder in finders), None)
    if spec is not None and spec.loader is not None:
        module = type(sys)("sitecustomize")
        module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.meta_path.insert(0, _AfterImport())
_next_sitecustomize()
