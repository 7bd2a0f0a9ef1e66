"""The agent, which is the torchrun process, is on top. First it starts the two workers, watches
them, and tells them where the store is. Second, each worker writes its own address into the store
and reads that of the other. Third, the workers connect to each other and exchange gradients
without agent or store."""

from docs._ext.drawing import BLUE, GREEN, ORANGE, PURPLE, Drawing

drawing = Drawing(262)
drawing.box(1, 1, 348, 40, "agent", "torchrun", color=PURPLE)
drawing.text(175, 62, "1. starts them, watches them,", "says where the store is")
drawing.text(175, 112, "3. gradients")
drawing.arrow(122, 128, 228, 128, color=GREEN, both=True)
drawing.text(175, 178, "2. each writes its address", "and reads the other's")
drawing.box(1, 214, 348, 46, "store", "addresses of rank 0 and rank 1", color=ORANGE)
for rank, x in enumerate((1, 229)):
    middle = 40 if rank == 0 else 310
    drawing.arrow(middle, 42, middle, 104, color=PURPLE)
    drawing.box(x, 106, 120, 44, "worker", f"rank {rank}", color=BLUE)
    drawing.arrow(middle, 152, middle, 213, color=ORANGE, both=True)
