"""The matplotlib backend of `agent`: draws with Agg, and saves what is shown. MPLBACKEND names it."""

import atexit

import agent_display
from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase, _Backend
from matplotlib.backends.backend_agg import FigureCanvasAgg


def save(figure):
    if agent_display.show_figure is not None:
        agent_display.show_figure(figure)
    else:
        agent_display.save(".png", lambda path: figure.savefig(path, format="png"))


def show(*args, **kwargs):
    for manager in Gcf.get_all_fig_managers():
        save(manager.canvas.figure)
    Gcf.destroy_all()


class Manager(FigureManagerBase):
    def show(self):
        """Figure.show()"""
        save(self.canvas.figure)
        Gcf.destroy(self)

    @classmethod
    def pyplot_show(cls, *args, **kwargs):
        show()


class Canvas(FigureCanvasAgg):
    manager_class = Manager


@_Backend.export
class _BackendAgent(_Backend):
    FigureCanvas = Canvas
    FigureManager = Manager
    show = staticmethod(show)


# Figures that were drawn and never shown.
atexit.register(show)
