"""Keras' `Model.fit` on the backend of KERAS_BACKEND, as its guide shows."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
drawn = np.random.default_rng(0)
x, y = drawn.normal(size=(960, 32)).astype("float32"), drawn.integers(0, 10, 960)
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10, activation="softmax")])
model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(x, y, batch_size=32, epochs=4, verbose=2, validation_split=0.0)
