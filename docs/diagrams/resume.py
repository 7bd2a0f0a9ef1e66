"""Two starts of a training that saves every 10 epochs, one below the other. The first runs epochs
1 to 10, saves a checkpoint, runs epochs 11 and 12, and is killed. The second start reads the
checkpoint, so it runs epochs 11 and 12 again. It trains to epoch 20 and saves again."""

from docs._ext.drawing import BLUE, ORANGE, Drawing

drawing = Drawing(252)
SAVED, KILLED = 122, 198  # the ends of epoch 10 and of epoch 12

drawing.text(1, 8, "first start", bold=True, anchor="start")
drawing.box(1, 22, SAVED - 1, 34, "epochs 1–10", color=BLUE)
drawing.box(SAVED, 22, 38, 34, "11", color=BLUE, dashed=True)
drawing.box(160, 22, 38, 34, "12", color=BLUE, dashed=True)
drawing.text(KILLED + 8, 32, "× killed:", "11 and 12 are lost", anchor="start")

drawing.arrow(SAVED, 57, SAVED, 83)
drawing.text(SAVED - 8, 70, "save", anchor="end")
drawing.box(SAVED - 61, 84, 122, 36, "checkpoint", "10 epochs")
drawing.arrow(SAVED, 121, SAVED, 147)
drawing.text(SAVED - 8, 134, "resume", anchor="end")

drawing.text(1, 165, "second start", bold=True, anchor="start")
drawing.box(SAVED, 148, 38, 34, "11", color=ORANGE)
drawing.box(160, 148, 38, 34, "12", color=ORANGE)
drawing.box(KILLED, 148, 120, 34, "epochs 13–20", color=BLUE)
drawing.text(160, 192, "again")
drawing.arrow(288, 183, 288, 209)
drawing.text(280, 196, "save", anchor="end")
drawing.box(227, 210, 122, 36, "checkpoint", "20 epochs")
