"""A network of two layers in JAX on MNIST's images, trained by any number of workers.

    pushpull run --job docs/examples/jax_mlp.ini --workers 2 --worker 'python3 docs/examples/jax_mlp.py FOLDER'

FOLDER has MNIST's four files as they are distributed: train-images-idx3-ubyte.gz and so on, or the same without .gz.
"""
import gzip
import hashlib
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy

import pushpull.numpy as pp


def read_idx(folder, name):
    """Returns the array of an IDX file (http://yann.lecun.com/exdb/mnist)."""
    plain = pathlib.Path(folder) / name
    raw = plain.read_bytes() if plain.exists() else gzip.decompress(plain.with_name(name + ".gz").read_bytes())
    sizes = [int.from_bytes(raw[4 * i:4 * i + 4], "big") for i in range(1, raw[3] + 1)]
    return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * raw[3]).reshape(sizes)


def initial_weights(seed):
    first, second = jax.random.split(jax.random.PRNGKey(seed))
    return {"hidden.weight": 0.05 * jax.random.normal(first, (784, 128)), "hidden.bias": jnp.zeros(128),
            "output.weight": 0.1 * jax.random.normal(second, (128, 10)), "output.bias": jnp.zeros(10)}


def loss_and_correct(weights, images, labels):
    x = images.reshape(len(images), -1).astype(jnp.float32) / 255
    x = jax.nn.relu(x @ weights["hidden.weight"] + weights["hidden.bias"])
    scores = jax.nn.log_softmax(x @ weights["output.weight"] + weights["output.bias"])
    loss = -jnp.take_along_axis(scores, labels[:, None], axis=1).mean()
    return loss, (scores.argmax(1) == labels).sum()


def main():
    data = {training: (read_idx(sys.argv[1], f"{split}-images-idx3-ubyte"), read_idx(sys.argv[1], f"{split}-labels-idx1-ubyte"))
            for training, split in ((True, "train"), (False, "t10k"))}
    digest = hashlib.sha256(b"".join(array.tobytes() for split in data.values() for array in split)).hexdigest()
    job = pp.join()
    weights = {name: numpy.asarray(array) for name, array in initial_weights(job.seed).items()}
    job.attach(weights, train_samples=len(data[True][1]), test_samples=len(data[False][1]), data_digest=digest)
    train = jax.jit(jax.value_and_grad(loss_and_correct, has_aux=True))
    evaluate = jax.jit(loss_and_correct)
    for task in job.tasks():
        images, labels = (array[task.indices] for array in data[task.training])
        if task.training:
            (loss, _), gradients = train(task.weights, images, labels)
            task.end(loss, gradients)
        else:
            loss, correct = evaluate(task.weights, images, labels)
            task.report(loss=loss, correct=correct)


if __name__ == "__main__":
    main()
