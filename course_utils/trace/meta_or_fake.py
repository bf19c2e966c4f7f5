"""When a step for the CPU may be traced on meta tensors, which takes a fifth of the time of fake CPU tensors.

If every operator that ran is one of SAME_AS_CPU, and the recorder saw nothing that is special to shapes alone
(`Recorder.unlike_cpu`). tests/library/test_real_models.py holds every operator of the list to it.
"""

from __future__ import annotations

SAME_AS_CPU = frozenset(
    (
        # made, moved, put together
        "start end empty new_empty new_empty_strided empty_like zeros zeros_like new_zeros ones ones_like new_ones "
        "full full_like arange rand scalar_tensor tril clone copy_ _to_copy as_strided_ cat stack repeat roll "
        "constant_pad_nd index index_put index_put_ gather scatter scatter_add sort topk select_backward "
        "slice_backward embedding embedding_dense_backward "
        # values one by one
        "add add_ sub rsub mul mul_ div div_ neg abs sgn pow sqrt rsqrt exp log cos sin floor floor_divide minimum "
        "relu relu_ tanh sigmoid silu gelu threshold_backward tanh_backward sigmoid_backward silu_backward "
        "gelu_backward silu_ hardtanh hardtanh_ hardtanh_backward hardswish hardswish_ hardswish_backward hardsigmoid "
        "hardsigmoid_backward bernoulli_ eq ne ge le lt gt bitwise_not bitwise_and where masked_fill masked_fill_ "
        # sums, products, norms, losses
        "sum mean cumsum all histc mm addmm bmm baddbmm _grouped_mm _softmax _softmax_backward_data _safe_softmax "
        "_log_softmax _log_softmax_backward_data nll_loss_forward nll_loss_backward mse_loss mse_loss_backward "
        "native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward "
        "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
        # images
        "convolution convolution_backward max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d "
        "avg_pool2d_backward _adaptive_avg_pool2d _adaptive_avg_pool2d_backward"
    ).split()
)
