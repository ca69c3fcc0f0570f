"""CIFAR-FS: the 100 classes of CIFAR-100, 600 images of 32 x 32 each.

Sources: Krizhevsky, Learning multiple layers of features from tiny images,
2009; the division into 64 / 16 / 20 classes is that of Bertinetto et al.,
Meta-learning with differentiable closed-form solvers, ICLR 2019. The images are
read once, through TFDS without TensorFlow, and cached; later starts read one
array. Every copy gives the same array: inside a class the images stand in the
order of the SHA-256 of their raw bytes, and the checksum of the whole is known.
CIFAR-100 holds 26 images twice, 15 of them in two parts of CIFAR-FS; as is the
custom, nothing is removed.
"""
