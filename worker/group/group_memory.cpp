#include "worker/group/group_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/error.h"
#include "common/job/job.h"

namespace pushpull {

namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kSegmentSlack = int64_t{1} << 20;
constexpr size_t kMaxPools = 16;  // members send parts of a few sizes

}  // namespace

GroupMemory::GroupMemory(const Job& job, int64_t max_part_bytes)
    : wanted_(job.transport == Transport::kShm), max_part_bytes_(max_part_bytes) {
  if (!workers_share_memory(job)) return;
  pool_ = std::make_shared<SegmentPool>([wanted = wanted_](const std::string& why) {
    wanted ? Log("worker").warn(why) : Log("worker").info(why);
  });
  std::shared_ptr<float[]> probe = pool_->get(1);
  if (pool_->find(std::as_bytes(std::span(probe.get(), 1))).segment) probe_ = std::move(probe);
}

FloatAllocator GroupMemory::allocator() const {
  if (!lends()) return heap_floats;
  return [pool = pool_](size_t floats) {
    return floats * sizeof(float) < kLeastBytes ? heap_floats(floats) : pool->get(floats);
  };
}

void GroupMemory::begin(int64_t attempt, std::vector<GroupMember> members, int stage) {
  attempt_ = attempt;
  members_.clear();
  log_.rename("worker " + std::to_string(members[static_cast<size_t>(stage)].rank));
  for (GroupMember& member : members) members_.push_back({std::move(member), false, std::nullopt});
}

void GroupMemory::on_send(ToMember& out) const {
  const Member& member = members_[static_cast<size_t>(out.stage)];
  wire::Header& header = out.message.header;
  const bool maps = member.memory.has_value();
  if (header.has_stage_ask()) return header.mutable_stage_ask()->set_maps(maps);
  if (header.has_stage_arrived()) return header.mutable_stage_arrived()->set_maps(maps);
  wire::StagePart* part = header.mutable_stage_part();
  part->set_maps(maps);
  if (part->kind() == wire::StagePart::KIND_START) {
    if (!lends()) return;
    part->set_host(host_identity());
    *part->mutable_segment() =
        pool_->find(std::as_bytes(std::span(probe_.get(), 1))).segment->description();
    return;
  }
  const std::span<const std::byte> bytes = out.message.payloads.front().bytes;
  if (!member.maps || bytes.size() < kLeastBytes) return;
  const SegmentPool::Place place = pool_->find(bytes);
  if (!place.segment || place.offset % kAlignment != 0) return;
  *part->mutable_segment() = place.segment->description();
  part->set_offset(place.offset);
  part->set_bytes(std::ssize(bytes));
  out.message.payloads.clear();
}

bool GroupMemory::on_message(Message& message) {
  const wire::Header& header = message.header;
  const auto sender = [&](const auto& body) -> Member* {
    const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
      return body.attempt() == attempt_ && member.who.incarnation == body.sender().incarnation();
    });
    if (found == members_.end()) return nullptr;
    found->maps = lends() && body.maps();
    return &*found;
  };
  if (header.has_stage_ask()) sender(header.stage_ask());
  if (header.has_stage_arrived()) sender(header.stage_arrived());
  if (!header.has_stage_part()) return true;
  const wire::StagePart& part = header.stage_part();
  Member* const member = sender(part);
  if (member == nullptr || !part.has_segment()) return true;  // GroupParts refuses strangers
  try {
    if (part.kind() == wire::StagePart::KIND_START) {
      attach(*member, part);
    } else {
      fetch(*member, message);
    }
    return true;
  } catch (const Error& e) {
    if (part.kind() != wire::StagePart::KIND_START) ++rejected_;
    give_up(*member, e.what());
    return part.kind() == wire::StagePart::KIND_START;
  }
}

void GroupMemory::attach(Member& member, const wire::StagePart& start) const {
  if (!lends() || member.memory) return;
  const std::string difference = host_difference(start.host(), host_identity());
  if (!difference.empty()) throw Error(ErrorCode::kProtocol, difference);
  PeerMemory memory(max_part_bytes_ + kSegmentSlack);
  memory.map(start.segment());
  member.memory = std::move(memory);
}

Payload GroupMemory::copy(std::span<const std::byte> bytes) {
  const size_t size = bytes.size() / sizeof(float);
  if (copies_.size() >= kMaxPools && !copies_.contains(size)) copies_.clear();
  std::shared_ptr<float[]> floats = copies_.try_emplace(size, size).first->second.get();
  std::memcpy(floats.get(), bytes.data(), bytes.size());
  const auto* first = reinterpret_cast<const std::byte*>(floats.get());
  return {std::move(floats), {first, bytes.size()}};
}

void GroupMemory::fetch(Member& member, Message& message) {
  wire::StagePart* part = message.header.mutable_stage_part();
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::kProtocol, "[shm] " + why);
  };
  if (!member.memory) refuse("its memory is not attached");
  const std::span<const std::byte> whole = member.memory->map(part->segment()).bytes;
  const auto size = static_cast<int64_t>(whole.size());
  const int64_t bytes = part->bytes();
  if (bytes <= 0 || bytes > max_part_bytes_ || bytes % static_cast<int64_t>(sizeof(float)) != 0 ||
      part->offset() < 0 || part->offset() % kAlignment != 0 || part->offset() > size ||
      bytes > size - part->offset()) {
    refuse("a part of " + std::to_string(bytes) + " bytes at offset " +
           std::to_string(part->offset()) + " does not lie in a segment of " +
           std::to_string(size) + " bytes");
  }
  message.payloads.push_back(
      copy(whole.subspan(static_cast<size_t>(part->offset()), static_cast<size_t>(bytes))));
  part->clear_segment();
}

// From here on the messages to this member say so, and it sends parts as they are.
void GroupMemory::give_up(Member& member, const std::string& why) const {
  member.memory.reset();
  const auto stage = &member - members_.data();
  const std::string line = "memory of worker " + std::to_string(member.who.rank) + " (stage " +
                           std::to_string(stage) +
                           ") is not shared: " + why.substr(0, why.find('\n'));
  wanted_ ? log_.warn(line) : log_.info(line);
}

}  // namespace pushpull
