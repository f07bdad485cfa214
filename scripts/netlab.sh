#!/usr/bin/env bash
# A lab of hosts on this machine: one network namespace per host, joined by veth over a bridge with its
# own namespace, so that nothing outside the lab changes. Needs root, and iproute2.
#   netlab.sh up --hosts N [--rate 100mbit] [--delay 5ms] [--loss 1%] [--name NAME] [--attached]
#   netlab.sh exec NAME HOST COMMAND...   runs a command on host 0 to N-1
#   netlab.sh measure NAME [--plain]      rate and round trip from host 0 to host 1, and the requested ones
#   netlab.sh list | netlab.sh down NAME
# --attached: `up` stays, and removes the lab when its standard input ends or a signal arrives.
# Rate (each way, at host and bridge) is set with tc-tbf(8). Delay (each way: a round trip takes twice as
# long) and loss are set with tc-netem(8) if the kernel has it. Otherwise nft(8) redirects incoming
# connections to a pushpull-proxy on the receiving host, which delays them, and drops packets at random.
# Host I has the address 10.77.0.(I+1). Labs are isolated from each other and from the machine's network.
# Exit codes: 2 usage, 3 this machine cannot make such a lab (one line says why), 1 other errors.
set -euo pipefail

readonly proxy_port=7099 measure_port=7098 subnet=10.77.0
readonly state_root=${NETLAB_STATE:-/run/pushpull-netlab}
PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$(readlink -f "$0")")

say() { echo "[netlab] $*" >&2 || true; } # a closed pipe must not end the cleanup
usage() { say "$*; see netlab.sh --help"; exit 2; }
cannot() { say "$*"; exit 3; }

check_name() {
  [[ $1 =~ ^[a-z][a-z0-9]{0,9}$ ]] || usage "name '$1': must be 1 to 10 of a-z and 0-9, a letter first"
}
check_lab() {
  check_name "$1"
  [ -d "$state_root/$1" ] || { say "there is no lab $1; netlab.sh list shows all"; exit 2; }
}
asked_of() { cat "$state_root/$1/asked"; }
hosts_of() { cat "$state_root/$1/hosts"; }

find_proxy() {
  local path
  for path in "$here/pushpull-proxy" "$here/../build/release/bin/pushpull-proxy"; do
    if [ -x "$path" ]; then
      readlink -f "$path"
      return
    fi
  done
  cannot "no pushpull-proxy beside this script: build the target of that name"
}

# rate_bytes 100mbit: prints bytes per second.
rate_bytes() {
  awk -v text="$1" 'BEGIN {
    unit = 1; if (text ~ /kbit$/) unit = 1e3; if (text ~ /mbit$/) unit = 1e6; if (text ~ /gbit$/) unit = 1e9
    printf "%d", text * unit / 8 }'
}
delay_ms() {
  awk -v text="$1" 'BEGIN {
    unit = 1; if (text ~ /us$/) unit = 1e-3; else if (text !~ /ms$/) unit = 1e3
    printf "%.3f", text * unit }'
}

# Buckets of 2 ms and queues of 50 ms, but never less than a few packets.
shape() { # shape NAMESPACE DEVICE PARENT...
  local namespace=$1 device=$2 bytes burst limit
  shift 2
  bytes=$(rate_bytes "$rate")
  burst=$((bytes / 500 > 4000 ? bytes / 500 : 4000))
  limit=$((bytes / 20 > 64000 ? bytes / 20 : 64000))
  tc -n "$namespace" qdisc add dev "$device" "$@" tbf rate "$rate" burst "$burst" limit "$limit"
}

add_host() { # add_host I
  local host=$name-$1
  ip netns add "$host"
  ip -n "$hub" link add "port$1" type veth peer name eth0 netns "$host"
  ip -n "$hub" link set "port$1" master bridge0 up
  ip -n "$host" addr add "$subnet.$(($1 + 1))/24" dev eth0
  ip -n "$host" link set lo up
  ip -n "$host" link set eth0 up
  if [ -n "$loss" ]; then # lose single packets, not segments of 64 KiB
    ip -n "$host" link set eth0 gso_max_segs 1
  fi
  if [ "$delay_by" = netem ] || [ "$loss_by" = netem ]; then
    tc -n "$host" qdisc add dev eth0 root handle 1: netem limit 100000 \
      ${delay:+delay "$delay"} ${loss:+loss "$loss"}
    [ -z "$rate" ] || shape "$host" eth0 parent 1:1 handle 10:
  elif [ -n "$rate" ]; then
    shape "$host" eth0 root
  fi
  [ -z "$rate" ] || shape "$hub" "port$1" root
  [ "$loss_by" != nft ] || lose_packets "$host"
  [ "$delay_by" != proxy ] || start_proxy "$1"
}

lose_packets() { # lose_packets NAMESPACE
  local of_million
  of_million=$(awk -v text="$loss" 'BEGIN { printf "%d", text * 1e4 }')
  nft_in "$1" "table ip netlab_loss {
    chain in { type filter hook prerouting priority -300
      iifname \"eth0\" numgen random mod 1000000 < $of_million drop
    }
  }"
}

start_proxy() { # start_proxy I
  local host=$name-$1 address=$subnet.$(($1 + 1)) log=$state/proxy-$1
  # Standard input is open but silent, so that commands can be written to it by hand.
  mkfifo "$state/commands-$1"
  ip netns exec "$host" "$proxy" --listen "$address:$proxy_port" --to original --insecure \
    --delay-ms "$(delay_ms "$delay")" <>"$state/commands-$1" >"$log" 2>&1 &
  echo "$!" >>"$state/proxies"
  disown
  local tries=0
  until grep -q '^listening' "$log"; do
    tries=$((tries + 1))
    if [ "$tries" -gt 200 ]; then
      cannot "the proxy on host $1 does not listen within 10 s: $(head -c 300 "$log")"
    fi
    sleep 0.05
  done
  nft_in "$host" "table ip netlab_delay {
    chain in { type nat hook prerouting priority -100
      iifname \"eth0\" ip daddr $address tcp dport != $proxy_port redirect to :$proxy_port
    }
  }"
}

nft_in() { # nft_in NAMESPACE RULES
  local output
  output=$(ip netns exec "$1" nft -f - <<<"$2" 2>&1) ||
    cannot "nft does not take the rules that delay or loss need here: ${output%%$'\n'*}"
}

# Tries netem in the lab's own namespace: only an attempt shows whether the kernel has it.
has_netem() { tc -n "$hub" qdisc add dev lo root netem delay 1ms 2>/dev/null; }
has_nft() { command -v nft >/dev/null && ip netns exec "$hub" nft list tables >/dev/null 2>&1; }

check_machine() {
  [ "$(id -u)" -eq 0 ] || cannot "network namespaces need root"
  local tool
  for tool in ip tc; do
    command -v "$tool" >/dev/null || cannot "there is no $tool(8): install the package iproute2"
  done
}

pick_means() {
  delay_by='' loss_by=''
  [ -n "$delay$loss" ] || return 0
  if has_netem; then
    delay_by=${delay:+netem} loss_by=${loss:+netem}
    return
  fi
  has_nft || cannot "this kernel has no netem, and nft(8), which delay and loss need then, is not" \
    "there or not allowed: install nftables, or leave delay and loss away"
  if [ -n "$delay" ]; then
    delay_by=proxy
    proxy=$(find_proxy)
    say "no netem in this kernel: delay by a proxy on each host (TCP alone, and its handshake is not delayed)"
  fi
  if [ -n "$loss" ]; then
    loss_by=nft
    say "no netem in this kernel: loss by nft${delay:+; TCP repeats without the delay, which only the proxy adds}"
  fi
}

up() {
  name=lab rate='' delay='' loss=''
  local hosts='' attached=''
  while [ $# -gt 0 ]; do
    case $1 in
      --attached) attached=yes; shift; continue ;;
      --hosts | --rate | --delay | --loss | --name) [ $# -ge 2 ] || usage "$1 needs a value" ;;
      *) usage "unknown word '$1'" ;;
    esac
    printf -v "${1#--}" %s "$2"
    shift 2
  done
  check_name "$name"
  local number='[0-9]+(\.[0-9]+)?'
  [[ $hosts =~ ^[0-9]{1,3}$ && $((10#$hosts)) -ge 1 && $((10#$hosts)) -le 250 ]] ||
    usage "--hosts '$hosts': must be a whole number from 1 to 250"
  [[ -z $rate || $rate =~ ^${number}[kmg]bit$ ]] || usage "--rate '$rate': must be such as 100mbit"
  [[ -z $delay || $delay =~ ^${number}(us|ms|s)$ ]] || usage "--delay '$delay': must be such as 5ms"
  [[ -z $loss || $loss =~ ^${number}%$ ]] || usage "--loss '$loss': must be such as 1%"
  check_machine
  hub=$name-hub state=$state_root/$name
  mkdir -p "$state_root"
  # From here on a signal is deferred until the trap can remove a partial lab.
  local stop=''
  trap 'stop=130' INT
  trap 'stop=143' TERM HUP
  mkdir "$state" 2>/dev/null || { say "lab $name exists already: netlab.sh down $name"; exit 2; }
  trap 'end_up $?' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  [ -z "$stop" ] || exit "$stop"
  echo "$hosts" >"$state/hosts"
  echo "${rate:-any},${delay:-0ms}${loss:+,$loss}" >"$state/asked"
  local output
  output=$(ip netns add "$hub" 2>&1) || cannot "network namespaces are not permitted here: $output"
  output=$(ip -n "$hub" link add bridge0 type bridge 2>&1) || cannot "cannot create a bridge: $output"
  ip -n "$hub" link set bridge0 up
  pick_means
  echo "network namespaces over veth${rate:+, tbf}${delay:+, delay by $delay_by}${loss:+, loss by $loss_by}" \
    >"$state/how"
  local i
  for ((i = 0; i < hosts; ++i)); do
    add_host "$i" 2>"$state/errors" # not in a condition: the first failure must end the function
  done
  say "lab $name: $hosts hosts, $subnet.1 to $subnet.$hosts; $(asked_of "$name"); $(cat "$state/how")"
  echo "$name" # tells the reader that the lab is ready
  if [ -n "$attached" ]; then
    # Bash handles a signal that arrives just before it blocks in a read only after that read, so the read must be
    # short.
    local code=0
    while [ "$code" -eq 0 ] || [ "$code" -gt 128 ]; do
      code=0
      read -r -t 1 _ || code=$?
    done
    exit 0
  fi
  trap - EXIT INT TERM HUP
}

# end_up CODE: cleans up when `up` ends without leaving a lab.
end_up() {
  local code=$1 output
  output=$(grep -m 1 '^\[netlab\]' "$state/errors" 2>/dev/null || head -n 1 "$state/errors" 2>/dev/null || true)
  down "$name"
  if [ -n "$output" ] && { [ "$code" -eq 1 ] || [ "$code" -eq 3 ]; }; then
    say "this machine cannot make such a lab: ${output#"[netlab] "}"
    exit 3
  fi
  exit "$code"
}

# Removes a lab, whatever state `up` left it in.
down() {
  local lab=$1 pid host hosts i
  trap '' INT TERM HUP PIPE
  hosts=$(hosts_of "$lab" 2>/dev/null) || hosts=0 # `up` was interrupted before it wrote the file
  if [ -f "$state_root/$lab/proxies" ]; then
    while read -r pid; do
      # Only if it is still a proxy: process ids are reused.
      [[ $(readlink "/proc/$pid/exe" 2>/dev/null) != */pushpull-proxy* ]] || kill "$pid" 2>/dev/null || true
    done <"$state_root/$lab/proxies"
  fi
  for ((i = 0; i < hosts; ++i)); do
    host=$lab-$i
    [ -e "/run/netns/$host" ] || continue
    ip netns del "$host" || say "cannot remove the namespace $host"
  done
  [ ! -e "/run/netns/$lab-hub" ] || ip netns del "$lab-hub" || say "cannot remove the namespace $lab-hub"
  rm -rf "${state_root:?}/$lab"
  rmdir "$state_root" 2>/dev/null || true
}

on_host() {
  local lab=$1 host=$2
  shift 2
  check_lab "$lab"
  [[ $host =~ ^[0-9]{1,3}$ && $((10#$host)) -lt $(hosts_of "$lab") ]] ||
    usage "host '$host': lab $lab has hosts 0 to $(($(hosts_of "$lab") - 1))"
  [ $# -gt 0 ] || usage "which command?"
  exec ip netns exec "$lab-$host" "$@"
}

measure() {
  local lab=$1 plain=${2:-} log tries=0 answerer found
  check_lab "$lab"
  [[ -z $plain || $plain = --plain ]] || usage "unknown word '$plain'"
  (($(hosts_of "$lab") >= 2)) || usage "lab $lab has one host: there is no link to measure"
  proxy=$(find_proxy)
  log=$(mktemp)
  ip netns exec "$lab-1" "$proxy" --answer "$subnet.2:$measure_port" --insecure >"$log" 2>&1 &
  answerer=$!
  # shellcheck disable=SC2064 # as they are now
  trap "kill $answerer 2>/dev/null || true; rm -f '$log'" EXIT
  until grep -q '^listening' "$log"; do
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || { say "host 1 does not answer: $(head -c 300 "$log")"; exit 1; }
    sleep 0.05
  done
  found=$(ip netns exec "$lab-0" "$proxy" --measure "$subnet.2:$measure_port")
  if [ -n "$plain" ]; then
    echo "asked=$(asked_of "$lab") $found how=$(cat "$state_root/$lab/how")"
    return
  fi
  local rate_mbit round_trip_ms retransmitted_percent congestion_control word
  for word in $found; do printf -v "${word%%=*}" %s "${word#*=}"; done
  echo "asked     $(asked_of "$lab") each way ($(cat "$state_root/$lab/how"))"
  echo "measured  $rate_mbit Mbit/s of payload, round trip $round_trip_ms ms, $retransmitted_percent % sent again"
  echo "TCP       congestion control $congestion_control"
}

list() {
  local state
  for state in "$state_root"/*/; do
    [ -d "$state" ] || continue
    state=$(basename "$state")
    echo "$state: $(hosts_of "$state") hosts, $(asked_of "$state")"
  done
}

case ${1:-} in
  up) shift; up "$@" ;;
  down) [ $# -eq 2 ] || usage "down NAME"; check_lab "$2"; down "$2" ;;
  exec) [ $# -ge 3 ] || usage "exec NAME HOST COMMAND..."; shift; on_host "$@" ;;
  measure) [ $# -ge 2 ] || usage "measure NAME"; shift; measure "$@" ;;
  list) list ;;
  -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0" ;;
  *) usage "which command? up, down, exec, measure, list" ;;
esac
