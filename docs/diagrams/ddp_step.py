"""One training step on two processes, rank 0 and rank 1, from top to bottom. Both run forward on
their own samples, then backward from the last layers to the first. The gradients of the last
layers fill bucket 1, which is all-reduced while backward works on the middle layers. Bucket 2
follows while backward works on the first layers, and bucket 3 after backward. Both processes get
the same averages, with which they update their weights."""

from docs._ext.drawing import BLUE, GREEN, LINE, ORANGE, PURPLE, Drawing

LEFT, MIDDLE, RIGHT = 1, 124, 247  # where the columns begin
WIDE, HIGH = 102, 46  # a column, a part of backward
BACKWARD = 98  # where backward begins

drawing = Drawing(328)
drawing.arrow(175, 4, 175, 82)
drawing.text(184, 43, "time", anchor="start")
for rank, x in enumerate((LEFT, RIGHT)):
    drawing.text(x + WIDE / 2, 10, f"rank {rank}", bold=True)
    drawing.text(x + WIDE / 2, 10 + LINE, "its own samples")
    drawing.box(x, 44, WIDE, HIGH, "forward", color=BLUE)
    for part, layers in enumerate(("last", "middle", "first")):
        y = BACKWARD + part * HIGH
        drawing.box(x, y, WIDE, HIGH, "backward", f"{layers} layers", color=ORANGE)
    drawing.box(x, 289, WIDE, 38, "update", color=PURPLE)
for bucket in (1, 2, 3):
    y = BACKWARD + bucket * HIGH + 3
    drawing.box(MIDDLE, y, WIDE, 38, "all-reduce", f"bucket {bucket}", color=GREEN)
    drawing.arrow(LEFT + WIDE, y - 20, MIDDLE, y + 8, color=GREEN)
    drawing.arrow(RIGHT, y - 20, MIDDLE + WIDE, y + 8, color=GREEN)
drawing.box(MIDDLE, 289, WIDE, 38, "averages", "equal on both", color=GREEN)
drawing.arrow(175, 277, 175, 289, color=GREEN)
drawing.arrow(MIDDLE, 308, LEFT + WIDE, 308, color=GREEN)
drawing.arrow(MIDDLE + WIDE, 308, RIGHT, 308, color=GREEN)
