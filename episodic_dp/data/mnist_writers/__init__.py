"""MNIST with its writers: 836 people, each with images of the ten digits.

Sources: LeCun, Bottou, Bengio and Haffner, Proc. IEEE 86, 1998 (the images);
Yadav and Bottou, "Cold Case: The Lost MNIST Digits", NeurIPS 2019 (QMNIST: the
number of the person who wrote each of them). A ragged tree writer -> digit ->
image, with a real unit of privacy at its top. The files are decoded once,
through TFDS without TensorFlow, and cached; later starts read one array.
"""
