"""Point it at anyone's training script, and be told what is wrong with it.

    ddp-doctor -- torchrun --standalone --nproc_per_node=2 train.py

It runs the command with a probe inside each Python process, and judges what was seen. From Python:
`ddp_doctor.diagnosis.diagnosed`; `ddp_doctor.observer` runs a command and only records it.
"""
