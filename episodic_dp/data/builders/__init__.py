"""TFDS builders that prepare data sets without TensorFlow.

Importing a module of this folder imports tensorflow_datasets.
"""
