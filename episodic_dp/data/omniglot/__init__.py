"""Omniglot: 1623 handwritten characters of 50 alphabets, 20 drawings each.

Source: Lake, Salakhutdinov and Tenenbaum, Science 350, 2015 (MIT licence). The
zips are decoded once, through TFDS without TensorFlow, and cached; later starts
read one array. By default, as in DP-MAML, characters are shuffled into 1150 for
training, 50 for validation and 423 for test; training tasks may rotate whole
characters by multiples of 90 degrees, and the training data can be seen as
participants who each own a few drawings of a few characters.
"""
