"""The published and the reshaped shapes trained at full scale, on ImageNet-1k: `python -m heads_for_depth.full_scale`.

recipe        what every full-scale run has in common, and where each number comes from
image_folder  the data on disk, checked before anything is built
processes     the processes that torchrun started, and how they agree on what is wrong
jobs          one run: its shape, its arms, its seed, its recipe and its places
loaders       timm's loaders, augmentation and mixing
trainer       model, average, optimizer and schedule, and what an epoch does to them
checkpoints   the state at the end of an epoch: written whole, refused where it is of another run
execution     a job carried out: from nothing or from its checkpoint, to its record
command       the command line
costs         operations and GPU-hours of every row, computed without training
"""
