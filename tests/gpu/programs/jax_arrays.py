"""JAX: jitted products, a convolution, gradients, a loop on the device, sorting and FFT."""

import os

# Autotuning is pinned, and memory is taken as needed: other programs share the GPU.
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import program  # noqa: E402

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError:
    program.skip("not installed: jax")


def loss(weights, x):
    hidden = jnp.tanh(x @ weights["first"])
    return jnp.mean((hidden @ weights["second"] - jnp.roll(x, 1, axis=1)) ** 2)


@jax.jit
def train(weights, x):
    value, gradients = jax.value_and_grad(loss)(weights, x)
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value


@jax.jit
def transform(x):
    image = x.reshape(1, 1, *x.shape)
    kernel = jnp.ones((1, 1, 5, 5)) / 25
    smooth = jax.lax.conv(image, kernel, (1, 1), "SAME")[0, 0]
    spectrum = jnp.abs(jnp.fft.fft2(smooth))
    return jax.lax.fori_loop(0, 5, lambda i, s: jnp.sort(s * 0.5 + smooth, axis=1), spectrum)


def main():
    if jax.default_backend() != "gpu":
        program.skip(f"not installed: jax runs on {jax.default_backend()}")
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {"first": jax.random.normal(keys[0], (256, 512)) * 0.05,
               "second": jax.random.normal(keys[1], (512, 256)) * 0.05}
    x = jax.random.normal(keys[2], (128, 256))
    values, total = [], 0
    for _ in program.rounds():
        for _ in range(3):
            weights, value = train(weights, x)
            values.append(value)
        total = total + transform(x)
        jax.block_until_ready((weights, total))
    program.finish({"first": program.digest(np.asarray(weights["first"])),
                    "values": program.digest(np.asarray(jnp.stack(values))),
                    "total": program.digest(np.asarray(total))})


main()
