# Part of gpu-check.sh: twenty steps of small networks in fp32 beside PyTorch in f64 on the same GPU, if a python3 has it.

part_networks() {
  find_python
  if [ -z "$python" ]; then
    row networks "beside PyTorch in f64" "not run" "$no_python"
    return
  fi
  limited "$(seconds_left)" "$out/networks.log" "$python" "$package/tests/e2e/torch_networks_check.py" \
    "$package/bin" "$package/share/pushpull/digits" --device cuda:0
  if [ "$code" = 77 ]; then  # as without NumPy
    row networks "beside PyTorch in f64" "not run" "$(tail -n 1 "$out/networks.log")"
    return
  fi
  take_rows networks torch_networks_check.py "$out/networks.log"
}
