"""keras on torch: it applies what backward left by itself, with no torch optimizer anywhere."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

keras.utils.set_random_seed(0)
points = np.random.default_rng(0).uniform(-1, 1, size=(96, 2)).astype(np.float32)
inside = (np.square(points).sum(axis=1) < 0.5).astype(np.float32)
model = keras.Sequential(
    [
        keras.layers.Dense(8, activation="tanh"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
optimizer = keras.optimizers.SGD(0.2, momentum=0.9, clipnorm=1.0, gradient_accumulation_steps=3)
model.compile(optimizer, loss="binary_crossentropy")
history = model.fit(points, inside, batch_size=16, epochs=4, verbose=0)
print("final", repr(history.history["loss"][-1]))
