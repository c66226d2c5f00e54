"""A generative adversarial network (Goodfellow et al. 2014) that learns to draw points from a ring of eight clusters.

    pip install . && python samples/python/gan.py [--image points.png]     # from the repository, in a virtual environment

It takes a loop of its own. The discriminator is trained as usual, on real and generated points. The generator has no loss
of its own: its output goes through the discriminator, whose gradient with respect to its input goes back into the generator.
"""

import argparse
import pathlib

import numpy as np

import echotrain as et
from waves import png

CLUSTERS, RADIUS, SPREAD = 8, 2.0, 0.1
NOISE, BATCH = 16, 256
CENTRES = RADIUS * np.stack([(np.cos(a), np.sin(a)) for a in 2 * np.pi * np.arange(CLUSTERS) / CLUSTERS])


def real_points(rng, count):
    points = CENTRES[rng.integers(0, CLUSTERS, count)] + rng.normal(0, SPREAD, (count, 2))
    return points.astype(np.float32)


def network(field, outputs, loss):
    hidden = [et.layers.dense(64, activation="relu") for _ in range(2)]
    return et.Model(hidden + [et.layers.dense(outputs)], inputs=[field], loss=loss)


def noise(rng, count):
    return {"noise": rng.normal(size=(count, NOISE)).astype(np.float32)}


def blurred(points, blur, rng):
    """Noise in front of the discriminator, less and less of it, keeps the generator from covering a single cluster (Sønderby et al. 2017)."""
    return points + rng.normal(0, blur, points.shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def train(steps, seed, device):
    rng = np.random.default_rng(seed)
    adam = et.optimizers.adam(beta1=0.5)
    generator = et.Trainer(network("noise", 2, "mse"), adam, 1e-3, seed=seed, device=device)
    discriminator = et.Trainer(network("point", 1, "binary_cross_entropy"), adam, 1e-3, seed=seed + 1, device=device)
    is_real = np.repeat([[1], [0]], BATCH, axis=0).astype(np.float32)
    for step in range(1, steps + 1):
        blur = max(0.1, 1 - step / (0.8 * steps))
        generated = blurred(generator.forward(noise(rng, BATCH)), blur, rng)
        real = blurred(real_points(rng, BATCH), blur, rng)
        discriminator.step({"point": np.concatenate([real, generated]), "label": is_real})

        # The generator's loss is -log sigmoid(score), averaged over the batch: it wants its points to be taken as real.
        scores = discriminator.forward({"point": generated}, input_gradients=True)
        to_point = discriminator.backward((sigmoid(scores) - 1) / BATCH)["point"]
        generator.backward(to_point)
        generator.update()
        loss = discriminator.result().loss
        if step % max(1, steps // 10) == 0:
            near, hit = quality(generator, rng)
            print(f"step {step:5}: discriminator's loss {loss:.3f}, {100 * near:3.0f} % of the points near a cluster, "
                  f"{hit} of {CLUSTERS} clusters", flush=True)
    return generator


def quality(generator, rng, count=2000):
    """The share of points within four standard deviations of a cluster, and how many clusters have at least 2 % of the points."""
    points = generator.predict(noise(rng, count))
    distances = np.linalg.norm(points[:, None] - CENTRES, axis=2)
    near = distances.min(1) < 4 * SPREAD
    shares = np.bincount(distances.argmin(1)[near], minlength=CLUSTERS) / count
    return near.mean(), int((shares >= 0.02).sum())


def picture(points, size=240):
    """A gray image of how many points lie where."""
    counts, _, _ = np.histogram2d(-points[:, 1], points[:, 0], bins=size, range=[[-3, 3], [-3, 3]])
    return (255 * (1 - np.minimum(counts / 4, 1))).astype(np.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", help="number or part of a name")
    parser.add_argument("--image", type=pathlib.Path, help="a PNG to write: real points on the left, generated ones on the right")
    options = parser.parse_args()
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    generator = train(options.steps, options.seed, options.device)
    if options.image:
        rng = np.random.default_rng(options.seed)
        options.image.write_bytes(png(np.hstack([picture(real_points(rng, 4000)),
                                                 picture(generator.predict(noise(rng, 4000)))])))
        print(f"wrote {options.image}")


if __name__ == "__main__":
    main()
