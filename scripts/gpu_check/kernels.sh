# Part of gpu-check.sh: products beside bare calls of cuBLASLt, transfers of gradients and weights beside pinned
# copies, and pushpull's kernels beside a copy of as many bytes.
part_kernels() {
  bench kernels 20 gpu_matmul_bench 4096 bf16 --rows
  bench kernels 20 gpu_copies_bench pipeline
  bench kernels 60 gpu_bench --rows
}
