"""A convolutional network in Keras 3 on MNIST's images, trained by any number of workers. Keras computes on JAX.

    pushpull run --job docs/examples/keras_mnist.ini --workers 2 --worker 'python3 docs/examples/keras_mnist.py FOLDER'

FOLDER has MNIST's four files as they are distributed: train-images-idx3-ubyte.gz and so on, or the same without .gz.
"""
import hashlib
import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax  # noqa: E402
import keras  # noqa: E402
import numpy  # noqa: E402
from jax_mlp import read_idx  # noqa: E402

import pushpull.numpy as pp  # noqa: E402


def make_model():
    layers = keras.layers

    def block(filters):
        return [layers.Conv2D(filters, 5, padding="same"), layers.BatchNormalization(momentum=0.9), layers.ReLU(), layers.MaxPooling2D()]

    return keras.Sequential([keras.Input((28, 28, 1)), layers.Rescaling(1 / 255), *block(16), *block(32), layers.Flatten(),
                             layers.Dense(10)])


def main():
    data = {training: (read_idx(sys.argv[1], f"{split}-images-idx3-ubyte"), read_idx(sys.argv[1], f"{split}-labels-idx1-ubyte"))
            for training, split in ((True, "train"), (False, "t10k"))}
    digest = hashlib.sha256(b"".join(array.tobytes() for split in data.values() for array in split)).hexdigest()
    job = pp.join()
    keras.utils.set_random_seed(job.seed)
    model = make_model()
    trained = [variable.path for variable in model.trainable_variables]
    averages = [variable.path for variable in model.non_trainable_variables]  # BatchNormalization's
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def compute(trained, averages, images, labels, training):
        scores, averages = model.stateless_call(trained, averages, images[..., None], training=training)
        return loss_of(labels, scores), ((scores.argmax(1) == labels).sum(), averages)

    train = jax.jit(jax.value_and_grad(compute, has_aux=True), static_argnums=4)
    evaluate = jax.jit(compute, static_argnums=4)
    job.attach({variable.path: numpy.asarray(variable) for variable in model.trainable_variables + model.non_trainable_variables},
               averages=averages, train_samples=len(data[True][1]), test_samples=len(data[False][1]), data_digest=digest)
    for task in job.tasks():
        images, labels = (array[task.indices] for array in data[task.training])
        weights = [[task.weights[name] for name in names] for names in (trained, averages)]
        if task.training:
            (loss, (_, new)), gradients = train(*weights, images, labels, True)
            task.end(loss, {**dict(zip(trained, gradients)), **dict(zip(averages, new))})
        else:
            loss, (correct, _) = evaluate(*weights, images, labels, False)
            task.report(loss=loss, correct=correct)


if __name__ == "__main__":
    main()
