"""mini-ImageNet: 100 classes of ImageNet, 600 images of 84 x 84 each.

Source: Vinyals et al., Matching networks for one shot learning, NeurIPS 2016;
classes and images are those of Ravi and Larochelle, Optimization as a model for
few-shot learning, ICLR 2017. The images are a subset of ILSVRC 2012, for
research and education only, and are not published as a download: their files
are needed once. They are kept as TFDS records and as one array of 1.27 GB on
disk, which is mapped into memory and read where it is used.
"""
