"""Two nodes with two GPUs each, so the world size is 4. On node1, which is the endpoint, the
process with rank 0 has local rank 0 and uses GPU 0; rank 1 has local rank 1 and uses GPU 1. On
node2, rank 2 has local rank 0 and uses GPU 0; rank 3 has local rank 1 and uses GPU 1."""

from docs._ext.drawing import BLUE, Drawing

drawing = Drawing(336)
for node, title in enumerate(("node1, the endpoint", "node2")):
    top = 1 + node * 154
    drawing.frame(top, 144, title)
    for local, x in enumerate((12, 180)):
        rank = 2 * node + local
        names = f"process with rank {rank}", f"local rank {local}"
        drawing.box(x, top + 28, 158, 52, *names, color=BLUE)
        drawing.arrow(x + 79, top + 82, x + 79, top + 104)
        drawing.box(x, top + 106, 158, 28, f"GPU {local}")
drawing.text(175, 318, "world size 4 = 2 nodes × 2 processes", bold=True)
