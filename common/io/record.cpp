#include "common/io/record.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "common/base/error.h"
#include "common/io/file.h"
#include "common/io/record.pb.h"
#include "common/io/sha256.h"

namespace pushpull {

namespace {

constexpr char kMagic[] = "pushpull-record\n";
constexpr size_t kMagicBytes = sizeof(kMagic) - 1;
constexpr uint32_t kVersion = 1;
constexpr size_t kHeadBytes = kMagicBytes + sizeof(uint32_t) + sizeof(uint64_t);
constexpr size_t kSumBytes = 64;                   // hexadecimal
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;  // protobuf's own limit is 2 GiB
constexpr int kMaxServers = 100'000;
constexpr int kMaxStages = 1000;

[[noreturn]] void refuse_record(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kData, "[record] " + name + ": " + why);
}

std::string sum_of(const std::string& bytes, size_t count) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(bytes.data(), count)));
  return sha.hex();
}

template <typename Number>
void append(std::string& out, Number number) {
  for (size_t i = 0; i < sizeof number; ++i) {
    out.push_back(static_cast<char>(static_cast<uint64_t>(number) >> (8 * i) & 0xffU));
  }
}

template <typename Number>
Number number_at(const std::string& bytes, size_t at) {
  uint64_t out = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    out |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return static_cast<Number>(out);
}

// Adds with wrap-around, since values from a file may overflow.
int64_t plus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

int64_t minus(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

void to_columns(const std::vector<RecordedPush>& pushes, record::Pushes* out) {
  RecordedPush before;
  for (const RecordedPush& push : pushes) {
    before.reads.resize(push.reads.size());
    out->add_rank(push.rank);
    out->add_step(minus(push.step, before.step));
    out->add_lo(static_cast<uint32_t>(push.range.lo));
    out->add_hi(static_cast<uint32_t>(push.range.hi));
    for (size_t k = 0; k < push.reads.size(); ++k) {
      out->add_reads(minus(push.reads[k], before.reads[k]));
    }
    before = push;
  }
}

// reads: of a push.
std::vector<RecordedPush> from_columns(const record::Pushes& in, int64_t reads,
                                       const std::string& name) {
  const int count = in.rank_size();
  if (in.step_size() != count || in.lo_size() != count || in.hi_size() != count ||
      in.reads_size() != count * reads) {
    refuse_record(name, "its columns differ in length");
  }
  std::vector<RecordedPush> out;
  RecordedPush push;
  push.reads.assign(static_cast<size_t>(count > 0 ? reads : 0), 0);
  for (int i = 0; i < count; ++i) {
    push.rank = in.rank(i);
    push.step = plus(push.step, in.step(i));
    push.range = {in.lo(i), in.hi(i)};
    for (int64_t k = 0; k < reads; ++k) {
      int64_t& read = push.reads[static_cast<size_t>(k)];
      read = plus(read, in.reads(static_cast<int>(i * reads + k)));
    }
    if (push.range.lo >= push.range.hi || push.step < 0) {
      refuse_record(name, "push " + std::to_string(i) + " has no micro-batches or a negative step");
    }
    out.push_back(push);
  }
  return out;
}

record::Body to_body(const RunRecord& in) {
  record::Body out;
  out.set_ini(in.job_ini);
  out.set_numerics(in.numerics);
  out.set_choices(in.choices);
  out.set_data_digest(in.data_digest);
  out.set_table_sha256(in.table_sha256);
  out.set_servers(in.servers);
  if (in.stages > 1) out.set_stages(in.stages);
  out.set_total_steps(in.total_steps);
  out.mutable_start()->set_kind(static_cast<int>(in.start.kind));
  out.mutable_start()->set_step(in.start.step);
  out.mutable_start()->set_updates(in.start.updates);
  out.mutable_start()->set_weights_sha256(in.start.weights_sha256);
  out.mutable_start()->set_state_sha256(in.start.state_sha256);
  out.set_weights_sha256(in.weights_sha256);
  out.set_incomplete(in.incomplete);
  to_columns(in.pushes, out.mutable_pushes());
  if (in.failed) to_columns({*in.failed}, out.mutable_failed());
  std::vector<size_t> before(static_cast<size_t>(in.servers));
  for (size_t i = 0; i < in.updates.size(); ++i) {
    const RecordedUpdate& update = in.updates[i];
    size_t& last = before[static_cast<size_t>(update.server)];
    out.mutable_updates()->add_server(static_cast<uint32_t>(update.server));
    out.mutable_updates()->add_push(
        minus(static_cast<int64_t>(update.push), static_cast<int64_t>(last)));
    if (update.uncompensated) out.mutable_updates()->add_uncompensated(i);
    if (update.more) out.mutable_updates()->add_more(i);
    last = update.push;
  }
  return out;
}

void read_updates(const record::Updates& in, const std::string& name, RunRecord& out) {
  if (in.push_size() != in.server_size()) refuse_record(name, "its columns differ in length");
  std::vector<int64_t> before(static_cast<size_t>(out.servers));
  std::set<std::pair<int, size_t>> seen;
  for (int i = 0; i < in.server_size(); ++i) {
    const std::string what = "update " + std::to_string(i + 1);
    if (in.server(i) >= static_cast<uint32_t>(out.servers))
      refuse_record(name, what + " has no server");
    int64_t& push = before[in.server(i)];
    push = plus(push, in.push(i));
    if (push < 0 || push >= std::ssize(out.pushes)) refuse_record(name, what + " has no push");
    RecordedUpdate update{static_cast<int>(in.server(i)), static_cast<size_t>(push)};
    if (!seen.insert({update.server, update.push}).second) {
      refuse_record(name, what + " applies a push twice");
    }
    out.updates.push_back(update);
  }
  const auto named = [&](uint64_t number) -> RecordedUpdate& {
    if (number >= out.updates.size()) refuse_record(name, "it names updates that it does not hold");
    return out.updates[number];
  };
  for (const uint64_t number : in.uncompensated()) named(number).uncompensated = true;
  for (const uint64_t number : in.more()) named(number).more = true;
}

RunRecord from_body(const record::Body& in, const std::string& name) {
  RunRecord out;
  out.job_ini = in.ini();
  out.numerics = in.numerics();
  out.choices = in.choices();
  out.data_digest = in.data_digest();
  out.table_sha256 = in.table_sha256();
  out.servers = in.servers();
  out.stages = in.stages() == 0 ? 1 : in.stages();
  out.total_steps = in.total_steps();
  if (out.stages < 1 || out.stages > kMaxStages) {
    refuse_record(name, "it claims " + std::to_string(out.stages) + " stages");
  }
  if (out.servers < 1 || out.servers > kMaxServers || out.total_steps < 1) {
    refuse_record(name, "it claims " + std::to_string(out.servers) + " servers and " +
                            std::to_string(out.total_steps) + " steps");
  }
  if (in.start().kind() < 0 || in.start().kind() > 2 || in.start().step() < 0 ||
      in.start().updates() < 0) {
    refuse_record(name, "its start is invalid");
  }
  out.start = {static_cast<StartKind>(in.start().kind()), in.start().step(), in.start().updates(),
               in.start().weights_sha256(), in.start().state_sha256()};
  out.weights_sha256 = in.weights_sha256();
  out.incomplete = in.incomplete();
  const int64_t reads = int64_t{out.servers} * out.stages;
  out.pushes = from_columns(in.pushes(), reads, name);
  std::vector<RecordedPush> failed = from_columns(in.failed(), reads, name);
  if (failed.size() > 1) refuse_record(name, "more than one push has failed");
  if (!failed.empty()) out.failed = std::move(failed.front());
  read_updates(in.updates(), name, out);
  return out;
}

}  // namespace

std::string encode_record(const RunRecord& record) {
  const std::string body = to_body(record).SerializeAsString();
  std::string out(kMagic, kMagicBytes);
  append(out, kVersion);
  append(out, static_cast<uint64_t>(body.size()));
  out += body;
  return out + sum_of(out, out.size());
}

RunRecord decode_record(const std::string& bytes, const std::string& name) {
  if (bytes.compare(0, kMagicBytes, kMagic) != 0) refuse_record(name, "is not a record of a run");
  if (bytes.size() < kHeadBytes + kSumBytes) refuse_record(name, "is cut off");
  const auto version = number_at<uint32_t>(bytes, kMagicBytes);
  const auto length = number_at<uint64_t>(bytes, kMagicBytes + sizeof version);
  if (length != bytes.size() - kHeadBytes - kSumBytes) {
    refuse_record(name, "is cut off or altered: it has " + std::to_string(bytes.size()) +
                            " bytes, its head says " + std::to_string(length) + " + " +
                            std::to_string(kHeadBytes + kSumBytes));
  }
  const size_t summed = bytes.size() - kSumBytes;
  if (sum_of(bytes, summed) != bytes.substr(summed)) {
    refuse_record(name, "was altered: its SHA-256 differs from the one at its end");
  }
  if (version != kVersion) {
    refuse_record(name, "has format version " + std::to_string(version) + ", this program reads " +
                            std::to_string(kVersion));
  }
  record::Body body;
  if (!body.ParseFromArray(bytes.data() + kHeadBytes, static_cast<int>(length))) {
    refuse_record(name, "its body cannot be read");
  }
  return from_body(body, name);
}

void write_record(const std::string& path, const RunRecord& record) {
  const std::string bytes = encode_record(record);
  if (bytes.size() > kMaxBytes) {
    throw Error(ErrorCode::kIo, "[record] " + path + " would have " + std::to_string(bytes.size()) +
                                    " bytes, at most " + std::to_string(kMaxBytes) +
                                    " are possible");
  }
  const std::string temporary = path + ".tmp-" + std::to_string(getpid());
  try {
    OutputFile file(temporary);
    file.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
    file.finish();
    if (rename(temporary.c_str(), path.c_str()) != 0) throw_io_error("write", path, errno);
    const std::string folder = std::filesystem::path(path).parent_path().string();
    sync_folder(folder.empty() ? "." : folder);
  } catch (const Error&) {
    unlink(temporary.c_str());
    throw;
  }
}

RunRecord read_record(const std::string& path) {
  return decode_record(read_text_file(path, kMaxBytes), path);
}

}  // namespace pushpull
