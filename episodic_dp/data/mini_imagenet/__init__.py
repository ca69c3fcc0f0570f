"""mini-ImageNet: 100 classes of ImageNet, 600 images of 84 x 84 each."""
