# Part of gpu-check.sh: compares training with PyTorch, if a python3 has it.

# Finds a Python with a PyTorch that sees a GPU. Sets python, or no_python to the reason if there is none.
find_python() {
  local candidate seen
  python='' no_python="no python3 with PyTorch here; PYTHON names one elsewhere"
  for candidate in "${PYTHON:-python3}" "${PYTHON:-/usr/bin/python3}"; do
    type -P "$candidate" >/dev/null || continue
    seen=$(timeout 60 "$candidate" -c \
      'import torch; print(torch.__version__, torch.cuda.is_available())' 2>/dev/null </dev/null | tail -n 1)
    case $seen in
      *" True") python=$candidate; return ;;
      *" False") no_python="PyTorch ${seen% *} of $candidate sees no GPU" ;;
    esac
  done
}

part_peers() {
  took=0 command=
  if [ ! -f "$package/bench/gpu_compare.py" ]; then
    row peers "PyTorch" "not run" "this package has no gpu_compare.py"
    return
  fi
  find_python
  if [ -z "$python" ]; then
    row peers "PyTorch" "not run" "$no_python"
    return
  fi
  # It ends by itself, and reports skipped cases as rows.
  limited $(($(seconds_left))) "$out/peers.log" "$python" "$package/bench/gpu_compare.py" \
    --bin "$package/bin" --device cuda:0 --scratch "$out/jobs" --seconds $(($(seconds_left) - 10))
  take_rows peers gpu_compare.py "$out/peers.log"
}
