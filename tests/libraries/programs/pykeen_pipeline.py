"""pykeen: a batch is several backwards; finding a batch size that fits makes some that are dropped."""

import logging

import numpy as np

logging.disable(logging.WARNING)

from pykeen.pipeline import pipeline
from pykeen.triples import TriplesFactory

triples = [
    (f"n{number}", relation, f"n{(number * factor + 1) % 20}")
    for number in range(20)
    for relation, factor in (("double", 2), ("triple", 3), ("square", number))
]
known, held_back = TriplesFactory.from_labeled_triples(np.array(triples)).split(random_state=0)
total = 0.0
for model, loop, training, memory in (
    ("TransE", "sLCWA", {"num_epochs": 4, "batch_size": 20, "sub_batch_size": 5}, False),
    ("DistMult", "LCWA", {"num_epochs": 2}, True),
):
    result = pipeline(
        training=known,
        testing=held_back,
        model=model,
        model_kwargs={"embedding_dim": 8},
        training_loop=loop,
        training_loop_kwargs={"automatic_memory_optimization": memory},
        training_kwargs={**training, "use_tqdm": False},
        evaluation_kwargs={"use_tqdm": False},
        random_seed=0,
        device="cpu",
    )
    total += result.losses[-1]
print("final", repr(total))
