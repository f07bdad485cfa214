# Part of gpu-check.sh: compares products with bare calls of cuBLASLt, transfers of gradients and weights with pinned
# copies, and pushpull's kernels with a copy of as many bytes.
part_kernels() {
  bench kernels 20 gpu_matmul_bench 4096 bf16 --rows
  bench kernels 20 gpu_copies_bench pipeline
  bench kernels 60 gpu_bench --rows
}
