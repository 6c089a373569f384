"""How our pictures look: colours for colour-blind readers, a line style and marker an arm, and a frame with title and footer."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib

matplotlib.use("Agg")

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from testbed.files import named
from testbed.report.context import LABELS, LISTED
from testbed.report.model import ArmRun

TITLE_PT, TEXT_PT, FOOTER_PT = 14.0, 11.0, 8.0
DPI = 150
WIDTH_IN = 11.0
FOOTER_CHARACTERS = 148  # leaves the right end of the footer to the stamp

RC: Mapping[str, Any] = {
    "font.size": TEXT_PT, "font.family": "DejaVu Sans", "axes.titlesize": TEXT_PT + 1, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.7,
    "axes.axisbelow": True, "hatch.linewidth": 0.6, "legend.frameon": False, "svg.fonttype": "path", "svg.hashsalt": "testbed",
    "text.parse_math": False,
}  # fmt: skip


Line = Literal["-", "--", "-.", ":"]


@dataclass(frozen=True)
class ArmStyle:
    """How one arm is drawn everywhere."""

    colour: str
    line: Line
    marker: str
    hatch: str


# Okabe and Ito's palette ("Color Universal Design", 2008), fit for all common kinds of colour blindness.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"
KNOWN_ARMS: Mapping[str, ArmStyle] = {
    "mrc": ArmStyle(BLUE, "-", "o", ""),
    "mrc-no-trim": ArmStyle(SKY, "-.", "v", "--"),
    "rc-bgp": ArmStyle(VERMILLION, "--", "s", "//"),
    "rc-bgp-ovs": ArmStyle(GREEN, "-.", "^", "\\\\"),
    "tcp-bgp": ArmStyle(PURPLE, ":", "D", "xx"),
    "mrc-bgp": ArmStyle(ORANGE, "--", "<", "||"),
    "rc-static": ArmStyle(BLACK, ":", "P", ".."),
}
OTHER_ARM = ArmStyle("#666666", "-", "X", "++")

# kind of fault -> (colour, hatch)
FAULT_LOOK: Mapping[str, tuple[str, str]] = {
    "carrier": ("#E9C46A", "////"),
    "silent": ("#B79FC8", "...."),
    "switch-kill": ("#9AB8A0", "xxxx"),
    "switch-reboot": ("#A9C4D9", "\\\\\\\\"),
    "switch-hang": ("#C9D8A4", "xx.."),
    "remote": ("#E8B4A0", "//.."),
    "one-way": ("#F2D5E0", "----"),
    "loss": ("#D8C3A5", "oo"),
    "rate": ("#BFE3DA", "||||"),
    "port": ("#E3E08A", "\\\\"),
    "bundle": ("#D9A441", "////..."),
    "flap": ("#F0C27B", "|||---"),
    "host-slow": ("#CFCFE8", "**"),
    "controller-kill": ("#C4A69D", "\\\\--"),
}
OTHER_FAULT = ("#BBBBBB", "++")


def arm_style(arm: str) -> ArmStyle:
    """Colour, line style, marker and hatch of an arm."""
    return KNOWN_ARMS.get(arm, OTHER_ARM)


def fault_look(kind: str) -> tuple[str, str]:
    """Colour and hatch of a kind of fault."""
    return FAULT_LOOK.get(kind, OTHER_FAULT)


def frame(title: str, footer: Sequence[str], height_in: float) -> Figure:
    """An empty figure with its title in words on top and the footer below; what is drawn between stays clear of both."""
    title_lines = _balanced(_held_together(title), 88)
    footer_lines = [line for text in footer for line in textwrap.wrap(_held_together(text), FOOTER_CHARACTERS)]
    top_in = 0.12 + len(title_lines) * TITLE_PT * 1.3 / 72
    bottom_in = 0.12 + len(footer_lines) * FOOTER_PT * 1.35 / 72
    height_in += top_in + bottom_in
    figure = Figure(figsize=(WIDTH_IN, height_in), dpi=DPI, layout="constrained", facecolor="white")
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0.004, bottom_in / height_in, 0.99, 1 - (top_in + bottom_in) / height_in), h_pad=0.08)
    figure.text(0.012, 1 - 0.1 / height_in, "\n".join(title_lines), size=TITLE_PT, weight="bold", va="top", linespacing=1.25)
    figure.text(0.012, 0.08 / height_in, "\n".join(footer_lines), size=FOOTER_PT, color="#444444", va="bottom", linespacing=1.3)
    return figure


def _held_together(title: str) -> str:
    """The title with arms' names and numbers with their units made unbreakable."""
    for name in (*LABELS.values(), *LISTED.values()):
        title = title.replace(name, name.replace(" ", "\N{NO-BREAK SPACE}"))
    return re.sub(r"(?<=\d) (?=[mu]?s\b|[kMG]?bps\b|(?:[KMG]i|[kMG])?B\b|%|base RTT)", "\N{NO-BREAK SPACE}", title).replace(
        "base RTT", "base\N{NO-BREAK SPACE}RTT"
    )


def _balanced(text: str, width: int) -> list[str]:
    """Wrapped to as few lines as `width` allows: at the ends of clauses where that is possible, then about equally long."""
    fewest = len(textwrap.wrap(text, width))
    candidates = (textwrap.wrap(text, narrow) for narrow in range(width // 2, width + 1))
    return max((lines for lines in candidates if len(lines) <= fewest), key=_breaks_at_clauses)


def _breaks_at_clauses(lines: Sequence[str]) -> tuple[int, int]:
    """How many lines end with a strong mark, and how many with any."""
    return sum(line.endswith((";", ":", ".")) for line in lines[:-1]), sum(line.endswith(",") for line in lines[:-1])


def stamp(figure: Figure, fidelity: str) -> None:
    """Marks a picture of a run that must not be believed, so that it cannot be shown without saying so."""
    if fidelity == "invalid":
        height_in = figure.get_size_inches()[1]
        box = {"facecolor": "white", "edgecolor": "#B00020", "boxstyle": "round,pad=0.4"}
        figure.text(0.985, 0.12 / height_in, "NOT VALID: see fidelity", color="#B00020", weight="bold", ha="right", va="bottom", bbox=box)


def panels(figure: Figure, heights: Sequence[float], handles: Sequence[Any], columns: int = 4) -> list[Axes]:
    """One panel above the other with a common x axis, and the legend in a row of its own below, where it covers nothing."""
    rows = math.ceil(len(handles) / columns)
    grid = figure.add_gridspec(len(heights) + 1, 1, height_ratios=[*heights, 0.12 + 0.24 * rows])
    axes: list[Axes] = []
    for index in range(len(heights)):
        axes.append(figure.add_subplot(grid[index], sharex=axes[0] if axes else None))
    for panel in axes[:-1]:
        panel.tick_params(labelbottom=False)
    below = figure.add_subplot(grid[len(heights)])
    below.set_axis_off()
    below.legend(handles=list(handles), loc="center", ncols=columns, fontsize=TEXT_PT - 1.5, borderpad=0)
    return axes


def styled() -> AbstractContextManager[None]:
    """A context in which our settings hold, and nobody else's are touched."""
    settings: Any = dict(RC)
    return rc_context(settings)


LANE, ALL_LANES = 0.075, 0.3  # height of a kind's lane, and of all lanes at most, as shares of the panel's


def lanes_height(kinds: Sequence[str]) -> float:
    """What the lanes of these kinds of fault take of a panel's height, from its top."""
    return min(ALL_LANES, LANE * len(kinds))


def fault_kinds(runs: Iterable[ArmRun]) -> list[str]:
    """The kinds of fault that happened, each once."""
    return list(dict.fromkeys(fault.kind for run in runs for fault in run.faults if fault.happened))


def shade_faults(axes: Axes, run: ArmRun, kinds: Sequence[str], missed: Collection[str]) -> None:
    """Shades each fault's interval: in grey over the whole height, and in the look of its kind in that kind's lane along the top, so that
    faults at the same time stay apart. Those in `missed` (identities), which hit no traffic, are only outlined in their lane."""
    height = lanes_height(kinds) / max(1, len(kinds))
    for fault in run.faults:
        if fault.happened:
            span = (fault.begin_s, min(fault.until_s(run.duration_s), run.duration_s))
            top = 1 - height * kinds.index(fault.kind)
            lane: dict[str, Any] = {"ymin": top - 0.85 * height, "ymax": top, "zorder": 3, "linewidth": 0.8}
            if fault.id in missed:
                axes.axvspan(*span, facecolor="white", edgecolor="#777777", linestyle=":", **lane)
                continue
            colour, hatch = fault_look(fault.kind)
            axes.axvspan(*span, facecolor=colour, hatch=hatch, edgecolor="#666666", **lane)
            axes.axvspan(*span, ymax=1 - lanes_height(kinds), facecolor="#000000", alpha=0.09, linewidth=0, zorder=0)


def missed_handle() -> Patch:
    """Legend entry of a fault that hit no traffic."""
    return Patch(facecolor="white", edgecolor="#777777", linestyle=":", linewidth=0.8, label="fault on a link without traffic")


def fault_handles(runs: Iterable[ArmRun]) -> list[Patch]:
    """Legend entries of the kinds of fault that happened."""
    looks = {kind: fault_look(kind) for kind in fault_kinds(runs)}
    return [
        Patch(facecolor=colour, hatch=hatch, edgecolor="#666666", linewidth=0.8, label=f"{kind} fault")
        for kind, (colour, hatch) in looks.items()
    ]


def say_nothing_to_show(axes: Axes, text: str) -> None:
    """An honest empty panel."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, "\n".join(textwrap.wrap(text, 70)), ha="center", va="center", transform=axes.transAxes, color="#555555")


def save(figure: Figure, path: Path) -> None:
    """Writes a figure in the format of its file; without a date, so that the same run gives the same file. OSError names the file."""
    try:
        figure.savefig(path, dpi=DPI, metadata={"Date": None} if path.suffix == ".svg" else None)
    except OSError as error:
        raise named(error, path) from None
