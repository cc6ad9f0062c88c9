"""pytorch-tabnet: gradients are cleared by assigning None; one of its layers never gets any."""

import warnings

import numpy as np
from pytorch_tabnet.pretraining import TabNetPretrainer
from pytorch_tabnet.tab_model import TabNetClassifier

warnings.simplefilter("ignore")
rows = np.random.default_rng(0).normal(size=(192, 5)).astype(np.float32)
labels = (rows[:, 0] * rows[:, 1] > 0).astype(int)
sizes = {"n_d": 4, "n_a": 4, "n_steps": 2, "seed": 0, "verbose": 0, "device_name": "cpu"}
rhythm = {"batch_size": 64, "virtual_batch_size": 32, "drop_last": False}
guesser = TabNetPretrainer(**sizes)
guesser.fit(rows, max_epochs=2, **rhythm)
classifier = TabNetClassifier(clip_value=0.5, **sizes)
classifier.fit(rows, labels, max_epochs=4, from_unsupervised=guesser, **rhythm)
print("final", repr(float(classifier.history["loss"][-1])))
