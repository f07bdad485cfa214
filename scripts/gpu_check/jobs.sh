# Part of gpu-check.sh: whole jobs. All workers of a job share the first device.

# job LIMIT NAME DEVICE WORKERS WORD...: runs `pushpull run`. Sets hash, loss and rate from its summary; `code` is 1 if
# there is no summary.
job() {
  local limit=$1 folder=$out/jobs/$2 device=$3 workers=$4
  shift 4
  hash='' loss='' rate=''
  mkdir -p "$folder"
  rm -f "$folder/summary.json"
  limited "$limit" "$folder/log" "$package/bin/pushpull" run --servers 1 --workers "$workers" --device "$device" \
    "$@" --out "$folder"
  rm -rf "$folder/checkpoints"
  [ "$code" = 0 ] || return
  hash=$(field weights_sha256 "$folder/summary.json")
  loss=$(field test_loss "$folder/summary.json")
  rate=$(field samples_per_second "$folder/summary.json")
  if ! [[ $hash =~ ^[0-9a-f]{64}$ ]] || ! is_number "$loss" || ! is_number "$rate"; then
    code=1
    echo "its summary lacks a hash, a loss or a rate" >>"$folder/log"
  fi
}

field() {
  sed -n 's/^ *"'"$1"'": "\{0,1\}\([^",]*\)"\{0,1\},\{0,1\}$/\1/p' "$2" 2>/dev/null | head -n 1
}

# failed_job PART NAME
failed_job() { row "$1" "$2" "$(verdict_of_end)" "$(end_of "$out/jobs/${2//[ ,:]/-}/log")"; }

# Covers every kind of layer, and several slices. 8 micro-batches in a step.
readonly bits_job=(--strategy sync --model convnet --dataset digits --global-batch 64 --micro-batch 8
  --optimizer momentum --lr 0.05 --steps 20 --seed 7 --slice-bytes 8192)
# Largest difference between CUDA and the CPU after twenty steps (docs/gpu.md), as a fraction of the decrease of the
# loss.
declare -Ar tolerance=([fp32]=0.02 [tf32]=0.06 [bf16]=0.12)
readonly first_loss=2.302585  # of ten classes, by chance

# A worker without cuDNN reports it, and is slower.
without_cudnn() { ! grep -aq 'without cuDNN' "$1" || echo "; convolutions without cuDNN"; }

# bits_row NAME DEVICE WORKERS WANTED WORD...: WANTED is the expected hash; "" accepts any.
bits_row() {
  local name=$1 device=$2 workers=$3 wanted=$4
  shift 4
  job 30 "${name//[ ,:]/-}" "$device" "$workers" "${bits_job[@]}" "$@"
  if [ "$code" != 0 ]; then
    failed_job bits "$name"
  elif [ -z "$wanted" ]; then
    row bits "$name" measured "weights ${hash:0:16}$(without_cudnn "$out/jobs/${name//[ ,:]/-}/log")"
  elif [ "$hash" = "$wanted" ]; then
    row bits "$name" passed "weights ${hash:0:16}"
  else
    row bits "$name" FAILED "weights ${hash:0:16}, of one worker ${wanted:0:16}"
  fi
}

part_bits() {
  local precision one loss_of_cpu='' loss_of_one
  bits_row "the processor" cpu 1 ""
  loss_of_cpu=$loss
  for precision in fp32 tf32 bf16; do
    bits_row "$precision, 1 worker" cuda:0 1 "" --precision "$precision"
    one=$hash loss_of_one=$loss
    if [ -n "$one" ] && [ -n "$loss_of_cpu" ]; then
      measured_row bits "$precision beside the processor" "$(printf %.5g "$loss_of_one")" loss "$(printf %.5g "$loss_of_cpu")" \
        "$(awk -v a="$loss_of_one" -v b="$loss_of_cpu" -v first=$first_loss \
          'BEGIN {d = a - b; printf "%.4f", (d < 0 ? -d : d) / (first > b ? first - b : 1e-9)}')" \
        "<=${tolerance[$precision]}"
    fi
    bits_row "$precision, 2 workers" cuda:0 2 "${one:-none}" --precision "$precision"
    bits_row "$precision, 4 workers" cuda:0 4 "${one:-none}" --precision "$precision"
    bits_row "$precision, 2 workers, server on cuda:0" cuda:0 2 "${one:-none}" --precision "$precision" \
      --server-device cuda:0
  done
}

# 4 micro-batches in a step; data that are generated once.
readonly training_job=(--model convnet --dataset dummy --train-samples 1600 --test-samples 100 --global-batch 400
  --micro-batch 100 --optimizer momentum --lr 0.01 --steps 96)

# training_row NAME WORKERS WORD...
training_row() {
  local name=$1 workers=$2
  shift 2
  job 20 "${name//[ ,:]/-}" cuda:0 "$workers" "${training_job[@]}" "$@"
  if [ "$code" = 0 ]; then
    row training "$name" passed "" "$(printf %.5g "$rate")" samples/s
  else
    failed_job training "$name"
  fi
}

part_training() {
  local strategy workers
  for strategy in sync async ssp:4 backup:1 local:8 allreduce:ring allreduce:tree; do
    for workers in 1 2 4; do
      if [ "$strategy$workers" = backup:11 ]; then
        took=0 command=
        row training "$strategy, 1 worker" "not run" "it needs two workers: the last push of a step is dropped"
        continue
      fi
      training_row "$strategy, $workers worker$([ "$workers" = 1 ] || echo s)" "$workers" --strategy "$strategy"
    done
  done
  for strategy in sync async; do
    training_row "$strategy, 2 workers, server on cuda:0" 2 --strategy "$strategy" --server-device cuda:0
  done
}
