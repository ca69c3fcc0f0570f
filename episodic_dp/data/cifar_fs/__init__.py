"""CIFAR-FS: the 100 classes of CIFAR-100, 600 images of 32 x 32 each."""
