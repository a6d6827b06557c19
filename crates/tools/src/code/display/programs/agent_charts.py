"""A figure of matplotlib taken apart: its charts as data, in the form that clients of code interpreters read."""

import re

UNIT = re.compile(r"\s\((.*?)\)|\[(.*?)\]")
# Points of one chart: more is a picture's to show.
MAX_POINTS = 100_000


def chart(figure):
    """The chart of a figure, or of several, all of them; `None` where nothing is drawn."""
    axes = figure.get_axes()
    if not any(ax.has_data() for ax in axes):
        return None
    if len(axes) == 1:
        return chart_of(axes[0])
    title = figure._suptitle.get_text() if getattr(figure, "_suptitle", None) else ""
    return {"type": "superchart", "title": title, "elements": [chart_of(ax) for ax in axes]}


def chart_of(ax):
    kind = kind_of(ax)
    found = {"type": kind, "title": ax.get_title() or None, "elements": []}
    if kind in ("line", "scatter", "bar", "box_and_whisker"):
        for axis, label in (("x", ax.get_xlabel()), ("y", ax.get_ylabel())):
            unit = UNIT.search(label)
            found[axis + "_label"] = label or None
            found[axis + "_unit"] = (unit.group(1) or unit.group(2)) if unit else None
    if kind in ("line", "scatter"):
        found.update(scale_of("x", ax.xaxis, ax.get_xscale()))
        found.update(scale_of("y", ax.yaxis, ax.get_yscale()))
    fill = FILL.get(kind)
    if fill is not None:
        fill(ax, found)
    return found


def kind_of(ax):
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D
    from matplotlib.patches import PathPatch, Rectangle, Wedge

    drawn = list(ax.lines) + list(ax.patches) + list(ax.collections) + list(ax.images)
    if all(isinstance(one, Line2D) for one in drawn):
        boxes = [line for line in ax.lines if is_box(line)]
        return "box_and_whisker" if boxes else "line"
    if all(isinstance(one, (PathPatch, Line2D)) for one in drawn):
        return "box_and_whisker"
    drawn = [one for one in drawn if not (isinstance(one, Line2D) and is_rule(one))]
    for kind, name in ((PathCollection, "scatter"), (Wedge, "pie"), (Rectangle, "bar")):
        if all(isinstance(one, kind) for one in drawn):
            return name
    return "unknown"


def is_rule(line):
    """Whether a line is one of a grid: horizontal or vertical, between two points."""
    x, y = list(line.get_xdata()), list(line.get_ydata())
    return len(x) == len(y) == 2 and (x[0] == x[1] or y[0] == y[1])


def is_box(line):
    """Whether a line is the box of a box plot: closed, with four corners."""
    x, y = list(line.get_xdata()), list(line.get_ydata())
    return len(x) == 5 and (x[0], y[0]) == (x[-1], y[-1]) and len(set(x)) == len(set(y)) == 2


def is_of_dates(axis):
    get = getattr(axis, "get_converter", None)
    converter = get() if get is not None else axis.converter
    return "Date" in type(converter).__name__


def scale_of(name, axis, scale):
    labels = [label.get_text() for label in axis.get_ticklabels()]
    ticks = list(axis.get_majorticklocs())
    if is_of_dates(axis):
        from matplotlib.dates import num2date

        scale, ticks = "datetime", [num2date(tick).isoformat() for tick in ticks]
    else:
        ticks = [float(tick) for tick in ticks]
        # Places that have names instead of numbers.
        are_named = [tick == at and str(at) != label for at, (tick, label) in enumerate(zip(ticks, labels))]
        if scale == "linear" and all(are_named):
            scale = "categorical"
    return {name + "_ticks": ticks, name + "_tick_labels": labels, name + "_scale": scale}


def plain(value):
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ == "datetime64":
        return str(value.astype("datetime64[s]"))
    return value.item() if hasattr(value, "item") else value


def points(xs, ys):
    return [[plain(x), plain(y)] for x, y in zip(xs, ys)][:MAX_POINTS]


def label_of(artist, own, name):
    """A label that was given, or a number in the place of the one that matplotlib makes up."""
    label = str(artist.get_label())
    return "%s %s" % (name, label[len(own):]) if label.startswith(own) else label


def fill_lines(ax, found):
    for line in ax.get_lines():
        if not is_rule(line):
            data = points(line.get_xdata(), line.get_ydata())
            found["elements"].append({"label": label_of(line, "_child", "Line"), "points": data})


def fill_scatter(ax, found):
    for collection in ax.collections:
        data = points(*zip(*collection.get_offsets())) if len(collection.get_offsets()) else []
        found["elements"].append({"label": str(collection.get_label()), "points": data})


def fill_bars(ax, found):
    for container in ax.containers:
        group = label_of(container, "_container", "Group")
        heights = [bar.get_height() for bar in container]
        lies = len(heights) > 1 and all(height == heights[0] for height in heights)
        if lies:
            swap_axes(found)
        axis = ax.get_yticklabels() if lies else ax.get_xticklabels()
        values = [bar.get_width() for bar in container] if lies else heights
        for label, value in zip((label.get_text() for label in axis), values):
            found["elements"].append({"label": label, "group": group, "value": plain(value)})


def swap_axes(found):
    for what in ("_label", "_unit"):
        found["x" + what], found["y" + what] = found["y" + what], found["x" + what]


def fill_pie(ax, found):
    for wedge in ax.patches:
        angle = round(abs(float(wedge.theta2) - float(wedge.theta1)), 3)
        found["elements"].append({"label": str(wedge.get_label()), "angle": angle, "radius": float(wedge.r)})


def fill_boxes(ax, found):
    """The boxes, each with the lines at its place: the median within it, two whiskers and two caps beyond, and outliers."""
    boxes = [corners(patch.get_path().vertices) for patch in ax.patches]
    boxes += [corners(line.get_xydata()) for line in ax.lines if is_box(line)]
    lines = [line for line in ax.lines if not is_box(line)]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    for at, (left, right, low, high) in enumerate(boxes):
        middle = (left + right) / 2
        median, ends, outliers = (low + high) / 2, [low, high], []
        for line in lines:
            xs, ys = [float(x) for x in line.get_xdata()], [float(y) for y in line.get_ydata()]
            if not xs or not left <= sum(xs) / len(xs) <= right:
                continue
            if line.get_linestyle() in ("None", "", " ") or line.get_marker() not in ("None", None, ""):
                outliers += ys
            elif len(set(ys)) > 1:
                ends += ys
            elif low <= ys[0] <= high and max(xs) - min(xs) >= (right - left) * 0.99:
                median = ys[0]
        found["elements"].append(
            {
                "label": labels[at] if at < len(labels) else "%g" % middle,
                "min": min(ends),
                "first_quartile": low,
                "median": median,
                "third_quartile": high,
                "max": max(ends),
                "outliers": outliers,
            }
        )


def corners(vertices):
    # A closed path ends with a point that says nothing.
    xs, ys = [float(x) for x, _ in vertices[:4]], [float(y) for _, y in vertices[:4]]
    return min(xs), max(xs), min(ys), max(ys)


FILL = {
    "line": fill_lines,
    "scatter": fill_scatter,
    "bar": fill_bars,
    "pie": fill_pie,
    "box_and_whisker": fill_boxes,
}
