# Part of gpu-check.sh: compares training speed with PyTorch, if a python3 has it.

part_peers() {
  find_python
  if [ -z "$python" ]; then
    row peers "PyTorch" "not run" "$no_python"
    return
  fi
  # It ends by itself, and reports skipped cases as rows.
  limited "$(seconds_left)" "$out/peers.log" "$python" "$package/bench/peers/gpu_compare.py" \
    --bin "$package/bin" --device cuda:0 --scratch "$out/jobs" --seconds $(($(seconds_left) - 10))
  take_rows peers gpu_compare.py "$out/peers.log"
}
