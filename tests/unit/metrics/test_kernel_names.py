"""Names of kernels as the libraries and compilers give them."""

from pytest_tfperf.facts.op_times import Launcher
from pytest_tfperf.metrics.kernels import (
    is_eligible,
    uses_tensor_cores,
)

NOBODY = Launcher("", "", "")


def test_kernels_of_tensor_cores():
    cases = [
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        "volta_h884cudnn_256x64_ldg8_relu_exp_interior_nhwc_tn_v1",
        "turing_fp16_s1688gemm_fp16_64x64_sliced1x2_ldg8_f2f_tn",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn",
        "ampere_h16816gemm_256x128_ldg8_stages_32x3_nn",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_relu_f2f_stages_64x4_tn",
        "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_stage4_warpsize2x2x1_tensor16x8x8_kernel",
        "sm80_xmma_fprop_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tensor16x8x16",
        "void cutlass::Kernel<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_nn_align8>(cutlass_80_tensorop::Params)",
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x256x32_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas",
        "nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_TNT",
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "cutlass3x_sm100_tensorop_s128x256x16gemm_bf16_bf16_f32_bf16_bf16",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_kernel0_0",
        "flash_fwd_kernel",
        "Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1_SN_1LDSB0.kd",
        "Cijk_Alik_Bljk_HHS_BH_MT64x64x64_MI32x32x8_SE_K1",
    ]
    for kernel in cases:
        assert uses_tensor_cores(kernel), kernel
        assert is_eligible(kernel, NOBODY), kernel


def test_kernels_that_multiply_matrices_elsewhere():
    cases = [
        "volta_sgemm_128x64_nn",
        "ampere_sgemm_32x128_tn",
        "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas",
        "void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(…)",
        "maxwell_scudnn_128x64_relu_interior_nn_v1",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>(…)",
        "Cijk_Ailk_Bljk_SB_MT128x128x8_SN_K1",
        "Im3d2Col.kd",
        "void gemvNSP_kernel<float, float, float, float>(…)",
    ]
    for kernel in cases:
        assert not uses_tensor_cores(kernel), kernel
        assert is_eligible(kernel, NOBODY), kernel


def test_other_kernels_are_not_eligible():
    cases = [
        "loop_add_fusion",
        "input_transpose_fusion.kd",
        "loop_convert_fusion",
        "void Eigen::internal::EigenMetaKernel<…>(…)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",
        "void cub::DeviceReduceKernel<…>(…)",
        "redzone_checker",
        "",
    ]
    for kernel in cases:
        assert not uses_tensor_cores(kernel), kernel
        assert not is_eligible(kernel, NOBODY), kernel


def test_kernels_before_and_after_a_product_are_not_eligible():
    cases = [
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<…TensorShufflingOp<…>>>(…)",
        "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 256>(…)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(…)",
        "wrapped_transpose",
    ]
    for kernel in cases:
        assert not is_eligible(kernel, Launcher("a", "Einsum", "tf_op")), kernel


def test_eligibility_by_what_launched_a_kernel():
    cases = [
        (Launcher("model/dense/MatMul", "MatMul", "tf_op"), True),
        (Launcher("a", "BatchMatMulV2", "annotation"), True),
        (Launcher("a", "_FusedMatMul", "tf_op"), True),
        (Launcher("a", "Conv2DBackpropFilter", "tf_op"), True),
        (Launcher("a", "DepthwiseConv2dNative", "tf_op"), True),
        (Launcher("a", "Einsum", "tf_op"), True),
        (Launcher("a", "CudnnRNNV3", "tf_op"), True),
        (Launcher("jit(f)/dot_general", "dot_general", "tf_op"), True),
        (Launcher("a", "Transpose", "tf_op"), False),
        (Launcher("a", "BiasAdd", "tf_op"), False),
        (Launcher("cudnn-conv.1", "cudnn-conv", "hlo_op"), True),
        (Launcher("gemm_fusion_dot.5", "gemm_fusion_dot", "hlo_op"), True),
        (Launcher("cublas-gemm.1.0", "cublas-gemm", "hlo_op"), True),
        (Launcher("loop_convolution_fusion", "loop_convolution_fusion", "hlo_op"), True),
        (Launcher("loop_convert_fusion.2", "loop_convert_fusion", "hlo_op"), False),
        (Launcher("input_transpose_fusion", "input_transpose_fusion", "hlo_op"), False),
        (Launcher("custom-call.3", "custom-call", "hlo_op"), False),
    ]
    for launcher, eligible in cases:
        assert is_eligible("some_kernel", launcher) == eligible, (launcher, eligible)
