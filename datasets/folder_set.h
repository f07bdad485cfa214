// `folder`: images in folders of classes, as torchvision's ImageFolder reads them. Any thread.
#pragma once

#include <memory>
#include <string>

#include "common/job/job.h"
#include "datasets/dataset.h"

namespace pushpull {

// Opens `dir`/train/CLASS/... and `dir`/test/CLASS/... (or `dir`/val). Classes are the folders of train,
// numbered in the order of their names; samples are the files with names in .png, .jpg or .jpeg in a
// class's folder and below, in the order of folder, then name. A file is decoded when a sample is read,
// and made job.input (image_fit.h). The digest covers names and sizes of the files, not their pixels.
// Throws Error(kData) naming file or folder and the problem, and Error(kUsage) for keys that do not fit.
std::unique_ptr<Dataset> open_folder_set(const Job& job, const std::string& dir);

}  // namespace pushpull
