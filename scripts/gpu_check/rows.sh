# Part of gpu-check.sh: the rows, their verdicts, the table and the JSON. Fields are separated by tabs and never empty
# ("-" stands for an empty field), since bash reads several tabs as one.

# part, name, verdict, seen, value, unit, floor, ratio, bar, seconds, command
rows=()
failed=0
passed=0
cut=0

# row PART NAME VERDICT SEEN [VALUE UNIT FLOOR RATIO BAR]: adds a row, with `took` and `command` of the latest command.
#   VERDICT: passed, FAILED, measured (without a bar), not run
took=0
command=
row() {
  local fields=("$1" "$2" "$3" "$4" "${5:--}" "${6:--}" "${7:--}" "${8:--}" "${9:--}" "$took" "$command")
  local field line=
  for field in "${fields[@]}"; do
    field=${field//[$'\t\n']/ }
    field=${field//[^ -~]/?}
    line+=${line:+$'\t'}${field:--}
  done
  rows+=("$line")
  case $3 in
    passed) passed=$((passed + 1)) ;;
    FAILED) failed=$((failed + 1)) ;;
  esac
  printf '%-10s %-44s %-8s %s\n' "$1" "$2" "$3" "$4${5:+ $5 ${6:-}}${8:+, ratio $8 ${9:-}}" >&2
}

is_number() { [[ $1 =~ ^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$ ]]; }

# within VALUE BAR: BAR is >=X or <=X.
within() {
  awk -v value="$1" -v bar="$2" 'BEGIN {
    limit = substr(bar, 3) + 0
    exit !(bar ~ /^>=/ ? value + 0 >= limit : value + 0 <= limit)
  }'
}

# Adds a row for one line of a measuring program, with the verdict on ratio and bar. Returns 1 if the line is
# malformed.
measured_row() {
  local part=$1 name=$2 value=$3 unit=$4 floor=$5 ratio=$6 bar=$7 verdict=measured number
  for number in "$value" "$floor" "$ratio"; do
    [ "$number" = - ] || is_number "$number" || return 1
  done
  [ "$value" != - ] || return 1
  if [ "$bar" != - ]; then
    [[ $bar =~ ^[\<\>]=(.+)$ ]] && is_number "${BASH_REMATCH[1]}" && [ "$ratio" != - ] || return 1
    verdict=FAILED
    ! within "$ratio" "$bar" || verdict=passed
  fi
  row "$part" "$name" "$verdict" "" "$value" "$unit" "${floor#-}" "${ratio#-}" "${bar#-}"
}

# take_rows PART PROGRAM LOG: adds the rows that a program printed; `code` is its exit code. Reads the lines
#   row NAME VALUE UNIT FLOOR RATIO BAR | skip NAME REASON | fail NAME REASON
# with tabs between the fields. Other lines are for users.
take_rows() {
  local part=$1 program=$2 log=$3 kind name value unit floor ratio bar rest taken=0
  while IFS=$'\t' read -r kind name value unit floor ratio bar rest; do
    case $kind in
      row)
        taken=$((taken + 1))
        if [ -n "$rest" ] || ! measured_row "$part" "$name" "$value" "$unit" "$floor" "$ratio" "$bar"; then
          row "$part" "$name" FAILED "$program printed what is no measurement: $value $unit $floor $ratio $bar $rest"
        fi
        ;;
      skip) taken=$((taken + 1)); row "$part" "$name" "not run" "$value" ;;
      fail) taken=$((taken + 1)); row "$part" "$name" FAILED "$value" ;;
    esac
  done < <(tr -d '\000' <"$log")
  if [ "$code" != 0 ] || [ "$taken" = 0 ]; then
    row "$part" "$program" "$(verdict_of_end)" "$taken rows, $(end_of "$log")"
  fi
}

json_text() {
  local text=${1//\\/\\\\}
  printf '"%s"' "${text//\"/\\\"}"
}
json_or_null() {
  if [ "$1" = - ]; then printf null; else "$2" "$1"; fi
}
json_number() { printf '%s' "$1"; }

write_json() {
  local line part name verdict seen value unit floor ratio bar seconds words separator=
  {
    printf '{\n  "package": %s,\n  "commit": %s,\n  "machine": %s,\n  "gpu": %s,\n  "no_device": %s,\n' \
      "$(json_text "$identity")" "$(json_text "$commit")" "$(json_text "$machine")" \
      "$(json_text "$gpu")" "$(json_text "$why")"
    printf '  "date": "%s",\n  "budget": %d,\n  "seconds": %d,\n  "rows": [' "$(date -u +%FT%TZ)" "$budget" "$SECONDS"
    for line in "${rows[@]}"; do
      IFS=$'\t' read -r part name verdict seen value unit floor ratio bar seconds words <<<"$line"
      printf '%s\n    {"part": %s, "name": %s, "verdict": %s, "seen": %s, "value": %s, "unit": %s, "floor": %s, "ratio": %s, "bar": %s, "seconds": %d, "command": %s}' \
        "$separator" "$(json_text "$part")" "$(json_text "$name")" "$(json_text "$verdict")" \
        "$(json_text "${seen#-}")" "$(json_or_null "$value" json_number)" "$(json_or_null "$unit" json_text)" \
        "$(json_or_null "$floor" json_number)" "$(json_or_null "$ratio" json_number)" \
        "$(json_or_null "$bar" json_text)" "$seconds" "$(json_text "${words#-}")"
      separator=,
    done
    printf '\n  ]\n}\n'
  } >"$out/gpu-check.json"
}

# Writes the table for users, in the form of docs/gpu.md.
write_table() {
  local line part name verdict seen value unit floor ratio bar seconds words
  {
    echo "$identity; $(date -u +%F); ${gpu:-no GPU that nvidia-smi shows}; $machine"
    echo
    echo "| part | what | verdict | value | floor | ratio | bar | |"
    echo "|---|---|---|--:|--:|--:|---|---|"
    for line in "${rows[@]}"; do
      IFS=$'\t' read -r part name verdict seen value unit floor ratio bar seconds words <<<"$line"
      [ "$value" = - ] || value+=" ${unit#-}"
      printf '| %s | %s | %s | %s | %s | %s | %s | %s |\n' "$part" "${name//|//}" "$verdict" \
        "${value#-}" "${floor#-}" "${ratio#-}" "${bar#-}" "${seen//|//}"
    done | sed 's/| - |$/| |/'
    echo
    echo "$passed passed, $failed failed, $((${#rows[@]} - passed - failed)) measured or not run, $SECONDS s"
  } | tee "$out/gpu-check.md"
  echo "$out/gpu-check.json"
}

exit_code() {
  if [ "$signal" != 0 ]; then
    echo $((128 + signal))
  elif [ -n "$why" ]; then
    echo 3
  elif [ "$failed" != 0 ] || [ "${#rows[@]}" = 0 ]; then
    echo 1
  elif [ "$cut" != 0 ]; then
    echo 4
  else
    echo 0
  fi
}
