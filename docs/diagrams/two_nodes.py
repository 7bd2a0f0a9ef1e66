"""node1, the endpoint, has an agent, a store, the workers with ranks 0 and 1, and a disk with a
checkpoint. node2 has an agent, the workers with ranks 2 and 3, and a disk with a checkpoint. Three
things travel between the nodes. The agent of node2 uses the store of node1 for the rendezvous and
for signs of life. The workers average their gradients at each step. At each start, the first
rank with the newest checkpoint, here rank 2, broadcasts it to all others."""

from docs._ext.drawing import BLUE, GREEN, ORANGE, PURPLE, Drawing

drawing = Drawing(392)
drawing.frame(1, 144, "node1, the endpoint")
drawing.box(12, 30, 96, 40, "agent", color=PURPLE)
drawing.arrow(60, 71, 60, 93, color=ORANGE, both=True)
drawing.box(12, 94, 96, 40, "store", color=ORANGE)
drawing.frame(247, 144, "node2")
drawing.box(12, 276, 96, 40, "agent", color=PURPLE)
for node, (workers, disk) in enumerate(((94, 30), (276, 340))):
    drawing.box(138, disk, 200, 40, "disk", "checkpoint")
    for x, rank in ((138, 2 * node), (242, 2 * node + 1)):
        drawing.box(x, workers, 96, 40, "worker", f"rank {rank}", color=BLUE)
drawing.arrow(109, 50, 137, 98, color=PURPLE)
drawing.arrow(109, 296, 137, 296, color=PURPLE)

drawing.arrow(94, 135, 94, 275, color=ORANGE, both=True)
drawing.text(86, 181, "rendezvous,", "signs of life", anchor="end")
drawing.arrow(146, 135, 146, 275, color=GREEN, both=True)
drawing.text(154, 181, "gradients,", "each step", anchor="start")
drawing.arrow(250, 275, 250, 135, dashed=True)
drawing.text(258, 174, "checkpoint,", "at each", "start", anchor="start")
