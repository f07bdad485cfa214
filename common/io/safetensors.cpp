#include "common/io/safetensors.h"
