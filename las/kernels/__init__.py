"""Faster forms of `las.recurrent.unroll`: same arguments, same results, gradients written by hand."""
